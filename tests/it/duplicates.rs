//! Repeated deliveries: duplicates, changed bodies, reused ids and suspected replays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use serde_json::Value;

use crate::support::{Receiver, SECRET, Site, hex, hmac, post, stripe_event};

const LEDGER: &str = "[handlers.ledger]\nsource = [\"github\", \"stripe\"]\nevents = [\"*\"]\ncommand = [\"./ledger\"]\n";

fn site() -> (Site, Receiver) {
    let site = Site::new(LEDGER);
    site.script("ledger", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/ledger.txt""#);
    let receiver = site.start();
    (site, receiver)
}

fn said(answer: (u16, Value)) -> String {
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_retry_that_differs_in_a_volatile_field_is_a_plain_duplicate() {
    let (site, receiver) = site();
    let event = |pending| stripe_event("evt_1", "a.b", &format!(",\"pending_webhooks\":{pending}"));
    assert_eq!(said(receiver.stripe(&event(2), 0)), "accepted");
    assert_eq!(said(receiver.stripe(&event(1), 0)), "duplicate");
    let events = site.json(&["events"]);
    assert_eq!((&events[0]["duplicates"], &events[0]["conflicts"]), (&1.into(), &0.into()));
}

#[test]
fn another_body_under_a_signed_id_is_flagged_and_not_run() {
    let (site, receiver) = site();
    assert_eq!(said(receiver.stripe(&stripe_event("evt_1", "a.b", ""), 0)), "accepted");
    assert_eq!(said(receiver.stripe(&stripe_event("evt_1", "a.b", ",\"x\":1"), 0)), "duplicate");
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ledger.txt"), ["evt_1"]);
    assert_eq!(site.json(&["events"])[0]["conflicts"], 1);
}

#[test]
fn another_body_under_an_unsigned_id_is_a_separate_event_and_held() {
    let (site, receiver) = site();
    assert_eq!(said(receiver.github("d-1", "push", "{\"n\":1}")), "accepted");
    assert_eq!(said(receiver.github("d-1", "push", "{\"n\":2}")), "accepted");
    let jobs = site.jobs_when(|jobs| jobs.len() == 2 && jobs[1]["state"] == "succeeded");
    assert_eq!((&jobs[0]["state"], &jobs[0]["reason"]), (&"held".into(), &"id reused".into()));
    assert_eq!(site.lines("ledger.txt").len(), 1);
    // Two events have this id, so the operator must name one of them.
    assert_eq!(site.run(&["replay", "d-1"]).status.code(), Some(65));
}

#[test]
fn a_captured_delivery_under_a_new_id_or_type_is_held() {
    let (site, receiver) = site();
    assert_eq!(said(receiver.github("d-1", "push", "{\"n\":1}")), "accepted");
    assert_eq!(said(receiver.github("d-2", "push", "{\"n\":1}")), "accepted");
    assert_eq!(said(receiver.github("d-3", "deployment", "{\"n\":1}")), "accepted");
    let jobs = site.jobs_when(|jobs| jobs.len() == 3 && jobs[2]["state"] == "succeeded");
    for job in &jobs[..2] {
        assert_eq!((&job["state"], &job["reason"]), (&"held".into(), &"suspected replay".into()));
    }
    assert_eq!(site.lines("ledger.txt"), ["d-1"]);
    // The operator can still run it.
    site.json(&["replay", "d-2"]);
    site.jobs_when(|jobs| jobs[1]["state"] == "succeeded");
    assert_eq!(site.lines("ledger.txt"), ["d-1", "d-2"]);
}

#[test]
fn a_repeated_body_of_a_type_with_legitimate_repeats_runs_and_is_flagged() {
    let (site, receiver) = site();
    let body = "{\"ref\":\"main\",\"inputs\":{}}";
    assert_eq!(said(receiver.github("d-1", "workflow_dispatch", body)), "accepted");
    assert_eq!(said(receiver.github("d-2", "workflow_dispatch", body)), "accepted");
    site.all_jobs(2, "succeeded");
    let events = site.json(&["events"]);
    assert_eq!((&events[0]["flagged"], &events[1]["flagged"]), (&true.into(), &false.into()));
}

#[test]
fn an_event_that_no_handler_wants_is_stored_and_can_be_run_later() {
    let only_push = LEDGER.replace("\"*\"", "\"push\"");
    let site = Site::new(&only_push);
    site.script("ledger", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/ledger.txt""#);
    let receiver = site.start();
    assert_eq!(said(receiver.github("d-1", "issues", "{\"action\":\"opened\"}")), "accepted");
    assert_eq!(site.json(&["jobs"]).as_array().unwrap().len(), 0);
    let table = String::from_utf8(site.run(&["events"]).stdout).unwrap();
    assert!(table.contains("no handler wants it"), "{table}");
    site.json(&["replay", "d-1", "--handler", "ledger"]);
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ledger.txt"), ["d-1"]);
}

#[test]
fn the_listing_of_secrets_names_each_secret_that_matched() {
    let (site, receiver) = site();
    receiver.github("d-1", "push", "{}");
    let secrets = site.json(&["events", "--secrets"]);
    assert_eq!(secrets.as_array().unwrap().len(), 1);
    assert_eq!(
        (&secrets[0]["source"], &secrets[0]["reference"]),
        (&"github".into(), &"file:secret".into())
    );
    let table = String::from_utf8(site.run(&["events", "--secrets"]).stdout).unwrap();
    assert!(table.contains("file:secret"), "{table}");
}

const FORMS: &str = r#"
[sources.svix]
provider = "svix"
path = "/svix"
secrets = ["file:svix.secret"]
[sources.shop]
provider = "shopify"
path = "/shop"
secrets = ["file:secret"]
[handlers.ledger]
source = ["svix", "shop"]
events = ["*"]
command = ["./ledger"]
"#;

#[test]
fn a_captured_delivery_with_headers_of_the_providers_other_form_never_runs_again() {
    let site = Site::new(FORMS);
    let secret = site.path("svix.secret");
    fs::write(&secret, format!("whsec_{}", BASE64.encode(SECRET.as_bytes()))).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    site.script("ledger", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/ledger.txt""#);
    let receiver = site.start();
    let body = "{\"type\":\"user.created\"}";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let form = |names: &str, id: &str| {
        let signature = BASE64.encode(&hmac(SECRET, format!("{id}.{now}.{body}").as_bytes()));
        format!(
            "{names}-id: {id}\r\n{names}-timestamp: {now}\r\n{names}-signature: v1,{signature}\r\n"
        )
    };
    let send =
        |path: &str, headers: &str| said(post(receiver.address, path, headers, body.as_bytes()));
    assert_eq!(send("/svix", &form("svix", "m1")), "accepted");
    // Another captured delivery of this body, mixed into it in both orders.
    assert_eq!(send("/svix", &(form("svix", "m1") + &form("webhook", "m2"))), "duplicate");
    assert_eq!(send("/svix", &(form("webhook", "m2") + &form("svix", "m1"))), "duplicate");
    // Its own values under the other names.
    assert_eq!(send("/svix", &form("webhook", "m1")), "duplicate");

    let signature = BASE64.encode(&hmac(SECRET, body.as_bytes()));
    let shop = |x: &str, id: &str| {
        format!(
            "{x}Shopify-Hmac-Sha256: {signature}\r\n{x}Shopify-Webhook-Id: {id}\r\n{x}Shopify-Topic: a\r\n"
        )
    };
    assert_eq!(send("/shop", &shop("X-", "w1")), "accepted");
    assert_eq!(send("/shop", &(shop("X-", "w1") + &shop("", "w2"))), "duplicate");
    // Without the first form's headers the id, which is not signed, is another: the body is known.
    assert_eq!(send("/shop", &shop("", "w2")), "accepted");
    let jobs = site.jobs_when(|jobs| {
        jobs.len() == 3 && jobs.iter().filter(|job| job["state"] == "succeeded").count() == 2
    });
    assert_eq!(jobs[0]["state"], "held");
    let mut ran = site.lines("ledger.txt");
    ran.sort();
    assert_eq!(ran, ["m1", "w1"]);
}

/// The id is not signed, and of the body only the sum is.
const OPEN: &str = r#"name = "open"
[signature]
algorithm = "hmac-sha256"
header = "X-Sig"
encoding = "hex"
signed = "{timestamp}.{json:/sum}"
[timestamp]
from = "header:X-At"
unit = "s"
tolerance = "5min"
[event]
id = "json:/id"
[replay]
guard = "hold"
"#;

#[test]
fn a_captured_delivery_runs_once_where_neither_its_id_nor_its_body_is_signed() {
    let site = Site::new("");
    fs::create_dir(site.path("providers")).unwrap();
    fs::write(site.path("providers/open.toml"), OPEN).unwrap();
    site.configure(
        "[sources.open]\nprovider = \"open\"\npath = \"/open\"\nsecrets = [\"file:secret\"]\n",
        "[handlers.ledger]\nsource = \"open\"\nevents = [\"*\"]\ncommand = [\"./ledger\"]\n",
    );
    site.script("ledger", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/ledger.txt""#);
    let receiver = site.start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let send = |at: u64, id: &str, sum: u8, more: &str| {
        let signature = hex(&hmac(SECRET, format!("{at}.{sum}").as_bytes()));
        let body = format!("{{\"id\":\"{id}\",\"sum\":\"{sum}\"{more}}}");
        let headers = format!("X-At: {at}\r\nX-Sig: {signature}\r\n");
        said(post(receiver.address, "/open", &headers, body.as_bytes()))
    };
    assert_eq!(send(now, "a", 7, ""), "accepted");
    assert_eq!(send(now, "a", 7, ""), "duplicate");
    // Sent again, and signed anew.
    assert_eq!(send(now + 1, "a", 7, ""), "duplicate");
    // Either captured request with another event in it, and with another body under its id.
    assert_eq!(send(now, "b", 7, ""), "accepted");
    assert_eq!(send(now + 1, "c", 7, ""), "accepted");
    assert_eq!(send(now, "a", 7, ",\"n\":1"), "duplicate");
    // A genuine event whose id came with a captured request.
    assert_eq!(send(now, "b", 8, ""), "accepted");
    assert_eq!(send(now, "d", 9, ""), "accepted");
    let jobs = site.jobs_when(|jobs| {
        jobs.len() == 5 && jobs.iter().filter(|job| job["state"] == "succeeded").count() == 2
    });
    let held = jobs.iter().rev().filter(|job| job["state"] == "held");
    let held: Vec<_> = held.map(|job| format!("{} {}", job["event_id"], job["reason"])).collect();
    assert_eq!(
        held,
        ["\"b\" \"suspected replay\"", "\"c\" \"suspected replay\"", "\"b\" \"id reused\""]
    );
    let mut ran = site.lines("ledger.txt");
    ran.sort();
    assert_eq!(ran, ["a", "d"]);
}
