//! `hooklatch config check`: everything that is wrong with a configuration, before it is used.
//!
//! For receiver and runner together: it reads every secret and looks for every command. Run it as the
//! user that they run as, or permissions say nothing.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::{self, Part};
use crate::config::{self, CREDENTIALS, Config, Environment};
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::model::RunnerName;

use super::output::count;
use super::{orphans, owner};

/// Checks the configuration at `path` and writes what was found, as lines for people or as one JSON
/// object. True where nothing is wrong; warnings are not wrong. Looks at no store.
pub fn run(
    path: &Path,
    environment: &Environment,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    check(path, environment, &Half::Both, json, |_| Vec::new(), out)
}

/// The same for one process or both, and asks the store for jobs that this configuration would orphan.
pub(super) fn run_with_store(args: &cli::ConfigCheck) -> Result<Exit, Failure> {
    let path = args.path.as_ref().unwrap_or(&args.file.config);
    let half = match args.part {
        None => Half::Both,
        Some(Part::Receiver) => Half::Receiver,
        Some(Part::Runner) => Half::Runner(args.name.clone()),
    };
    let (environment, mut out) = (Environment::capture(), anstream::stdout().lock());
    let in_store = |config: &Config| of_machine(path, config);
    let good = check(path, &environment, &half, args.format.json, in_store, &mut out)?;
    Ok(if good { Exit::Ok } else { Exit::Config })
}

/// What only the store and its folder show.
fn of_machine(path: &Path, config: &Config) -> Vec<Problem> {
    let store = config.store().path;
    let mut found = Vec::new();
    let mut warn = |message: String, help: &str| {
        found.push(orphans::whole(path, message, help.to_owned()));
    };
    if !config.runners().is_empty() && owner::is_root_alone(&store) {
        warn(owner::AS_ROOT.to_owned(), owner::NOT_AS_ROOT);
    }
    if let Some(folder) = store.parent().filter(|folder| !folder.exists()) {
        warn(
            format!("the store's folder {} does not exist: serve will not start", folder.display()),
            "create it, owned by the receiver's user, mode 0700 (its systemd unit makes /var/lib/hooklatch)",
        );
    }
    found.extend(orphans::find(path, config));
    found
}

/// Whose part of the configuration is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Half {
    /// The receiver's and the default runner's: those of other runners may be for other users' eyes.
    Both,
    /// The receiver's.
    Receiver,
    /// A runner's.
    Runner(RunnerName),
}

impl Half {
    /// What keeps its processes from having all that the configuration at `path` refers to.
    pub(super) fn problems(
        &self,
        config: &Config,
        path: &Path,
        environment: &Environment,
    ) -> Vec<Problem> {
        match self {
            Half::Both => {
                let (secrets, others) = ("secrets", "runner-secrets");
                let runner = Half::Runner(RunnerName::default());
                let mut problems =
                    Half::Receiver.problems(config, path, &of_unit(environment, path, secrets));
                problems.extend(runner.problems(config, path, &of_unit(environment, path, others)));
                problems
            }
            Half::Receiver => config.unresolved_sources(environment),
            Half::Runner(name) => {
                let mut problems = config.unresolved_commands(environment, name);
                problems.extend(config.check_commands(environment, name));
                problems
            }
        }
    }

    /// What its processes can live with.
    fn warnings(&self, config: &Config, path: &Path, environment: &Environment) -> Vec<Problem> {
        match self {
            Half::Both => config.secret_warnings(&of_unit(environment, path, "secrets")),
            Half::Receiver => config.secret_warnings(environment),
            Half::Runner(_) => Vec::new(),
        }
    }
}

/// The environment of a unit whose credentials lie in `folder` beside the configuration: a shell has
/// none of its own.
pub(super) fn of_unit(environment: &Environment, path: &Path, folder: &str) -> Environment {
    let folder = path.with_file_name(folder);
    match environment.get(CREDENTIALS).is_none() && folder.is_dir() {
        true => environment.clone().with(CREDENTIALS, folder),
        false => environment.clone(),
    }
}

/// `in_store`: the warnings that only the store can tell.
fn check(
    path: &Path,
    environment: &Environment,
    half: &Half,
    json: bool,
    in_store: impl FnOnce(&Config) -> Vec<Problem>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let (config, problems) = match config::load(path) {
        Ok(config) => {
            let problems = half.problems(&config, path, environment);
            (Some(config), problems)
        }
        Err(problems) => (None, problems),
    };
    let mut warnings = Vec::new();
    if let Some(config) = &config {
        warnings.extend(config.warnings());
        warnings.extend(half.warnings(config, path, environment));
        warnings.extend(config.other_runners());
        warnings.extend(in_store(config));
    }
    if json {
        write_json(path, config.as_ref(), &problems, &warnings, out)?;
    } else {
        write_text(path, config.as_ref(), &problems, &warnings, out)?;
    }
    Ok(problems.is_empty())
}

fn write_text(
    path: &Path,
    config: Option<&Config>,
    problems: &[Problem],
    warnings: &[Problem],
    out: &mut dyn Write,
) -> io::Result<()> {
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    for problem in problems {
        writeln!(out, "error: {problem}")?;
    }
    let file = path.display();
    match config {
        Some(config) if problems.is_empty() => {
            let sources = count(config.source_count() as u64, "source");
            let handlers = count(config.handler_count() as u64, "handler");
            writeln!(out, "{file}: ok ({sources}, {handlers})")
        }
        _ => writeln!(out, "{file}: {}", count(problems.len() as u64, "error")),
    }
}

fn write_json(
    path: &Path,
    config: Option<&Config>,
    problems: &[Problem],
    warnings: &[Problem],
    out: &mut dyn Write,
) -> io::Result<()> {
    let list = |all: &[Problem]| all.iter().map(problem_json).collect::<Vec<_>>();
    let report = json!({
        "file": path.display().to_string(),
        "ok": problems.is_empty(),
        "sources": config.map(Config::source_count),
        "handlers": config.map(Config::handler_count),
        "errors": list(problems),
        "warnings": list(warnings),
    });
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

/// A place that is the whole file has no line, and a problem without a key no key: both are null.
fn problem_json(problem: &Problem) -> Value {
    json!({
        "file": problem.file,
        "line": (problem.line > 0).then_some(problem.line),
        "column": (problem.line > 0).then_some(problem.column),
        "key": (!problem.key.is_empty()).then_some(problem.key.as_str()),
        "message": problem.message,
        "help": problem.help,
    })
}
