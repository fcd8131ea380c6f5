//! Whether the users that receiver and runner run as may read and run what the configuration names.
//!
//! Asked of the kernel, by this program run as that user: modes alone tell too little (folders on the
//! way, access lists).

use std::path::Path;
use std::process::Command;

use nix::unistd::User;
use rustix::process::geteuid;
use serde::Deserialize;

use crate::cli::Part;
use crate::config::{Config, Environment};

use super::super::config_check::problems_of;
use super::processes::{Process, Running};
use super::{Finding, Verdict, told};

const CHECK: &str = "permissions";

/// The packaged users, where nothing runs that would show them.
const PACKAGED: [(Part, &str); 2] =
    [(Part::Receiver, "hooklatch"), (Part::Runner, "hooklatch-runner")];

/// Where systemd puts a running service's credentials (systemd.exec(5)).
const CREDENTIALS: &str = "/run/credentials";

pub(super) fn look(path: &Path, config: &Config, running: &Running) -> Vec<Finding> {
    PACKAGED
        .iter()
        .flat_map(|(part, packaged)| {
            let process = match part {
                Part::Receiver => running.receiver.as_ref(),
                Part::Runner => running.runners.first(),
            };
            one(path, config, *part, process, packaged)
        })
        .collect()
}

/// Judges one part's half of the configuration as its user.
fn one(
    path: &Path,
    config: &Config,
    part: Part,
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
            ask(path, part, process, &user)
        }
        Some(user) if user.uid.as_raw() != here => {
            let seen =
                format!("the {part}'s were not looked at, it is user {}: run as root", user.name);
            vec![Finding::unknown(CHECK, seen)]
        }
        _ => {
            let problems = problems_of(config, Some(part), &Environment::capture());
            let found: Vec<_> =
                problems.iter().map(|problem| told(problem, Verdict::Bad)).collect();
            or_ok(found, part, "this user")
        }
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

/// Runs `config check` for one part as another user.
fn ask(path: &Path, part: Part, process: Option<&Process>, user: &User) -> Vec<Finding> {
    let unknown = |why: String| vec![Finding::unknown(CHECK, format!("the {part}'s: {why}"))];
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
        .args(["config", "check", "--json", "--for", part.as_str(), "--config"])
        .arg(path)
        .env("HOME", &user.dir);
    let credentials = process.and_then(Process::unit).map(|unit| Path::new(CREDENTIALS).join(unit));
    if let Some(credentials) = credentials.filter(|folder| folder.is_dir()) {
        command.env("CREDENTIALS_DIRECTORY", credentials);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return unknown(format!("failed to run setpriv: {error}")),
    };
    let Ok(report) = serde_json::from_slice::<Report>(&output.stdout) else {
        return unknown(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    };
    let name = &user.name;
    let found = report.errors.into_iter().map(|told| {
        let line = told.line.map(|line| format!(":{line}")).unwrap_or_default();
        let key = told.key.map(|key| format!(" {key}:")).unwrap_or_default();
        let seen = format!("as user {name}: {}{line}:{key} {}", told.file, told.message);
        Finding { check: CHECK, verdict: Verdict::Bad, seen, fix: told.help }
    });
    or_ok(found.collect(), part, &format!("user {name}"))
}

fn or_ok(found: Vec<Finding>, part: Part, user: &str) -> Vec<Finding> {
    if found.is_empty() {
        let what = match part {
            Part::Receiver => "read every secret",
            Part::Runner => "run every command",
        };
        return vec![Finding::ok(CHECK, format!("{user} can {what}"))];
    }
    found
}
