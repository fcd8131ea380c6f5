//! The environment that a unit has, as far as a shell can see it.

use std::path::Path;

use crate::config::{CREDENTIALS, Environment};

/// The environment of a unit whose credentials are the files in `folder`, next to the configuration. A shell has
/// no credentials.
pub(super) fn of_unit(environment: &Environment, path: &Path, folder: &str) -> Environment {
    let folder = path.with_file_name(folder);
    match environment.get(CREDENTIALS).is_none() && folder.is_dir() {
        true => environment.clone().with(CREDENTIALS, folder),
        false => environment.clone(),
    }
}
