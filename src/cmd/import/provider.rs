//! The provider file of a hook: how its requests are proven, and what tells two of them apart.

use std::collections::BTreeSet;

use serde_json::json;

use super::rules::Proof;
use super::texts::{quoted, toml};
use crate::provider::Scheme;

/// webhook reads bodies of any length. This is what GitHub sends at most.
const BODY_LIMIT: &str = "25 MiB";

/// webhook runs every request. An equal one that comes before the first has begun would run right after it, for nothing.
const TRIGGER: &str = "repeats = \"trigger\"\n";

/// The header of GitHub's signature, which many others send too.
const HUB: &str = "X-Hub-Signature-256";

/// The header of GitHub's id. A request without it is named by its body.
const DELIVERY: &str = "X-GitHub-Delivery";

/// Whether the file names events by GitHub's header, where it is there.
pub(super) fn has_github_ids(proof: &Proof) -> bool {
    matches!(proof, Proof::Signature { algorithm: "hmac-sha256", header }
        if header.eq_ignore_ascii_case(HUB))
}

/// GitHub's types whose bodies repeat by nature.
fn repeating_types() -> Vec<String> {
    let github = Scheme::embedded("github");
    let types = github.iter().flat_map(|scheme| &scheme.identity().flag_types);
    types.map(ToString::to_string).collect()
}

/// A provider file that reads what the rule names. `kept` are the headers that are looked at.
pub(super) fn file(name: &str, proof: &Proof, kept: &BTreeSet<String>, id: &str) -> String {
    let title = quoted(&format!("the callers of {id}"));
    let mut text = format!("name = {}\ntitle = {title}\n", quoted(name));
    let is_github = has_github_ids(proof);
    if is_github {
        text.push_str("like = \"github\"\n");
    }
    text.push_str("\n[signature]\n");
    text.push_str(&match proof {
        Proof::Signature { algorithm, header } => signature(algorithm, header),
        Proof::Header(header) => token("header", header),
        Proof::Query(parameter) => token("query", parameter),
        Proof::Field { pointer, form } => {
            let form = quoted(form);
            format!("{}form = {form}\n", token("field", &format!("json:{pointer}")))
        }
    });
    text.push_str("\n[event]\n");
    match proof {
        Proof::Signature { .. } if is_github => text.push_str(&format!(
            "id = [\"header:{DELIVERY}\", \"digest\"]\ntype = \"header:X-GitHub-Event\"\nsubtype = \"json:/action\"\nform_field = \"payload\"\n\n[replay]\nguard = \"hold\"\nflag_types = {}\n",
            toml(&json!(repeating_types()))
        )),
        Proof::Signature { .. } => text.push_str("id = \"digest\"\n"),
        _ => text.push_str(&format!("id = \"digest\"\n{TRIGGER}\n[replay]\nguard = \"off\"\n")),
    }
    let github = [DELIVERY, "X-GitHub-Event", HUB].map(str::to_owned);
    let mut headers: BTreeSet<&String> = kept.iter().collect();
    if is_github {
        let is_new = |own: &&String| !kept.iter().any(|kept| kept.eq_ignore_ascii_case(own));
        headers.extend(github.iter().filter(is_new));
    }
    text.push_str(&format!("\n[delivery]\nbody_limit = \"{BODY_LIMIT}\"\n"));
    if !headers.is_empty() {
        text.push_str(&format!("keep_headers = {}\n", toml(&json!(headers))));
    }
    if let Proof::Signature { algorithm, .. } = proof {
        let label = algorithm.trim_start_matches("hmac-");
        text.push_str(&format!(
            "\n# With a prefix, also of several between commas.\n[[alternative]]\nsignature.format = \"pairs\"\nsignature.separator = \",\"\nsignature.label = \"{label}\"\n"
        ));
    }
    text
}

/// The hexadecimal digits alone. The form with a prefix is the file's alternative.
fn signature(algorithm: &str, header: &str) -> String {
    let (algorithm, header) = (quoted(algorithm), quoted(header));
    format!(
        "algorithm = {algorithm}\nheader = {header}\nencoding = \"hex\"\nsigned = \"{{body}}\"\n"
    )
}

fn token(key: &str, name: &str) -> String {
    format!("algorithm = \"token\"\n{key} = {}\n", quoted(name))
}
