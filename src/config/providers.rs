//! The providers that a source can name: the built-in ones and the files in `providers/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::document::{Problem, Problems};
use crate::model::ReplayGuard;
use crate::provider::Scheme;

use super::files;

pub(super) struct Catalogue {
    schemes: BTreeMap<String, Arc<Scheme>>,
    /// Whether every file was understood; if not, a name that seems missing may be in another file.
    complete: bool,
}

/// The built-in providers and those of `folder`. A file wins over a built-in provider of the same
/// name, so that a new version with that provider built in does not change a source that uses the file.
pub(super) fn read(folder: &Path, problems: &Problems, warnings: &Problems) -> Catalogue {
    let built_in = Scheme::embedded_names();
    let mut schemes: BTreeMap<_, _> = built_in
        .filter_map(|name| Some((name.to_owned(), Arc::new(Scheme::embedded(name)?))))
        .collect();
    let mut own: BTreeMap<String, String> = BTreeMap::new();
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
        if let Some(other) = own.insert(name.clone(), file.name.clone()) {
            let message = format!("provider '{name}' is also in {other}");
            problems.push(Problem::of_file(&file.name, message));
        }
        if schemes.insert(name.clone(), Arc::new(scheme)).is_some() {
            let message = format!("replaces the built-in provider '{name}'");
            warnings.push(Problem::of_file(file.name, message));
        }
    }
    Catalogue { schemes, complete }
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
        if let Some(scheme) = self.schemes.get(name) {
            return Ok(Arc::clone(scheme));
        }
        if !self.complete {
            return Err(None);
        }
        // One different letter is a typing error; a larger difference is another company.
        let slip = |known: &&String| strsim::damerau_levenshtein(name, known) <= 1;
        Err(Some(match self.schemes.keys().find(slip) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!(
                "it can be described in providers/{name}.toml (docs/providers.md, \"A provider file\"); {}",
                self.names()
            ),
        }))
    }

    /// A sentence with the name of every provider.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.schemes.keys().map(String::as_str).collect();
        format!("the providers are: {}", names.join(", "))
    }
}
