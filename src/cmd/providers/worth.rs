//! What the guarantees of a provider are worth, in sentences that follow from its file.

use std::time::Duration;

use crate::config::duration_text;
use crate::model::{Repeats, ReplayGuard};
use crate::provider::{Fact, Proof, Resends, Scheme};

/// Each with a label. `keep_ids` is how long the store remembers an id.
pub(super) fn sentences(scheme: &Scheme, keep_ids: Duration) -> Vec<(&'static str, String)> {
    let setup = scheme.setup();
    let kept = duration_text(keep_ids);
    let forgotten = format!("after {kept} its id is forgotten, and it would run again");
    let kept = format!("ids are remembered for {kept} (storage.keep_ids)");
    let resends = match setup.delivery.resends {
        Some(Resends::Never) => "never: an event that is not accepted at once is lost".to_owned(),
        None => format!("how long is not known; {kept}"),
        Some(Resends::For(time)) if time > keep_ids => format!(
            "for {}, but {kept}: a later re-send would run twice, so raise it",
            duration_text(time)
        ),
        Some(Resends::For(time)) => {
            format!("for {}; {kept}: a re-send is a duplicate", duration_text(time))
        }
    };
    let proof = scheme.proof();
    let age = match proof.tolerance() {
        Some(time) => {
            let ahead = proof.tolerance_ahead().unwrap_or(time);
            format!(
                "refused more than {} after its signed time, or {} before it",
                duration_text(time),
                duration_text(ahead)
            )
        }
        None if scheme.proof().signs_content() => {
            format!("no time is signed: a request is good for as long as its secret; {forgotten}")
        }
        None => format!("nothing proves when a request was made; {forgotten}"),
    };
    let deadline = match setup.delivery.deadline {
        Some(time) => format!("it waits {} for an answer", duration_text(time)),
        None => "how long it waits for an answer is not known".to_owned(),
    };
    let mut all = vec![
        ("proof", proves(proof)),
        ("id", id(scheme)),
        ("captured", captured(scheme)),
        ("old", age),
        ("re-sends", resends),
        ("deadline", deadline),
    ];
    all.extend(scheme.alternatives().iter().map(|other| ("also", also(other))));
    all.extend(proof.sender_word().map(|word| {
        ("sender", format!("it signs for all its customers: `sender` must name {word}"))
    }));
    all.extend(setup.facts.parts().map(|(part, facts)| {
        let facts: Vec<String> = facts.iter().map(Fact::to_string).collect();
        ("facts", format!("{part}: {}", facts.join("; ")))
    }));
    all.extend(setup.docs.clone().map(|docs| ("docs", docs)));
    all
}

fn proves(proof: &Proof) -> String {
    let summary = proof.summary();
    if let Some(signed) = proof.signed_part() {
        format!(
            "{summary}: only a holder of the key can sign {signed}; the rest of the body is not proven"
        )
    } else if proof.signs_sorted_form() {
        format!(
            "{summary}: only a holder of the key can make a request; a third party can move bytes from one field of a captured form to the next, which makes no other event"
        )
    } else if proof.signs_content() {
        format!("{summary}: only a holder of the key can make a request or change its body")
    } else if proof.needs_certificates() {
        format!("{summary}: a trusted proxy names the caller; the request is not signed")
    } else if proof.is_absent() {
        "none: anyone who reaches the address can send any request".to_owned()
    } else {
        format!("{summary}: the request has the secret in it; the rest of it is not proven")
    }
}

/// A further form that the provider signs in.
fn also(other: &Scheme) -> String {
    let id = other.identity().id_summary();
    format!("accepted if nothing before it is proven: {}; its id is {id}", other.proof().form())
}

fn id(scheme: &Scheme) -> String {
    let identity = scheme.identity();
    let id = identity.id_summary();
    let equal = match identity.repeats {
        Repeats::Window(time) => {
            format!("two requests with equal bodies within {} are one event", duration_text(time))
        }
        Repeats::Trigger => {
            "two requests with equal bodies are one event until its job begins".to_owned()
        }
        _ => "two requests with equal bodies are one event".to_owned(),
    };
    let equal = match &identity.distinct {
        Some(reason) if matches!(identity.repeats, Repeats::Window(_)) => {
            format!("{equal}; {reason}")
        }
        Some(reason) => {
            format!("{equal}; the sender's events have different bodies, because {reason}")
        }
        None => equal,
    };
    match (identity.id_is_digest(), scheme.proof().covers_id()) {
        (true, _) => format!("{id}: {equal}"),
        (false, true) => format!("{id}; the signature covers it"),
        (false, false) if identity.id_may_be_digest() => {
            format!("{id}; it is not signed. Where it is the digest, {equal}")
        }
        (false, false) => format!("{id}; it is not signed"),
    }
}

/// What a request that an attacker has captured does when it is sent again.
fn captured(scheme: &Scheme) -> String {
    let (proof, identity) = (scheme.proof(), scheme.identity());
    if proof.covers_id() {
        return "sent again, it has the same id: a duplicate, which runs nothing".to_owned();
    }
    if proof.needs_certificates() {
        return "sent again, it is a duplicate; only the proxy keeps it from having another id"
            .to_owned();
    }
    if proof.is_absent() {
        return "anyone can send it again under another id, and it runs again".to_owned();
    }
    if !proof.signs_content() {
        return "it has the secret in it: its holder can send any request".to_owned();
    }
    let guard = match identity.guard {
        ReplayGuard::Hold => "is held until a person decides",
        ReplayGuard::Flag => "runs, and is marked",
        ReplayGuard::Off => "runs again",
    };
    let except = match (identity.guard, identity.flag_types.len()) {
        (ReplayGuard::Hold, 1..) => {
            "; types whose bodies repeat by nature run, and are marked (flag_types in the file)"
        }
        _ => "",
    };
    format!("sent again, it is a duplicate; with the same body under a new id it {guard}{except}")
}
