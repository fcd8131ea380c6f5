//! Test deliveries with `send`, signed by the command or by the receiver.

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

/// The exit code and the JSON output of `send --json`.
fn sent(site: &Site, args: &[&str]) -> (Option<i32>, Value) {
    let output = site.run(&[&["send", "--json"], args].concat());
    let said = text(&output.stderr);
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {said}"));
    (output.status.code(), report)
}

fn statuses(report: &Value) -> Vec<u64> {
    report["answers"].as_array().unwrap().iter().map(|a| a["status"].as_u64().unwrap()).collect()
}

#[test]
fn a_sample_of_every_provider_is_accepted_with_its_type_and_runs() {
    let site = site();
    let _receiver = site.start();
    let all = [
        ("github", "pull_request.opened"),
        ("stripe", "invoice.paid"),
        ("hooks", "user.created"),
        ("local", "test"),
    ];
    for (source, kind) in all {
        let (code, report) = sent(&site, &[source, kind]);
        assert_eq!((code, statuses(&report)), (Some(0), vec![200]), "{report}");
        assert_eq!(report["answers"][0]["facts"]["status"], "accepted", "{report}");
        let shown = site.json(&["show", report["event_id"].as_str().unwrap(), "--source", source]);
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
    let (code, report) = sent(&site, &["github", "pull_request.opened"]);
    assert_eq!(code, Some(0), "{report}");
    site.all_jobs(5, "succeeded");
}

/// Sends a sample, and returns the body that the receiver stored.
fn stored_body(site: &Site, source: &str, kind: &str) -> Value {
    let (code, report) = sent(site, &[source, kind]);
    assert_eq!(code, Some(0), "{report}");
    let id = report["event_id"].as_str().unwrap();
    serde_json::from_slice(&site.run(&["show", id, "--source", source, "--body"]).stdout).unwrap()
}

#[test]
fn a_url_with_a_password_and_a_query_is_signed_as_it_was_given_and_shown_without_the_password() {
    let base = "https://name:only-for-tests@hooks.example.org/calls";
    let sources = format!(
        "[sources.calls]\nprovider = \"twilio\"\nsecrets = \"file:secret\"\n\
         public_url = [\"{base}?team=a\", \"{base}?team=b\"]\n"
    );
    let site = Site::with(&sources, "");
    let _receiver = site.start();
    let (code, report) = sent(&site, &["calls", "delivered", "--no-wait"]);
    assert_eq!((code, statuses(&report)), (Some(0), vec![200]), "{report}");
    assert!(report["url"].as_str().unwrap().ends_with("/hooks/calls?team=a"), "{report}");
    let shown = text(&site.run(&["config", "show"]).stdout) + &report.to_string();
    assert!(shown.contains("https://hooks.example.org/calls"), "{shown}");
    assert!(!shown.contains("only-for-tests"), "{shown}");
}

#[test]
fn samples_have_the_form_that_the_provider_documents() {
    let site = site();
    let _receiver = site.start();
    let push = stored_body(&site, "github", "push");
    let commit = push["after"].as_str().unwrap();
    assert_eq!(commit.len(), 40);
    assert_eq!(push["head_commit"]["id"], commit);
    assert_eq!(push["ref"], "refs/heads/main");
    assert_eq!(push["repository"]["full_name"], "example/repo");
    assert!(push["repository"]["pushed_at"].is_u64(), "{push}");
    assert_ne!(stored_body(&site, "github", "push")["after"], commit);
    let merged = stored_body(&site, "github", "pull_request.closed");
    assert_eq!(merged["action"], "closed");
    assert_eq!(merged["pull_request"]["merged"], true);
    assert_eq!(merged["pull_request"]["base"]["ref"], "main");
    let rare = stored_body(&site, "github", "milestone.created");
    assert_eq!(
        (rare["action"].as_str(), rare["repository"]["name"].as_str()),
        (Some("created"), Some("repo"))
    );
    let paid = stored_body(&site, "stripe", "invoice.paid");
    assert_eq!(
        (paid["object"].as_str(), paid["type"].as_str()),
        (Some("event"), Some("invoice.paid"))
    );
    let invoice = &paid["data"]["object"];
    assert_eq!(
        (invoice["object"].as_str(), invoice["status"].as_str()),
        (Some("invoice"), Some("paid"))
    );
    let age = jiff::Timestamp::now().as_second() - paid["created"].as_i64().unwrap();
    assert!((0..60).contains(&age), "{paid}");
    let hook = stored_body(&site, "hooks", "user.created");
    assert!(hook["timestamp"].is_string() && hook["data"].is_object(), "{hook}");
}

/// The exit code and the output of `send`.
fn printed(site: &Site, args: &[&str]) -> (Option<i32>, String) {
    let output = site.run(&[&["send"], args].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn send_waits_for_each_handler_and_prints_its_outcome_and_output() {
    let site = Site::new(
        r#"
[handlers.deploy]
source = "github"
events = ["push", "release.published"]
command = ["./deploy"]
[handlers.mail]
source = "github"
events = ["push", "create"]
command = ["./mail"]
max_attempts = 1
[handlers.slow]
source = "github"
events = ["fork"]
command = ["./slow"]
"#,
    );
    site.script("deploy", r#"echo "deploying $HOOKLATCH_EVENT_TYPE""#);
    site.script("mail", "[ $HOOKLATCH_EVENT_TYPE = push ] || { echo 'no such user' >&2; exit 3; }");
    site.script("slow", "until [ -e \"$SITE/go\" ]; do sleep 0.05; done");
    let _receiver = site.start();

    let (code, said) = printed(&site, &["github", "push"]);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "answered  200 accepted",
        "handler   deploy: succeeded, exit status 0",
        "    out | deploying push",
        "handler   mail: succeeded, exit status 0",
        "as expected",
    ] {
        assert!(said.lines().any(|one| one == line), "{line:?} is not in:\n{said}");
    }

    let (code, said) = printed(&site, &["github", "create"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("handler   mail: failed, exit status 3; the job is dead: "), "{said}");
    assert!(
        said.contains("    err | no such user\nNOT as expected: handler mail is dead"),
        "{said}"
    );
    let (code, said) = printed(&site, &["github", "create", "--no-wait"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("mail"), "{said}");

    // For a type that no handler wants, the nearest wanted type is suggested.
    let (code, said) = printed(&site, &["github", "pussh"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("NOT as expected: no handler wants pussh"), "{said}");
    assert!(said.contains("          deploy wants push, release.published"), "{said}");
    assert!(said.contains("hooklatch send github push"), "{said}");

    assert!(site.run(&["pause", "deploy"]).status.success());
    let (code, said) = printed(&site, &["github", "release.published"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("NOT as expected: handler deploy is paused"), "{said}");
    assert!(said.contains("hooklatch resume deploy"), "{said}");

    let (code, said) = printed(&site, &["github", "fork", "--wait", "50ms"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("NOT known yet: handler slow is "), "{said}");
    assert!(said.contains(" --source github --config ") && said.contains(" --follow"), "{said}");
    fs::write(site.path("go"), "").unwrap();
}

#[test]
fn a_body_sent_twice_is_held_and_reported() {
    let site = site();
    let _receiver = site.start();
    let push = site.path("push.json");
    fs::write(&push, r#"{"ref":"refs/heads/main"}"#).unwrap();
    let args = ["github", "push", "--body", push.to_str().unwrap()];
    let (code, said) = printed(&site, &args);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = printed(&site, &args);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("handler   note: held: suspected replay"), "{said}");
    assert!(
        said.contains(
            "NOT as expected: handler note is held: suspected replay, since the same body"
        ),
        "{said}"
    );
    assert!(said.contains("next      hooklatch explain "), "{said}");
    // The same event is a duplicate, and no handler runs.
    let again = [&args[..], &["--id", "d-1"]].concat();
    fs::write(&push, r#"{"ref":"refs/heads/other"}"#).unwrap();
    assert_eq!(printed(&site, &again).0, Some(0));
    let (code, said) = printed(&site, &again);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("NOT as expected: this event came before"), "{said}");
}

#[test]
fn send_explains_a_wrong_body_and_an_unusable_secret() {
    let site = site();
    let small = NOTE.replace("provider = \"none\"", "provider = \"none\"\nmax_body = \"1 KiB\"");
    site.configure("", &small);
    let receiver = site.start();
    let body = site.path("body");
    let file = body.to_str().unwrap();
    fs::write(&body, "no JSON").unwrap();
    let (code, said) = printed(&site, &["stripe", "invoice.paid", "--body", file]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is not an event of stripe: it has no id"), "{said}");
    fs::write(&body, r#"{"id":"evt_1"}"#).unwrap();
    let (code, said) = printed(&site, &["stripe", "invoice.paid", "--body", file]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is not an event of stripe: it has no type"), "{said}");
    fs::write(&body, "x".repeat(2000)).unwrap();
    let (code, said) = printed(&site, &["local", "test", "--body", file]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("next      raise max_body of source local, which is 1.0 KiB now"),
        "{said}"
    );

    fs::write(site.path("secret"), "").unwrap();
    let (code, said) = printed(&site, &["stripe", "invoice.paid"]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("error: the secret of source stripe is empty"), "{said}");
    let put = format!("put stripe's secret into {}", site.path("secret").display());
    assert!(said.contains(&put), "{said}");

    // Without a receiver the handlers' outcome is not known and not reported.
    drop(receiver);
    let (code, said) = printed(&site, &["local", "test", "--to", "127.0.0.1:1"]);
    assert_eq!(code, Some(69), "{said}");
}

#[test]
fn duplicate_forged_and_stale_deliveries_get_the_expected_answers() {
    let site = site();
    let receiver = site.start();
    let (code, report) = sent(&site, &["stripe", "invoice.paid", "--duplicate"]);
    assert_eq!((code, statuses(&report)), (Some(0), vec![200, 200]));
    assert_eq!(report["answers"][1]["facts"]["status"], "duplicate");
    for how in ["--forge", "--stale"] {
        let (code, report) = sent(&site, &["stripe", "invoice.paid", how]);
        assert_eq!((code, statuses(&report)), (Some(0), vec![401]), "{how}: {report}");
    }
    site.all_jobs(1, "succeeded");
    // A change that the receiver has not loaded leads to an unexpected answer.
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
fn tokens_are_sent_and_requests_of_a_private_key_are_not() {
    let site = Site::new(
        "[sources.site]\nprovider = \"netlify\"\nsecrets = [\"file:secret\"]\n\
         [sources.call]\nprovider = \"livekit\"\nsecrets = [\"file:secret\"]\n\
         [sources.game]\nprovider = \"discord\"\nsecrets = [\"file:public\"]\n\
         [handlers.note]\nsource = [\"site\", \"call\", \"game\"]\nevents = \"*\"\ncommand = [\"/bin/true\"]\n",
    );
    fs::write(site.path("public"), "").unwrap();
    fs::set_permissions(site.path("public"), fs::Permissions::from_mode(0o600)).unwrap();
    let _receiver = site.start();
    for (source, kind) in [("site", "deploy_created"), ("call", "room_started")] {
        for (how, status) in [("--no-wait", 200), ("--forge", 401)] {
            let (code, report) = sent(&site, &[source, kind, how]);
            assert_eq!((code, statuses(&report)), (Some(0), vec![status]), "{how}: {report}");
        }
    }
    let (code, report) = sent(&site, &["call", "room_started", "--stale"]);
    assert_eq!((code, statuses(&report)), (Some(0), vec![401]), "{report}");
    let (code, said) = fails(&site, &["send", "game", "test"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the provider's own test button"), "{said}");
}

#[test]
fn any_answer_of_a_handler_is_expected_and_its_failure_is_not() {
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
    site.write_config(written.replace(listen, &trusting));
    site.script(
        "pay",
        r#"[ "$HOOKLATCH_EVENT_TYPE" != broken ] || exit 1; printf 'Status: 402\n\nno money'"#,
    );
    let _receiver = site.start();
    let results = |report: &Value| -> Vec<Value> {
        report["answers"].as_array().unwrap().iter().map(|one| one["result"].clone()).collect()
    };
    let (code, report) = sent(&site, &["pay", "test"]);
    assert_eq!((code, statuses(&report)), (Some(0), vec![402]), "{report}");
    assert_eq!(results(&report), ["created"]);
    let next = report["next"].as_str().unwrap();
    assert!(next.starts_with("hooklatch show sample-"), "{next}");
    let (code, report) = sent(&site, &["pay", "test", "--duplicate"]);
    assert_eq!((code, statuses(&report)), (Some(0), vec![402, 402]), "{report}");
    assert_eq!(results(&report), ["created", "reused"]);
    let (code, report) = sent(&site, &["pay", "test", "--forge"]);
    assert_eq!((code, statuses(&report)), (Some(0), vec![401]), "{report}");
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
fn a_given_body_is_sent_unchanged() {
    let site = site();
    let _receiver = site.start();
    let body = r#"{ "id": "evt_7", "type": "invoice.paid",  "odd": 1.0 }"#;
    fs::write(site.path("body.json"), body).unwrap();
    let file = site.path("body.json");
    let file = file.to_str().unwrap();
    let (code, report) = sent(&site, &["stripe", "invoice.paid", "--body", file]);
    assert_eq!((code, report["event_id"].as_str()), (Some(0), Some("evt_7")));
    assert_eq!(site.run(&["show", "evt_7", "--body"]).stdout, body.as_bytes());
    let (_, report) = sent(&site, &["github", "push", "--body", file, "--id", "d-1"]);
    assert_eq!(report["answers"][0]["facts"]["event"], "d-1");

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
fn the_receiver_signs_if_send_cannot_read_the_secret() {
    let site = site();
    let sources = NOTE.replace("file:hooks.secret", "env:HOOKS_SECRET");
    site.configure("", &sources);
    let (code, said) = fails(&site, &["send", "hooks", "user.created", "--to", "127.0.0.1:1"]);
    assert_eq!(code, Some(69));
    assert!(said.contains("HOOKS_SECRET") && said.contains("receiver"), "{said}");

    let _receiver = site.start_with(&[("HOOKS_SECRET", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")]);
    let (code, report) = sent(&site, &["hooks", "user.created"]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["signed_with"], "env:HOOKS_SECRET, by the receiver");
    site.all_jobs(1, "succeeded");
}
