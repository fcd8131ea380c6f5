//! Provider files: every mistake is reported with its position, and a file with a mistake does not
//! parse.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use proptest::prelude::*;

use super::place::Place;
use super::template::Template;
use super::*;
use crate::limits::Limits;
use crate::model::Repeats;

fn problems(text: &str) -> Vec<String> {
    let problems = Problems::new();
    let scheme = Scheme::parse("p.toml", text, &problems);
    let found: Vec<String> = problems.into_sorted().iter().map(ToString::to_string).collect();
    assert_eq!(scheme.is_some(), found.is_empty());
    found
}

#[test]
fn the_embedded_files_are_sound_and_have_the_documented_limits() {
    for name in Scheme::embedded_names() {
        let text = EMBEDDED.iter().find(|(n, ..)| *n == name).unwrap().1;
        assert_eq!(problems(text), Vec::<String>::new(), "{name}");
        assert_eq!(Scheme::embedded(name).unwrap().name(), name);
        let page = include_str!("../../docs/providers.md");
        assert!(page.contains(&format!("\n| `{name}` |")), "{name} is not on the page");
    }
    assert_eq!(Scheme::embedded("strip"), None);
    let github = Scheme::embedded("github").unwrap();
    assert_eq!(github.setup.delivery.body_limit_bytes, Some(25 * 1024 * 1024));
    assert_eq!(github.setup.delivery.deadline, Some(Duration::from_secs(10)));
    assert!(
        github.identity.two_levels() && !github.proof.is_absent() && !github.proof.covers_url()
    );
    let stripe = Scheme::embedded("stripe").unwrap();
    assert_eq!(stripe.setup.delivery.resends_for(), Some(Duration::from_secs(3 * 86_400)));
    assert_eq!(
        (stripe.setup.delivery.body_limit_bytes, stripe.setup.delivery.deadline),
        (None, None)
    );
    assert!(Scheme::embedded("none").unwrap().proof.is_absent());
    // Only callers that are the operator's own programs get the receiver's JSON.
    let has_details = |name: &&str| Scheme::embedded(name).unwrap().answers.details;
    let detailed: Vec<&str> = Scheme::embedded_names().filter(has_details).collect();
    assert_eq!(detailed, ["basic", "bearer", "certificate", "header-token", "none"]);
    assert_eq!(
        stripe.identity.kept_headers,
        ["Content-Type", "Content-Encoding", "Stripe-Signature"]
    );
}

#[test]
fn a_built_in_file_that_reads_a_body_before_its_proof_limits_it() {
    let default = Limits::default().body_default_bytes;
    let reads_first = |scheme: &Scheme| scheme.proof.is_in_body() || scheme.proof.reads_json();
    let mut found = Vec::new();
    for name in Scheme::embedded_names() {
        let scheme = Scheme::embedded(name).unwrap();
        if scheme.families().any(reads_first) {
            let limit = scheme.setup.delivery.body_limit_bytes;
            assert!(limit.is_some_and(|limit| limit <= default), "{name}: {limit:?}");
            found.push(name);
        }
    }
    assert_eq!(found, ["adyen", "aws-sns", "braintree", "ko-fi", "mailgun", "microsoft-graph"]);
}

#[test]
fn every_embedded_file_but_these_says_what_an_equal_body_means() {
    // Of some, two events can have equal bodies, and nothing but "duplicate" is safe; of the others it is not known.
    // `config check` names a source with such a file.
    let silent = |name: &&str| {
        let identity = Scheme::embedded(name).unwrap().identity;
        identity.id_may_be_digest()
            && identity.repeats == Repeats::Duplicate
            && identity.distinct.is_none()
    };
    let found: Vec<&str> = Scheme::embedded_names().filter(silent).collect();
    let known = [
        "brevo-batched",
        "clickup",
        "coinbase-cdp",
        "flutterwave",
        "grafana-no-timestamp",
        "greenhouse",
        "hocuspocus",
        "hygraph",
        "jira-data-center",
        "kontent-ai",
        "patreon",
        "paystack",
        "plivo",
        "slack",
        "twilio",
    ];
    assert_eq!(found, known);
}

#[test]
fn listed_event_types_are_sorted_unique_and_well_formed() {
    for name in Scheme::embedded_names() {
        let listed = Scheme::embedded(name).unwrap().identity.listed;
        assert!(listed.is_sorted_by(|one, next| one < next), "{name}");
        for kind in &listed {
            let fixed = kind.strip_suffix(".*").unwrap_or(kind);
            let plain = |c: char| c.is_ascii_alphanumeric() || "_.[]-:/ ".contains(c);
            assert!(fixed.chars().all(plain), "{name}: {kind}");
            assert!(fixed.split('.').all(|part| !part.is_empty()), "{name}: {kind}");
        }
    }
    // Every sample and every type that `init` suggests is a listed type.
    let embedded = |name| Scheme::embedded(name).unwrap();
    for name in Scheme::embedded_names().filter(|name| !embedded(name).identity.listed.is_empty()) {
        let scheme = embedded(name);
        let suggested = scheme.setup.sample_type.as_deref().unwrap();
        assert_eq!(scheme.identity.publishes_type(suggested), Some(true), "{name}");
        let samples: serde_json::Value =
            serde_json::from_str(scheme.setup.samples).unwrap_or_else(|_| serde_json::json!({}));
        for kind in samples.as_object().unwrap().keys().filter(|kind| *kind != "*") {
            let known = scheme.identity.publishes_type(kind) == Some(true);
            assert!(
                known || scheme.identity.publishes_type(&format!("{kind}.*")) == Some(true),
                "{name}: {kind}"
            );
        }
    }
}

#[test]
fn the_provider_file_in_the_documentation_is_sound() {
    let page = include_str!("../../docs/providers.md");
    let text = page.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(problems(text), Vec::<String>::new());
    // Lines that the example comments out must be valid too.
    let mut all = text.replace("id = \"json:/id\" ", "id = \"header:X-Id\" ");
    let keys = ["subtype", "form_field", "types", "[replay]", "guard", "flag_types"];
    for key in keys.into_iter().chain(["[[alternative]]", "signature.header", "secret = {"]) {
        let commented = format!("# {key}");
        assert!(all.contains(&commented), "{key}");
        all = all.replace(&commented, key);
    }
    assert_eq!(problems(&all), Vec::<String>::new());
}

#[test]
fn a_key_does_not_replace_the_id_that_is_signed() {
    let file = |signed: &str| {
        let text = changed("{timestamp}.{body}", signed) + "[answer]\nkey = \"json:/order\"\n";
        problems(&text.replace("id = \"json:/id\"", "id = \"header:X-Id\""))
    };
    assert_eq!(file("{header:X-Id}.{timestamp}.{body}"), Vec::<String>::new());
    let found = file("{id}.{timestamp}.{body}");
    assert!(found[0].contains("answer.key takes the place of event.id"), "{found:?}");
}

#[test]
fn a_challenge_is_not_proven_by_the_tokens_of_elements() {
    let file = |each: &str| {
        problems(&format!(
            "name = \"x\"\n[signature]\nalgorithm = \"token\"\nfield = \"json:/token\"\n[event]\nid = \"digest\"\n{each}\
             [replay]\nguard = \"off\"\n[[handshake]]\nwhere = {{ \"json:/type\" = \"ping\" }}\nproof = \"signature\"\n"
        ))
    };
    assert_eq!(file(""), Vec::<String>::new());
    let found = file("each = \"json:/value\"\n");
    assert!(found[0].contains("each element"), "{found:?}");
}

#[test]
fn a_token_may_stand_in_json_and_in_a_form_and_a_signature_in_one() {
    let of = |signature: &str| {
        problems(&format!(
            "name = \"x\"\n[signature]\n{signature}form = \"token\"\n[event]\nid = \"digest\"\n[replay]\nguard = \"off\"\n"
        ))
    };
    assert_eq!(of("algorithm = \"token\"\nfield = \"json:/token\"\n"), Vec::<String>::new());
    for other in [
        "algorithm = \"token\"\nheader = \"X-Token\"\n",
        "algorithm = \"token\"\n",
        "algorithm = \"hmac-sha256\"\nfield = \"json:/s\"\nencoding = \"hex\"\nsigned = \"{json:/a}.{body}\"\n",
    ] {
        let found = of(other);
        assert!(found.iter().any(|one| one.contains("signature.form goes with")), "{found:?}");
    }
}

#[test]
fn every_problem_of_a_file_is_reported_at_once() {
    let text = r#"
name = "My Provider"
colour = "red"

[signature]
algorithm = "hmac-sha-256"
header = "X Signature"
encodin = "hex"
signed = "{timestamp}{bdy}"

[secret]
encoding = "bas64"

[timestamp]
from = "head:X"
unit = "seconds"
tolerance = "8days"

[event]
id = "json:id"
type = ["header:X-Type", "digest"]
subtype = "form:X"

[delivery]
deadline = 10
body_limit = "1 TiB"
keep_headers = ["bad name"]
"#;
    assert_eq!(
        problems(text),
        [
            "p.toml:2:8: name: 'My Provider' is not a valid name: 1 to 64 of a-z, 0-9, '_' and '-', not starting with '_' or '-'",
            "p.toml:3:1: colour: unknown key\n    help: the keys here are: alternative, answer, delivery, docs, event, facts, handshake, keys, like, name, replay, secret, setup, signature, timestamp, title, vectors",
            "p.toml:5:1: signature: 'encoding' is missing\n    help: add encoding = a string",
            "p.toml:6:13: signature.algorithm: must be one of hmac-md5, hmac-sha1, hmac-sha256, hmac-sha512, ed25519, ecdsa-p256, rsa-sha256, jwt, token, none, not 'hmac-sha-256'\n    help: did you mean 'hmac-sha256'?",
            "p.toml:7:10: signature.header: 'X Signature' is not a header name",
            "p.toml:8:1: signature.encodin: unknown key\n    help: did you mean 'encoding'?",
            "p.toml:9:10: signature.signed: '{timestamp}{bdy}' has {bdy}, which is not one of {timestamp}, {id}, {body}, {method}, {url}, {url-other-port}, {path}, {header:NAME}, {headers-in:NAME}, {headers:ITEM}, {item:ITEM}, {form}, {form:FIELD}, {url+form}, {json:/POINTER}, {any-json:/POINTER}, {lines:NAME,…}, {crc32:body}, {json-string:body}, {sender}",
            "p.toml:12:12: secret.encoding: must be one of text, base64, hex, sha1, spki, not 'bas64'\n    help: did you mean 'base64'?",
            "p.toml:15:8: timestamp.from: must be one of item:LABEL, header:NAME, json:/POINTER, not 'head:X'",
            "p.toml:16:8: timestamp.unit: must be one of s, decimal, ms, iso8601, not 'seconds'",
            "p.toml:17:13: timestamp.tolerance: must be 1 min to 7 days",
            "p.toml:20:6: event.id: 'id' is not a JSON pointer: it starts with '/', as in /data/id",
            "p.toml:21:8: event.type: 'digest' is not a type",
            "p.toml:22:11: event.subtype: 'form:X' is neither a json:/POINTER nor a header:NAME",
            "p.toml:25:12: delivery.deadline: expected a duration such as \"30s\", \"5min\" or \"3d\", found integer",
            "p.toml:26:14: delivery.body_limit: must be 1024 to 33554432 bytes, a quarter of all bodies in flight\n    help: a source may have more: max_body",
            "p.toml:27:16: delivery.keep_headers: 'bad name' is not a header name",
        ]
    );
    assert_eq!(
        problems(""),
        [
            "p.toml:1:1: 'name' is missing\n    help: add name = a string",
            "p.toml:1:1: [signature] is missing\n    help: add it; algorithm = \"none\" where nothing is signed",
            "p.toml:1:1: [event] is missing\n    help: add it with id and type",
        ]
    );
}

/// A sound file with one line replaced or added.
fn changed(from: &str, to: &str) -> String {
    let text = "name = \"x\"\n[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{timestamp}.{body}\"\n[timestamp]\nfrom = \"header:X-At\"\nunit = \"s\"\ntolerance = \"5min\"\n[event]\nid = \"json:/id\"\n";
    assert_eq!(problems(text), Vec::<String>::new());
    if from.is_empty() { format!("{text}{to}\n") } else { text.replace(from, to) }
}

#[test]
fn turning_off_the_replay_guard_needs_replays_run() {
    let text = changed(
        "id = \"json:/id\"",
        "id = [\"header:X-Id\", \"digest\"]\n[replay]\nguard = \"hold\"",
    );
    let scheme = Scheme::parse("p.toml", &text, &Problems::new()).unwrap();
    let window = Repeats::Window(Duration::from_secs(86_400));
    assert!(scheme.check_repeats(window, false).is_err());
    assert!(scheme.check_repeats(window, true).is_ok());
    assert!(scheme.check_repeats(Repeats::Duplicate, false).is_ok());
}

#[test]
fn a_signature_that_covers_neither_id_nor_body_needs_a_guard_that_holds() {
    let open = changed("{timestamp}.{body}", "{timestamp}.{json:/a}");
    let held = format!("{open}[replay]\nguard = \"hold\"\n");
    assert_eq!(problems(&held), Vec::<String>::new());
    let any_event = "so a captured request runs with any event in it";
    for (text, wrong) in [
        (open.clone(), any_event),
        (format!("{open}[replay]\nguard = \"flag\"\n"), any_event),
        (format!("{held}flag_types = [\"a\"]\n"), any_event),
        (
            held.replace("\"json:/id\"", "\"json:/id\"\neach = \"json:/e\""),
            "cannot tell a repeated element",
        ),
        (
            format!("{held}[[alternative]]\nsignature.header = \"X-Other\"\n"),
            "by the other signature",
        ),
    ] {
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.contains(wrong)), "{wrong}: {found:?}");
    }
}

#[test]
fn a_scheme_that_leaves_out_part_of_its_proof_is_refused() {
    for (from, to, wrong) in [
        ("{timestamp}.{body}", "{body}", "[timestamp] is not signed"),
        ("{timestamp}.{body}", "{timestamp}", "has no {body}"),
        ("{timestamp}.{body}", "{id}.{timestamp}.{body}", "event.id must be one header"),
        ("{timestamp}.{body}", "{id}.{timestamp}.{body}", "write {header:NAME} in place of {id}"),
        ("header:X-At", "json:/at", "cannot be taken from the body"),
        ("header:X-At", "item:t", "whose format is not \"pairs\""),
        ("json:/id", "header:X-Id", "does not cover the event id"),
        ("json:/id\"", "json:/id\"\nrepeats = \"1h\"", "names its event for good"),
        ("json:/id\"", "json:/id\"\nrepeats = \"trigger\"", "names its event for good"),
        ("json:/id\"", "digest\"\nrepeats = \"trigger\"", "lets a captured request run again"),
        ("json:/id\"", "digest\"\nrepeats = \"0s\"", "must be 1s to 3650d"),
        (
            "json:/id\"",
            "digest\"\nrepeats = \"always\"",
            "must be 'duplicate', 'trigger', 'look-again'",
        ),
        ("json:/id\"", "digest\"\nrepeats = \"look-again\"", "goes with event.id = \"new\""),
        ("json:/id\"", "new\"\nrepeats = \"1h\"", "makes an event of each"),
        (
            "{timestamp}.{body}\"\n[timestamp]\nfrom = \"header:X-At\"\nunit = \"s\"\ntolerance = \"5min\"\n[event]\nid = \"json:/id\"",
            "{body}\"\n[event]\nid = \"new\"",
            "event.id = \"new\" lets a captured request run again at any time",
        ),
        (
            "json:/id\"",
            "new\"\n[delivery]\nresends_for = \"1h\"",
            "event.id = \"new\" makes another event of it",
        ),
        ("json:/id\"", "digest\"\nrepeats = \"9min\"", "together are over the window of repeats"),
        ("json:/id\"", "json:/id\"\ndistinct = \"x\"", "event.distinct goes with"),
        ("5min", "59s", "must be 1 min to 7 days"),
        ("json:/id\"", "json:/id\"\neach = \"header:X\"", "neither json: nor a json:/POINTER"),
        ("json:/id\"", "header:X-Id\"\neach = \"json:/e\"", "all would have one id"),
        ("\"json:/id\"", "{ join = [\"json:/a\"] }", "needs two places or more"),
        ("\"json:/id\"", "{ join = [\"json:/a\", \"new\"] }", "needs two places or more"),
        ("\"json:/id\"", "[\"new\", \"json:/id\"]", "stands alone"),
        (
            "",
            "[keys]\nurl = \"https://a.example/k\"\nhosts = [\"b.example\"]",
            "is not among keys.hosts",
        ),
        (
            "",
            "[keys]\nurl = \"http://a.example/k\"\nhosts = [\"a.example\"]",
            "must be an https URL",
        ),
        ("", "[keys]\nurl = \"header:X\"\nhosts = [\"*.example\"]", "is not a host in lower case"),
        (
            "",
            "[keys]\nurl = \"header:X\"\nhosts = [\"a.example\"]\npath = \"/*\"",
            "which of them a request is from",
        ),
        (
            "",
            "[keys]\nurl = \"header:X\"\nhosts = [\"a.example\"]\nown = true",
            "each request names its own URL, and anybody can send one",
        ),
        (
            "",
            "[keys]\nurl = \"header:X\"\nhosts = [\"a.example\"]\npath = \"/k?*\"\nown = true",
            "is not a path with one *",
        ),
        (
            "",
            "[keys]\nurl = \"https://a.example/k\"\nhosts = [\"a.example\"]\npath = \"/*\"\nown = true",
            "keys.path is for a URL that each request names",
        ),
        ("\nsigned", "\nsender = \"header:X-Who\"\nsigned", "signature.sender is not signed"),
        ("\nsigned", "\nsender = \"digest\"\nsigned", "neither header:NAME nor json:/POINTER"),
        ("", "[answer]\naccepted = { status = 404 }", "must be one of 200, 201, 202, 204"),
        ("", "[answer]\npending = { status = 504 }", "must be one of 200, 201, 202, 204"),
        ("", "[answer]\nduplicate = { status = 409 }", "must be one of 200, 201, 202, 204"),
        ("", "[answer]\nrefused = { status = 200 }", "must be 400 to 499, without"),
        ("", "[answer]\nrefused = { status = 410 }", "must not be 410: several providers"),
        ("", "[answer]\nrefused = { status = 413 }", "must be 400 to 499, without"),
        ("", "[answer]\naccepted = { body = \"ok\" }", "an answer has a 'body' without a 'type'"),
        ("", "[answer]\naccepted = { type = \"text/xml\" }", "a 'type' without a 'body'"),
        (
            "",
            "[answer]\naccepted = { status = 204, type = \"text/plain\", body = \"ok\" }",
            "an answer with status 204 has no body",
        ),
        (
            "",
            "[answer]\naccepted = { type = \"text/plain\\r\\nX: y\", body = \"ok\" }",
            "is not a media type such as application/json",
        ),
        ("", "[answer]\naccepted = { type = \"json\", body = \"{}\" }", "is not a media type"),
        (
            "",
            "[answer]\naccepted = { type = \"application/json\", body = \"ok\" }",
            "the 'body' is not JSON",
        ),
        (
            "",
            "[answer]\naccepted = { type = \"text/plain\", body = \"a\\u0000\" }",
            "has a control character",
        ),
        ("", "[answer]\naccepted = { type = \"text/plain\", body = \"\" }", "is empty, as is"),
        ("", "[answer]\nkey = \"digest\"", "'digest' is not a key: use event.id"),
        ("", "[answer]\nkey = \"signed\"", "but a time or a header is signed too"),
        ("", "[answer]\nacepted = { status = 200 }", "answer.acepted: unknown key"),
        ("", "[[handshake]]\nproof = \"none\"", "'where' is missing: every delivery"),
        (
            "",
            "[[handshake]]\nproof = \"nothing\"",
            "must be one of signature, verify_token, registration, none",
        ),
        ("", "[[handshake]]\nproof = \"verify_token\"", "'token' is missing"),
        ("", "[[handshake]]\nproof = \"registration\"", "a registration is a POST with a 'value'"),
        (
            "",
            "[[handshake]]\nmethod = \"GET\"\nproof = \"none\"\nstatus = 410",
            "one of 200, 201, 202, 204",
        ),
        (
            "",
            "[[handshake]]\nmethod = \"GET\"\nproof = \"none\"\nwhere = { \"json:/a\" = \"*\" }",
            "only a POST has a body",
        ),
        ("", "[[handshake]]\nmethod = \"GET\"\nproof = \"signature\"", "only a POST is signed"),
        (
            "",
            "[[handshake]]\nproof = \"signature\"\nwhere = { \"query:a\" = \"*\" }",
            "the query of a signed challenge is not read",
        ),
        (
            "",
            "[[handshake]]\nmethod = \"GET\"\nproof = \"none\"\nanswer = \"{value}\"",
            "'value' is missing",
        ),
        (
            "",
            "[[handshake]]\nmethod = \"GET\"\nproof = \"none\"\nvalue = \"query:a\"",
            "the answer does not have the value",
        ),
        (
            "",
            "[[handshake]]\nmethod = \"GET\"\nproof = \"none\"\ntype = \"json\"\nvalue = \"query:a\"\nanswer = '{\"a\":{value}}'",
            "is not JSON with each placeholder in quotes",
        ),
        (
            "",
            "[[handshake]]\nmethod = \"GET\"\nproof = \"none\"\nvalue = \"digest\"",
            "must be one of query:NAME",
        ),
        (
            "encoding",
            "format = \"pairs\"\nseparator = \"\"\nlabel = \"v\"\nencoding",
            "separator: must not be empty",
        ),
        ("hmac-sha256", "none", "[timestamp] proves nothing"),
        (
            "encoding",
            "repeatable = true\nformat = \"pairs\"\nseparator = \", \"\nlabel = \"v\"\nencoding",
            "its lines can be merged by ', '",
        ),
    ] {
        let found = problems(&changed(from, to));
        assert!(found.iter().any(|problem| problem.contains(wrong)), "{wrong}: {found:?}");
    }
    let jwt = "algorithm = \"jwt\"\njwt = [\"HS256\"]\nheader = \"X-Sig\"\n";
    let file = |signature: &str, more: &str| {
        format!("name = \"x\"\n[signature]\n{signature}[event]\nid = \"json:/id\"\n{more}")
    };
    let public =
        "algorithm = \"ed25519\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{body}\"\n";
    let body = "body_claim = \"h\"\nbody_encoding = \"hex\"\n";
    assert_eq!(problems(&file(&format!("{jwt}{body}"), "")), Vec::<String>::new());
    for (text, wrong) in [
        (file(jwt, ""), "does not cover the event id"),
        (
            file(&jwt.replace("HS256", "none"), ""),
            "must be some of HS256, RS256, ES256, not 'none'",
        ),
        (file(&jwt.replace("\"HS256\"", ""), ""), "the list is empty"),
        (file(&jwt.replace("jwt = [", "jwts = ["), ""), "'jwt' is missing"),
        (file(&format!("{jwt}body_claim = \"h\"\n"), ""), "'body_encoding' is missing"),
        (file(&format!("{jwt}audience = \"me\"\n"), ""), "must be one of url"),
        (file(&format!("{jwt}tolerance = \"8days\"\n"), ""), "must be 1 min to 7 days"),
        (file(&format!("{jwt}{body}tolerance = \"2h\"\n"), ""), "of a token must be 1 min to 1 h"),
        (
            file(&format!("{jwt}{body}"), "[secret]\nencoding = \"hex\"\n"),
            "the algorithm uses none",
        ),
        (file(jwt, "[delivery]\nkeep_headers = [\"x-sig\"]\n"), "which is the secret itself"),
        (file(public, "[secret]\nencoding = \"text\"\n"), "are not a public key"),
        (changed("", "[secret]\nencoding = \"spki\""), "an HMAC has none"),
    ] {
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.contains(wrong)), "{wrong}: {found:?}");
    }
    let token = "name = \"x\"\n[signature]\nalgorithm = \"token\"\nheader = \"X-Token\"\n[event]\nid = \"json:/id\"\n[replay]\nguard = \"off\"\n[delivery]\nkeep_headers = [\"x-token\"]\n[secret]\nencoding = \"hex\"\n";
    let found = problems(token);
    assert!(found.iter().any(|p| p.contains("which is the secret itself")), "{found:?}");
    assert!(found.iter().any(|p| p.contains("the algorithm uses none")), "{found:?}");
}

/// The remembered text must be one that an attacker cannot change: a signed id, or the body where the guard holds each repetition.
#[test]
fn a_tolerance_over_five_minutes_needs_something_that_tells_a_replay() {
    let refused = |text: &str| {
        let found = problems(text);
        let is_refused = |problem: &String| problem.contains("lets a captured request run again");
        assert!(found.iter().all(is_refused), "{found:?}");
        !found.is_empty()
    };
    for tolerance in ["6min", "7days"] {
        let long = changed("5min", tolerance);
        assert!(!refused(&long), "the id is signed");
        assert!(
            !refused(&long.replace("json:/id", "digest")),
            "the digest is that of a signed body"
        );
        let open = long.replace("json:/id", "header:X-Id");
        for (replay, expected) in [
            ("guard = \"hold\"", false),
            ("guard = \"hold\"\nflag_types = [\"a\"]", true),
            ("guard = \"flag\"", true),
            ("guard = \"off\"", true),
        ] {
            assert_eq!(refused(&format!("{open}[replay]\n{replay}\n")), expected, "{replay}");
        }
        let new = long.replace("json:/id", "new");
        assert!(refused(&new));
        // The part that is signed is not the whole body, so it does not tell one body from another.
        let part = open.replace(".{body}", ".{json:/id}");
        assert!(refused(&format!("{part}[replay]\nguard = \"hold\"\n")));
    }
    assert!(!refused(&format!(
        "{}[replay]\nguard = \"off\"\n",
        changed("json:/id", "header:X-Id")
    )));
}

#[test]
fn published_keys_need_a_signed_sender_or_one_customer() {
    let keys = "[keys]\nurl = \"header:X\"\nhosts = [\"a.example\"]\npath = \"/*\"\n";
    let own = changed("", &format!("{keys}own = true"));
    let in_body = changed("\nsigned", "\nsender = \"json:/account\"\nsigned") + keys;
    let signed = changed("{timestamp}.{body}", "{timestamp}.{sender}.{body}") + keys;
    for text in [own, in_body, signed] {
        assert_eq!(problems(&text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_header_is_covered_only_if_the_template_has_it() {
    let scheme = |signed: &str| {
        let text = changed("{timestamp}.{body}", signed).replace("json:/id", "header:X-Id");
        Scheme::parse("p.toml", &format!("{text}[replay]\nguard = \"hold\"\n"), &Problems::new())
            .or_else(|| Scheme::parse("p.toml", &text, &Problems::new()))
            .unwrap()
    };
    let place = Place::Header("x-id".to_owned());
    assert!(!scheme("{timestamp}.{body}").proof.covers(&place));
    assert!(scheme("{header:X-Id}.{timestamp}.{body}").proof.covers(&place));
    let own = Place::Header("X-Id".to_owned());
    assert!(scheme("{id}.{timestamp}.{body}").proof.covers(&own));
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,200}") {
        Scheme::parse("p.toml", &text, &Problems::new());
        let _ = Template::parse(&text);
        let _ = Place::parse(&text);
    }

    #[test]
    fn a_provider_file_with_one_changed_line_does_not_panic(
        which in 0..EMBEDDED.len(),
        line in any::<prop::sample::Index>(),
        with in "[a-z_]{1,9} = (\"[a-z:/{}.]{0,20}\"|[0-9]{1,4}|\\[\\]|true)|\\[[a-z]{1,9}\\]",
    ) {
        let mut lines: Vec<&str> = EMBEDDED[which].1.lines().collect();
        let at = line.index(lines.len());
        lines[at] = &with;
        problems(&lines.join("\n"));
    }
}

#[test]
fn a_file_takes_what_it_lacks_from_the_provider_that_it_is_like() {
    let parse = |text: &str| Scheme::parse("p.toml", text, &Problems::new()).unwrap();
    let base = Scheme::embedded("standard-webhooks").unwrap();
    let own = parse("name = \"own\"\nlike = \"standard-webhooks\"\n");
    // What the file says of the provider itself is not taken.
    let Scheme { name, setup: Setup { title, docs, facts, vectors, .. }, .. } = base.clone();
    let setup = Setup { title, docs, facts, vectors, ..own.setup.clone() };
    let renamed = Scheme { name, setup, ..own };
    assert_eq!(renamed, base);
    let other = parse(
        "name = \"own\"\nlike = \"standard-webhooks\"\n[secret]\nencoding = \"text\"\n\
         [event]\nid = \"header:webhook-id\"\n",
    );
    assert_ne!(other.proof.signature, base.proof.signature);
    assert_eq!(
        (other.proof.timestamp, !other.identity.types.is_empty()),
        (base.proof.timestamp, false)
    );
    let twilio = Scheme::embedded("twilio").unwrap().answers;
    assert_eq!(parse("name = \"own\"\nlike = \"twilio\"\n").answers, twilio);
    let other = parse("name = \"own\"\nlike = \"twilio\"\n[answer]\ndetails = true\n").answers;
    assert_eq!(other, Answers { details: true, ..Answers::default() });
    let found = problems("name = \"own\"\nlike = \"stripy\"\n");
    assert_eq!(
        found,
        [
            "p.toml:2:8: like: no built-in provider is called 'stripy'\n    help: did you mean 'stripe'?"
        ]
    );
    let token = problems("name = \"own\"\nlike = \"bearer\"\n[secret]\nencoding = \"text\"\n");
    assert!(token[0].contains("the algorithm uses none"), "{token:?}");
    let unsigned = problems("name = \"own\"\nlike = \"stripe\"\n[event]\nid = \"header:X-Id\"\n");
    assert!(unsigned[0].contains("does not cover the event id"), "{unsigned:?}");
}

/// A sound file with these alternatives.
fn with_alternatives(alternatives: &[&str]) -> String {
    let all = alternatives.iter().map(|one| format!("[[alternative]]\n{one}\n"));
    changed("", &all.collect::<String>())
}

#[test]
fn a_secret_is_decoded_as_by_the_provider_that_a_file_with_its_own_signature_is_like() {
    let key = |like: &str, algorithm: &str, more: &str| {
        let text = format!(
            "name = \"own\"\nlike = \"{like}\"\n[signature]\nalgorithm = \"{algorithm}\"\nheader = \"X\"\n\
             encoding = \"base64\"\nsigned = \"{{timestamp}}.{{header:webhook-id}}.{{body}}\"\n{more}[event]\nid = \"digest\"\n"
        );
        assert_eq!(problems(&text), Vec::<String>::new());
        let own = Scheme::parse("p.toml", &text, &Problems::new()).unwrap();
        match own.proof.signature.map(|signature| signature.mechanism) {
            Some(Mechanism::Signed { key, .. }) => key,
            _ => panic!("nothing is signed"),
        }
    };
    let base64 = |prefix: &str| KeyText::Base64 { prefix: prefix.to_owned() };
    assert_eq!(key("standard-webhooks", "hmac-sha512", ""), base64("whsec_"));
    assert_eq!(key("standard-webhooks-v1a", "ed25519", ""), base64("whpk_"));
    assert_eq!(key("standard-webhooks", "ed25519", ""), KeyText::Spki);
    assert_eq!(key("standard-webhooks-v1a", "hmac-sha256", ""), KeyText::Text);
    let own = "[secret]\nencoding = \"hex\"\n";
    assert_eq!(key("standard-webhooks", "hmac-sha256", own), KeyText::Hex);
}

#[test]
fn an_alternative_is_the_file_with_other_keys() {
    let text = with_alternatives(&[
        "signature.header = \"X-Other\"\nsignature.signed = \"{timestamp}:{body}\"\nevent.id = \"json:/other\"",
        "secret.encoding = \"hex\"",
    ]);
    let scheme = Scheme::parse("p.toml", &text, &Problems::new()).unwrap();
    let families: Vec<&Scheme> = scheme.families().collect();
    let headers: Vec<Vec<&str>> =
        families.iter().map(|family| family.proof.headers().collect()).collect();
    assert_eq!(headers, [["X-Sig"], ["X-Other"], ["X-Sig"]]);
    let ids: Vec<String> = families.iter().map(|family| family.identity.id_summary()).collect();
    assert_eq!(ids[1], "/other in the JSON body");
    assert_eq!(ids[0], ids[2]);
    assert_eq!(families[0].proof.timestamp, families[2].proof.timestamp);
    assert_eq!(families.iter().map(|family| family.family()).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn an_alternative_proves_what_the_file_proves() {
    for (alternative, wrong) in [
        ("signature.signed = \"{body}\"", "[timestamp] is not signed"),
        ("signature.signed = \"{timestamp}\"", "has no {body}"),
        ("signature.signed = \"{timestamp}.{json:/a}\"", "whether the event id is signed"),
        ("signature.signed = \"{timestamp}.{json:/id}\"", "what of the body is signed"),
        ("event.type = \"header:X-Type\"", "whether the type is signed"),
        ("signature.signed = \"{timestamp}.{url}.{body}\"", "whether the URL is signed"),
        ("signature.field = \"json:/s\"", "where the signature is"),
        ("timestamp.tolerance = \"1h\"", "the tolerance"),
        ("event.id = \"header:X-Id\"", "does not cover the event id"),
        ("event.id = \"json:/other\"", "another signed place"),
        ("event.type = \"json:/other\"", "another signed place"),
        ("event.type = \"json:/other\"\nsecret.encoding = \"text\"", "another signed place"),
        ("event.id = \"digest\"", "whether the event id is a digest"),
        ("event.volatile = [\"a\"]", "more of [event] than id, type and subtype"),
        ("signature.algorithm = \"token\"", "an alternative needs an HMAC"),
        ("signature.headers = \"X-Other\"", "unknown key"),
        ("setup.page = \"there\"", "unknown key"),
        ("", "changes none of signature, secret, timestamp, event"),
    ] {
        let found = problems(&with_alternatives(&[alternative]));
        assert!(found.iter().any(|problem| problem.contains(wrong)), "{wrong}: {found:?}");
    }
    let other = "secret.encoding = \"hex\"";
    assert_eq!(problems(&with_alternatives(&[other; 3])), Vec::<String>::new());
    let found = problems(&with_alternatives(&[other; 4]));
    assert!(found[0].contains("4 are too many") && found.len() == 1, "{found:?}");
    assert!(problems(&changed("", "[alternative]"))[0].contains("is not a list of tables"));
}

#[test]
fn alternatives_are_inherited_by_a_file_that_changes_no_proof() {
    let polar = Scheme::embedded("polar").unwrap();
    let parse = |more: &str| {
        let text = format!("name = \"own\"\nlike = \"polar\"\n{more}");
        Scheme::parse("p.toml", &text, &Problems::new()).unwrap()
    };
    let own = parse("[delivery]\nkeep_headers = [\"X-Own\"]\n");
    assert_eq!(own.alternatives.len(), 1);
    assert_eq!(own.alternatives[0].proof, polar.alternatives[0].proof);
    assert_eq!((own.alternatives[0].name(), own.alternatives[0].family()), ("own", 1));
    assert_eq!(own.alternatives[0].identity, own.identity);
    assert_eq!(parse("[secret]\nencoding = \"hex\"\n").alternatives, []);
}
