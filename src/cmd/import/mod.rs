//! `hooklatch import adnanh`: makes a configuration from the hooks of adnanh/webhook.
//!
//! Must stay true: no hook is more open than before, no file that is there is changed, no secret is printed.

mod hooks;
mod rules;
mod write;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli;
use crate::config;
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::model::{Name, config_option};

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
    let mut imported = Vec::new();
    for hook in &hooks {
        let id = hook.text("id").map_err(wrong)?;
        imported.push(Imported::of(hook, id.clone(), free_name(&id, &mut names)));
    }
    let from = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    write(&args.out, &from, &mut imported)?;
    let left_out = imported.iter().filter(|hook| hook.left_out.is_some()).count();
    output::either(&args.format, &json(&imported, &args.out), || print(&imported, left_out, args))?;
    Ok(Exit::answer(left_out == 0))
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
    for hook in imported.iter_mut().filter(|hook| hook.left_out.is_none()) {
        let files = hook.files("");
        let of_hook = |problem: &&Problem| {
            files.iter().any(|(file, _)| problem.file.ends_with(&format!("/{file}")))
        };
        if let Some(problem) = problems.iter().find(of_hook) {
            hook.left_out = Some(format!("{}: {}", problem.key, problem.message));
            any = true;
        }
    }
    any
}

fn json(imported: &[Imported], out: &Path) -> Value {
    let hook = |hook: &Imported| {
        json!({
            "id": hook.id,
            "name": hook.name,
            "unsigned": hook.unsigned,
            "left_out": hook.left_out,
            "notes": hook.notes,
        })
    };
    json!({ "made": out, "hooks": imported.iter().map(hook).collect::<Vec<_>>() })
}

fn print(imported: &[Imported], left_out: usize, args: &cli::ImportAdnanh) -> Result<(), Failure> {
    let (unsigned, others): (Vec<_>, Vec<_>) = imported.iter().partition(|hook| hook.unsigned);
    if !unsigned.is_empty() {
        output::line(
            "Anybody who knows their URLs fires these today, since no signature and no token is asked for. They are commented out:\n",
        )?;
        unsigned.iter().try_for_each(|hook| print_hook(hook))?;
    }
    others.iter().try_for_each(|hook| print_hook(hook))?;
    let out = args.out.display();
    let all = output::count(imported.len() as u64, "hook");
    output::line(format!("\n{all} in {out}; {left_out} commented out."))?;
    output::line("\
A repeated body with the same signature is one event here, and runs once. What runs is not killed when its caller hangs up.

Next:
")?;
    let config = config_option(&args.out.join("hooklatch.toml"));
    for command in ["config check", "serve"] {
        output::line(format!("  hooklatch {command}{config}"))?;
    }
    Ok(())
}

fn print_hook(hook: &Imported) -> Result<(), Failure> {
    let name = hook.name.to_string();
    let became = if hook.id == name { String::new() } else { format!(" (now {name})") };
    output::line(format!("{}{became}", output::escape(&hook.id)))?;
    match &hook.left_out {
        Some(why) => output::fact("left out", output::escape(why))?,
        None => output::fact("imported", format!("conf.d/{name}.toml"))?,
    }
    output::list("note", &hook.notes)
}
