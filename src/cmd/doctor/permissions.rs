//! Checks that the users of the receiver and the runners can read and execute the files that the
//! configuration names.
//!
//! It runs this program as that user, so that the kernel decides: file modes alone do not show the
//! permissions of parent folders or access control lists.

use std::path::Path;
use std::process::Command;

use nix::unistd::User;
use rustix::process::geteuid;
use serde_json::Value;

use crate::config::{self, Environment};
use crate::document::Problem;
use crate::model::RunnerName;

use super::super::config_check::Half;
use super::super::of_unit::of_unit;
use super::finding::{Finding, Verdict};
use super::machine::{Machine, Process};

/// Where systemd puts a running service's credentials (systemd.exec(5)).
const CREDENTIALS: &str = "/run/credentials";

/// The start of a reference to a credential in a message.
const REFERENCE: &str = "'credential:";

/// One process and its part of the configuration.
struct Part<'a> {
    half: Half,
    title: String,
    /// What it must be able to do.
    need: String,
    /// The packaged unit's user, for a process that is not running.
    user: &'a str,
    /// The folder with the files of the unit's credentials, next to the configuration.
    secrets: String,
    /// The process, if it is running.
    process: Option<&'a Process>,
}

pub(super) fn check(machine: &Machine<'_>) -> Vec<Finding> {
    // `config check` would only repeat the mistakes.
    if !machine.config.mistakes().is_empty() {
        return Vec::new();
    }
    let mut parts = vec![Part {
        half: Half::Receiver,
        title: "the receiver".to_owned(),
        need: "read every secret".to_owned(),
        user: "hooklatch",
        secrets: "secrets".to_owned(),
        process: machine.receiver.as_ref(),
    }];
    let mut names = machine.config.runners();
    names.insert(RunnerName::default());
    parts.extend(names.iter().map(|name| {
        let default = name.is_default();
        let own = |text: &str, named: String| if default { text.to_owned() } else { named };
        Part {
            half: Half::Runner(name.clone()),
            title: own("the runner", format!("runner {name}")),
            need: own("run every command", format!("run every command of runner {name}")),
            user: if default { "hooklatch-runner" } else { name.as_str() },
            secrets: own("runner-secrets", format!("runner-secrets.{name}")),
            process: machine.runners.get(name),
        }
    }));
    parts.iter().flat_map(|part| part.check(machine)).collect()
}

impl Part<'_> {
    fn check(&self, machine: &Machine<'_>) -> Vec<Finding> {
        match self.find(machine) {
            Err(why) => vec![Finding::unknown(format!("{}: {why}", self.title))],
            Ok((user, problems)) if problems.is_empty() => {
                vec![Finding::ok(format!("{user} can {}", self.need))]
            }
            Ok((_, problems)) => {
                problems.iter().map(|problem| Finding::of(problem, Verdict::Bad)).collect()
            }
        }
    }

    /// The user that was checked and its problems, or why it was not checked.
    fn find(&self, machine: &Machine<'_>) -> Result<(String, Vec<Problem>), String> {
        let here = geteuid();
        let user = match self.process {
            Some(process) => User::from_uid(process.uid.into()).ok().flatten(),
            None if here.is_root() => User::from_name(self.user).ok().flatten(),
            None => None,
        };
        match user {
            Some(user) if user.uid.as_raw() == here.as_raw() => {}
            Some(user) if here.is_root() => {
                return Ok((format!("user {}", user.name), self.problems_of(machine, &user)?));
            }
            Some(user) => {
                return Err(format!("not checked, it is user {}: run as root", user.name));
            }
            // A named runner runs as another user, and this user is not known.
            None if matches!(&self.half, Half::Runner(name) if !name.is_default()) => {
                return Err("not checked: no such user is known".to_owned());
            }
            None => {}
        }
        Ok(("this user".to_owned(), self.problems(machine, &Environment::capture())))
    }

    fn problems(&self, machine: &Machine<'_>, environment: &Environment) -> Vec<Problem> {
        self.half.problems(machine.config, machine.path, environment)
    }

    /// Runs `config check` for this part as another user.
    fn problems_of(&self, machine: &Machine<'_>, user: &User) -> Result<Vec<Problem>, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", user.uid))
            .arg(format!("--regid={}", user.gid))
            .args(["--init-groups", "--"])
            .arg(program)
            .args(["config", "check", "--json", "--for"])
            .env("HOME", &user.dir);
        match &self.half {
            Half::Runner(name) => command.args(["runner", "--name", name.as_str()]),
            Half::Receiver | Half::Both => command.arg("receiver"),
        };
        command.arg("--config").arg(machine.path);
        let unit = self.process.and_then(Process::unit);
        let credentials = unit.map(|unit| Path::new(CREDENTIALS).join(unit));
        let credentials = credentials.filter(|folder| folder.is_dir());
        if let Some(credentials) = &credentials {
            command.env(config::CREDENTIALS, credentials);
        }
        let output = command.output().map_err(|error| format!("failed to run setpriv: {error}"))?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
        let errors = report["errors"].as_array().into_iter().flatten();
        let mut problems: Vec<Problem> = errors.map(|error| reported(user, error)).collect();
        // A stopped unit has no credentials folder. Root then checks the files that systemd makes the
        // credentials from.
        if credentials.is_none() {
            problems.retain(|problem| !problem.message.contains(REFERENCE));
            let environment = of_unit(&Environment::capture(), machine.path, &self.secrets);
            let own = self.problems(machine, &environment).into_iter();
            problems.extend(own.filter(|problem| problem.message.contains(REFERENCE)));
        }
        Ok(problems)
    }
}

/// An error in the output of `config check --json`, which ran as `user`.
fn reported(user: &User, error: &Value) -> Problem {
    let text = |field: &str| error[field].as_str().map(str::to_owned);
    Problem {
        file: format!("as user {}: {}", user.name, text("file").unwrap_or_default()),
        line: error["line"].as_u64().unwrap_or_default() as usize,
        column: 0,
        key: text("key").unwrap_or_default(),
        message: text("message").unwrap_or_default(),
        help: text("help"),
    }
}
