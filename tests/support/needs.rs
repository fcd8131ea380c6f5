//! What a test needs in addition to a Rust toolchain and a C compiler. `tests/z_needs.rs`, the last program of
//! `cargo test`, prints one line for each need.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Notes that this test, or a part of it, does not run because `what` is missing; `install` says how to get it. Panics
/// if `HOOKLATCH_CI` is set.
pub(crate) fn missing(what: &str, install: &str) {
    must_be_optional(what, install);
    let thread = std::thread::current();
    note([thread.name().unwrap_or("a test")], what, install);
}

/// The same for each test that this program was started for.
pub(crate) fn missing_for_all(what: &str, install: &str) {
    must_be_optional(what, install);
    let mut list = Command::new(std::env::current_exe().unwrap());
    let listed = list.args(std::env::args_os().skip(1)).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    note(listed.lines().filter_map(|line| line.strip_suffix(": test")), what, install);
}

fn must_be_optional(what: &str, install: &str) {
    let is_optional = std::env::var_os("HOOKLATCH_CI").is_none();
    assert!(is_optional, "this test needs {what}, and HOOKLATCH_CI is set: {install}");
}

fn note<'a>(tests: impl IntoIterator<Item = &'a str>, what: &str, install: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().display();
    let line = |test| format!("{what}\t{install}\t{program} {test}\n");
    let lines: String = tests.into_iter().map(line).collect();
    if z_needs_follows() && append(&lines).is_ok() {
        return;
    }
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(what.to_owned()) {
        // libtest captures the text of `eprintln!`, and shows it of failed tests only.
        let _ = writeln!(std::io::stderr(), "tests that need {what} do not run: {install}");
    }
}

/// Whether the `cargo test` that started this program also runs `tests/z_needs.rs`: not if its options select other
/// programs.
fn z_needs_follows() -> bool {
    const SELECTS: [&str; 8] =
        ["--lib", "--bin", "--bins", "--test", "--bench", "--benches", "--example", "--examples"];
    let command = fs::read(format!("/proc/{}/cmdline", parent_id())).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let mut words = command.split('\0');
    let is_cargo = words.next().is_some_and(|program| Path::new(program).ends_with("cargo"));
    let options: Vec<_> = words.take_while(|word| *word != "--").collect();
    let selects = |word: &&str| SELECTS.contains(word) || word.starts_with("--test=");
    is_cargo && (options.contains(&"z_needs") || !options.iter().any(selects))
}

/// Appends the lines to the notes by one write, so that those of other tests stay whole.
fn append(lines: &str) -> std::io::Result<()> {
    let notes = notes();
    fs::create_dir_all(notes.parent().unwrap())?;
    File::options().create(true).append(true).open(notes)?.write_all(lines.as_bytes())
}

/// The file of the notes: one for each run of `cargo test`, which is the parent of the test programs. It is in the
/// build's folder for temporary files, which cargo names to integration tests only.
pub(crate) fn notes() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().join("tmp").join(format!("{PREFIX}{}", parent_id()))
}

/// The file's name begins so, and ends with the process id of `cargo test`.
pub(crate) const PREFIX: &str = "needs-";
