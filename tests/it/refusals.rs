//! The reasons for which a receiver refuses to start, with their messages and exit codes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::Site;

/// Starts the receiver, which must refuse, and returns its exit code and error output.
fn refused(site: &Site) -> (i32, String) {
    let mut child = site.command(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap) {
        said += &format!("{line}\n");
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if fields["message"] == "serving" {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it serves: {said}");
        }
    }
    (child.wait().unwrap().code().unwrap(), said)
}

/// Changes the header of a store that is not in use. What its log had is in the file then.
fn change(site: &Site, pragma: &str, value: u32) {
    let store = rusqlite::Connection::open(site.store()).unwrap();
    store.pragma_update(None, pragma, value).unwrap();
    store.close().unwrap();
    assert!(!site.path("store.db-wal").exists());
}

#[test]
fn a_second_receiver_is_refused_and_names_the_holder_of_the_store() {
    let site = Site::new("");
    let receiver = site.start();
    let (code, said) = refused(&site);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("store.db is in use by"), "{said}");
    assert!(said.contains(&format!("pid {}", receiver.pid())), "{said}");
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_not_changed() {
    let site = Site::new("");
    fs::write(
        site.path("store.db"),
        "certainly not a database, and longer than a header is\n".repeat(40),
    )
    .unwrap();
    let before = fs::read(site.path("store.db")).unwrap();
    let (code, said) = refused(&site);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("store.db") && said.contains("database"), "{said}");
    assert_eq!(fs::read(site.path("store.db")).unwrap(), before);
}

#[test]
fn a_store_of_a_newer_version_is_refused_by_name_and_version() {
    let site = Site::new("");
    assert_eq!(site.start().stop(), Some(0));
    change(&site, "user_version", 999);
    let (code, said) = refused(&site);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("store.db") && said.contains("newer") && said.contains("999"), "{said}");
}

#[test]
fn a_store_of_a_development_build_is_refused_by_serve_and_restore() {
    let site = Site::new("");
    assert_eq!(site.start().stop(), Some(0));
    change(&site, "application_id", u32::from_be_bytes(*b"Hook"));
    let bytes = fs::read(site.store()).unwrap();
    let text = "made by a development build; nothing reads it: keep it, start with a new path";
    let (code, said) = refused(&site);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("store.db: ") && said.contains(text), "{said}");
    assert_eq!(fs::read(site.path("store.db")).unwrap(), bytes);
    let new = Site::new("");
    let restored = new.run(&["restore", site.path("store.db").to_str().unwrap()]);
    let said = String::from_utf8(restored.stderr).unwrap();
    assert_eq!(restored.status.code(), Some(65), "{said}");
    assert!(said.contains(text), "{said}");
    assert!(!new.store().exists());
}

#[test]
fn a_store_in_a_missing_folder_is_refused() {
    let site = Site::new("");
    let text = fs::read_to_string(site.config()).unwrap();
    site.write_config(text.replace("\"store.db\"", "\"nowhere/store.db\""));
    let (code, said) = refused(&site);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn a_busy_port_is_named_and_no_store_is_created() {
    let site = Site::new("");
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let text = fs::read_to_string(site.config()).unwrap();
    site.write_config(text.replace("127.0.0.1:0", &address));
    let (code, said) = refused(&site);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains(&address), "{said}");
    assert!(!site.path("store.db").exists());
}

#[test]
fn a_wrong_configuration_reports_every_problem() {
    let site = Site::new("[handlers.a]\nsource = \"githb\"\nevents = []\ncomand = [\"true\"]\n");
    let (code, said) = refused(&site);
    assert_eq!(code, 78, "{said}");
    for wanted in ["githb", "comand", "hooklatch.toml:"] {
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn an_unreadable_secret_is_named() {
    let site = Site::new("");
    fs::remove_file(site.path("secret")).unwrap();
    let (code, said) = refused(&site);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("secret"), "{said}");
}

#[test]
fn a_missing_command_makes_its_handler_back_off_and_uses_up_no_attempt() {
    let handler =
        "[handlers.gone]\nsource = \"github\"\nevents = [\"push\"]\ncommand = [\"./gone\"]\n";
    let site = Site::with("[limits]\nhandler_backoff_base_millis = \"100ms\"", handler);
    let receiver = site.start();
    receiver.github("d-1", "push", "{}");
    let line = receiver.log_when(|line| {
        line["message"].as_str().is_some_and(|message| message.contains("cannot run"))
    });
    assert_eq!(line["handler"], "gone");
    let broken = site.json(&["jobs"]);
    assert!(["ready", "running"].contains(&broken[0]["state"].as_str().unwrap()), "{broken}");
    // After the fix the jobs run: no attempt was used up, and no replay is needed.
    site.script("gone", "exit 0");
    site.all_jobs(1, "succeeded");
}

#[test]
fn commands_read_through_a_running_receiver_or_under_the_lock() {
    let site = Site::new("");
    let missing = site.run(&["show", "evt_none"]);
    assert_eq!(missing.status.code(), Some(66), "reading must not create a store");
    assert!(!site.path("store.db").exists());
    let receiver = site.start();
    receiver.github("d-1", "push", "{}");
    assert_eq!(site.json(&["events"]).as_array().unwrap().len(), 1);
    let mode = fs::metadata(site.path("store.db")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    receiver.stop();
    assert_eq!(site.json(&["events"]).as_array().unwrap().len(), 1);
}
