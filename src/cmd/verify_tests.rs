//! Tests of `verify` as it is typed.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::verify::{Draft, sign};

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const BODY: &str = r#"{"id":"evt_1","type":"invoice.paid"}"#;

fn args(more: &[&str]) -> Verify {
    let typed = ["hooklatch", "verify", "--provider", "stripe"].iter().chain(more);
    match <crate::cli::Cli as clap::Parser>::try_parse_from(typed).unwrap().command {
        crate::cli::Command::Verify(args) => args,
        other => panic!("{other:?}"),
    }
}

fn ran(args: &Verify, now: Timestamp) -> (Result<bool>, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let verdict = judge(args, &Environment::capture(), BODY.as_bytes(), now, &mut out, &mut err);
    (verdict, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn header() -> String {
    let scheme = Scheme::embedded("stripe").unwrap();
    let key = verify::key(&scheme, "k", "whsec_a").unwrap();
    let draft = Draft { body: Bytes::from_static(BODY.as_bytes()), ..Draft::default() };
    let headers = sign(&scheme, Some(&key), &draft, NOW).unwrap();
    let (name, value) = headers.iter().next().unwrap();
    format!("{name}: {}", String::from_utf8_lossy(value))
}

#[test]
fn a_genuine_request_is_accepted_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, "whsec_a\n").unwrap();
    let file = format!("file:{}", path.display());
    let args = args(&[
        "--secret",
        "literal:old",
        "--secret",
        &file,
        "--header",
        &header(),
        "--at",
        "1767225600",
    ]);
    let (verdict, out, err) = ran(&args, Timestamp(0));
    assert!(verdict.unwrap());
    assert_eq!(
        out,
        "{\"verdict\":\"accept\",\"event_id\":\"evt_1\",\"event_type\":\"invoice.paid\"}\n"
    );
    assert_eq!(err, format!("genuine: signed with {file}\n"));
}

#[test]
fn a_refused_one_says_why_and_what_to_do() {
    let args = args(&["--secret", "literal:whsec_a", "--header", &header()]);
    let (verdict, out, err) = ran(&args, Timestamp(NOW.0 - 412_000));
    assert!(!verdict.unwrap());
    assert_eq!(out, "{\"verdict\":\"reject\",\"reason\":\"future_timestamp\"}\n");
    assert_eq!(
        err,
        "rejected: signed 412 s in the future; the tolerance is 300 s\n\
         hint: the clock here is 412 s behind the sender's: is its time synchronised?\n"
    );
}

#[test]
fn wrong_questions_are_errors_and_show_no_secret() {
    for (given, wrong) in [
        (vec![], "provider stripe signs: give --secret"),
        (vec!["--secret", "whsec_typed"], "--secret takes env:NAME, file:PATH or literal:TEXT"),
        (vec!["--secret", "file:/nowhere/at/all"], "failed to read /nowhere/at/all"),
        (vec!["--secret", "env:HOOKLATCH_NO_SUCH_VARIABLE"], "'env:HOOKLATCH_NO_SUCH_VARIABLE': "),
        (vec!["--secret", "literal:"], "literal:…: the secret is empty"),
        (vec!["--secret", "literal:a", "--header", "x"], "not of the form"),
    ] {
        let error = ran(&args(&given), NOW).0.unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        assert!(error.message.contains(wrong), "{error:?}");
        assert!(!error.message.contains("typed"));
    }
    let unknown = Verify { provider: "strip".to_owned(), ..args(&[]) };
    let error = ran(&unknown, NOW).0.unwrap_err().message;
    assert_eq!(
        error,
        "no provider 'strip'; built in are: bearer, certificate, github, none, standard-webhooks, stripe, svix"
    );
}

#[test]
fn a_provider_file_is_read_and_its_problems_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.toml");
    std::fs::write(&path, include_str!("../../providers/stripe.toml")).unwrap();
    let provider = path.display().to_string();
    let own = Verify { provider, ..args(&["--secret", "literal:whsec_a", "--header", &header()]) };
    assert!(ran(&own, NOW).0.unwrap());
    std::fs::write(&path, "name = 1\n").unwrap();
    let error = ran(&own, NOW).0.unwrap_err().message;
    assert!(error.contains("own.toml:1:8: name: expected a string"), "{error}");
    assert_eq!(error.lines().filter(|line| line.contains("missing")).count(), 2);
}
