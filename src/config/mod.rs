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

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::document::{Document, Problem, Problems, Section};
use crate::limits::Limits;
use crate::model::Name;
use crate::store;

use handlers::Handler;
use read::{Context, Declared};
use sources::Source;

pub use changes::read as secret_read;
pub use environment::Environment;
pub use providers::provider;
pub use resolve::Resolved;
pub use secrets::{CREDENTIALS, Reference, ReferenceError, SecretError};
pub use settings::Server;
pub use shown::{Shown, ShownHandler, ShownLimit, ShownReply, ShownSecret, ShownSource};
pub use signers::Endpoint;
pub use wanted::Described;

/// Everything the configuration says, checked; secrets are still references.
pub struct Config {
    file: String,
    server: Server,
    metrics: Option<SocketAddr>,
    store_path: PathBuf,
    limits: Limits,
    sources: Vec<Source>,
    handlers: Vec<Handler>,
    warnings: Vec<Problem>,
}

impl Config {
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

    /// Listens elsewhere, for deliveries only, and keeps the store elsewhere than the files say: for the
    /// demonstration, which takes a free port of this machine and a store of its own. What depends on
    /// the address is not checked again, so it must be a loopback one.
    pub fn moved_to(self, listen: SocketAddr, store_path: PathBuf) -> Config {
        let server = Server { listen, ..self.server };
        Config { server, metrics: None, store_path, ..self }
    }

    /// How many sources there are.
    pub fn source_count(&self) -> usize {
        self.sources.len()
    }

    /// How many handlers there are.
    pub fn handler_count(&self) -> usize {
        self.handlers.len()
    }
}

/// Reads the configuration at `path` and everything beside it. Reads no secret and no environment
/// and runs nothing; an `Err` has every problem found, sorted by file and position.
pub fn load(path: &Path) -> Result<Config, Vec<Problem>> {
    let problems = Problems::new();
    let config = read(path, &problems);
    let found = problems.into_sorted();
    match config {
        Some(config) if found.is_empty() => Ok(config),
        _ => Err(found),
    }
}

/// Where the store lies by the configuration at `path`, which may be wrong in everything else: to find
/// its receiver. Nothing where that cannot be told.
pub fn store_path(path: &Path) -> Option<PathBuf> {
    let problems = Problems::new();
    let folder = files::folder_of(path, &problems)?;
    let main = files::read(path, Limits::default().config_bytes, &problems)?;
    let whole = Document::parse(&main.name, &main.text, &problems).is_some();
    let document = Document::in_part(&main.name, &main.text);
    let root = document.root(&problems);
    // What is missing in the part that was understood may be written in the rest.
    let said = || root.section("storage").is_some_and(|section| section.has("path"));
    let known = whole || said();
    known.then(|| settings::read(Some(&root), &folder.absolute).store_path)
}

/// The sections that only the main file may have.
const MAIN_ONLY: [&str; 4] = ["server", "storage", "limits", "metrics"];

fn read(path: &Path, problems: &Problems) -> Option<Config> {
    let folder = files::folder_of(path, problems)?;
    let main = files::read(path, Limits::default().config_bytes, problems)?;
    let main_document = Document::parse(&main.name, &main.text, problems);
    let main_root = main_document.as_ref().map(|document| document.root(problems));
    let settings = settings::read(main_root.as_ref(), &folder.absolute);

    let dropped = files::read_folder(&folder.written.join("conf.d"), &settings.limits, problems);
    let parse = |file| -> Option<Document<'_>> { parse(file, problems) };
    let documents: Vec<_> = dropped.texts.iter().filter_map(parse).collect();
    let roots = documents.iter().map(|document| document.root(problems)).inspect(main_only);
    let roots: Vec<_> = main_root.into_iter().chain(roots).collect();
    // Where a file is missing here, a name that seems missing may stand in it.
    let complete = dropped.complete && roots.len() == dropped.texts.len() + 1;

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

    check::paths(&sources, problems);
    check::settings(&settings, &sources, problems);
    check::replies(&settings, &sources, &handlers, problems);
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    let warnings = warnings::general(&main.name, &settings, &sources, catalogue.warnings);
    Some(Config {
        file: main.name.clone(),
        server: settings.server,
        metrics: settings.metrics.map(|listen| listen.value),
        store_path: settings.store_path,
        limits: settings.limits,
        sources,
        handlers,
        warnings,
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
