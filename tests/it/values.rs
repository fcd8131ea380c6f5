//! Values of events from the configuration to a command and an endpoint, and the hostile ones that stop before.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::operator::{id, text};
use crate::support::caller::{answer, by, send};
use crate::support::{Receiver, Site, post};

const DEPLOY: &str = r#"
[handlers.deploy]
source = "github"
events = ["push"]
command = ["./deploy", "--branch={BRANCH}", "{SHA}", "{}", ""]
[handlers.deploy.values]
BRANCH = { from = "/ref", strip = "refs/heads/", is = "ref" }
SHA = { from = "/after", is = "sha" }
NOTE = { from = "/head_commit/message", is = "text", else = "" }
DELIVERY = "header:X-GitHub-Delivery"
"#;

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

/// A site whose command writes its arguments and variables to `ran`, a line each.
fn site(handlers: &str) -> Site {
    let site = Site::with("", handlers);
    site.script(
        "deploy",
        r#"for one in "$@" "$SHA" "$NOTE" "$HOOKLATCH_HEADER_X_GITHUB_EVENT"; do printf '<%s>' "$one"; done >> "$SITE/ran"
           echo >> "$SITE/ran""#,
    );
    site
}

fn push(receiver: &Receiver, delivery: &str, reference: &str) {
    let body = format!(r#"{{"ref":"{reference}","after":"{SHA}"}}"#);
    assert_eq!(receiver.github(delivery, "push", &body).0, 200);
}

#[test]
fn a_push_reaches_arguments_and_variables() {
    let site = site(DEPLOY);
    let receiver = site.start();
    push(&receiver, "d-1", "refs/heads/main");
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ran"), [format!("<--branch=main><{SHA}><{{}}><><{SHA}><><push>")]);
    let shown = text(&site.run(&["config", "show"]).stdout);
    for part in
        ["handlers.deploy.values.BRANCH.from", "refs/heads/", "handlers.deploy.values.SHA.is"]
    {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn a_refused_value_starts_nothing_costs_no_attempt_and_is_replayed() {
    let site = site(DEPLOY);
    let receiver = site.start();
    push(&receiver, "d-1", "refs/tags/v1");
    let job = site.all_jobs(1, "held").remove(0);
    let detail = "value BRANCH is refused: it does not begin with 'refs/heads/'";
    assert_eq!((&job["reason"], &job["last_detail"]), (&"value refused".into(), &detail.into()));
    assert!(site.lines("ran").is_empty());

    site.configure("", &DEPLOY.replace("refs/heads/", "refs/tags/"));
    let reloaded = site.json(&["reload"]);
    assert_eq!(reloaded["handlers"]["changed"], serde_json::json!(["deploy"]), "{reloaded}");
    site.json(&["replay", "--job", id(&job)]);
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ran"), [format!("<--branch=v1><{SHA}><{{}}><><{SHA}><><push>")]);
}

#[test]
fn hostile_values_start_nothing() {
    let site =
        site(&DEPLOY.replace("--branch={BRANCH}", "{BRANCH}").replace("\"ref\"", "\"line\""));
    let receiver = site.start();
    let long = "x".repeat(200 * 1024);
    let hostile = ["--upload-pack=touch x", "@/etc/passwd", r"a\u0000b", r"a\nb", &long];
    for (nth, branch) in hostile.iter().enumerate() {
        push(&receiver, &format!("d-{nth}"), &format!("refs/heads/{branch}"));
    }
    let twice = r#"{"ref":"refs/heads/main","ref":"refs/heads/other","after":"x"}"#;
    assert_eq!(receiver.github("d-twice", "push", twice).0, 200);
    let jobs = site.all_jobs(hostile.len() + 1, "held");
    assert!(jobs.iter().all(|job| job["reason"] == "value refused"), "{jobs:?}");
    assert!(site.lines("ran").is_empty());
    // The handler is not broken.
    push(&receiver, "d-good", "refs/heads/main; touch x");
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded"));
}

#[test]
fn values_come_from_the_query_and_from_a_compressed_body() {
    let source = "[sources.alerts]\nprovider = \"url-token\"\npath = \"/alerts\"\nsecrets = [\"file:secret\"]\n";
    let handler = r#"
[handlers.page]
source = "alerts"
events = ["*"]
command = ["./page", "{TEAM}", "{HOST}"]
when = { "query:alert" = "down" }
values.TEAM = { from = "query:team", is = "word" }
values.HOST = { from = "/host", is = "word" }
"#;
    let site = Site::with(source, handler);
    site.script(
        "page",
        r#"printf '<%s>' "$1" "$2" "$HOOKLATCH_HEADER_CONTENT_ENCODING" >> "$SITE/ran"; echo >> "$SITE/ran""#,
    );
    let receiver = site.start();
    let secret = fs::read_to_string(site.path("secret")).unwrap();
    let secret = secret.trim();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(br#"{"host":"db-1"}"#).unwrap();
    let body = encoder.finish().unwrap();
    let ask = |query: &str| {
        let target = format!("/alerts?token={}&{query}", secret.replace(' ', "+"));
        let (status, answer) = post(receiver.address, &target, "Content-Encoding: gzip\r\n", &body);
        assert_eq!(status, 200, "{answer}");
        answer["event"].as_str().unwrap().to_owned()
    };
    let (up, down) = (ask("alert=up&team=ops"), ask("alert=down&team=ops"));
    assert_ne!(up, down);
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ran"), ["<ops><db-1><gzip>"]);
    let shown = text(&site.run(&["show", &down]).stdout);
    assert!(shown.contains("?alert: =down") && !shown.contains(secret), "{shown}");
}

#[test]
fn a_caller_whose_value_is_refused_is_told_so_at_once() {
    let source = "[sources.pay]\nprovider = \"bearer\"\npath = \"/pay\"\nreply = \"handler\"\nsecrets = [\"file:secret\"]\n";
    let handler = "[handlers.deploy]\nsource = \"pay\"\nevents = [\"*\"]\ncommand = [\"./deploy\", \"{ID}\"]\nvalues.ID = { from = \"/id\", is = \"word\" }\n";
    let site = Site::with(source, handler);
    site.script("deploy", "echo \"$1\"");
    let receiver = site.start();
    let secret = fs::read_to_string(site.path("secret")).unwrap();
    let headers = |key: &str| by("shop", key).replace("shop-token", secret.trim());
    let ask = |key: &str, body: &str| {
        answer(send(receiver.address, &headers(key), body).unwrap()).unwrap()
    };
    let refused = ask("k-1", r#"{"id":"-x"}"#);
    assert_eq!(refused.status, 502, "{refused:?}");
    let job = site.all_jobs(1, "dead").remove(0);
    let detail = "value ID is refused: it is not a 'word'";
    assert_eq!((&job["reason"], &job["last_detail"]), (&"rejected".into(), &detail.into()));
    // The same request again is refused again, as the same job.
    assert_eq!(ask("k-1", r#"{"id":"-x"}"#).status, 502);
    site.all_jobs(1, "dead");
    assert_eq!(ask("k-2", r#"{"id":"x"}"#).status, 200);
}
