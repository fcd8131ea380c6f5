//! Records the tests that do not run, or not completely, because this machine lacks something that they need in addition
//! to a Rust toolchain and a C compiler. `tests/z_needs.rs`, the last program of `cargo test`, prints one line for each
//! need.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Records that this test lacks `what`; `install` says how to get it. The caller then leaves out what cannot run. Panics
/// if `HOOKLATCH_CI` is set.
pub(crate) fn missing(what: &str, install: &str) {
    fail_in_ci(what, install);
    let thread = std::thread::current();
    record([thread.name().unwrap_or("a test")], what, install);
}

/// Like [`missing`], for every test that this program's arguments select.
pub(crate) fn missing_for_all(what: &str, install: &str) {
    fail_in_ci(what, install);
    let mut list = Command::new(std::env::current_exe().unwrap());
    let listed = list.args(std::env::args_os().skip(1)).arg("--list").output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let listed = String::from_utf8(listed.stdout).unwrap();
    record(listed.lines().filter_map(|line| line.strip_suffix(": test")), what, install);
}

fn fail_in_ci(what: &str, install: &str) {
    let is_ci = std::env::var_os("HOOKLATCH_CI").is_some();
    assert!(!is_ci, "this test needs {what}, and HOOKLATCH_CI is set: {install}");
}

fn record<'a>(tests: impl IntoIterator<Item = &'a str>, what: &str, install: &str) {
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().display();
    let line = |test| format!("{what}\t{install}\t{program} {test}\n");
    let lines: String = tests.into_iter().map(line).collect();
    if !z_needs_follows() || append(&lines).is_err() {
        print_once(what, install);
    }
}

/// Prints a need that `z_needs` will not print.
fn print_once(what: &str, install: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(what.to_owned()) {
        // libtest captures the text of `eprintln!`, and shows it of failed tests only.
        let _ = writeln!(std::io::stderr(), "tests that need {what} do not run: {install}");
    }
}

/// Whether the `cargo test` that started this program runs `z_needs` too: not if its options select other programs.
fn z_needs_follows() -> bool {
    const SELECTING: [&str; 9] = [
        "--lib",
        "--bin",
        "--bins",
        "--test",
        "--bench",
        "--benches",
        "--example",
        "--examples",
        "--doc",
    ];
    let command = fs::read(format!("/proc/{}/cmdline", parent_id())).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    let mut words = command.split('\0');
    let is_cargo = words.next().is_some_and(|program| Path::new(program).ends_with("cargo"));
    // Each may be `--test NAME` or `--test=NAME`.
    let options: Vec<_> =
        words.take_while(|word| *word != "--").flat_map(|word| word.split('=')).collect();
    let selects_others = options.iter().any(|option| SELECTING.contains(option));
    is_cargo && (options.contains(&"z_needs") || !selects_others)
}

/// Appends in one write, so that the lines of tests that run at the same time do not mix.
fn append(lines: &str) -> std::io::Result<()> {
    let file = records_file();
    fs::create_dir_all(file.parent().unwrap())?;
    File::options().create(true).append(true).open(file)?.write_all(lines.as_bytes())
}

/// One file for each `cargo test` process, which is the parent of the test programs. It is in CARGO_TARGET_TMPDIR, a
/// variable that cargo sets for integration tests and not for those of the library.
pub(crate) fn records_file() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // The program is target/PROFILE/deps/NAME.
    let target = program.ancestors().nth(3).unwrap();
    target.join("tmp").join(format!("{PREFIX}{}", parent_id()))
}

/// The start of a file's name; the process id of `cargo test` follows.
pub(crate) const PREFIX: &str = "needs-";
