//! The configuration: files in, the structs that the other modules are built from out.
//!
//! Two steps, so that a file can be judged without the machine it is for. [`load`] reads
//! `hooklatch.toml`, `conf.d/*.toml` and `providers/*.toml` beside it and reports every problem at
//! once; [`Config::resolve`] reads the secrets and the environment. Layers 4 and 5 call this, and
//! nobody below imports it. In a [`Config`] every value is in its range, every name it mentions is
//! there, and no secret stands in it.

mod changes;
mod check;
mod commands;
mod environment;
mod files;
mod handlers;
mod providers;
mod read;
mod replies;
mod resolve;
mod secrets;
mod settings;
mod shown;
mod signers;
mod sources;
mod variables;
mod wanted;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::document::{At, Document, Problem, Problems, Section};
use crate::limits::Limits;
use crate::model::Name;
use crate::store;

pub(crate) use handlers::Handler;
pub(crate) use settings::limit_rows;
pub(crate) use shown::duration_text;
pub(crate) use sources::Source;

use read::{Context, Declared};

pub use changes::read as secret_read;
pub use environment::Environment;
pub use files::NO_CONFIGURATION;
pub use providers::provider;
pub use resolve::Resolved;
pub use secrets::{CREDENTIALS, Reference, ReferenceError, SecretError};
pub use settings::{LimitRow, Server};
pub use signers::{CannotSign, Endpoint};

/// Everything the configuration says, checked; secrets are still references.
#[derive(Serialize)]
pub struct Config {
    #[serde(skip)]
    file: String,
    #[serde(flatten)]
    server: Server,
    metrics: Option<SocketAddr>,
    #[serde(rename = "store")]
    store_path: PathBuf,
    pub(crate) sources: Vec<Source>,
    pub(crate) handlers: Vec<Handler>,
    #[serde(serialize_with = "settings::all_limits")]
    limits: Limits,
    /// The place of each of these settings that is written, by its dotted key.
    #[serde(skip)]
    places: BTreeMap<String, At>,
    #[serde(skip)]
    warnings: Vec<Problem>,
    #[serde(skip)]
    mistakes: Vec<Problem>,
}

impl Config {
    /// The mistakes in the files: nothing after [`load`]. Where there is something, sources, handlers
    /// and limits may be missing or at their defaults; the store's path never is ([`load_in_part`]).
    pub fn mistakes(&self) -> &[Problem] {
        &self.mistakes
    }

    /// The main file, as messages name it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What `[server]` says.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where metrics are read, if anywhere.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// What the store is opened with.
    pub fn store(&self) -> store::Settings {
        store::Settings { path: self.store_path.clone(), limits: self.limits.clone() }
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn source(&self, name: &Name) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == *name)
    }

    pub(crate) fn handler(&self, name: &Name) -> Option<&Handler> {
        self.handlers.iter().find(|handler| handler.name == *name)
    }

    pub fn source_count(&self) -> usize {
        self.sources.len()
    }

    pub fn handler_count(&self) -> usize {
        self.handlers.len()
    }
}

/// Reads the configuration at `path` and everything beside it. Reads no secret and no environment
/// and runs nothing; an `Err` has every problem found, sorted by file and position.
pub fn load(path: &Path) -> Result<Config, Vec<Problem>> {
    let problems = Problems::new();
    let read = read(path, &problems);
    let found = problems.into_sorted();
    match read {
        Some(config) if found.is_empty() => Ok(config),
        _ => Err(found),
    }
}

/// The same for a command that needs the store alone: what could be understood, with its
/// [mistakes](Config::mistakes). An `Err`, as of [`load`], where they leave in doubt which store is meant.
pub fn load_in_part(path: &Path) -> Result<Config, Vec<Problem>> {
    let problems = Problems::new();
    let read = read(path, &problems);
    let found = problems.into_sorted();
    match read {
        Some(config) if !hides_the_store(&found, &config) => {
            Ok(Config { mistakes: found, ..config })
        }
        _ => Err(found),
    }
}

/// Whether the main file may mean another store than the one that was understood.
fn hides_the_store(found: &[Problem], understood: &Config) -> bool {
    let may_name_one = |problem: &Problem| match understood.places.get(settings::STORE_PATH) {
        // Half a string, or the second of two paths.
        Some(at) => problem.line == at.line() || problem.message.contains("duplicate key"),
        // A syntax error, an unknown table, or something wrong in this one.
        None => !problem.key.contains('.') || problem.key.starts_with("storage."),
    };
    found.iter().any(|problem| problem.file == understood.file && may_name_one(problem))
}

/// The sections that only the main file may have.
const MAIN_ONLY: [&str; 4] = ["server", "storage", "limits", "metrics"];

/// The configuration as far as it can be understood.
fn read(path: &Path, problems: &Problems) -> Option<Config> {
    let folder = files::folder_of(path, problems)?;
    let main = files::read_main(path, problems)?;
    let whole = Document::parse(&main.name, &main.text, problems);
    let main_is_whole = whole.is_some();
    let main_document = whole.unwrap_or_else(|| Document::in_part(&main.name, &main.text));
    // Of a broken main file its syntax error is reported, and nothing that may follow from it.
    let ignored = Problems::new();
    let of_main = if main_is_whole { problems } else { &ignored };
    let main_root = main_document.root(of_main);
    let settings = settings::read(Some(&main_root), &folder.absolute);

    let dropped = files::read_folder(&folder.written.join("conf.d"), &settings.limits, problems);
    let parse = |file| -> Option<Document<'_>> { parse(file, problems) };
    let documents: Vec<_> = dropped.texts.iter().filter_map(parse).collect();
    let roots = documents.iter().map(|document| document.root(problems)).inspect(main_only);
    let roots: Vec<_> = std::iter::once(main_root).chain(roots).collect();
    // Where a file is missing here, a name that seems missing may stand in it.
    let complete = main_is_whole && dropped.complete && roots.len() == dropped.texts.len() + 1;

    let catalogue = providers::read(&folder.written.join("providers"), &settings.limits, problems);
    let (source_names, source_sections) = named(&roots, "sources", "source");
    let (_, handler_sections) = named(&roots, "handlers", "handler");
    let context = Context {
        folder: &folder.absolute,
        limits: &settings.limits,
        catalogue: &catalogue,
        sources: complete.then_some(&source_names),
        replying: &BTreeSet::new(),
    };
    let mut sources = Vec::new();
    for (name, section) in source_sections {
        sources.extend(sources::read(&name, section, &context));
    }
    let replying = sources.iter().filter(|source: &&Source| source.replies.is_some());
    let replying = replying.map(|source| source.name.to_string()).collect();
    let context = Context { replying: &replying, ..context };
    let mut handlers = Vec::new();
    for (name, section) in handler_sections {
        handlers.extend(handlers::read(&name, section, &context));
    }
    roots.into_iter().for_each(Section::finish);

    check::paths(&sources, of_main);
    check::settings(&settings, &sources, of_main);
    check::replies(&settings, &sources, &handlers, of_main);
    check::signing(&sources, &handlers, of_main);
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    let warnings = warnings::general(&main.name, &settings, &sources, catalogue.warnings);
    Some(Config {
        file: main.name.clone(),
        server: settings.server,
        metrics: settings.metrics,
        store_path: settings.store_path,
        limits: settings.limits,
        places: settings.places,
        sources,
        handlers,
        warnings,
        mistakes: Vec::new(),
    })
}

fn parse<'t>(file: &'t files::Text, problems: &Problems) -> Option<Document<'t>> {
    Document::parse(&file.name, &file.text, problems)
}

/// A file in `conf.d` adds sources and handlers; what holds for all of them has one place.
fn main_only(root: &Section<'_>) {
    for key in MAIN_ONLY {
        if let Some(at) = root.place_of(key) {
            let message = format!("[{key}] belongs in the main configuration file");
            let help = "files in conf.d hold sources and handlers only".to_owned();
            root.problems().push(at.problem(message, Some(help)));
        }
    }
}

/// The tables of every file under `key` whose names are good, and where each name stands first.
fn named<'d>(
    roots: &[Section<'d>],
    key: &'static str,
    kind: &str,
) -> (Declared, Vec<(Name, Section<'d>)>) {
    let mut declared = Declared::new();
    let mut all = Vec::new();
    for (text, section) in roots.iter().flat_map(|root| root.sections(key)) {
        match text.parse::<Name>() {
            Ok(name) => {
                if let Some(other) = declared.get(&name) {
                    let message = format!("{kind} '{name}' is also at {}", other.position());
                    section.problem(message, Some("give it another name".to_owned()));
                } else {
                    declared.insert(name.clone(), section.here());
                }
                all.push((name, section));
            }
            Err(wrong) => section.problem(wrong.to_string(), None),
        }
    }
    (declared, all)
}

#[cfg(test)]
mod tests;
