//! Holds the rules about the source tree that matter: the layer table of `ARCHITECTURE.md`, SQL only
//! in the store, the wall clock only in `clock`, and no leftover marks.

use std::fs;
use std::path::{Path, PathBuf};

/// Module, layer, and what of its own layer it may import.
const LAYERS: &[(&str, u8, &[&str])] = &[
    ("model", 0, &[]),
    ("clock", 0, &["model"]),
    ("limits", 0, &[]),
    ("crash", 0, &[]),
    ("document", 1, &[]),
    ("pattern", 1, &[]),
    ("provider", 1, &["document", "pattern"]),
    ("retry", 1, &[]),
    ("verify", 1, &["provider"]),
    ("measure", 1, &[]),
    ("store", 2, &[]),
    ("runner", 2, &["memory", "systemd"]),
    ("handler", 2, &["runner", "store"]),
    ("confine", 2, &[]),
    ("log", 2, &[]),
    ("memory", 2, &[]),
    ("panics", 2, &[]),
    ("traffic", 2, &["notify"]),
    ("notify", 2, &["store"]),
    ("metrics", 2, &["store", "traffic"]),
    ("systemd", 2, &[]),
    ("http", 3, &[]),
    ("dispatcher", 3, &[]),
    ("admin", 3, &[]),
    ("scrape", 3, &[]),
    ("config", 4, &[]),
    ("cli", 4, &[]),
    ("serve", 4, &["config"]),
    ("cmd", 5, &["exit"]),
    ("exit", 5, &[]),
    ("probe", 5, &["cmd"]),
];

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 20, "the walk found too little to mean anything");
    found
}

fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs")
}

/// The part of a file before its unit tests.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap()
}

fn layer(module: &str) -> Option<&'static (&'static str, u8, &'static [&'static str])> {
    LAYERS.iter().find(|(name, ..)| *name == module)
}

#[test]
fn every_import_goes_down() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let module = module_of(&path);
        if module == "lib" || module == "main" || is_test_file(&path) {
            continue;
        }
        let Some((_, own, beside)) = layer(&module) else {
            wrong.push(format!("{}: '{module}' is in no layer", path.display()));
            continue;
        };
        for (nth, line) in product(&text).lines().enumerate() {
            // What the program was compiled for is no environment.
            let code = line.split("//").next().unwrap().replace("std::env::consts", "");
            for used in code.split("crate::").skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                // `use crate::{a, b}` would hide from this reading: one line each.
                if used.is_empty() {
                    wrong.push(format!(
                        "{}:{}: several modules in one use",
                        path.display(),
                        nth + 1
                    ));
                    continue;
                }
                let below = layer(used).is_some_and(|(_, theirs, _)| theirs < own);
                if used != module && !below && !beside.contains(&used) {
                    wrong.push(format!("{}:{}: {module} imports {used}", path.display(), nth + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A text, the modules it may stand in, and what to use elsewhere.
const ONLY_IN: &[(&str, &[&str], &str)] = &[
    ("SystemTime::now", &["clock"], "a Clock"),
    ("Timestamp::now", &[], "a Clock"),
    ("rusqlite", &["store"], "the store's verbs"),
    ("std::env::", &["config", "cmd"], "config::Environment"),
    ("std::io::stdout", &["cmd"], "a writer that is handed in"),
    ("println!", &[], "tracing, or a writer"),
    ("thread::sleep", &["log", "store"], "something that can be waited for"),
];

#[test]
fn what_is_reserved_stays_where_it_belongs() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let module = module_of(&path);
        if is_test_file(&path) {
            continue;
        }
        for (nth, line) in product(&text).lines().enumerate() {
            // What the program was compiled for is no environment.
            let code = line.split("//").next().unwrap().replace("std::env::consts", "");
            for (banned, homes, instead) in ONLY_IN {
                if code.contains(banned) && !homes.contains(&module.as_str()) {
                    wrong.push(format!("{}:{}: {banned}: use {instead}", path.display(), nth + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_leftover_marks() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), "unimplemented!"];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (nth, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                wrong.push(format!("{}:{}: {}", path.display(), nth + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in sources() {
        let told = text.starts_with("//!") || is_test_file(&path);
        assert!(told, "{} has no header", path.display());
    }
}

/// `Verified` is the proof of a check: only `verify` may put one together.
#[test]
fn only_verify_makes_a_verified_delivery() {
    for (path, text) in sources() {
        if module_of(&path) != "verify" {
            let made = text.replace("-> Verified {", "");
            assert!(!made.contains("Verified {"), "{} makes a Verified", path.display());
        }
    }
}

/// The picture of the state machine names every state, outcome and reason that the code has.
#[test]
fn the_architecture_names_every_word_of_the_model() {
    use hooklatch::model::{DeadReason, DropReason, HeldReason, Outcome, State};
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md"));
    let text = text.unwrap();
    let machine = text.split("## The state machine of a job").nth(1).unwrap();
    let machine = machine.split("\n## ").next().unwrap();
    let words = State::ALL.iter().map(|word| word.as_str());
    let words = words.chain(Outcome::ALL.iter().map(|word| word.as_str()));
    let words = words.chain(HeldReason::ALL.iter().map(|word| word.as_str()));
    let words = words.chain(DeadReason::ALL.iter().map(|word| word.as_str()));
    let words = words.chain(DropReason::ALL.iter().map(|word| word.as_str()));
    for word in words {
        assert!(machine.contains(&format!("`{word}`")), "ARCHITECTURE.md does not name '{word}'");
    }
}
