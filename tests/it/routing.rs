//! The guide to conditions, values and order: its configuration loads, and `try` prints what it shows.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it routing::` writes the answers into the guide; read the diff.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Site;

const CHAT: &str = "[sources.chat]\nprovider = \"none\"\nallow_unsigned = true\npath = \"/chat\"\n";

/// The text between each fence of `language` and its end.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_guide_shows_what_try_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = root.join("docs/routing.md");
    let text = fs::read_to_string(&guide).unwrap();
    let site = Site::with(CHAT, &blocks(&text, "toml").concat());
    // The check looks for every program.
    for program in text.split("[\"./").skip(1).filter_map(|rest| rest.split('"').next()) {
        site.script(program, "");
    }
    let check = site.run(&["config", "check"]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    let program = Path::new(env!("CARGO_BIN_EXE_hooklatch")).parent().unwrap();
    let mut made = text.clone();
    let consoles = blocks(&text, "console");
    assert_eq!(consoles.len(), 12, "one for each case");
    for block in consoles {
        let mut found = String::new();
        for line in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let output = Command::new("sh")
                .args(["-c", line])
                .current_dir(root.join("examples/routing"))
                .env("HOOKLATCH_CONFIG", site.config())
                .env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()))
                .output()
                .unwrap();
            assert!(
                output.stderr.is_empty(),
                "{line}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            writeln!(found, "$ {line}\n{}", String::from_utf8(output.stdout).unwrap().trim_end())
                .unwrap();
        }
        made = made.replacen(
            &format!("```console\n{block}```"),
            &format!("```console\n{found}```"),
            1,
        );
    }
    let made = made.replace(&site.path("").display().to_string(), "DIR/");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&guide, &made).unwrap();
    }
    assert_eq!(made, fs::read_to_string(&guide).unwrap());
}
