//! The files of the package that are generated from the sources: each command has a manual page, each
//! limit is described, `man` reports no problem, and every library's licence is included.

#[path = "../../packaging/pages/commands.rs"]
mod commands;
#[path = "../../packaging/pages/configuration.rs"]
mod configuration;
#[path = "../../packaging/pages/copyright.rs"]
mod copyright;
#[path = "../../packaging/pages/pages.rs"]
mod written;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use hooklatch::cli::Cli;
use hooklatch::limits::TABLE;

use crate::support::needs;

/// Adds the file name of the manual page of each visible command to `found`.
fn named(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
    found.insert(format!("{name}.1"));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        named(sub, &format!("{name}-{}", sub.get_name()), found);
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The page as a terminal with 100 columns shows it; `None` if `man` is not installed.
fn shown(page: &Path) -> Option<String> {
    let mut man = Command::new("man");
    man.args(["--warnings=w", "-P", "cat", "-l"]).arg(page);
    man.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let output = match man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100").output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{error}"),
    };
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && complaint.is_empty(), "{}: {complaint}", page.display());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn each_command_has_a_manual_page_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    written::write(folder.path()).unwrap();
    let man = folder.path().join("man");
    let mut wanted = BTreeSet::from(["hooklatch.toml.5".to_owned()]);
    named(&Cli::command(), "hooklatch", &mut wanted);
    assert_eq!(names(&man), wanted);

    let shown: Vec<_> = wanted.iter().map(|name| (name, shown(&man.join(name)))).collect();
    if shown.iter().any(|(_, text)| text.is_none()) {
        return needs::missing("man", "apt install man-db groff-base");
    }
    let text = |name: &str| {
        shown.iter().find(|(page, _)| *page == name).and_then(|(_, text)| text.as_deref()).unwrap()
    };
    let page = text("hooklatch.toml.5");
    for limit in TABLE.iter().filter(|limit| !limit.key.starts_with("keep_")) {
        assert!(page.contains(&format!("       {}\n", limit.key)), "{}", limit.key);
    }
    // The lines of an example are not joined.
    let show = text("hooklatch-show.1");
    assert!(show.contains("EXAMPLES\n           hooklatch show evt_1DemoPaid00000001\n"), "{show}");
    assert!(text("hooklatch.1").contains("\n           69  the store or the receiver"));
}

#[test]
fn the_completions_of_each_shell_have_every_command() {
    let folder = tempfile::tempdir().unwrap();
    written::write(folder.path()).unwrap();
    let completions = folder.path().join("completions");
    let files = ["_hooklatch", "hooklatch.bash", "hooklatch.fish"];
    assert_eq!(names(&completions), files.map(str::to_owned).into());
    for file in files {
        let text = fs::read_to_string(completions.join(file)).unwrap();
        for sub in Cli::command().get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(text.contains(sub.get_name()), "{file} lacks {}", sub.get_name());
        }
    }
    // Runs the completion in bash, which every build machine has.
    let bash = completions.join("hooklatch.bash");
    let asked = "source \"$1\"; COMP_WORDS=(hooklatch rep); COMP_CWORD=1; \
                 _hooklatch hooklatch rep hooklatch; echo \"${COMPREPLY[*]}\"";
    let output = Command::new("bash").args(["-c", asked, "bash"]).arg(bash).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "replay", "{complaint}");
}

#[test]
fn every_library_in_the_binary_is_listed_with_its_licence() {
    let text = copyright::text("ours").unwrap();
    for library in ["actix-web", "libsqlite3-sys", "rusqlite", "tokio"] {
        let line = text.lines().find(|line| line.starts_with(&format!("  {library} ")));
        assert!(line.is_some_and(|line| !line.ends_with(": ")), "{library}: {line:?}");
    }
    // Libraries that only the tests or the build use are not listed.
    for other in ["proptest", "clap_mangen", "cc", "serde_derive"] {
        assert!(!text.contains(&format!("  {other} ")), "{other}");
    }
    assert!(text.matches("Permission is hereby granted").count() > 20);
}
