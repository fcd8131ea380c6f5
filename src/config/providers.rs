//! The providers that a source can name: the built-in ones and the files in `providers/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::document::{Problem, Problems};
use crate::model::ReplayGuard;
use crate::provider::{NAMES, Scheme};

use super::files;

pub(super) struct Catalogue {
    /// Those of files.
    own: BTreeMap<String, Arc<Scheme>>,
    /// Whether every file was understood; if not, a name that seems missing may be in another file.
    complete: bool,
}

/// The providers of `folder`. A file wins over a built-in provider of the same name, so that a new version with that
/// provider built in does not change a source that uses the file.
pub(super) fn read(folder: &Path, problems: &Problems, warnings: &Problems) -> Catalogue {
    let mut own: BTreeMap<String, Arc<Scheme>> = BTreeMap::new();
    let mut from: BTreeMap<String, String> = BTreeMap::new();
    let files = files::read_folder(folder, problems);
    let mut complete = files.complete;
    for file in files.texts {
        let Some(scheme) = Scheme::parse(&file.name, &file.text, problems) else {
            complete = false;
            continue;
        };
        let name = scheme.name().to_owned();
        if scheme.signs_id() && scheme.guard != ReplayGuard::Off {
            let message = "[replay] has no effect: the signature covers the event id";
            warnings.push(Problem::of_file(&file.name, message));
        }
        if let Some(other) = from.insert(name.clone(), file.name.clone()) {
            let message = format!("provider '{name}' is also in {other}");
            problems.push(Problem::of_file(&file.name, message));
        }
        if Scheme::embedded_names().any(|known| known == name) {
            let message = format!("replaces the built-in provider '{name}'");
            warnings.push(Problem::of_file(file.name, message));
        }
        own.insert(name, Arc::new(scheme));
    }
    Catalogue { own, complete }
}

/// The provider that a source of the configuration at `main` gets by this name. An `Err` explains why the
/// name is unknown.
pub fn provider(main: &Path, name: &str) -> Result<Arc<Scheme>, String> {
    let problems = Problems::new();
    let folder = main.parent().unwrap_or(Path::new("")).join("providers");
    let catalogue = read(&folder, &problems, &Problems::new());
    catalogue.get(name).map_err(|help| {
        let broken: Vec<String> = problems.into_sorted().iter().map(ToString::to_string).collect();
        let help = help.unwrap_or_else(|| broken.join("\n"));
        format!("there is no provider '{name}': {help}")
    })
}

impl Catalogue {
    /// The provider called `name`. `Err` has the help; `None` if a file could not be read, which is reported
    /// already.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Scheme>, Option<String>> {
        if let Some(scheme) = self.own.get(name) {
            return Ok(Arc::clone(scheme));
        }
        if let Some(scheme) = Scheme::embedded(name) {
            return Ok(Arc::new(scheme));
        }
        if !self.complete {
            return Err(None);
        }
        // One different letter is a typing error; a larger difference is another company.
        let slip = |known: &&str| strsim::damerau_levenshtein(name, known) <= 1;
        let built_in = Scheme::embedded_names().find(slip);
        let near = built_in.or_else(|| self.own.keys().map(String::as_str).find(slip));
        Err(Some(match near {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!(
                "it can be described in providers/{name}.toml (docs/providers.md, \"A provider file\"); {NAMES}"
            ),
        }))
    }
}
