//! Whether the configured commands could be started on this machine.
//!
//! Not part of loading: a missing program is its handler's failure, which backs off until it is
//! there. `config check` calls it a problem, `serve` warns.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::document::Problem;
use crate::model::RunnerName;
use crate::runner::script;

use super::Config;
use super::environment::Environment;
use super::files::reason;
use super::handlers::{Command, as_list};
use super::resolve::search_path;

impl Config {
    /// What stands in the way of each command of this runner: its program or folder is missing, or is
    /// not one. Sorted by file and position. Another runner may be another user, who sees what this one
    /// does not.
    pub fn check_commands(&self, environment: &Environment, runner: &RunnerName) -> Vec<Problem> {
        let commands = self.commands_of(runner);
        let mut found: Vec<_> =
            commands.flat_map(|(_, command)| check(command, environment)).collect();
        found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        found
    }
}

fn check(command: &Command, environment: &Environment) -> Vec<Problem> {
    let mut found = Vec::new();
    if let Some(Err((message, help))) =
        command.argv.value.first().map(|program| runnable(program, command, environment))
    {
        let (message, help) = newcomers(command, environment).unwrap_or((message, help));
        found.push(command.argv.at.problem(message, Some(help)));
    }
    if let Some(cwd) = &command.cwd
        && !cwd.value.is_dir()
    {
        let message = format!("there is no folder {}", cwd.value.display());
        found.push(cwd.at.problem(message, Some("create it, or correct the path".to_owned())));
    } else if let Some(cwd) = &command.cwd
        && access(&cwd.value, Access::EXEC_OK).is_err()
    {
        let message = format!("{} cannot be entered by this user", cwd.value.display());
        found.push(cwd.at.problem(message, Some("see chmod(1) and chown(1)".to_owned())));
    }
    found
}

/// What is better said of a program that cannot be run, where it is written as for a shell.
fn newcomers(command: &Command, environment: &Environment) -> Option<(String, String)> {
    let written = &command.program;
    if let Some(rest) = written.strip_prefix("~/") {
        let home = environment.text("HOME").unwrap_or("/home/USER");
        let message = format!("'{written}' cannot be run: ~ is not expanded");
        return Some((message, format!("write the whole path, such as \"{home}/{rest}\"")));
    }
    if command.argv.value.len() == 1 && written.contains(char::is_whitespace) {
        let message = format!("'{written}' cannot be run: a command is not a shell line");
        return Some((message, format!("write command = {}", as_list(written))));
    }
    None
}

fn runnable(
    program: &str,
    command: &Command,
    environment: &Environment,
) -> Result<(), (String, String)> {
    let path = search_path(command, environment);
    let file = if program.contains('/') {
        is_program(Path::new(program)).map_err(|(message, help)| (message, help.to_owned()))?;
        PathBuf::from(program)
    } else {
        let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
        candidates.find(|candidate| is_program(candidate).is_ok()).ok_or_else(|| {
            let message = format!("'{program}' is in no folder of PATH ({path})");
            (message, "write its full path, or set PATH under env".to_owned())
        })?
    };
    match script::fault(&file, &path) {
        Some(fault) => {
            Err((format!("{} cannot be run: {}", file.display(), fault.message), fault.help))
        }
        None => Ok(()),
    }
}

fn is_program(path: &Path) -> Result<(), (String, &'static str)> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| {
        let message = format!("{shown} cannot be run: {}", reason(&error));
        (message, "create it, or correct the path")
    })?;
    if !metadata.is_file() {
        return Err((format!("{shown} cannot be run: it is not a file"), "correct the path"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        let help = "make it executable with chmod +x";
        return Err((format!("{shown} cannot be run: it is not executable"), help));
    }
    if access(path, Access::EXEC_OK).is_err() {
        let help = "let that user execute it: see chmod(1) and chown(1)";
        return Err((format!("{shown} cannot be run by this user"), help));
    }
    Ok(())
}
