//! Compares what applies a changed limit, by the table in `src/limits.rs`, with the code.
//!
//! A limit is fixed if it is read while making something that lives as long as its process; a reload
//! applies every other limit. So this test assigns every file that reads a limit to one of four groups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hooklatch::limits::{AppliedBy, TABLE};

/// Files whose limits the receiver keeps from its start; a folder stands for all of its files.
const OF_THE_RECEIVERS_START: &[&str] =
    &["src/http/server.rs", "src/scrape", "src/serve.rs", "src/store/"];

/// Files whose limits a runner keeps from its start.
const OF_THE_RUNNERS_START: &[&str] = &["src/runner/server.rs"];

/// Files whose limits a reload changes.
const AS_IN_FORCE: &[&str] = &[
    "src/config",
    "src/dispatcher",
    "src/http/body.rs",
    "src/http/budget.rs",
    "src/http/shared.rs",
    "src/serve/reload.rs",
];

/// Files of the command line, which reads the configuration each time.
const OF_COMMANDS: &[&str] = &["src/cmd"];

/// Fixed, and read as one that is not, which a reload has put back: a body's grace is also the time in
/// which the HTTP server throws the rest of a refused one away.
const IN_BOTH: &[&str] = &["body_grace_millis"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The limits that the files of one group read.
fn read_in(files: &[&str]) -> BTreeSet<&'static str> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    sources(&root.join("src"), &mut all);
    let mut found = BTreeSet::new();
    for path in all {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if !files.iter().any(|of| name.starts_with(of)) || name.contains("tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        // As a field, or by name as the default of a key.
        let reads = |key: &str| {
            product.contains(&format!(".{key}")) || product.contains(&format!(", \"{key}\""))
        };
        found.extend(TABLE.iter().map(|limit| limit.key).filter(|key| reads(key)));
    }
    found
}

/// The limits of the table that `by` applies, in its order.
fn applied(by: AppliedBy) -> Vec<&'static str> {
    TABLE.iter().filter(|limit| limit.applied_by == by).map(|limit| limit.key).collect()
}

#[test]
fn every_limit_is_either_reloaded_or_listed_as_fixed() {
    let receiver = BTreeSet::from_iter(applied(AppliedBy::ReceiverStart));
    let runner = BTreeSet::from_iter(applied(AppliedBy::RunnerStart));
    let mut read = read_in(OF_THE_RECEIVERS_START);
    // Retention uses the reloaded value; the store reads it only to bound a fixed limit.
    read.remove("keep_ids_millis");
    assert_eq!(receiver, read, "applied by a start of the receiver");
    assert_eq!(runner, read_in(OF_THE_RUNNERS_START), "applied by a start of a runner");
    let in_force = read_in(AS_IN_FORCE);
    let in_both: Vec<_> = in_force.intersection(&receiver).copied().collect();
    assert_eq!(in_both, IN_BOTH, "fixed limits that a file reads as reloaded ones");
    let all: BTreeSet<_> = &(&in_force | &read_in(OF_COMMANDS)) | &(&receiver | &runner);
    let rest: Vec<_> =
        TABLE.iter().map(|limit| limit.key).filter(|key| !all.contains(key)).collect();
    assert_eq!(rest, Vec::<&str>::new(), "limits that are read only by files without a group");
}
