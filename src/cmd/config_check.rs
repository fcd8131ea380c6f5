//! `hooklatch config check`: reports every problem of a configuration before it is used.
//!
//! It checks for receiver and runner together: it reads every secret and looks for every command. Only if it runs
//! as their user does it find missing permissions.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::{self, Part};
use crate::config::{self, Config, Environment};
use crate::document::{Fault, Problem};
use crate::exit::{Exit, Failure};
use crate::model::RunnerName;

use super::of_unit::of_unit;
use super::output::count;
use super::{orphans, owner, unseen};

/// Checks the configuration at `path` and writes its problems, as lines for people or as one JSON object. True
/// if there are only warnings. Does not ask the store.
pub fn run(
    path: &Path,
    environment: &Environment,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    check(path, environment, &Half::Both, json, |_| Vec::new(), out)
}

/// Like [`run`], for one process or both. Also asks the store for jobs that this configuration would orphan.
pub(super) fn run_with_store(args: &cli::ConfigCheck) -> Result<Exit, Failure> {
    let path = args.path.as_deref().unwrap_or(args.options.config());
    let half = match args.part {
        None => Half::Both,
        Some(Part::Receiver) => Half::Receiver,
        Some(Part::Runner) => Half::Runner(args.name.clone()),
    };
    let (environment, mut out) = (Environment::capture(), anstream::stdout().lock());
    let in_store = |config: &Config| of_machine(path, config);
    let good = check(path, &environment, &half, args.options.json(), in_store, &mut out)?;
    Ok(if good { Exit::Ok } else { Exit::Config })
}

/// The warnings that only the store and its folder show.
fn of_machine(path: &Path, config: &Config) -> Vec<Problem> {
    let store = config.store().path;
    let mut found = Vec::new();
    let mut warn = |message: String, help: &str| {
        found.push(Problem::of_file(path.display().to_string(), Fault::new(message, help)));
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
    found.extend(unseen::find(config));
    found
}

/// The processes whose part of the configuration is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Half {
    /// The receiver and the default runner. Other runners may belong to other users.
    Both,
    Receiver,
    Runner(RunnerName),
}

impl Half {
    /// Everything that the configuration at `path` refers to and that the processes cannot read or run.
    pub(super) fn problems(
        &self,
        config: &Config,
        path: &Path,
        environment: &Environment,
    ) -> Vec<Problem> {
        match self {
            Half::Both => {
                let (receiver, runner) = (Half::Receiver, Half::Runner(RunnerName::default()));
                let parts = [(receiver, "secrets"), (runner, "runner-secrets")];
                let problems = parts.iter().map(|(half, folder)| {
                    half.problems(config, path, &of_unit(environment, path, folder))
                });
                let of_ui = of_unit(environment, path, "ui-secrets");
                let of_dashboard = config.dashboard_access(&of_ui).err().unwrap_or_default();
                problems.chain([of_dashboard]).collect::<Vec<_>>().concat()
            }
            Half::Receiver => config.resolve(environment).err().unwrap_or_default(),
            Half::Runner(name) => {
                let unresolved =
                    config.resolve_commands(environment, name).err().unwrap_or_default();
                [unresolved, config.check_commands(environment, name)].concat()
            }
        }
    }

    /// Problems that do not keep the processes from starting.
    fn warnings(&self, config: &Config, path: &Path, environment: &Environment) -> Vec<Problem> {
        match self {
            Half::Both => config.secret_warnings(&of_unit(environment, path, "secrets")),
            Half::Receiver => config.secret_warnings(environment),
            Half::Runner(_) => Vec::new(),
        }
    }
}

/// How many sources and handlers are configured.
pub(super) fn contents(config: &Config) -> String {
    let sources = count(config.sources.len() as u64, "source");
    let handlers = count(config.handlers.len() as u64, "handler");
    format!("{sources}, {handlers}")
}

/// A problem for programs. One with the whole file has no line, and one without a key has no key: both are null.
pub(super) fn as_json(problem: &Problem) -> Value {
    json!({
        "file": problem.file,
        "line": (problem.line > 0).then_some(problem.line),
        "column": (problem.line > 0).then_some(problem.column),
        "key": (!problem.key.is_empty()).then_some(problem.key.as_str()),
        "message": problem.message,
        "help": problem.help,
    })
}

/// Writes problems for people.
pub(super) fn lines(
    warnings: &[Problem],
    problems: &[Problem],
    out: &mut dyn Write,
) -> io::Result<()> {
    for warning in warnings {
        writeln!(out, "warning: {warning}")?;
    }
    problems.iter().try_for_each(|problem| writeln!(out, "error: {problem}"))
}

/// `in_store` returns the warnings that only the store shows.
fn check(
    path: &Path,
    environment: &Environment,
    half: &Half,
    json: bool,
    in_store: impl FnOnce(&Config) -> Vec<Problem>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let loaded = config::load(path);
    // First, because `in_store` may give up root, which alone can read the secrets of a unit.
    let (config, problems) = match &loaded {
        Ok(config) => (Some(config), half.problems(config, path, environment)),
        Err(problems) => (None, problems.clone()),
    };
    let mut warnings = Vec::new();
    if let Some(config) = config {
        warnings.extend(config.warnings());
        warnings.extend(half.warnings(config, path, environment));
        warnings.extend(config.other_runners());
        warnings.extend(in_store(config));
    }
    let file = path.display();
    if json {
        let list = |all: &[Problem]| all.iter().map(as_json).collect::<Vec<_>>();
        let report = json!({
            "file": file.to_string(),
            "ok": problems.is_empty(),
            "sources": config.map(|config| config.sources.len()),
            "handlers": config.map(|config| config.handlers.len()),
            "errors": list(&problems),
            "warnings": list(&warnings),
        });
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
        return Ok(problems.is_empty());
    }
    lines(&warnings, &problems, out)?;
    match config {
        Some(config) if problems.is_empty() => {
            writeln!(out, "{file}: ok ({})", contents(config))?;
        }
        _ => writeln!(out, "{file}: {}", count(problems.len() as u64, "error"))?,
    }
    Ok(problems.is_empty())
}
