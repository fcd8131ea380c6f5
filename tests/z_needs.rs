//! The last program of `cargo test`, which runs them by name: prints what tests lacked on this machine.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[allow(dead_code, reason = "the tests record their needs")]
#[path = "support/needs.rs"]
mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

fn main() {
    // Cargo passes all programs the same arguments. A list of tests must not take the records.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let records = needs::records_file();
    let text = fs::read_to_string(&records).unwrap_or_default();
    let _ = fs::remove_file(&records);
    remove_stale(records.parent().unwrap());
    let mut needs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for line in text.lines() {
        let (need, test) = line.rsplit_once('\t').unwrap();
        needs.entry(need).or_default().insert(test);
    }
    for (need, tests) in needs {
        let (what, install) = need.split_once('\t').unwrap();
        match tests.len() {
            1 => println!("1 test needs {what}: {install}"),
            count => println!("{count} tests need {what}: {install}"),
        }
    }
}

/// Deletes the records of runs that have ended without this program, as a run does whose tests fail.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(needs::PREFIX));
        if run.is_some_and(|run| !Path::new("/proc").join(run).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
