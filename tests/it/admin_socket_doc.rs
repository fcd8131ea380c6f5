//! `docs/admin-socket.md` has every request of the admin socket, made from the code that declares them.

use crate::support::made;
use std::fs;
use std::path::Path;

/// Name as it goes over the wire, and what its comment says.
fn requests() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("src/control/mod.rs")).unwrap();
    let body = text.split_once("pub enum Request {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let (mut requests, mut said) = (Vec::new(), String::new());
    for line in body.lines() {
        // A request stands at the first level, and what it carries deeper.
        let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}']))
        else {
            continue;
        };
        if let Some(more) = line.strip_prefix("///") {
            said.push_str(more);
        } else if !line.starts_with("#[") {
            let name = line.split(['(', ' ', ',']).next().unwrap();
            requests.push((snake(name), std::mem::take(&mut said).trim().to_owned()));
        }
    }
    requests
}

/// As serde's `snake_case` does.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[test]
fn every_request_is_described() {
    let requests = requests();
    assert!(requests.len() >= 23, "{requests:?}");
    let rows = requests.iter().map(|(name, said)| format!("| `{name}` | {said} |\n"));
    let table = format!("| request | |\n|---|---|\n{}", rows.collect::<String>());
    made::holds("admin-socket.md", "requests", &table);
}

#[test]
fn names_are_those_of_the_wire() {
    use hooklatch::control::Request;
    let wire = |request: Request| serde_json::to_value(request).unwrap();
    assert_eq!(wire(Request::Paused), snake("Paused"));
    assert_eq!(wire(Request::Info), snake("Info"));
    assert_eq!(snake("MakeMissing"), "make_missing");
}
