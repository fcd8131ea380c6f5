//! The providers that a source can name: the built-in ones and the files in `providers/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::document::{Problem, Problems};
use crate::model::ReplayGuard;
use crate::provider::Scheme;

use super::files;

pub(super) struct Catalogue {
    /// The schemes of files, by name.
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
        let Some(scheme) = provider_file(&file.name, &file.text, problems, warnings) else {
            complete = false;
            continue;
        };
        let name = scheme.name().to_owned();
        if let Some(other) = from.insert(name.clone(), file.name.clone()) {
            let message = format!("provider '{name}' is also in {other}");
            problems.push(Problem::of_file(&file.name, message));
        }
        own.insert(name, Arc::new(scheme));
    }
    Catalogue { own, complete }
}

/// Reads one of the operator's files. `file` is the name that problems and warnings give.
pub fn provider_file(
    file: &str,
    text: &str,
    problems: &Problems,
    warnings: &Problems,
) -> Option<Scheme> {
    let scheme = Scheme::parse(file, text, problems)?;
    if scheme.proof().covers_id() && scheme.identity().guard != ReplayGuard::Off {
        let message = "[replay] has no effect: the signature covers the event id";
        warnings.push(Problem::of_file(file, message));
    }
    if Scheme::embedded_names().any(|known| known == scheme.name()) {
        let message = format!("replaces the built-in provider '{}'", scheme.name());
        warnings.push(Problem::of_file(file, message));
    }
    Some(scheme)
}

/// The folder of the operator's files for the configuration at `main`.
fn folder(main: &Path) -> PathBuf {
    main.parent().unwrap_or(Path::new("")).join("providers")
}

/// Every provider that a source of the configuration at `main` can name, sorted by name, and whether it is
/// from a file of the operator; also the mistakes in these files.
pub fn providers(main: &Path) -> (Vec<(Arc<Scheme>, bool)>, Vec<Problem>) {
    let problems = Problems::new();
    let own = read(&folder(main), &problems, &Problems::new()).own;
    let built_in = Scheme::embedded_names().filter(|name| !own.contains_key(*name));
    let built_in = built_in.filter_map(Scheme::embedded).map(|scheme| (Arc::new(scheme), false));
    let mut all: Vec<_> = built_in.collect();
    all.extend(own.into_values().map(|scheme| (scheme, true)));
    all.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    (all, problems.into_sorted())
}

/// The provider that a source of the configuration at `main` gets by this name. An `Err` explains why the
/// name is unknown.
pub fn provider(main: &Path, name: &str) -> Result<Arc<Scheme>, String> {
    let problems = Problems::new();
    let catalogue = read(&folder(main), &problems, &Problems::new());
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
        Err(Some(Scheme::help(name, self.own.keys().map(String::as_str))))
    }
}
