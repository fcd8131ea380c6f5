//! The findings of `doctor` on a real machine, with a running receiver and without one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::operator::text;
use crate::support::Site;

const HANDLERS: &str = r#"
[handlers.note]
source = "github"
events = ["push"]
command = ["./note"]
"#;

/// The exit code, and each finding as (check, verdict, observation and fix).
fn doctor(site: &Site) -> (i32, Vec<(String, String, String)>) {
    doctor_with(site, &[])
}

fn doctor_with(site: &Site, more: &[&str]) -> (i32, Vec<(String, String, String)>) {
    let output = site.run(&[&["doctor", "--json"][..], more].concat());
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let found = said["findings"].as_array().unwrap().iter().map(|one| {
        let word = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        (word("check"), word("verdict"), format!("{} | {}", word("seen"), word("fix")))
    });
    (output.status.code().unwrap(), found.collect())
}

#[test]
fn a_healthy_site_has_no_bad_finding_with_and_without_a_receiver() {
    let site = Site::new(HANDLERS);
    site.script("note", "exit 0");
    let (code, stopped) = doctor(&site);
    assert_eq!(code, 0, "{stopped:#?}");
    assert!(stopped.iter().any(|(check, verdict, _)| check == "receiver" && verdict == "unknown"));

    let receiver = site.start();
    receiver.github("d-1", "push", "{}");
    site.all_jobs(1, "succeeded");
    let (code, running) = doctor(&site);
    assert_eq!(code, 0, "{running:#?}");
    let seen = |check: &str| {
        let found = running.iter().find(|(name, ..)| name == check);
        found.unwrap_or_else(|| panic!("{check}: {running:#?}")).clone()
    };
    let (_, verdict, receivers) = seen("receiver");
    assert!(verdict == "ok" && receivers.contains(&receiver.pid().to_string()), "{receivers}");
    assert!(seen("runner").2.contains("connected"));
    assert_eq!(seen("control groups").1, "ok");
    assert!(seen("flush").2.contains("ms"));
    // Only a delivery from outside can test a proxy, so the finding names the command.
    let (_, verdict, proxy) = seen("proxy");
    assert!(verdict == "unknown" && proxy.contains("25.0 MiB"), "{proxy}");
    assert!(proxy.contains("hooklatch send github push --url https://YOUR-HOST"), "{proxy}");
    let shown = text(&site.run(&["doctor"]).stdout);
    assert!(shown.contains("CHECK") && shown.contains("unwise"), "{shown}");
}

#[test]
fn a_command_that_cannot_be_executed_is_a_bad_finding_with_its_fix() {
    let site = Site::new(HANDLERS);
    site.script("note", "exit 0");
    let script = site.path("note");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, found) = doctor(&site);
    assert_eq!(code, 1, "{found:#?}");
    let bad: Vec<_> = found.iter().filter(|(_, verdict, _)| verdict == "bad").collect();
    assert_eq!(bad.len(), 1, "{found:#?}");
    assert!(bad[0].2.contains("chmod +x"), "{bad:?}");
}

#[test]
fn a_deep_look_names_each_damaged_payload_with_and_without_a_receiver() {
    let site = Site::new(HANDLERS);
    site.script("note", "exit 0");
    let payloads = || {
        let (code, found) = doctor_with(&site, &["--deep"]);
        let last = found.last().unwrap().clone();
        assert_eq!(last.0, "payloads", "{found:#?}");
        (code, last.1, last.2)
    };
    // There is no store yet.
    let (code, verdict, _) = payloads();
    assert_eq!((code, verdict.as_str()), (1, "bad"));
    let receiver = site.start();
    for id in ["d-1", "d-2", "d-3"] {
        receiver.github(id, "push", &format!(r#"{{"n": "{id}"}}"#));
    }
    site.all_jobs(3, "succeeded");
    let whole = (0, "ok".to_owned(), "3 payloads compared, none damaged | ".to_owned());
    assert_eq!(payloads(), whole);
    assert_eq!(receiver.stop(), Some(0));
    assert_eq!(payloads(), whole);
    let store = rusqlite::Connection::open(site.store()).unwrap();
    let changed = "UPDATE payload SET headers = zeroblob(length(headers))
        WHERE event = (SELECT row FROM event WHERE event_id = 'd-2')";
    assert_eq!(store.execute(changed, []).unwrap(), 1);
    drop(store);
    let damaged = || {
        let (code, verdict, seen) = payloads();
        assert_eq!((code, verdict.as_str()), (1, "bad"));
        assert!(seen.starts_with("1 of 3 payloads damaged: github d-2 | "), "{seen}");
    };
    damaged();
    let _receiver = site.start();
    damaged();
    let (code, found) = doctor(&site);
    assert!(code == 0 && found.iter().all(|(check, ..)| check != "payloads"), "{found:#?}");
}
