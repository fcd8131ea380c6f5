//! `hooklatch providers`: the table, what one provider is worth, the test of a file; and the table in
//! `docs/providers.md`, which is generated from the provider files.

use std::fmt::Write;
use std::fs;

use hooklatch::provider::Scheme;
use hooklatch::verify;
use serde_json::{Value, json};

use crate::operator::text;
use crate::support::{SECRET, Site, hex, hmac, made, stripe_event};

/// A provider file and its vectors: one request to accept and one to refuse.
const FERRY: &str = "name = \"ferry\"\ntitle = \"Ferry Lines\"\nlike = \"stripe\"\n\
                     vectors = \"ferry.jsonl\"\n";

fn ferry_vectors(other: &str) -> String {
    let (body, now) = (stripe_event("evt_1", "invoice.paid", ""), 1_767_225_600);
    let signature = hex(&hmac(SECRET, format!("{now}.{body}").as_bytes()));
    let vector = |name: &str, expect: &str, id: &str, signature: &str| {
        let vector = json!({
            "provider": "ferry", "name": name, "secrets": [SECRET], "method": "POST",
            "headers": { "Stripe-Signature": format!("t={now},v1={signature}") },
            "body_base64": data_encoding::BASE64.encode(body.as_bytes()), "now": now,
            "expect": expect, "expect_id": id, "expect_type": "invoice.paid",
        });
        format!("{vector}\n")
    };
    let forged = "0".repeat(64);
    vector("ferry/accept/one", "accept", "evt_1", &signature)
        + &vector("ferry/reject/forged", "reject", "evt_1", &forged)
        + &match other {
            "" => String::new(),
            "wrong id" => vector("ferry/accept/other-id", "accept", "evt_2", &signature),
            _ => vector("ferry/reject/genuine", "reject", "evt_1", &signature),
        }
}

/// Writes the provider file of the examples in help.
pub(crate) fn write_ferry(site: &Site) {
    fs::create_dir_all(site.path("providers")).unwrap();
    fs::write(site.path("providers/ferry.toml"), FERRY).unwrap();
    fs::write(site.path("providers/ferry.jsonl"), ferry_vectors("")).unwrap();
}

#[test]
fn the_documented_table_is_that_of_the_provider_files() {
    let mut table = String::from(
        "| name | for | proof | id | handshake | unverified |\n|---|---|---|---|---|---|\n",
    );
    for name in Scheme::embedded_names() {
        let scheme = Scheme::embedded(name).unwrap();
        let signed = if scheme.proof().covers_id() { "signed" } else { "**not** signed" };
        let title = match &scheme.setup().docs {
            Some(docs) => format!("[{}]({docs})", scheme.setup().title),
            None => scheme.setup().title.to_owned(),
        };
        let forms = match scheme.alternatives().len() {
            0 => String::new(),
            more => format!(", in {} forms", more + 1),
        };
        let (proof, id, handshake) = (
            scheme.proof().summary() + &forms,
            scheme.identity().id_summary(),
            scheme.challenge().summary(),
        );
        let unverified = scheme.setup().facts.unverified().join(", ");
        writeln!(
            table,
            "| `{name}` | {title} | {proof} | {id}: {signed} | {handshake} | {unverified} |"
        )
        .unwrap();
    }
    made::holds("providers.md", "built-in providers", &table);
}

/// The providers that most people use: every fact of their files was looked at.
const COMMONEST: [&str; 41] = [
    "adyen",
    "anthropic",
    "aws-sns",
    "chargebee",
    "clerk",
    "discord",
    "github",
    "gitlab",
    "gitlab-token",
    "gocardless",
    "hubspot",
    "intercom",
    "jira",
    "lemonsqueezy",
    "line",
    "linear",
    "mailgun",
    "meta",
    "mollie",
    "openai",
    "paddle",
    "pagerduty",
    "paypal",
    "paystack",
    "polar",
    "postmark",
    "razorpay",
    "resend",
    "sendgrid",
    "sentry",
    "shopify",
    "slack",
    "square",
    "stripe",
    "svix",
    "telegram",
    "twilio",
    "woocommerce",
    "workos",
    "zendesk",
    "zoom",
];

#[test]
fn every_built_in_provider_says_where_its_facts_are_from() {
    // These are for callers of the operator.
    let own = ["basic", "bearer", "certificate", "header-token", "none", "url-token"];
    for name in Scheme::embedded_names().filter(|name| !own.contains(name)) {
        let scheme = Scheme::embedded(name).unwrap();
        let parts: Vec<&str> = scheme.setup().facts.parts().map(|(part, _)| part).collect();
        let mut expected = vec!["proof", "event", "delivery", "setup"];
        if scheme.challenge().summary() != "-" {
            expected.insert(2, "challenge");
        }
        assert_eq!(parts, expected, "[facts] of {name}");
        assert_ne!(scheme.setup().title, name, "{name} needs a title");
    }
    for name in COMMONEST {
        let unverified = Scheme::embedded(name).unwrap().setup().facts.unverified();
        assert!(unverified.is_empty(), "{name}: {unverified:?}");
    }
}

#[test]
fn providers_are_found_by_name_and_title_with_those_of_files() {
    let site = Site::new("");
    write_ferry(&site);
    let all = site.json(&["providers"]);
    let names: Vec<&str> =
        all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.len() == Scheme::embedded_names().count() + 1);

    let found = site.json(&["providers", "FERRY l"]);
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!([&found[0]["name"], &found[0]["own"]], [&json!("ferry"), &json!(true)]);
    let stripe = &site.json(&["providers", "stripe"])[0];
    assert_eq!(
        [&stripe["proof"], &stripe["id_signed"], &stripe["resends_for_s"], &stripe["own"]],
        [&json!("HMAC-SHA256, hex"), &json!(true), &json!(259_200), &json!(false)]
    );
    let output = site.command(&["providers", "git"]).env("COLUMNS", "80").output().unwrap();
    let table = text(&output.stdout);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("gitlab") && !table.contains("stripe"), "{table}");

    let none = site.run(&["providers", "no such company"]);
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(1), String::new()));
    assert!(text(&none.stderr).contains("it can be described in"), "{}", text(&none.stderr));
}

#[test]
fn a_name_that_is_unknown_is_never_answered_with_another_company() {
    let site = Site::new("");
    let said = |args: &[&str]| text(&site.run(args).stderr);
    for (name, near) in
        [("gitlabb", Some("'gitlab'")), ("gitla", Some("'gitea' or 'gitlab'")), ("worldpay", None)]
    {
        for args in [
            &["providers", "show", name][..],
            &["providers", name],
            &["init", "--source", name],
            &["verify", "--provider", name],
        ] {
            let found = args == ["providers", "gitla"];
            let said = said(args);
            match near {
                _ if found => assert_eq!(said, ""),
                Some(near) => assert!(said.contains(&format!("did you mean {near}?")), "{said}"),
                None => {
                    assert!(said.contains("it can be described in"), "{said}");
                    assert!(!said.contains("did you mean"), "{said}");
                }
            }
        }
    }
}

#[test]
fn the_stanza_of_every_provider_is_valid_once_its_secret_exists() {
    let site = Site::new("");
    for folder in ["conf.d", "secrets", "keys"] {
        fs::create_dir(site.path(folder)).unwrap();
    }
    site.write_config(include_str!("../../src/cmd/init/hooklatch.toml"));
    for (at, name) in Scheme::embedded_names().enumerate() {
        let shown = site.json(&["providers", "show", name]);
        let stanza = shown["stanza"].as_str().unwrap();
        assert!(stanza.lines().all(|line| line.chars().count() <= 80), "{stanza}");
        fs::write(site.path(&format!("conf.d/{name}.toml")), stanza).unwrap();
        let scheme = Scheme::embedded(name).unwrap();
        let mut secret = verify::secret_text(&scheme, &[u8::try_from(at).unwrap() + 1; 32]);
        // The operator has yet to copy or fetch a public key.
        if scheme.proof().has_public_key() {
            secret.clear();
        }
        let folder = if scheme.proof().published_keys.is_some() { "keys" } else { "secrets" };
        fs::write(site.path(&format!("{folder}/{name}")), &*secret).unwrap();
        fs::write(site.path(&format!("secrets/{name}.verify")), "a verify token").unwrap();
        assert!(!shown["fields"].as_array().unwrap().is_empty(), "{name}");
        assert!(shown["guarantees"].as_array().unwrap().len() >= 6, "{name}");
    }
    let checked = site.json_of_any_exit(&["config", "check"]);
    assert_eq!(checked["errors"], json!([]));
    // The stanza of `certificate` is commented out.
    assert_eq!(checked["sources"], Scheme::embedded_names().count() - 1);
}

#[test]
fn the_guarantees_follow_from_the_file() {
    let site = Site::new("");
    let of = |name: &str, about: &str| {
        let shown = site.json(&["providers", "show", name]);
        let all = shown["guarantees"].as_array().unwrap();
        all.iter().find(|one| one["about"] == about).unwrap()["text"].as_str().unwrap().to_owned()
    };
    for (name, about, text) in [
        ("stripe", "proof", "HMAC-SHA256, hex: only a holder of the key"),
        ("stripe", "id", "/id in the JSON body; the signature covers it"),
        ("stripe", "captured", "a duplicate, which runs nothing"),
        ("stripe", "old", "refused more than 5min"),
        ("linear", "old", "refused more than 8h after its signed time, or 5min before it"),
        ("aws-sns", "sender", "`sender` must name /TopicArn in the JSON body"),
        ("stripe", "re-sends", "for 3d; ids are remembered for 90d"),
        ("github", "captured", "held until a person decides; types whose bodies repeat"),
        (
            "github",
            "old",
            "no time is signed: a request is good for as long as its secret; after 90d",
        ),
        ("github", "facts", "proof: "),
        ("calendly", "id", "the body's digest: two requests with equal bodies are one event"),
        ("telegram", "captured", "it has the secret in it"),
        ("none", "proof", "anyone who reaches the address"),
    ] {
        assert!(of(name, about).contains(text), "{name}: {}", of(name, about));
    }
}

#[test]
fn a_file_of_ones_own_is_tested_with_its_vectors() {
    let site = Site::new("");
    write_ferry(&site);
    let file = site.path("providers/ferry.toml");
    let args = ["providers", "test", file.to_str().unwrap()];
    let good = site.json(&args);
    assert_eq!([&good["to_accept"], &good["to_refuse"]], [1, 1]);
    assert!(good["changed"].as_u64().unwrap() > 150, "{good}");

    for (other, wrong) in [
        ("wrong id", "ferry/accept/other-id: the id is evt_1, not evt_2"),
        ("genuine", "ferry/reject/genuine: accepted, but must be refused"),
    ] {
        fs::write(site.path("other.jsonl"), ferry_vectors(other)).unwrap();
        let vectors = site.path("other.jsonl");
        let vectors = [&args[..], &["--vectors", vectors.to_str().unwrap()]].concat();
        let output = site.run(&vectors);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("{wrong}\n")), "{said}");
        assert!(said.contains("1 wrong"), "{said}");
    }

    // Vectors that accept nothing prove nothing.
    fs::write(site.path("providers/ferry.jsonl"), "").unwrap();
    assert_eq!(site.run(&args).status.code(), Some(1));
    fs::write(site.path("providers/ferry.jsonl"), "{}\n").unwrap();
    let broken = site.run(&args);
    assert_eq!(broken.status.code(), Some(65));
    assert!(text(&broken.stderr).contains("line 1: missing field"), "{}", text(&broken.stderr));
    let secret = "{\"provider\":\"ferry\",\"name\":\"a\",\"secrets\":\"a key, expected or not\"}\n";
    fs::write(site.path("providers/ferry.jsonl"), secret).unwrap();
    let quoting = text(&site.run(&args).stderr);
    assert!(quoting.contains("line 1: expected a sequence at line 1 column"), "{quoting}");
    assert!(!quoting.contains("a key"), "{quoting}");
    fs::remove_file(site.path("providers/ferry.jsonl")).unwrap();
    assert_eq!(site.run(&args).status.code(), Some(66));
}

#[test]
fn a_file_with_ten_mistakes_reports_ten_as_config_check_does() {
    let site = Site::new("");
    fs::create_dir(site.path("providers")).unwrap();
    let file = site.path("providers/bad.toml");
    let bad = r#"name = "Bad Name"
title = 1
fact = "?"

[signature]
algorithm = "hmac-md5x"
header = "X Bad"
encoding = "hexx"
signed = "{body}{bodi}"

[timestamp]
from = "query:t"
unit = "h"
tolerance = "8d"

[event]
id = "json:/id"
"#;
    fs::write(&file, bad).unwrap();
    let tested = site.json_of_any_exit(&["providers", "test", file.to_str().unwrap()]);
    let errors = tested["errors"].as_array().unwrap();
    let lines: Vec<&Value> = errors.iter().map(|error| &error["line"]).collect();
    assert_eq!(lines, [1, 2, 3, 6, 7, 8, 9, 12, 13, 14]);
    assert!(errors.iter().all(|error| error["column"].as_u64() > Some(0)), "{tested}");
    let checked = site.json_of_any_exit(&["config", "check"]);
    assert_eq!(checked["errors"], tested["errors"]);
    let output = site.run(&["providers", "test", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stdout).contains("bad.toml: 10 errors"), "{}", text(&output.stdout));
    let listed = site.run(&["providers"]);
    assert_eq!(listed.status.code(), Some(0));
    assert!(text(&listed.stderr).contains("bad.toml:1:8"), "{}", text(&listed.stderr));
}
