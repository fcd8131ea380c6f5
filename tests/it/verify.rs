//! `hooklatch verify`: what it says of a captured request, and of a wrong question.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{SECRET, hex, hmac, stripe_event};

/// When the request was signed, in seconds since 1970.
const SIGNED_AT: &str = "1767225600";

fn body() -> String {
    stripe_event("evt_1", "invoice.paid", "")
}

/// The header with the request's signature.
fn header() -> String {
    let signature = hex(&hmac(SECRET, format!("{SIGNED_AT}.{}", body()).as_bytes()));
    format!("Stripe-Signature: t={SIGNED_AT},v1={signature}")
}

fn literal() -> String {
    format!("literal:{SECRET}")
}

/// Exit code, standard output and standard error for a request with this body.
fn verify(provider: &str, args: &[&str], body: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
        .args(["verify", "--provider", provider])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_genuine_request_is_accepted_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, format!("{SECRET}\n")).unwrap();
    let file = format!("file:{}", path.display());
    let secrets = ["--secret", "literal:old", "--secret", &file];
    let header = header();
    let args = [&secrets[..], &["--header", &header, "--at", SIGNED_AT]].concat();
    let (code, out, err) = verify("stripe", &args, &body());
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        out,
        "{\"verdict\":\"accept\",\"event_id\":\"evt_1\",\"event_type\":\"invoice.paid\"}\n"
    );
    assert_eq!(err, format!("genuine: signed with {file}\n"));
}

#[test]
fn a_refused_request_is_explained_with_a_hint() {
    let (secret, header) = (literal(), header());
    let args = |at| ["--secret", &secret, "--header", &header, "--at", at].map(str::to_owned);
    let run = |at, body: &str| {
        let args = args(at);
        verify("stripe", &args.each_ref().map(String::as_str), body)
    };
    let (code, out, err) = run("1767225188", &body());
    assert_eq!((code, &*out), (1, "{\"verdict\":\"reject\",\"reason\":\"future_timestamp\"}\n"));
    assert_eq!(
        err,
        "rejected: signed 412 s in the future; the tolerance is 300 s\n\
         hint: the clock here is 412 s behind the sender's: is its time synchronised?\n"
    );
    let (code, _, err) = run("1767226012", &body());
    assert_eq!(code, 1);
    assert!(err.contains("412 s"), "{err}");
    let (code, out, err) = run(SIGNED_AT, &body().replace(',', ", "));
    assert_eq!(code, 1);
    assert!(out.contains("reject"), "{out}");
    assert!(err.contains("re-encoded"), "{err}");
}

#[test]
fn a_wrong_question_is_an_error_that_shows_no_secret() {
    for (given, wrong) in [
        (vec![], "provider stripe signs: give --secret"),
        (vec!["--secret", "whsec_typed"], "--secret takes env:NAME, file:PATH or literal:TEXT"),
        (vec!["--secret", "file:/nowhere/at/all"], "failed to read /nowhere/at/all"),
        (vec!["--secret", "env:HOOKLATCH_NO_SUCH_VARIABLE"], "'env:HOOKLATCH_NO_SUCH_VARIABLE': "),
        (vec!["--secret", "literal:"], "literal:…: the secret is empty"),
        (vec!["--secret", "literal:a", "--header", "x"], "not of the form"),
    ] {
        let (code, _, err) = verify("stripe", &given, &body());
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(wrong), "{err}");
        assert!(!err.contains("typed"), "{err}");
    }
    let (_, _, err) = verify("strip", &[], &body());
    assert!(err.contains("there is no built-in provider 'strip'"), "{err}");
    assert!(err.contains("did you mean 'stripe'?"), "{err}");
}

#[test]
fn a_provider_file_is_read_and_its_problems_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.toml");
    let provider = path.display().to_string();
    let (secret, header) = (literal(), header());
    let args = ["--secret", &secret, "--header", &header, "--at", SIGNED_AT];
    assert_eq!(verify(&provider, &args, &body()).0, 66, "there is no such file");
    fs::write(&path, include_str!("../../providers/stripe.toml")).unwrap();
    assert_eq!(verify(&provider, &args, &body()).0, 0);
    fs::write(&path, "name = 1\n").unwrap();
    let (code, _, err) = verify(&provider, &args, &body());
    assert_eq!(code, 2);
    assert!(err.contains("own.toml:1:8: name: expected a string"), "{err}");
    assert_eq!(err.lines().filter(|line| line.contains("missing")).count(), 2);
}

#[test]
fn a_token_must_name_the_sender_that_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.toml");
    let provider = "name = \"own\"\n[signature]\nalgorithm = \"jwt\"\nheader = \"Authorization\"\nprefix = \"Bearer \"\n\
                    jwt = [\"HS256\"]\nsender_claim = \"email\"\n[event]\nid = \"json:/id\"\n[replay]\nguard = \"off\"\n";
    fs::write(&file, provider).unwrap();
    let encode = |bytes: &[u8]| data_encoding::BASE64URL_NOPAD.encode(bytes);
    let signed = [r#"{"alg":"HS256"}"#, r#"{"email":"me@example.org"}"#];
    let signed = signed.map(|part| encode(part.as_bytes())).join(".");
    let token = format!("{signed}.{}", encode(&hmac(SECRET, signed.as_bytes())));
    let (header, secret) = (format!("Authorization: Bearer {token}"), literal());
    let args = ["--secret", &secret, "--header", &header];
    for (sender, code) in
        [(&["--sender", "me@example.org"][..], 0), (&["--sender", "me"], 1), (&[], 1)]
    {
        let (found, out, err) = verify(file.to_str().unwrap(), &[&args, sender].concat(), &body());
        assert_eq!(found, code, "{out}{err}");
        assert!(code == 0 || out.contains("\"bad_claim\"") && !err.contains(&token), "{out}{err}");
    }
}
