//! Compares `docs/configuration.md` with the code: its table of limits is generated from the code, and it
//! describes every key that is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::support::made;
use hooklatch::config;
use hooklatch::limits::{AppliedBy, Limit, TABLE};

/// The limits that are keys of `[limits]`; the others are keys of `[storage]`.
fn limits() -> impl Iterator<Item = &'static Limit> {
    let of_storage = ["keep_payloads_millis", "keep_ids_millis", "keep_dead_millis"];
    TABLE.iter().filter(move |limit| !of_storage.contains(&limit.key))
}

/// The keys of each table of the configuration. For a key without a similar one, the message lists all that are read.
pub(crate) fn keys() -> BTreeMap<String, BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hooklatch.toml");
    let odd = "qqqqqqqqqqqq = 1\n";
    let text = format!(
        "[server]\n{odd}[storage]\n{odd}[node]\n{odd}[metrics]\n{odd}[dashboard]\n{odd}public_url = \"https://a\"\n[dashboard.proxy]\n{odd}user_header = \"A\"\nsecret = \"env:A\"\n[sources.a]\n{odd}provider = \"none\"\nallow_unsigned = true\n[handlers.a]\n{odd}source = \"a\"\nevents = \"*\"\ncommand = [\"/bin/sh\"]\n"
    );
    fs::write(&file, text).unwrap();
    let mut problems = config::load(&file).err().unwrap();
    // The table [node] without a database is one more.
    problems.retain(|problem| problem.message == "unknown key");
    assert_eq!(problems.len(), 8);
    let all = limits().map(|limit| limit.key.to_owned()).collect();
    let mut keys = BTreeMap::from([("limits".to_owned(), all)]);
    for problem in problems {
        let (table, _) = problem.key.rsplit_once('.').unwrap();
        let help = problem.help.unwrap();
        let listed = help.strip_prefix("the keys here are: ").unwrap().split(", ");
        let table = table.strip_suffix(".a").unwrap_or(table).to_owned();
        keys.insert(table, listed.map(str::to_owned).collect());
    }
    keys
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let mut table =
        String::from("| key | default | range | changed by | |\n|---|---|---|---|---|\n");
    for limit in limits() {
        let show = |value| limit.unit.show(value);
        let (least, most) = (show(*limit.range.start()), show(*limit.range.end()));
        let (key, default, reason) = (limit.key, show(limit.default), limit.reason);
        let changed_by = match limit.applied_by {
            AppliedBy::Reload => "reload",
            AppliedBy::ReceiverStart => "restart",
            AppliedBy::RunnerStart => "runner",
        };
        let range = format!("`{least}` to `{most}`");
        writeln!(table, "| `{key}` | `{default}` | {range} | `{changed_by}` | {reason} |").unwrap();
    }
    made::holds("configuration.md", "limits", &table);
}

#[test]
fn every_key_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    for key in keys().values().flatten() {
        assert!(page.contains(&format!("| `{key}` |")), "{key} is not described");
    }
}
