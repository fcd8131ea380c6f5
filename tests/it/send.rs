//! Test deliveries: signed by the command or by the receiver, and answered as a provider's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::operator::{fails, text};
use crate::support::Site;

const NOTE: &str = r#"
[sources.local]
provider = "none"
allow_unsigned = true
[sources.hooks]
provider = "standard-webhooks"
secrets = ["file:hooks.secret"]
[handlers.note]
source = ["stripe", "github", "hooks", "local"]
events = ["*"]
command = ["./note"]
"#;

fn site() -> Site {
    let site = Site::new(NOTE);
    site.script("note", r#"echo "$HOOKLATCH_SOURCE $HOOKLATCH_EVENT_TYPE" >> "$SITE/notes""#);
    fs::write(site.path("hooks.secret"), "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX\n").unwrap();
    fs::set_permissions(site.path("hooks.secret"), fs::Permissions::from_mode(0o600)).unwrap();
    site
}

/// What `send --json` says, and its exit code.
fn sent(site: &Site, args: &[&str]) -> (Option<i32>, Value) {
    let output = site.run(&[&["send", "--json"], args].concat());
    let said = text(&output.stderr);
    let told =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {said}"));
    (output.status.code(), told)
}

fn statuses(told: &Value) -> Vec<u64> {
    told["answers"].as_array().unwrap().iter().map(|a| a["status"].as_u64().unwrap()).collect()
}

#[test]
fn a_sample_of_every_provider_is_accepted_typed_and_run() {
    let site = site();
    let _receiver = site.start();
    let all = [
        ("github", "pull_request.opened"),
        ("stripe", "invoice.paid"),
        ("hooks", "user.created"),
        ("local", "test"),
    ];
    for (source, kind) in all {
        let (code, told) = sent(&site, &[source, kind]);
        assert_eq!((code, statuses(&told)), (Some(0), vec![200]), "{told}");
        assert_eq!(told["answers"][0]["body"]["status"], "accepted", "{told}");
        let shown = site.json(&["show", told["event_id"].as_str().unwrap(), "--source", source]);
        assert_eq!(shown.as_array().unwrap().len(), 1);
    }
    site.all_jobs(4, "succeeded");
    let mut notes = site.lines("notes");
    notes.sort();
    assert_eq!(
        notes,
        ["github pull_request.opened", "hooks user.created", "local test", "stripe invoice.paid"]
    );
    // Two samples differ, so that the replay guard does not take the second for a replay.
    sent(&site, &["github", "pull_request.opened"]);
    site.all_jobs(5, "succeeded");
}

#[test]
fn duplicates_forgeries_and_stale_ones_are_answered_as_they_must_be() {
    let site = site();
    let receiver = site.start();
    let (code, told) = sent(&site, &["stripe", "invoice.paid", "--duplicate"]);
    assert_eq!((code, statuses(&told)), (Some(0), vec![200, 200]));
    assert_eq!(told["answers"][1]["body"]["status"], "duplicate");
    for how in ["--forge", "--stale"] {
        let (code, told) = sent(&site, &["stripe", "invoice.paid", how]);
        assert_eq!((code, statuses(&told)), (Some(0), vec![401]), "{how}: {told}");
    }
    site.all_jobs(1, "succeeded");
    // What the receiver does not know yet is not as expected.
    site.configure("", &NOTE.replace("file:hooks.secret", "file:secret"));
    fs::write(site.path("secret"), "whsec_AAAA\n").unwrap();
    let output = site.run(&["send", "stripe", "invoice.paid"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("NOT as expected") && said.contains("--rejected"), "{said}");

    for args in [["send", "github", "push", "--stale"], ["send", "local", "push", "--forge"]] {
        let (code, said) = fails(&site, &args);
        assert_eq!(code, Some(2), "{said}");
    }
    let (code, said) = fails(&site, &["send", "githup", "push"]);
    assert_eq!(code, Some(66));
    assert!(said.contains("did you mean github?"), "{said}");
    drop(receiver);
    let (code, said) = fails(&site, &["send", "github", "push", "--to", "127.0.0.1:1"]);
    assert_eq!(code, Some(69));
    assert!(said.contains("hooklatch serve"), "{said}");
}

#[test]
fn a_handlers_own_answer_is_as_expected_and_its_failure_is_not() {
    let pay = r#"
[sources.pay]
provider = "bearer"
reply = "handler"
secrets = ["file:secret"]
[sources.till]
provider = "certificate"
reply = "handler"
certificate_header = "X-Client-Cert"
[handlers.pay]
source = ["pay", "till"]
events = ["*"]
command = ["./pay"]
"#;
    let site = Site::new(pay);
    let listen = "listen = \"127.0.0.1:0\"";
    let trusting = format!("{listen}\ntrusted_proxies = [\"127.0.0.2\"]");
    let written = fs::read_to_string(site.config()).unwrap();
    fs::write(site.config(), written.replace(listen, &trusting)).unwrap();
    site.script(
        "pay",
        r#"[ "$HOOKLATCH_EVENT_TYPE" != broken ] || exit 1; printf 'Status: 402\n\nno money'"#,
    );
    let _receiver = site.start();
    let results = |told: &Value| -> Vec<Value> {
        told["answers"].as_array().unwrap().iter().map(|one| one["result"].clone()).collect()
    };
    let (code, told) = sent(&site, &["pay", "test"]);
    assert_eq!((code, statuses(&told)), (Some(0), vec![402]), "{told}");
    assert_eq!(results(&told), ["created"]);
    let next = told["next"].as_str().unwrap();
    assert!(next.starts_with("hooklatch show sample-"), "{next}");
    let (code, told) = sent(&site, &["pay", "test", "--duplicate"]);
    assert_eq!((code, statuses(&told)), (Some(0), vec![402, 402]), "{told}");
    assert_eq!(results(&told), ["created", "reused"]);
    let (code, told) = sent(&site, &["pay", "test", "--forge"]);
    assert_eq!((code, statuses(&told)), (Some(0), vec![401]), "{told}");
    for how in [&["pay", "broken"][..], &["pay", "broken", "--duplicate"]] {
        let output = site.run(&[&["send"], how].concat());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("answered  502 ") && said.contains("NOT as expected"), "{said}");
        assert!(said.contains("handler must answer") && said.contains("hooklatch show"), "{said}");
    }
    let (code, said) = fails(&site, &["send", "till", "test"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("certificates") && said.contains("proxy"), "{said}");
}

#[test]
fn a_given_body_is_sent_as_it_is() {
    let site = site();
    let _receiver = site.start();
    let body = r#"{ "id": "evt_7", "type": "invoice.paid",  "odd": 1.0 }"#;
    fs::write(site.path("body.json"), body).unwrap();
    let file = site.path("body.json");
    let file = file.to_str().unwrap();
    let (code, told) = sent(&site, &["stripe", "invoice.paid", "--body", file]);
    assert_eq!((code, told["event_id"].as_str()), (Some(0), Some("evt_7")));
    assert_eq!(site.run(&["show", "evt_7", "--body"]).stdout, body.as_bytes());
    let (_, told) = sent(&site, &["github", "push", "--body", file, "--id", "d-1"]);
    assert_eq!(told["answers"][0]["body"]["event"], "d-1");

    let (code, said) =
        fails(&site, &["send", "stripe", "invoice.paid", "--body", file, "--id", "evt_8"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("evt_7"), "{said}");
    let (code, said) = fails(&site, &["send", "stripe", "invoice.voided", "--body", file]);
    assert_eq!(code, Some(2));
    assert!(said.contains("invoice.paid"), "{said}");
    fs::write(file, r#"{"action":"opened"}"#).unwrap();
    let (code, said) = fails(&site, &["send", "github", "pull_request.closed", "--body", file]);
    assert_eq!(code, Some(2));
    assert!(said.contains("pull_request.opened"), "{said}");
    assert_eq!(fails(&site, &["send", "github", "a\nb"]).0, Some(2));
    assert_eq!(fails(&site, &["send", "stripe", "a", "--body", "/no/such"]).0, Some(66));
}

#[test]
fn the_receiver_signs_where_the_shell_cannot_read_the_secret() {
    let site = site();
    let sources = NOTE.replace("file:hooks.secret", "env:HOOKS_SECRET");
    site.configure("", &sources);
    let (code, said) = fails(&site, &["send", "hooks", "user.created", "--to", "127.0.0.1:1"]);
    assert_eq!(code, Some(69));
    assert!(said.contains("HOOKS_SECRET") && said.contains("receiver"), "{said}");

    let _receiver = site.start_with(&[("HOOKS_SECRET", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")]);
    let (code, told) = sent(&site, &["hooks", "user.created"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["signed_with"], "env:HOOKS_SECRET, by the receiver");
    site.all_jobs(1, "succeeded");
}
