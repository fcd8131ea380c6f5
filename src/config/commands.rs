//! Checks that this machine can start the configured commands.
//!
//! Loading does not check it: a handler whose program is missing fails and backs off until the program is
//! there. `config check` reports it as an error, `serve` as a warning.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::document::{Fault, Problem, Problems, Value};
use crate::model::RunnerName;
use crate::runner::script;

use super::configuration::Config;
use super::environment::Environment;
use super::files::reason;
use super::handlers::{Command, as_list};
use super::resolve::search_path;

impl Config {
    /// What keeps each command of this runner from starting: its program or folder is missing, or is not
    /// one. Sorted by file and position. Another runner may be another user, with other permissions.
    pub fn check_commands(&self, environment: &Environment, runner: &RunnerName) -> Vec<Problem> {
        let problems = Problems::new();
        for (_, command) in self.commands_of(runner) {
            if let Err(fault) = check_program(command, environment) {
                problems.report(&command.argv.at, fault);
            }
            if let Some(Value { value: cwd, at }) = &command.cwd {
                let shown = cwd.display();
                if !cwd.is_dir() {
                    let message = format!("there is no folder {shown}");
                    problems.reject(at, message, "create it, or correct the path");
                } else if access(cwd, Access::EXEC_OK).is_err() {
                    let message = format!("{shown} cannot be entered by this user");
                    problems.reject(at, message, "see chmod(1) and chown(1)");
                }
            }
        }
        problems.into_sorted()
    }
}

fn check_program(command: &Command, environment: &Environment) -> Result<(), Fault> {
    let Some(program) = command.argv.value.first() else { return Ok(()) };
    runnable(program, command, environment)
        .map_err(|fault| written_for_a_shell(command, environment).unwrap_or(fault))
}

/// A better explanation for a program that cannot run because it is written as for a shell.
fn written_for_a_shell(command: &Command, environment: &Environment) -> Option<Fault> {
    let written = &command.program;
    if let Some(rest) = written.strip_prefix("~/") {
        let home = environment.text("HOME").unwrap_or("/home/USER");
        let message = format!("'{written}' cannot be run: ~ is not expanded");
        return Some(Fault::new(
            message,
            format!("write the whole path, such as \"{home}/{rest}\""),
        ));
    }
    if command.argv.value.len() == 1 && written.contains(char::is_whitespace) {
        let message = format!("'{written}' cannot be run: a command is not a shell line");
        return Some(Fault::new(message, format!("write command = {}", as_list(written))));
    }
    None
}

fn runnable(program: &str, command: &Command, environment: &Environment) -> Result<(), Fault> {
    let path = search_path(command, environment);
    let file = if program.contains('/') {
        check_file(Path::new(program))?;
        PathBuf::from(program)
    } else {
        let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
        candidates.find(|candidate| check_file(candidate).is_ok()).ok_or_else(|| {
            let message = format!("'{program}' is in no folder of PATH ({path})");
            Fault::new(message, "write its full path, or set PATH under env")
        })?
    };
    match script::fault(&file, &path) {
        Some(script::Fault { message, help }) => {
            Err(Fault::new(format!("{} cannot be run: {message}", file.display()), help))
        }
        None => Ok(()),
    }
}

/// Checks that this user may execute the file.
fn check_file(path: &Path) -> Result<(), Fault> {
    let wrong = |what: &str, help: &str| {
        Err(Fault::new(format!("{} cannot be run{what}", path.display()), help))
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            return wrong(&format!(": {}", reason(&error)), "create it, or correct the path");
        }
    };
    if !metadata.is_file() {
        return wrong(": it is not a file", "correct the path");
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return wrong(": it is not executable", "make it executable with chmod +x");
    }
    if access(path, Access::EXEC_OK).is_err() {
        return wrong(" by this user", "let that user execute it: see chmod(1) and chown(1)");
    }
    Ok(())
}
