//! What the guarantees of a provider are worth, in sentences that follow from its file.

use std::time::Duration;

use crate::config::duration_text;
use crate::model::ReplayGuard;
use crate::provider::Scheme;

/// Each with a label. `keep_ids` is how long the store remembers an id.
pub(super) fn sentences(scheme: &Scheme, keep_ids: Duration) -> Vec<(&'static str, String)> {
    let kept = duration_text(keep_ids);
    let forgotten = format!("after {kept} its id is forgotten, and it would run again");
    let kept = format!("ids are remembered for {kept} (storage.keep_ids)");
    let resends = match scheme.resends_for() {
        None => format!("how long is not known; {kept}"),
        Some(time) if time > keep_ids => format!(
            "for {}, but {kept}: a later re-send would run twice, so raise it",
            duration_text(time)
        ),
        Some(time) => format!("for {}; {kept}: a re-send is a duplicate", duration_text(time)),
    };
    let age = match scheme.tolerance() {
        Some(time) => {
            format!("refused more than {} before or after its signed time", duration_text(time))
        }
        None if scheme.signs() => {
            format!("no time is signed: a request is good for as long as its secret; {forgotten}")
        }
        None => format!("nothing proves when a request was made; {forgotten}"),
    };
    let deadline = match scheme.deadline() {
        Some(time) => format!("it waits {} for an answer", duration_text(time)),
        None => "how long it waits for an answer is not known".to_owned(),
    };
    let mut all = vec![
        ("proof", proof(scheme)),
        ("id", id(scheme)),
        ("captured", captured(scheme)),
        ("old", age),
        ("re-sends", resends),
        ("deadline", deadline),
    ];
    all.extend(scheme.facts().map(|facts| ("facts", format!("from {facts}"))));
    all.extend(scheme.docs().map(|docs| ("docs", docs.to_owned())));
    all
}

fn proof(scheme: &Scheme) -> String {
    let proof = scheme.proof();
    if let Some(signed) = scheme.signs_only() {
        format!(
            "{proof}: only a holder of the key can sign {signed}; the rest of the body is not proven"
        )
    } else if scheme.signs_form() {
        format!(
            "{proof}: only a holder of the key can make a request; a third party can move bytes from one field of a captured form to the next, which makes no other event"
        )
    } else if scheme.signs() {
        format!("{proof}: only a holder of the key can make a request or change its body")
    } else if scheme.wants_certificates() {
        format!("{proof}: a trusted proxy names the caller; the request is not signed")
    } else if scheme.is_unsigned() {
        "none: anyone who reaches the address can send any request".to_owned()
    } else {
        format!("{proof}: the request has the secret in it; the rest of it is not proven")
    }
}

fn id(scheme: &Scheme) -> String {
    let id = scheme.id();
    let equal = match scheme.same_for() {
        Some(time) => {
            format!("two requests with equal bodies within {} are one event", duration_text(time))
        }
        None => "two requests with equal bodies are one event".to_owned(),
    };
    match (scheme.id_is_digest(), scheme.signs_id()) {
        (true, _) => format!("{id}: {equal}"),
        (false, true) => format!("{id}; the signature covers it"),
        (false, false) if scheme.makes_ids() => {
            format!("{id}; it is not signed. Where it is the digest, {equal}")
        }
        (false, false) => format!("{id}; it is not signed"),
    }
}

/// What a request that an attacker has captured does when it is sent again.
fn captured(scheme: &Scheme) -> String {
    if scheme.signs_id() {
        return "sent again, it has the same id: a duplicate, which runs nothing".to_owned();
    }
    if scheme.wants_certificates() {
        return "sent again, it is a duplicate; only the proxy keeps it from having another id"
            .to_owned();
    }
    if scheme.is_unsigned() {
        return "anyone can send it again under another id, and it runs again".to_owned();
    }
    if !scheme.signs() {
        return "it has the secret in it: its holder can send any request".to_owned();
    }
    let guard = match scheme.guard {
        ReplayGuard::Hold => "is held until a person decides",
        ReplayGuard::Flag => "runs, and is marked",
        ReplayGuard::Off => "runs again",
    };
    let except = match (scheme.guard, scheme.flag_types.len()) {
        (ReplayGuard::Hold, 1..) => {
            "; types whose bodies repeat by nature run, and are marked (flag_types in the file)"
        }
        _ => "",
    };
    format!("sent again, it is a duplicate; with the same body under a new id it {guard}{except}")
}
