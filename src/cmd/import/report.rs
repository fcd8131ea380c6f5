//! What `import` says of the hooks.
//!
//! Must stay true: each difference between the two programs that a request can meet is a sentence here or in a note of
//! its hook; `tests/it/import/oracle.rs` looks for the sentence of each that it finds.

use std::path::Path;

use serde_json::{Value, json};

use super::write::Imported;
use crate::cmd::output;
use crate::exit::Failure;
use crate::model::config_option;

/// The first line of the report.
const FIRST: &str = "What stays different: a request with the same signed body as an earlier one runs nothing here; webhook ran its command again.";

/// What else is different in every hook.
const OTHERS: [&str; 14] = [
    "Equal requests with a token that come before their command begins share one run; webhook ran it for each.",
    "Without http-methods a hook takes POST here, and GET if its token is in a header or parameter; webhook took every method.",
    "A member of the body, field, header or parameter that comes twice holds the job that needs it; webhook took one of them. A signature or token that comes twice is refused (401).",
    "The bytes of a body say whether it is JSON or a form; webhook went by Content-Type, and had no values of another body.",
    "XML is not read: a job that needs a value of an XML body is held.",
    "A body that begins as JSON or multipart and is cut short, or goes on behind its end, holds the job that needs a value of it, and so does text that cannot be decoded; webhook went on without the value, or with a part of it.",
    "A signature is checked over the body of a multipart form too; webhook checked it over no body at all.",
    "A member of null is as one that is not there; webhook answered 500 to a rule that looked at one.",
    "An argument that begins with -, @ or +, a value over 64 KiB, values over 64 KiB together, and a NUL character hold the job. A regex looks at 4 KiB at most: a longer text holds the job.",
    "A body over 25 MiB is refused (413).",
    "A command has PATH, HOME, LANG, the variables of its hook, one for each argument that has a value of the event, and those that begin with HOOKLATCH_. webhook passed its own environment on.",
    "Without command-working-directory a command starts in the home of the runner's user; there in the folder in which webhook was started.",
    "The commands of a hook run one after the other (concurrency = 1), each for 10 minutes at most (timeout), with the body on standard input.",
    "The answer says that the event is stored, and never waits for the command. A refused signature or token gets 401.",
];

pub(super) fn json(imported: &[Imported], out: &Path) -> Value {
    let hook = |hook: &Imported| {
        json!({
            "id": hook.id,
            "name": hook.name,
            "unsigned": hook.unsigned,
            "left_out": hook.left_out,
            "notes": hook.notes,
        })
    };
    let differences: Vec<&str> = [FIRST].into_iter().chain(OTHERS).collect();
    let hooks: Vec<Value> = imported.iter().map(hook).collect();
    json!({ "made": out, "differences": differences, "hooks": hooks })
}

pub(super) fn print(imported: &[Imported], out: &Path) -> Result<(), Failure> {
    output::line(FIRST)?;
    output::line("\nThis, too, is different in every hook:\n")?;
    OTHERS.iter().try_for_each(|other| output::line(format!("- {other}")))?;
    output::line("")?;
    let (unsigned, others): (Vec<_>, Vec<_>) = imported.iter().partition(|hook| hook.unsigned);
    if !unsigned.is_empty() {
        output::line(
            "Nothing proves who calls these: their rules ask for no signature, and for no value that is named like a token, secret, key or password. They are commented out:\n",
        )?;
        unsigned.iter().try_for_each(|hook| print_hook(hook))?;
    }
    others.iter().try_for_each(|hook| print_hook(hook))?;
    let left_out = imported.iter().filter(|hook| !hook.left_out.is_empty()).count();
    let all = output::count(imported.len() as u64, "hook");
    output::line(format!("\n{all} in {}; {left_out} commented out.\n\nNext:\n", out.display()))?;
    let config = config_option(&out.join("hooklatch.toml"));
    for command in ["config check", "serve"] {
        output::line(format!("  hooklatch {command}{config}"))?;
    }
    Ok(())
}

fn print_hook(hook: &Imported) -> Result<(), Failure> {
    let name = hook.name.to_string();
    let became = if hook.id == name { String::new() } else { format!(" (now {name})") };
    output::line(format!("{}{became}", output::escape(&hook.id)))?;
    match hook.left_out.is_empty() {
        true => output::fact("imported", format!("conf.d/{name}.toml"))?,
        false => output::list("left out", &hook.left_out)?,
    }
    output::list("note", &hook.notes)
}
