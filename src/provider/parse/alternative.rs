//! Reads `[[alternative]]` of a provider file: further ways in which the provider signs, each as a whole scheme.
//!
//! Only the parent module calls it. Must stay true: an alternative proves what the file's own form proves, so that a
//! module that asks the file's own scheme gets an answer that holds for every delivery.

use crate::document::{Document, Fault, Raw, Section};
use crate::provider::template::Part;
use crate::provider::{Algorithm, Identity, Mechanism, Scheme, Signature};

const KEY: &str = "alternative";

/// What an alternative can change.
const TABLES: [&str; 4] = ["signature", "secret", "timestamp", "event"];

/// The most families of one file, its own form included. A forged request can cost an HMAC of its body for each.
const FAMILIES_MAX: usize = 4;

/// The alternatives that the file inherits from `like`: none if it has a table of [`TABLES`] or `[replay]`.
pub(super) fn inherited(root: &Section<'_>, like: &Scheme) -> Vec<Scheme> {
    let changes = TABLES.iter().chain(&["replay"]).any(|table| root.has(table));
    if changes { Vec::new() } else { like.alternatives.clone() }
}

/// Reads the file's `[[alternative]]` tables; `None` if there are none. `main` is the file without them, and
/// `read_scheme` reads a whole file.
pub(super) fn read(
    root: &Section<'_>,
    document: &Document<'_>,
    main: Option<&Scheme>,
    read_scheme: impl Fn(&Section<'_>) -> Option<Scheme>,
) -> Option<Vec<Scheme>> {
    let list = root.raw(KEY)?;
    let Some(items) = list.items() else {
        list.reject("is not a list of tables", "write [[alternative]]");
        return None;
    };
    for section in items.filter_map(Raw::section) {
        // Asks for each table, because one that nothing asks for is reported as unknown.
        if !TABLES.map(|table| section.is_table(table)).contains(&true) {
            section.problem(format!("changes none of {}", TABLES.join(", ")));
        }
        section.finish();
    }
    let variants = document.variants(KEY, &["secret"]);
    if variants.len() >= FAMILIES_MAX {
        list.reject(
            format!("{} are too many", variants.len()),
            format!("a file has {} at most: each costs an HMAC of a forged body", FAMILIES_MAX - 1),
        );
    }
    let problems = root.problems();
    let mut all = Vec::new();
    for (at, variant) in variants.iter().enumerate() {
        let root = variant.root(problems);
        if let Some(other) = read_scheme(&root) {
            if let Some(main) = main {
                check(&root, main, &other);
            }
            if main.into_iter().chain(&all).any(|earlier| is_renamed(earlier, &other)) {
                root.problem(Fault::new(
                    "an alternative that signs the same content cannot name the event by another signed place: an attacker could send a captured request in either form",
                    "leave out event.id, event.type and event.subtype",
                ));
            }
            all.push(Scheme { alternatives: Vec::new(), family: at + 1, ..other });
        }
        root.finish();
    }
    Some(all)
}

/// Whether one signature holds in both forms, so that an attacker can send a captured request in the other one, and the
/// event then has another id or type although both are signed. Where they are not, the replay guard compares the body.
fn is_renamed(one: &Scheme, other: &Scheme) -> bool {
    let signed = |scheme: &Scheme| match &scheme.proof.signature.as_ref()?.mechanism {
        Mechanism::Signed { algorithm, signed, key, .. } => {
            Some((*algorithm, signed.clone(), key.clone()))
        }
        _ => None,
    };
    let Some(content) = signed(one).filter(|content| Some(content) == signed(other).as_ref())
    else {
        return false;
    };
    // The header that {id} stands for may have another name: its value is signed in either.
    let names_by_header = content.1.has(&Part::Id);
    let (own, new) = (&one.identity, &other.identity);
    let has_other_id = own.ids != new.ids && !names_by_header;
    let has_other_type = (&own.types, &own.subtype) != (&new.types, &new.subtype);
    one.proof.covers_id() && has_other_id || types_signed(one) && has_other_type
}

/// Whether the signature covers every place of the type.
fn types_signed(scheme: &Scheme) -> bool {
    let mut places = scheme.identity.types.iter().chain(&scheme.identity.subtype);
    places.all(|place| scheme.proof.covers(place))
}

/// What is signed, where that is not the whole body. Of one field whose digest is the id only its name: the digest has the
/// literals in it, so another form of the same signed content has the same id.
fn of_body(scheme: &Scheme) -> Option<String> {
    let whole = scheme.proof.signed_part()?;
    let signed = scheme.proof.signed_content()?;
    let is_alone = signed.parts().count() == 1 && scheme.identity.id_is_digest();
    Some(signed.field().filter(|_| is_alone).map_or(whole, str::to_owned))
}

/// Reports what the alternative proves or names in another way than the file's own form.
fn check(root: &Section<'_>, main: &Scheme, other: &Scheme) {
    let hmac = |scheme: &Scheme| {
        matches!(
            scheme.proof.signature,
            Some(Signature {
                mechanism: Mechanism::Signed { algorithm: Algorithm::Hmac(_), .. },
                ..
            })
        )
    };
    if !hmac(main) || !hmac(other) {
        root.problem("an alternative needs an HMAC, and one to be an alternative to");
    }
    let (own, new) = (&main.proof, &other.proof);
    if own.leaves_event_open() {
        root.problem("the signature covers neither the event id nor the body, so a captured request could run once more by the other signature: leave the alternative out");
    }
    let named = Identity {
        ids: main.identity.ids.clone(),
        types: main.identity.types.clone(),
        subtype: main.identity.subtype.clone(),
        ..other.identity.clone()
    };
    let kind = |scheme: &Scheme| {
        let identity = &scheme.identity;
        (identity.id_is_digest(), identity.id_may_be_digest(), identity.id_is_generated())
    };
    for (differs, what) in [
        (of_body(main) != of_body(other), "what of the body is signed"),
        (types_signed(main) != types_signed(other), "whether the type is signed"),
        (own.covers_id() != new.covers_id(), "whether the event id is signed"),
        (own.covers_url() != new.covers_url(), "whether the URL is signed"),
        (own.signs_sorted_form() != new.signs_sorted_form(), "whether a form is signed"),
        (own.only_provider_signs() != new.only_provider_signs(), "where the signature is"),
        (own.sender_word() != new.sender_word(), "where the sender is"),
        (own.tolerance() != new.tolerance(), "the tolerance"),
        (kind(main) != kind(other), "whether the event id is a digest"),
        (named != main.identity, "more of [event] than id, type and subtype"),
    ] {
        if differs {
            root.problem(format!("an alternative cannot change {what}"));
        }
    }
}
