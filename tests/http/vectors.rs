//! Signed requests with the verdict that each must get: those of the repository, made with the providers'
//! libraries, and the shared collection, if it is present.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hooklatch::document::Problems;
use hooklatch::provider::Scheme;
use hooklatch::verify::vectors::{self, Expect, Vector};

fn read(path: &Path) -> Vec<Vector> {
    let text = std::fs::read_to_string(path).unwrap();
    // The v1 of Coinbase's is a placeholder, with which Hook0's own library refuses a request with any v0.
    let placeholder = format!(",h=content-type x-event-id,v1={}", "0".repeat(64));
    let read = vectors::read(&text.replace(&placeholder, ""));
    let mut all = read.unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
    for vector in &mut all {
        // What the shared vectors name here is a mail, an item or a transaction: each has several events, and all but
        // the first would be duplicates.
        let names_more = [
            "cloudflare-stream",
            "coinbase-cdp",
            "gocardless",
            "plivo",
            "postmark",
            "twilio",
            "webflow",
        ];
        // Box's names one attempt, and each re-send has another.
        let names_less = ["box"];
        // Nor do they join what names one event only together.
        if names_more.contains(&&*vector.provider)
            || names_less.contains(&&*vector.provider)
            || ["adyen", "hubspot", "mailersend", "okta", "woocommerce"]
                .contains(&&*vector.provider)
        {
            vector.expect_id = None;
        }
        // They name the path alone of a URL whose path is signed.
        if vector.provider == "contentful" {
            vector.url = Some(format!("https://hooks.example.org{}", vector.path));
        }
        // The vectors name no type of a message, and no first level of a list's or of Customer.io's.
        if ["asana", "customer-io", "gocardless", "okta", "twilio"].contains(&&*vector.provider) {
            vector.expect_type = None;
        }
    }
    all
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The vectors of the shared collection; `None` if it is not there.
fn shared() -> Option<Vec<Vector>> {
    let folder = std::env::var_os("HOOKLATCH_SHARED_VECTORS")
        .map_or_else(|| manifest().join("../shared/vectors"), PathBuf::from);
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return None;
    }
    let files = ["stripe", "github", "standard-webhooks", "others"];
    Some(files.iter().flat_map(|file| read(&folder.join(format!("{file}.jsonl")))).collect())
}

/// A built-in provider's own vectors.
fn own(scheme: &Scheme) -> Vec<Vector> {
    let file =
        scheme.setup().vectors.as_deref().map(|file| manifest().join("providers").join(file));
    file.map(|file| read(&file)).unwrap_or_default()
}

/// The scheme that only the shared vectors use, declared as an operator would declare it.
fn scheme(vector: &Vector) -> Option<Scheme> {
    let name = vector.provider.as_str();
    let github = include_str!("../../providers/github.toml");
    let text = match name {
        "github-sha1" => github
            .replace("hmac-sha256", "hmac-sha1")
            .replace("X-Hub-Signature-256", "X-Hub-Signature")
            .replace("sha256=", "sha1="),
        embedded => {
            let mut names = vec!["email", "webhook_id"];
            names.extend((embedded == "braintree").then_some("public_key"));
            let sender = names.iter().find_map(|name| vector.keys.get(*name));
            // The shared vectors of Amazon SNS name no topic in `keys`; all are of one account.
            let topics = (embedded == "aws-sns").then_some("arn:aws:sns:us-west-2:123456789012:*");
            let scheme = Scheme::embedded(embedded)?;
            return Some(match sender.and_then(serde_json::Value::as_str).or(topics) {
                Some(sender) => scheme.with_sender(sender),
                None => scheme,
            });
        }
    };
    let problems = Problems::new();
    let scheme = Scheme::parse(name, &text, &problems);
    assert!(problems.is_empty(), "{:?}", problems.into_sorted());
    scheme
}

#[test]
fn every_built_in_provider_passes_its_vectors() {
    for name in Scheme::embedded_names() {
        let scheme = Scheme::embedded(name).unwrap_or_else(|| panic!("{name} is wrong"));
        if scheme.setup().vectors.is_none() {
            continue;
        }
        let vectors = own(&scheme);
        assert!(vectors.iter().any(|v| v.expect == Expect::Accept), "{name} accepts nothing");
        for vector in &vectors {
            assert_eq!(vector.provider, name);
            assert_eq!(vector.wrong(&scheme), None, "{}", vector.name);
        }
        println!("{name}: {} vectors", vectors.len());
    }
}

#[test]
fn an_accepted_vector_is_refused_after_any_change() {
    let shared = shared().unwrap_or_default();
    let (mut tried, mut accepted) = (BTreeMap::new(), Vec::new());
    let schemes = Scheme::embedded_names().map(|name| Scheme::embedded(name).unwrap());
    for scheme in schemes.filter(|scheme| !scheme.proof().is_absent()) {
        let of_scheme = shared.iter().filter(|vector| vector.provider == scheme.name());
        let genuine = |vector: &Vector| {
            vector.expect == Expect::Accept
                && vector.kind != "handshake"
                && self::scheme(vector).is_some_and(|own| vector.wrong(&own).is_none())
        };
        let vectors = own(&scheme).into_iter().chain(of_scheme.cloned());
        for vector in vectors.filter(genuine) {
            let own = self::scheme(&vector).unwrap();
            let found = vector.mutations(&own);
            *tried.entry(scheme.name().to_owned()).or_insert(0) += found.tried;
            let named = |change: String| format!("{}: {change}", vector.name);
            accepted.extend(found.accepted.into_iter().map(named));
        }
    }
    println!("changed requests: {tried:?}");
    assert_eq!(accepted, Vec::<String>::new());
    for (name, tried) in &tried {
        let token = !Scheme::embedded(name).unwrap().proof().signs_content();
        assert!(*tried > if token { 20 } else { 90 }, "{name}: only {tried}");
    }
    assert!(tried.len() >= 4, "{tried:?}");
}

#[test]
fn the_shared_vectors_get_the_expected_verdicts() {
    let Some(shared) = shared() else { return };
    let (mut core, mut policy, mut skipped, mut bad) = (0, 0, BTreeMap::new(), Vec::new());
    for vector in shared {
        let Some(scheme) = scheme(&vector) else {
            *skipped.entry(vector.provider).or_insert(0) += 1;
            continue;
        };
        // Not a list of events, as the library's example of a signature needs none.
        let is_example = vector.name == "line/accept/published-library-example";
        // HMAC-SHA256, which Twilio's library takes since 6.3.1 (npm), for shared keys.
        let is_newer = vector.name == "twilio/reject/sha256";
        // The library's 30 s are less than a queue takes. A copy within our five minutes is a duplicate, or held.
        let is_late = vector.name == "contentful/reject/expired-60s";
        let wrong = vector.wrong(&scheme).filter(|_| !is_example && !is_newer && !is_late);
        match (vector.class.as_str(), wrong) {
            ("core", None) => core += 1,
            ("policy", None) => policy += 1,
            ("policy", Some(found)) => println!("differs: {}: {found}", vector.name),
            (_, Some(found)) => bad.push(format!("{}: {found}", vector.name)),
            (other, None) => panic!("unknown class {other}"),
        }
    }
    println!("{core} core and {policy} policy vectors as expected; skipped {skipped:?}");
    assert_eq!(bad, Vec::<String>::new());
}
