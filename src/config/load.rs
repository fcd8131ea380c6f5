//! Reads the files, and reports every problem at once.

use std::collections::BTreeSet;
use std::path::Path;

use crate::document::{Document, Fault, Problem, Problems, Section};
use crate::model::Name;

use super::configuration::Config;
use super::read::{Context, Declared};
use super::sources::Source;
use super::{check, cluster, database, files, handlers, providers, settings, sources, warnings};

/// Reads the configuration at `path`, and the folders `conf.d` and `providers` in its folder. Does not read
/// secrets or the environment. An `Err` has every problem, sorted by file and position.
pub fn load(path: &Path) -> Result<Config, Vec<Problem>> {
    let config = load_in_part(path)?;
    if config.mistakes.is_empty() { Ok(config) } else { Err(config.mistakes) }
}

/// Reads as much as possible, for a command that needs only the store's path. The problems are the
/// [mistakes](Config::mistakes) of the result, or an `Err` if because of them the path may be another one.
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

/// Whether the problems leave in doubt which store the main file names.
fn hides_the_store(found: &[Problem], understood: &Config) -> bool {
    let path = understood.settings.places.get(settings::STORE_PATH);
    let is_of_database = |problem: &Problem| database::KEYS.contains(&problem.key.as_str());
    if understood.settings.has_url && found.iter().any(is_of_database) {
        return true;
    }
    let may_name_one = |problem: &Problem| match path {
        // An unterminated string, or the second of two paths.
        Some(at) => problem.line == at.line() || problem.message.contains("duplicate key"),
        // A syntax error, an unknown table, or a problem in this one.
        None => match problem.key.split_once('.') {
            Some((table, _)) => table == "storage",
            None => problem.key != "dashboard",
        },
    };
    found.iter().any(|problem| problem.file == understood.file && may_name_one(problem))
}

/// The sections that only the main file may have.
const MAIN_ONLY: [&str; 6] = ["server", "storage", "node", "limits", "metrics", "dashboard"];

fn read(path: &Path, problems: &Problems) -> Option<Config> {
    // As the operator wrote it, for messages; relative paths in the configuration begin in the absolute one.
    let written = path.parent().unwrap_or(Path::new(""));
    let folder = files::absolute(written, problems)?;
    let main = files::read_main(path, problems)?;
    let whole = Document::parse(&main.name, &main.text, problems);
    let main_is_whole = whole.is_some();
    let main_document = whole.unwrap_or_else(|| Document::in_part(&main.name, &main.text));
    // If the main file has a syntax error, only that is reported, because the rest may follow from it.
    let ignored = Problems::new();
    let of_main = if main_is_whole { problems } else { &ignored };
    let main_root = main_document.root(of_main);
    let settings = settings::read(&main_root, &folder);

    let dropped = files::read_folder(&written.join("conf.d"), problems);
    let texts = dropped.texts.iter();
    let documents: Vec<_> =
        texts.filter_map(|file| Document::parse(&file.name, &file.text, problems)).collect();
    let roots = documents.iter().map(|document| document.root(problems)).inspect(main_only);
    let roots: Vec<_> = std::iter::once(main_root).chain(roots).collect();
    // A name that seems to be missing may be in a file that could not be read.
    let complete = main_is_whole && dropped.complete && roots.len() == dropped.texts.len() + 1;

    let unwise = Problems::new();
    let providers = written.join("providers");
    let catalogue = providers::read(&providers, problems, &unwise);
    let (source_names, source_sections) = named(&roots, "sources", "source");
    let (_, handler_sections) = named(&roots, "handlers", "handler");
    let context = Context {
        folder: &folder,
        limits: &settings.limits,
        has_url: settings.has_url,
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
    cluster::check(&settings, of_main);
    check::replies(&settings, &sources, &handlers, of_main);
    check::signing(&sources, &handlers, of_main);
    // A source that could not be read may keep the header.
    if sources.len() == source_names.len() {
        check::headers(&sources, &handlers, of_main);
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    warnings::general(&main.name, &settings, &sources, &unwise);
    Some(Config {
        file: main.name.clone(),
        settings,
        sources,
        handlers,
        warnings: unwise.into_sorted(),
        mistakes: Vec::new(),
    })
}

/// Reports the sections that a file in `conf.d` cannot have.
fn main_only(root: &Section<'_>) {
    for key in MAIN_ONLY {
        let message = format!("[{key}] belongs in the main configuration file");
        root.refuse(key, &message, "files in conf.d hold sources and handlers only");
    }
}

/// The tables under `key` of every file with valid names, and the first position of each name.
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
                    let message = format!("{kind} '{name}' is also at {other}");
                    section.problem(Fault::new(message, "give it another name"));
                } else {
                    declared.insert(name.clone(), section.here());
                }
                all.push((name, section));
            }
            Err(wrong) => section.problem(wrong.to_string()),
        }
    }
    (declared, all)
}
