//! Several events in one request: each is an event of its own, and all are stored or none is.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::support::{Receiver, Site, hmac, post};

const SECRET: &str = "list-secret";
const SITE: &str = r#"
[sources.lists]
provider = "patient-line"
path = "/lists"
secrets = ["file:lists.secret"]
[handlers.note]
source = "lists"
events = ["*"]
command = ["./note"]
when = { "/wanted" = { not = false } }
"#;

fn site() -> (Site, Receiver) {
    let site = Site::new("");
    // LINE waits for 2 s. A list of 5,000 takes longer while other tests run.
    fs::create_dir(site.path("providers")).unwrap();
    let file = "name = \"patient-line\"\nlike = \"line\"\n[delivery]\ndeadline = \"1min\"\n";
    fs::write(site.path("providers/patient-line.toml"), file).unwrap();
    site.configure("[limits]\naccept_wait_millis = \"1min\"\n", SITE);
    secret(&site, SECRET);
    site.script(
        "note",
        r#"echo "$HOOKLATCH_EVENT_ID $HOOKLATCH_EVENT_TYPE $(cat)" >> "$SITE/notes"
test -z "$HOOKLATCH_SENDER_ID" || echo "$HOOKLATCH_SENDER_ID" >> "$SITE/sender-ids""#,
    );
    let receiver = site.start();
    (site, receiver)
}

fn secret(site: &Site, text: &str) {
    let path = site.path("lists.secret");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn event(id: &str) -> Value {
    json!({ "webhookEventId": id, "type": "message" })
}

fn deliver(receiver: &Receiver, events: &[Value]) -> (u16, Value) {
    send(receiver, &json!({ "destination": "U1", "events": events }).to_string())
}

fn send(receiver: &Receiver, body: &str) -> (u16, Value) {
    let signature = BASE64.encode(&hmac(SECRET, body.as_bytes()));
    let header = format!("X-Line-Signature: {signature}\r\n");
    post(receiver.address, "/lists", &header, body.as_bytes())
}

#[test]
fn each_element_is_an_event_with_its_own_bytes_once() {
    let (site, receiver) = site();
    let body = r#"{"destination":"U1","events":[ {"type" : "message","webhookEventId":"a"},
        {"webhookEventId":"b","type":"follow","wanted":false}, {"type" : "message","webhookEventId":"a"} ]}"#;
    let (status, answer) = send(&receiver, body);
    assert_eq!(status, 200);
    assert_eq!(answer, json!({ "status": "accepted", "events": 3, "created": 2 }));
    site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["state"] == "succeeded");
    assert_eq!(site.lines("notes"), [r#"a message {"type" : "message","webhookEventId":"a"}"#]);

    // The same list again, and then with one more.
    let (_, answer) = send(&receiver, body);
    assert_eq!(answer, json!({ "status": "duplicate", "events": 3, "created": 0 }));
    let (_, answer) =
        deliver(&receiver, &[event("c"), json!({"type" : "message","webhookEventId":"a"})]);
    assert_eq!(answer["created"], 1, "{answer}");
    site.jobs_when(|jobs| jobs.len() == 2 && jobs.iter().all(|job| job["state"] == "succeeded"));
    let events = site.json(&["events"]);
    let ids = events.as_array().unwrap().iter().map(|event| event["event_id"].as_str().unwrap());
    assert_eq!(ids.collect::<Vec<_>>(), ["c", "b", "a"]);
    assert_eq!(site.lines("notes").len(), 2);
}

#[test]
fn an_empty_list_is_genuine_and_stores_nothing() {
    let (site, receiver) = site();
    let (status, answer) = deliver(&receiver, &[]);
    assert_eq!((status, &answer["events"]), (200, &json!(0)));
    let forged = "X-Line-Signature: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n";
    let body = json!({ "events": [] }).to_string();
    assert_eq!(post(receiver.address, "/lists", forged, body.as_bytes()).0, 401);
    assert_eq!(site.json(&["events"]), json!([]));
}

#[test]
fn an_odd_element_is_an_event_and_its_neighbours_are_too() {
    let (site, receiver) = site();
    let odd = json!({ "type": "message" });
    let events = [
        event("a"),
        odd.clone(),
        odd,
        json!({ "webhookEventId": "b" }),
        event("-b"),
        json!("c"),
        json!(null),
        event("d"),
    ];
    for created in [events.len(), 0] {
        let (status, answer) = deliver(&receiver, &events);
        assert_eq!((status, &answer["created"]), (200, &json!(created)), "{answer}");
    }
    let stored = site.json(&["events"]);
    let stored = stored.as_array().unwrap();
    let types = stored.iter().rev().map(|one| one["event_type"].as_str().unwrap());
    let wanted = ["message", "message", "message", "?", "message", "?", "?", "message"];
    assert_eq!(types.collect::<Vec<_>>(), wanted);
    let ids = stored.iter().rev().map(|one| one["event_id"].as_str().unwrap());
    let derived: Vec<bool> = ids.map(|id| id.starts_with("sha256:")).collect();
    assert_eq!(derived, [false, true, true, false, true, true, true, false]);

    // The sender's own id finds its event, which says how it is named.
    let output = |args: &[&str]| String::from_utf8(site.run(args).stdout).unwrap();
    let shown = output(&["explain", "--", "-b"]);
    assert!(shown.contains("SHA-256 of the sender's"), "{shown}");
    assert!(output(&["show", "--", "-b"]).contains("Hooklatch-Sender-Id: -b"));
    site.jobs_when(|jobs| jobs.len() == 8 && jobs.iter().all(|job| job["state"] == "succeeded"));
    let sender_ids = site.lines("sender-ids");
    assert_eq!(sender_ids, ["-b"]);
}

#[test]
fn a_body_without_the_list_is_one_event() {
    let (site, receiver) = site();
    let bodies =
        ["{}", r#"{"events":{}}"#, r#"{"events":[],"events":[]}"#, r#"{"events":[]"#, "[]"];
    for body in bodies {
        let (status, answer) = send(&receiver, body);
        assert_eq!((status, &answer["created"]), (200, &json!(1)), "{body}");
    }
    assert_eq!(site.json(&["events"]).as_array().unwrap().len(), bodies.len());
}

#[test]
fn a_list_may_be_as_long_as_its_bytes_allow() {
    let (site, receiver) = site();
    let many: Vec<Value> = (0..5_000).map(|n| event(&format!("{n:0>40}"))).collect();
    let (_, answer) = deliver(&receiver, &many);
    assert_eq!(answer["created"], 5_000, "{answer}");
    let short: Vec<Value> = (0..5_000).map(|n| json!(n)).collect();
    let (status, answer) = deliver(&receiver, &short);
    assert_eq!((status, &answer["reason"]), (400, &json!("too_many_events")), "{answer}");
    assert_eq!(site.json(&["quarantine"])["matching"], 1);
    let (_, answer) = deliver(&receiver, &short[..1_000]);
    assert_eq!(answer["created"], 1_000, "{answer}");
}

#[test]
fn a_kept_list_is_accepted_whole_once_its_secret_is_right() {
    let (site, receiver) = site();
    secret(&site, "another");
    site.json(&["reload"]);
    assert_eq!(deliver(&receiver, &[event("a"), event("b")]).0, 401);
    secret(&site, SECRET);
    site.json(&["reload"]);
    for accepted in [1, 0] {
        let judged = site.json(&["quarantine", "accept", "--yes"]);
        let counts = &judged["sources"]["lists"];
        assert_eq!(counts["accepted"].as_u64().unwrap_or(0), accepted, "{judged}");
    }
    assert_eq!(site.json(&["events"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_request_without_an_id_is_an_event_each_time_where_the_provider_says_new() {
    let site = Site::new(
        r#"
[sources.cron]
provider = "button"
path = "/cron"
allow_unsigned = true
[handlers.note]
source = "cron"
events = ["*"]
command = ["./note"]
"#,
    );
    site.script("note", "echo run >> \"$SITE/notes\"");
    fs::create_dir(site.path("providers")).unwrap();
    let button = "name = \"button\"\n[signature]\nalgorithm = \"none\"\n[event]\nid = \"new\"\n";
    fs::write(site.path("providers/button.toml"), button).unwrap();
    let receiver = site.start();
    for _ in 0..2 {
        assert_eq!(post(receiver.address, "/cron", "", b"press").1["status"], "accepted");
    }
    site.jobs_when(|jobs| jobs.len() == 2 && jobs.iter().all(|job| job["state"] == "succeeded"));
    assert_eq!(site.lines("notes"), ["run", "run"]);
}

#[test]
fn an_equal_body_is_the_same_event_for_the_time_that_the_provider_says() {
    let site = Site::new(
        r#"
[sources.hub]
provider = "hub"
path = "/hub"
secrets = ["file:hub.secret"]
[handlers.note]
source = "hub"
events = ["*"]
command = ["./note"]
"#,
    );
    site.script("note", "echo run >> \"$SITE/notes\"");
    fs::write(site.path("hub.secret"), "token").unwrap();
    fs::set_permissions(site.path("hub.secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(site.path("providers")).unwrap();
    let hub = "name = \"hub\"\nlike = \"url-token\"\n[event]\nid = \"digest\"\nrepeats = \"1s\"\n[replay]\nguard = \"off\"\n";
    fs::write(site.path("providers/hub.toml"), hub).unwrap();
    let receiver = site.start();
    let send = |target: &str| post(receiver.address, target, "", b"pushed");
    for wrong in ["/hub", "/hub?token=other", "/hub?token=token&token=token", "/hub?Token=token"] {
        assert_eq!(send(wrong).0, 401, "{wrong}");
    }
    assert_eq!(send("/hub?token=tok%65n").1["status"], "accepted");
    // Within the second it is a duplicate, after it another event, whose window is its own.
    let mut said = String::new();
    let end = std::time::Instant::now() + crate::support::PATIENCE;
    let mut duplicates = 0;
    while said != "accepted" {
        assert!(std::time::Instant::now() < end, "it stays a duplicate");
        said = send("/hub?token=token").1["status"].as_str().unwrap().to_owned();
        duplicates += usize::from(said == "duplicate");
    }
    assert!(duplicates > 0);
    site.jobs_when(|jobs| jobs.len() == 2 && jobs.iter().all(|job| job["state"] == "succeeded"));
    assert_eq!(site.lines("notes"), ["run", "run"]);
    let shown = site.json(&["status"]).to_string() + &site.json(&["events"]).to_string();
    let log = fs::read_to_string(site.path("log")).unwrap_or_default();
    assert!(!shown.contains("tok%65n") && !log.contains("token=token"), "the token is not kept");
}

#[test]
fn each_element_with_the_token_is_an_event_and_one_without_it_is_refused_alone() {
    let site = Site::new(
        r#"
[sources.graph]
provider = "microsoft-graph"
path = "/graph"
secrets = ["file:old.secret", "file:lists.secret"]
[handlers.note]
source = "graph"
events = ["updated"]
command = ["./note"]
"#,
    );
    secret(&site, SECRET);
    fs::copy(site.path("lists.secret"), site.path("old.secret")).unwrap();
    fs::write(site.path("old.secret"), "an older state").unwrap();
    site.script("note", r#"cat >> "$SITE/notes"; echo >> "$SITE/notes""#);
    let receiver = site.start();
    let proxied = "X-Forwarded-For: 192.0.2.1\r\n";
    let send = |path: &str, elements: &[Value]| {
        let body = json!({ "value": elements }).to_string();
        post(receiver.address, path, proxied, body.as_bytes())
    };
    let change = |state: &str| json!({ "clientState": state, "changeType": "updated" });
    let mixed = [change(SECRET), change("guessed"), change(SECRET), change("an older state")];
    // Equal elements are different changes, and a repeat of the request makes its handler look again.
    for _ in 0..2 {
        let (status, answer) = send("/graph", &mixed);
        assert_eq!((status, &answer["created"]), (200, &json!(3)), "{answer}");
    }
    assert_eq!(send("/graph", &[change("guessed")]).0, 401);
    assert_eq!(send("/graph", &[]).0, 401);
    assert_eq!(post(receiver.address, "/graph", proxied, b"{}").0, 401);
    site.jobs_when(|jobs| jobs.len() == 6 && jobs.iter().all(|job| job["state"] == "succeeded"));
    assert!(site.lines("notes").iter().all(|line| !line.contains("guessed")));
    let kept = site.json(&["quarantine"]);
    assert_eq!(kept["matching"], 5, "{kept}");
    assert!(!kept.to_string().contains("guessed"), "{kept}");

    let challenge = "/graph?validationToken=%22a%20token%22";
    let (status, text) = post(receiver.address, challenge, proxied, b"");
    assert_eq!((status, text), (200, json!("a token")));
    assert_eq!(site.json(&["events"]).as_array().unwrap().len(), 6);
}
