//! `hooklatch import adnanh`: makes a configuration from the hooks of adnanh/webhook.
//!
//! Must stay true: a request runs the same command with the same arguments and variables, or the report says why not;
//! no hook is more open than before, no file that is there is changed, no secret is printed.

mod command;
mod hooks;
mod places;
mod provider;
mod report;
mod rules;
mod texts;
mod write;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::cli;
use crate::config;
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::model::Name;

use super::init::{Made, main_file};
use super::output;
use hooks::FILE_BYTES;
use write::{Imported, secret_file};

/// Writes the folder and reports hook by hook.
pub(super) fn run(args: &cli::ImportAdnanh) -> Result<Exit, Failure> {
    let shown = args.file.display();
    let text = read(&args.file)?;
    let wrong = |why| Exit::Config.failure(format!("failed to read the hooks in {shown}: {why}"));
    let hooks = hooks::read(&text).map_err(wrong)?;
    if args.out.symlink_metadata().is_ok() {
        let message = format!("{} is there already; nothing was written", args.out.display());
        return Err(Exit::WrongState.failure(message).help("choose another folder: --out DIR"));
    }
    let mut names = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut imported = Vec::new();
    for hook in &hooks {
        let id = hook.text("id").map_err(wrong)?;
        let is_second = !ids.insert(id.clone());
        let name = free_name(&id, &mut names);
        imported.push(Imported::of(hook, id, name, is_second));
    }
    let from = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    write(&args.out, &from, &mut imported)?;
    let is_complete = imported.iter().all(|hook| hook.left_out.is_empty());
    output::either(&args.format, &report::json(&imported, &args.out), || {
        report::print(&imported, &args.out)
    })?;
    Ok(Exit::answer(is_complete))
}

fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let exit =
            if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Io };
        exit.failure(format!("failed to read {shown}: {error}"))
    };
    let mut bytes = Vec::new();
    let most = FILE_BYTES as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() > FILE_BYTES {
        return Err(Exit::Config.failure(format!("{shown} has more than {FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Exit::Config.failure(format!("{shown} is not UTF-8")))
}

/// The id as a name that no other hook has.
fn free_name(id: &str, names: &mut BTreeSet<String>) -> Name {
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
    let name: String =
        id.chars().map(|char| if fits(char) { char.to_ascii_lowercase() } else { '_' }).collect();
    let name: String = name.trim_start_matches(['-', '_']).chars().take(58).collect();
    let name = if name.is_empty() || name == "hooklatch" { format!("hook-{name}") } else { name };
    let name = name.trim_end_matches('-').to_owned();
    let mut free = name.clone();
    let mut nth = 1;
    while !names.insert(free.clone()) {
        nth += 1;
        free = format!("{name}-{nth}");
    }
    #[expect(clippy::expect_used, reason = "made of the characters of a name, at most 64 of them")]
    free.parse().expect("it is a name")
}

/// Makes the folder beside its place, has it read as `serve` would, and moves it there. What is refused is left out.
fn write(out: &Path, from: &str, imported: &mut [Imported]) -> Result<(), Failure> {
    let parent =
        out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    loop {
        let folder = tempfile::Builder::new().prefix(".hooklatch-import-").tempdir_in(parent);
        let folder =
            folder.map_err(Failure::io(format!("make a folder in {}", parent.display())))?;
        let mut made = Made::default();
        let main = folder.path().join("hooklatch.toml");
        made.file(&main, &main_file(&out.join("hooklatch.toml")), 0o644)?;
        for hook in imported.iter() {
            for (file, text) in hook.files(from) {
                made.file(&folder.path().join(file), &text, 0o644)?;
            }
            for (nth, secret) in hook.secrets.iter().enumerate() {
                let file = secret_file(&hook.name, nth + 1);
                made.secret(&folder.path().join("secrets").join(file), secret)?;
            }
        }
        let problems = match config::load(&main) {
            Ok(_) => Vec::new(),
            Err(problems) => problems,
        };
        if problems.is_empty() {
            made.keep();
            fs::rename(folder.path(), out)
                .map_err(Failure::io(format!("make {}", out.display())))?;
            // It has another name now.
            let _ = folder.keep();
            return Ok(());
        }
        if !leave_out(imported, &problems) {
            return Err(problems.into());
        }
    }
}

/// Leaves out the hooks whose files have these problems. False if there is none.
fn leave_out(imported: &mut [Imported], problems: &[Problem]) -> bool {
    let mut any = false;
    for hook in imported.iter_mut().filter(|hook| hook.left_out.is_empty()) {
        let files = hook.files("");
        let of_hook = |problem: &&Problem| {
            files.iter().any(|(file, _)| problem.file.ends_with(&format!("/{file}")))
        };
        for Problem { key, message, .. } in problems.iter().filter(of_hook) {
            let why = if key.is_empty() { message.clone() } else { format!("{key}: {message}") };
            if !hook.left_out.contains(&why) {
                hook.left_out.push(why);
            }
            any = true;
        }
    }
    any
}
