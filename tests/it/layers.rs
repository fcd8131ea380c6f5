//! The rules of the source tree: the layer table of `ARCHITECTURE.md`, no files that import each other, SQL only
//! in the store, the time only from `clock`, no I/O in layers 0 and 1 and in the store's decisions, and no leftover
//! marks.

mod graph;

use std::fs;
use std::path::Path;

use graph::{File, circles, code, files, imports};

/// Each module, its layer, and the modules of the same layer that it may import.
const LAYERS: &[(&str, u8, &[&str])] = &[
    ("model", 0, &[]),
    ("clock", 0, &["model"]),
    ("limits", 0, &[]),
    ("random", 0, &["model"]),
    ("crash", 0, &[]),
    ("document", 1, &[]),
    ("pattern", 1, &[]),
    ("payload", 1, &[]),
    ("condition", 1, &["payload"]),
    ("provider", 1, &["document", "pattern", "payload"]),
    ("retry", 1, &[]),
    ("routing", 1, &["condition", "pattern", "payload"]),
    ("values", 1, &["payload"]),
    ("verify", 1, &["payload", "provider"]),
    ("measure", 1, &[]),
    ("store", 2, &[]),
    ("runner", 2, &["memory", "systemd"]),
    ("handler", 2, &["runner", "store"]),
    ("confine", 2, &[]),
    ("log", 2, &[]),
    ("memory", 2, &[]),
    ("panics", 2, &[]),
    ("registration", 2, &[]),
    ("traffic", 2, &["notify"]),
    ("notify", 2, &["store"]),
    ("metrics", 2, &["store", "traffic"]),
    ("systemd", 2, &[]),
    ("http", 3, &[]),
    ("dispatcher", 3, &[]),
    ("admin", 3, &["http"]),
    ("scrape", 3, &["http"]),
    ("config", 4, &[]),
    ("cli", 4, &[]),
    ("serve", 4, &["config"]),
    ("cmd", 5, &["exit"]),
    ("exit", 5, &[]),
];

fn layer(module: &str) -> Option<&'static (&'static str, u8, &'static [&'static str])> {
    LAYERS.iter().find(|(name, ..)| *name == module)
}

#[test]
fn a_module_imports_only_lower_layers() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !file.is_test() && !is_root(file)) {
        let module = file.top();
        let Some((_, own, same_layer)) = layer(module) else {
            wrong.push(format!("{}: '{module}' is in no layer", file.path));
            continue;
        };
        for found in &file.paths {
            let Some((used, theirs, _)) = found.path.first().and_then(|name| layer(name)) else {
                continue;
            };
            if used != &module && theirs >= own && !same_layer.contains(used) {
                wrong.push(format!("{}: {module} imports {}", file.path, found.path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn is_root(file: &File) -> bool {
    ["lib.rs", "main.rs"].contains(&&*file.path)
}

/// A folder's `mod.rs` may export what its files define. It is part of a circle where it also defines something
/// that they use.
#[test]
fn files_do_not_import_each_other_in_circles() {
    let circles = circles(&imports(files()));
    let circles: Vec<String> = circles.iter().map(|circle| circle.join(", ")).collect();
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}

/// A text, the modules whose code may contain it, and what to use elsewhere.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("SystemTime::now", &["clock"], "a Clock"),
    ("Timestamp::now", &[], "a Clock"),
    ("getrandom", &["random", "runner", "cmd"], "random"),
    ("rusqlite", &["store"], "the store's verbs"),
    ("tokio_postgres", &["store"], "the store's verbs"),
    ("ct_eq", &["model", "verify"], "model::is_same_secret"),
    ("ConstantTimeEq", &["model", "verify"], "model::is_same_secret"),
    ("std::env::", &["config", "cmd"], "config::Environment"),
    ("std::io::stdout", &["cmd"], "a writer that is handed in"),
    ("println!", &[], "tracing, or a writer"),
    ("thread::sleep", &["log", "store"], "an event to wait for"),
];

/// What no module of layers 0 and 1 contains, nor a decision of the store, but for `clock`, `random` and `crash`, which
/// end a process or ask the kernel by design.
const EFFECTS: &[&str] = &[
    "rusqlite",
    "crate::clock",
    "crate::random",
    "std::fs",
    "std::process",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::",
    "std::thread",
    "File::",
    "rustix::",
    "libc::",
    "tokio::",
    "async fn",
    "async move",
    ".await",
];

#[test]
fn clock_environment_and_database_are_reached_in_one_module_each() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !file.is_test()) {
        for (nth, line) in code(&file.text).lines().enumerate() {
            // `consts` describes the target, not the environment.
            let line = line.replace("std::env::consts", "");
            for (text, homes, instead) in RESERVED {
                if line.contains(text) && !homes.contains(&file.top()) {
                    wrong.push(format!("{}:{}: {text}: use {instead}", file.path, nth + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn layers_0_and_1_and_the_decisions_of_the_store_do_no_io() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !file.is_test()) {
        let is_low = layer(file.top()).is_some_and(|(_, layer, _)| *layer < 2)
            || file.path.starts_with("store/decide/");
        if !is_low || ["clock", "random", "crash"].contains(&file.top()) {
            continue;
        }
        for (nth, line) in code(&file.text).lines().enumerate() {
            for effect in EFFECTS.iter().filter(|effect| line.contains(**effect)) {
                wrong.push(format!("{}:{}: {effect}", file.path, nth + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_leftover_marks() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), "unimplemented!"];
    let mut wrong = Vec::new();
    for file in files() {
        for (nth, line) in file.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                wrong.push(format!("{}:{}: {}", file.path, nth + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for() {
    for file in files().iter().filter(|file| !file.is_test()) {
        assert!(file.text.starts_with("//!"), "{} has no header", file.path);
    }
}

/// `Verified` is the proof of a check: only `verify` may construct it.
#[test]
fn only_verify_constructs_a_verified_delivery() {
    for file in files().iter().filter(|file| file.top() != "verify") {
        let text = file.text.replace("-> Verified {", "");
        assert!(!text.contains("Verified {"), "{} constructs a Verified", file.path);
    }
}

/// The state machine in the document names every state, outcome and reason that the code has.
#[test]
fn the_protocol_names_every_word_of_the_model() {
    use hooklatch::model::{DeadReason, DropReason, HeldReason, Outcome, State};
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/protocol.md")).unwrap();
    let machine = text.split("## The state machine of a job").nth(1).unwrap();
    let machine = machine.split("\n## ").next().unwrap();
    let words = State::ALL.iter().map(|word| word.as_str());
    let words = words.chain(Outcome::ALL.iter().map(|word| word.as_str()));
    let words = words.chain(HeldReason::ALL.iter().map(|word| word.as_str()));
    let words = words.chain(DeadReason::ALL.iter().map(|word| word.as_str()));
    let words = words.chain(DropReason::ALL.iter().map(|word| word.as_str()));
    for word in words {
        assert!(machine.contains(&format!("`{word}`")), "the page does not name '{word}'");
    }
}

/// The words of a line that have the form of a rule's number, such as `R9`.
fn rules(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
        let number = word.strip_prefix(['R', 'S', 'C', 'K', 'H', 'I', 'N']);
        number.is_some_and(|rest| {
            matches!(rest.len(), 1 | 2) && rest.bytes().all(|digit| digit.is_ascii_digit())
        })
    })
}

#[test]
fn every_cited_rule_is_in_the_protocol() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let pages = ["protocol.md", "cluster.md"].map(|name| fs::read_to_string(docs.join(name)));
    let page = pages.map(Result::unwrap).concat();
    let mut unknown = Vec::new();
    for file in files() {
        let comments = file.text.lines().filter(|line| line.trim_start().starts_with("//"));
        for rule in comments.flat_map(rules) {
            if !page.contains(&format!("| {rule} |")) {
                unknown.push(format!("{}: {rule}", file.path));
            }
        }
    }
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}
