//! Whether the users that receiver and runner run as may read and run what the configuration names.
//!
//! Asked of the kernel, by this program run as that user: modes alone tell too little (folders on the
//! way, access lists).

use std::path::Path;
use std::process::Command;

use nix::unistd::User;
use rustix::process::geteuid;
use serde::Deserialize;

use crate::config::{self, Config, Environment};
use crate::model::RunnerName;

use super::super::config_check::{Half, of_unit};
use super::processes::{Process, Running};
use super::{Finding, Verdict, told};

const CHECK: &str = "permissions";

/// The packaged users of the receiver and the default runner, where nothing runs that would show them.
/// Another runner has the name of its user.
const PACKAGED: [&str; 2] = ["hooklatch", "hooklatch-runner"];

/// Where systemd puts a running service's credentials (systemd.exec(5)).
const CREDENTIALS: &str = "/run/credentials";

/// How a message quotes a reference to one.
const REFERENCE: &str = "'credential:";

pub(super) fn look(path: &Path, config: &Config, running: &Running) -> Vec<Finding> {
    let [receiver, runner] = PACKAGED;
    let mut found = one(path, config, &Half::Receiver, running.receiver.as_ref(), receiver);
    let mut runners = config.runners();
    runners.insert(RunnerName::default());
    for name in runners {
        let process = running.runners.get(&name);
        let packaged = if name.is_default() { runner } else { name.as_str() };
        found.extend(one(path, config, &Half::Runner(name.clone()), process, packaged));
    }
    found
}

/// Judges one half of the configuration as its user.
fn one(
    path: &Path,
    config: &Config,
    half: &Half,
    process: Option<&Process>,
    packaged: &str,
) -> Vec<Finding> {
    let here = geteuid().as_raw();
    let user = match process {
        Some(process) => User::from_uid(process.owner.0.into()).ok().flatten(),
        None if geteuid().is_root() => User::from_name(packaged).ok().flatten(),
        None => None,
    };
    match user {
        Some(user) if user.uid.as_raw() != here && geteuid().is_root() => {
            ask(path, config, half, process, &user)
        }
        Some(user) if user.uid.as_raw() != here => {
            let seen = format!(
                "{}'s were not looked at, it is user {}: run as root",
                title(half),
                user.name
            );
            vec![Finding::unknown(CHECK, seen)]
        }
        // Another runner is another user, who is not here.
        None if matches!(half, Half::Runner(name) if !name.is_default()) => {
            let seen = format!("{}'s were not looked at: no such user is known", title(half));
            vec![Finding::unknown(CHECK, seen)]
        }
        _ => {
            let problems = half.problems(config, path, &Environment::capture());
            let found: Vec<_> =
                problems.iter().map(|problem| told(problem, Verdict::Bad)).collect();
            or_ok(found, half, "this user")
        }
    }
}

fn title(half: &Half) -> String {
    match half {
        Half::Runner(name) if name.is_default() => "the runner".to_owned(),
        Half::Runner(name) => format!("runner {name}"),
        Half::Receiver | Half::Both => "the receiver".to_owned(),
    }
}

/// Where the packaged unit has its credentials from, beside the configuration.
fn folder(half: &Half) -> String {
    match half {
        Half::Runner(name) if !name.is_default() => format!("runner-secrets.{name}"),
        Half::Runner(_) => "runner-secrets".to_owned(),
        Half::Receiver | Half::Both => "secrets".to_owned(),
    }
}

/// The options of `config check` that mean one half.
fn options(half: &Half) -> Vec<&str> {
    match half {
        Half::Both => Vec::new(),
        Half::Receiver => vec!["--for", "receiver"],
        Half::Runner(name) => vec!["--for", "runner", "--name", name.as_str()],
    }
}

/// What `config check --json` says of one problem.
#[derive(Deserialize)]
struct Told {
    file: String,
    line: Option<u64>,
    key: Option<String>,
    message: String,
    help: Option<String>,
}

#[derive(Deserialize)]
struct Report {
    errors: Vec<Told>,
}

/// Runs `config check` for one half as another user.
fn ask(
    path: &Path,
    config: &Config,
    half: &Half,
    process: Option<&Process>,
    user: &User,
) -> Vec<Finding> {
    let unknown = |why: String| vec![Finding::unknown(CHECK, format!("{}'s: {why}", title(half)))];
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return unknown(error.to_string()),
    };
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={}", user.uid))
        .arg(format!("--regid={}", user.gid))
        .args(["--init-groups", "--"])
        .arg(program)
        .args(["config", "check", "--json"])
        .args(options(half))
        .arg("--config")
        .arg(path)
        .env("HOME", &user.dir);
    let credentials = process.and_then(Process::unit).map(|unit| Path::new(CREDENTIALS).join(unit));
    let credentials = credentials.filter(|folder| folder.is_dir());
    if let Some(credentials) = &credentials {
        command.env(config::CREDENTIALS, credentials);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return unknown(format!("failed to run setpriv: {error}")),
    };
    let Ok(report) = serde_json::from_slice::<Report>(&output.stdout) else {
        return unknown(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    };
    let name = &user.name;
    // A unit that does not run has none; root looks where it will have them from.
    let apart = credentials.is_none();
    let mine = report.errors.into_iter().filter(|told| !apart || !told.message.contains(REFERENCE));
    let mut found: Vec<_> = mine
        .map(|told| {
            let line = told.line.map(|line| format!(":{line}")).unwrap_or_default();
            let key = told.key.map(|key| format!(" {key}:")).unwrap_or_default();
            let seen = format!("as user {name}: {}{line}:{key} {}", told.file, told.message);
            Finding { check: CHECK, verdict: Verdict::Bad, seen, fix: told.help }
        })
        .collect();
    if apart {
        let environment = of_unit(&Environment::capture(), path, &folder(half));
        let problems = half.problems(config, path, &environment);
        let problems = problems.iter().filter(|problem| problem.message.contains(REFERENCE));
        found.extend(problems.map(|problem| told(problem, Verdict::Bad)));
    }
    or_ok(found, half, &format!("user {name}"))
}

fn or_ok(found: Vec<Finding>, half: &Half, user: &str) -> Vec<Finding> {
    if found.is_empty() {
        let what = match half {
            Half::Runner(name) if !name.is_default() => {
                format!("run every command of runner {name}")
            }
            Half::Runner(_) => "run every command".to_owned(),
            Half::Receiver | Half::Both => "read every secret".to_owned(),
        };
        return vec![Finding::ok(CHECK, format!("{user} can {what}"))];
    }
    found
}
