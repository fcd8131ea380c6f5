//! Reads a provider file into a [`Scheme`] and reports all its problems at once.
//!
//! Only [`Scheme::parse`] calls it. In addition to the form of each key it checks that the scheme is
//! sound: the timestamp and the template's parts exist, a timestamp that is checked is also signed,
//! and the file says what a replay means if the signature does not cover the id.

mod alternative;
mod answer;
mod handshake;
mod possible;
mod proof;
mod values;

use super::place::Place;
use super::template::{Part, Template};
use super::{
    Confirmation, Delivery, Fact, Facts, Handshakes, Identity, KeyUrl, Mechanism, PARTS, Proof,
    PublishedKeys, Resends, Scheme, Setup, Signature, Stamp, StampPlace,
};
use crate::document::{Document, Fault, OneOrMany, Problems, Section, Size, Value};
use crate::limits::{self, Limits};
use crate::model::{CONTENT_ENCODING, EventType, Name, Repeats, ReplayGuard};
use crate::pattern::Pattern;
use crate::payload::Pointer;
use values::{header_names, parsed, word};

/// Reads one file; see [`Scheme::parse`].
pub(super) fn scheme(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
    let own = Problems::new();
    let scheme = Document::parse(file, text, &own).and_then(|document| {
        let root = document.root(&own);
        let scheme = read(&root);
        let others = alternative::read(&root, &document, scheme.as_ref(), read);
        root.finish();
        Some(match others {
            Some(alternatives) => Scheme { alternatives, ..scheme? },
            None => scheme?,
        })
    });
    let mut found = own.into_sorted();
    // A mistake in the file's own tables is one of each alternative too.
    found.dedup();
    let sound = found.is_empty();
    found.into_iter().for_each(|problem| problems.push(problem));
    scheme.filter(|_| sound)
}

fn read(root: &Section<'_>) -> Option<Scheme> {
    let name = parsed(root, root.required::<String>("name"), |text| {
        text.parse::<Name>().map_err(|error| error.to_string())
    });
    let title = root.value::<String>("title");
    let docs = root.value::<String>("docs");
    let facts = root.section("facts").map(facts).unwrap_or_default();
    let vectors = root.value::<String>("vectors");
    let like = parsed(root, root.get::<String>("like"), |name| {
        let unknown = || {
            Fault::new(format!("no built-in provider is called '{name}'"), Scheme::help(&name, []))
        };
        Scheme::embedded(&name).ok_or_else(unknown)
    });
    if root.has("like") && like.is_none() {
        // What is missing here cannot be told from what the other provider has.
        return None;
    }
    let inherits = |table| like.as_ref().filter(|_| !root.has(table));
    let (signature, timestamp) = proof::read(root, like.as_ref());
    let published = match inherits("keys") {
        Some(like) => like.proof.published_keys.clone(),
        None => root.section("keys").and_then(published),
    };
    let event = inherits("event").map_or_else(|| event(root), |like| Some(like.identity.clone()));
    let two_levels = event.as_ref().is_some_and(|event| event.subtype.is_some());
    let (guard, flag_types) = match inherits("replay") {
        Some(like) => (like.identity.guard, like.identity.flag_types.clone()),
        None => replay(root, two_levels),
    };
    let (delivery, kept_headers) = match inherits("delivery") {
        Some(like) => (like.setup.delivery.clone(), like.identity.kept_headers.clone()),
        None => delivery(root),
    };
    let setup = inherits("setup").map_or_else(|| setup(root), |like| like.setup.clone());
    let answers =
        inherits("answer").map_or_else(|| answer::read(root), |like| like.answers.clone());
    let challenge = Handshakes(handshake::read(root, like.as_ref()));
    let samples = like.as_ref().map_or("", |like| like.setup.samples);
    let alternatives = like.as_ref().map(|like| alternative::inherited(root, like));
    let (name, signature, event) = (name?, signature?, event?);
    let default = || limits::Limits::default().body_default_bytes;
    let inflated_bytes = delivery.body_limit_bytes.unwrap_or_else(default);
    let title = title.unwrap_or_else(|| name.to_string());
    let scheme = Scheme {
        name,
        proof: Proof {
            signature,
            timestamp,
            published_keys: published,
            senders: Vec::new(),
            queries: Vec::new(),
            ids: event.ids.clone(),
        },
        identity: Identity { guard, flag_types, inflated_bytes, kept_headers, ..event },
        answers,
        challenge,
        setup: Setup { title, docs, facts, vectors, delivery, samples, ..setup },
        alternatives: Vec::new(),
        family: 0,
    };
    let alternatives = alternatives.into_iter().flatten().map(|other| Scheme {
        name: scheme.name.clone(),
        identity: Identity { kept_headers: scheme.identity.kept_headers.clone(), ..other.identity },
        answers: scheme.answers.clone(),
        challenge: scheme.challenge.clone(),
        setup: scheme.setup.clone(),
        ..other
    });
    let scheme = Scheme { alternatives: alternatives.collect(), ..scheme };
    check_consistency(root, &scheme);
    possible::check(root, &scheme);
    answer::check_scheme(root, &scheme);
    handshake::check_scheme(root, &scheme);
    Some(scheme)
}

/// Reports the problems that involve several keys.
fn check_consistency(root: &Section<'_>, scheme: &Scheme) {
    let Scheme { proof, identity, setup, .. } = scheme;
    let ids = &identity.ids;
    if let Some(signed) = proof.signed_content() {
        if signed.has(&Part::Id) && !matches!(ids[..], [Place::Header(_)]) {
            root.problem(Fault::new("{id} is signed, so event.id must be one header:NAME", "name that header; where the event's id is something else, write {header:NAME} in place of {id}"));
        }
        let stamp = proof.timestamp.as_ref();
        let by_body = stamp.is_some_and(|stamp| matches!(stamp.place, StampPlace::Json(_)));
        // `verify` refuses a request whose list of signed headers leaves the time's out.
        let names_it = proof.time_header().is_some() && signed.naming_header().is_some();
        match (stamp, signed.has(&Part::Timestamp) || names_it) {
            (None, true) => root.problem(Fault::new("{timestamp} is signed, but there is no [timestamp]", "add [timestamp] with from, unit and tolerance")),
            (Some(_), true) if by_body => root
                .problem("{timestamp} cannot be taken from the body, which is signed itself"),
            (Some(_), false) if !by_body => root.problem(Fault::new("[timestamp] is not signed: an attacker who re-sends a delivery can write a new one", "remove it, or add {timestamp} to signature.signed")),
            _ => {}
        }
    } else {
        if proof.timestamp.is_some() {
            root.problem("[timestamp] proves nothing without a signature over it");
        }
    }
    if let Some(field) = proof.signed_content().and_then(Template::field) {
        if identity.form_field.as_deref() != Some(field) {
            root.problem(Fault::new(format!("{{form:{field}}} is signed, and event.form_field is not '{field}': type and other facts would come from unsigned fields"), format!("add event.form_field = \"{field}\"")));
        }
    } else if let Some(Stamp { place: StampPlace::Json(pointer), .. }) = &proof.timestamp
        && proof.signs_content()
        && !proof.covers(&Place::Json(pointer.clone()))
    {
        root.problem(Fault::new(
            format!("[timestamp] is not signed: {pointer} is not in signature.signed"),
            format!("add {{json:{pointer}}} to it, or remove [timestamp]"),
        ));
    }
    if proof.sender_place().is_some_and(|place| !proof.covers(place)) {
        root.problem("signature.sender is not signed: an attacker could write another sender");
    }
    let for_all = proof.published_keys.as_ref().is_some_and(|keys| !keys.own);
    if for_all && proof.sender_word().is_none() {
        root.problem(Fault::new("[keys] signs for all customers of the provider, and nothing says which of them a request is from", "add signature.sender, the signed place that names the customer; or keys.own = true if this customer alone has these keys"));
    }
    let derives =
        matches!(&proof.signature, Some(Signature { mechanism: Mechanism::Signed { .. }, .. }));
    if root.has("secret") && !derives {
        root.problem("[secret] says how a key is made, but the algorithm uses none");
    }
    if identity.has_lists() {
        if ids.iter().any(|place| place.parts().iter().all(|part| part.header().is_some())) {
            root.problem(
                "event.each makes several events, and event.id is a header: all would have one id",
            );
        }
        if ids.iter().any(|id| matches!(id, Place::Join(_))) && identity.uses_digest() {
            root.problem("event.each and a digest in event.id.join do not go together: equal elements would have one id");
        }
        if identity.form_field.is_some() {
            root.problem("event.each and event.form_field do not go together");
        }
    }
    if let Some(Err(fault)) = proof.tolerance().map(|time| scheme.check_tolerance(time)) {
        root.problem(fault);
    }
    if setup.delivery.never_resends() && !proof.signs_content() {
        let by_body = identity.repeats == Repeats::Duplicate && identity.distinct.is_none();
        if matches!(identity.repeats, Repeats::Window(_)) || by_body && identity.uses_digest() {
            root.problem(Fault::new("delivery.resends_for says that the sender never repeats an event, and event.id takes an equal body for a repetition", "use id = \"new\", or say with event.distinct why no two bodies are equal"));
        }
    }
    let looks_again = identity.repeats == Repeats::LookAgain;
    // A file that says look-again has a reason for it.
    if let Err(fault) = scheme.check_repeats(identity.repeats, looks_again) {
        root.problem(fault);
    }
    let stops = identity.guard != ReplayGuard::Off && !identity.id_is_generated();
    if identity.repeats != Repeats::Duplicate && stops {
        root.problem("event.repeats makes another event of an equal body, and [replay] would stop it: use guard = \"off\"");
    }
    if identity.distinct.is_some() && !identity.id_may_be_digest() {
        root.problem("event.distinct goes with event.id = \"digest\"");
    }
    if identity.id_is_generated() {
        if ids.len() > 1 {
            root.problem("event.id = \"new\" stands alone");
        }
        if proof.signs_content() && proof.tolerance().is_none() && !looks_again {
            root.problem(Fault::new("event.id = \"new\" lets a captured request run again at any time: no time is signed", "use digest; or repeats = \"look-again\" where an event only says that something has changed"));
        }
        if setup.delivery.resends_for().is_some_and(|time| !time.is_zero()) && !looks_again {
            root.problem(Fault::new("delivery.resends_for says that the provider sends an event again, and event.id = \"new\" makes another event of it", "name what the repetitions have in common, or use digest; or repeats = \"look-again\" where an event only says that something has changed"));
        }
        if identity.guard != ReplayGuard::Off {
            root.problem("[replay] has no effect with event.id = \"new\": remove it");
        }
    }
    if looks_again && !identity.id_is_generated() {
        root.problem("event.repeats = \"look-again\" goes with event.id = \"new\"");
    }
    if !looks_again && identity.repeats != Repeats::Duplicate && identity.id_is_generated() {
        root.problem(
            "event.repeats is about equal bodies, and event.id = \"new\" makes an event of each",
        );
    }
    let unsigned_id = !identity.id_is_generated() && !proof.covers_id();
    let of_like = root.has("like") && !root.has("event");
    if unsigned_id && !root.has("replay") && !of_like {
        root.problem(Fault::new("the signature does not cover the event id: say what the same body under a new id means", "add [replay] with guard = \"hold\", \"flag\" or \"off\""));
    }
    if proof.leaves_event_open() {
        let open = |fault| {
            root.problem(Fault::new(
                format!("the signature covers neither the event id nor the body, {fault}"),
                "set guard = \"hold\" and leave out flag_types and each; or take the id from what is signed",
            ))
        };
        if !identity.id_is_generated()
            && (identity.guard != ReplayGuard::Hold || !identity.flag_types.is_empty())
        {
            open(
                "so a captured request runs with any event in it: [replay] must have guard = \"hold\" and no flag_types",
            );
        }
        if identity.has_lists() {
            open("so event.each cannot tell a repeated element");
        }
    }
    let mut carriers = proof.headers().filter(|_| !proof.signs_content());
    let is_kept =
        |name: &&str| identity.kept_headers.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    if let Some(name) = carriers.find(is_kept) {
        root.problem(format!("delivery.keep_headers has {name}, which is the secret itself"));
    }
}

fn published(section: Section<'_>) -> Option<PublishedKeys> {
    let hosts = parsed(&section, section.required::<Vec<String>>("hosts"), |hosts| {
        let is_host =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte);
        match hosts.iter().find(|host| host.is_empty() || !host.bytes().all(is_host)) {
            Some(bad) => Err(format!("'{bad}' is not a host in lower case, or host:port")),
            None => Ok(hosts),
        }
    });
    let url = parsed(&section, section.required::<String>("url"), |text| {
        if text.starts_with("https://") {
            return Ok(KeyUrl::Fixed(text));
        }
        match Place::parse(&text) {
            Ok(place @ (Place::Header(_) | Place::Json(_))) => Ok(KeyUrl::In(place)),
            _ => Err(format!("must be an https URL, header:NAME or json:/POINTER, not '{text}'")),
        }
    });
    let path = section.parse("path", |text: String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.*".contains(&byte);
        let is_path = text.starts_with('/') && text.bytes().all(is_plain);
        match is_path && text.matches('*').count() == 1 {
            true => Ok(text),
            false => Err(format!("'{text}' is not a path with one *, such as \"/keys/*.pem\"")),
        }
    });
    match url {
        Some(KeyUrl::In(_)) if !section.has("path") => section.problem(Fault::new(
            "each request names its own URL, and anybody can send one",
            "add keys.path, the path that the provider's URLs have, with one * for what differs",
        )),
        Some(KeyUrl::Fixed(_)) if path.is_some() => {
            section.problem("keys.path is for a URL that each request names: remove it");
        }
        _ => {}
    }
    let own = section.get::<bool>("own").is_some_and(|own| own.value);
    let event_type = section.value::<String>("confirm_type");
    let asked = section.parse("confirm_url", |text: String| match Place::parse(&text)? {
        Place::Json(pointer) => Ok(pointer),
        _ => Err(format!("'{text}' is not a json:/POINTER")),
    });
    if event_type.is_some() != asked.is_some() {
        section.problem("confirm_type and confirm_url come together");
    }
    let confirmation = event_type.zip(asked);
    let confirmation =
        confirmation.map(|(event_type, url)| Confirmation { event_type, url: url.value });
    let path = path.map(|path| path.value);
    let keys = url.zip(hosts);
    let keys = keys.map(|(url, hosts)| PublishedKeys { url, hosts, path, own, confirmation });
    let fixed = keys.as_ref().and_then(PublishedKeys::fixed_url);
    if let Some(url) = fixed.filter(|url| !keys.iter().any(|keys| keys.allows(url))) {
        section.problem(format!("keys.url is '{url}', whose host is not among keys.hosts"));
    }
    section.finish();
    keys
}

/// Reads `[event]`. The other fields stand in `[replay]` and `[delivery]`.
fn event(root: &Section<'_>) -> Option<Identity> {
    let section = root.required_section("event", "add it with id and type")?;
    let ids = match section.is_table("id") {
        true => section.section("id").and_then(join),
        false => places(&section, section.required::<OneOrMany>("id"), true),
    };
    let types = places(&section, section.get::<OneOrMany>("type"), false);
    let subtype = section.parse("subtype", |text: String| match Place::parse(&text)? {
        place @ (Place::Json(_) | Place::Header(_)) => Ok(place),
        _ => Err(format!("'{text}' is neither a json:/POINTER nor a header:NAME")),
    });
    let listed = section.parse("types", |texts: Vec<String>| {
        match texts.iter().find(|text| EventType::from_raw(text).raw().is_some()) {
            Some(bad) => Err(format!("'{bad}' is not an event type")),
            None => Ok(texts),
        }
    });
    let form_field = section.value::<String>("form_field");
    let each = section.parse("each", |text: String| match text.as_str() {
        "json:" => Ok(Pointer::root()),
        _ => match Place::parse(&text)? {
            Place::Json(pointer) => Ok(pointer),
            _ => Err(format!("'{text}' is neither json: nor a json:/POINTER")),
        },
    });
    let volatile = section.value::<Vec<String>>("volatile").unwrap_or_default();
    let repeats = section.parse("repeats", |text: String| text.parse::<Repeats>());
    let distinct = section.value::<String>("distinct");
    section.finish();
    let ids = ids.filter(|ids| !ids.is_empty());
    Some(Identity {
        ids: ids?,
        types: types.unwrap_or_default(),
        subtype: subtype.map(|subtype| subtype.value),
        listed: listed.map(|listed| listed.value).unwrap_or_default(),
        form_field,
        repeats: repeats.map(|read| read.value).unwrap_or_default(),
        distinct,
        each: each.map(|each| each.value),
        volatile,
        guard: ReplayGuard::Off,
        flag_types: Vec::new(),
        inflated_bytes: 0,
        kept_query: Vec::new(),
        kept_headers: Vec::new(),
    })
}

/// Reads `id = { join = […] }`.
fn join(section: Section<'_>) -> Option<Vec<Place>> {
    let joined = places(&section, section.required::<OneOrMany>("join"), true);
    let is_new = |place: &Place| *place == Place::New;
    if joined.as_ref().is_some_and(|places| places.len() < 2 || places.iter().any(is_new)) {
        section.problem("event.id.join needs two places or more, each of the request");
    }
    section.finish();
    Some(vec![Place::Join(joined?)])
}

fn places(
    section: &Section<'_>,
    value: Option<Value<OneOrMany>>,
    digest: bool,
) -> Option<Vec<Place>> {
    parsed(section, value, |OneOrMany(texts)| {
        if texts.is_empty() {
            return Err("the list is empty".to_owned());
        }
        let place = |text: &String| match Place::parse(text)? {
            Place::Digest | Place::New if !digest => Err(format!("'{text}' is not a type")),
            place => Ok(place),
        };
        texts.iter().map(place).collect()
    })
}

fn replay(root: &Section<'_>, two_levels: bool) -> (ReplayGuard, Vec<Pattern>) {
    let Some(section) = root.section("replay") else { return (ReplayGuard::Off, Vec::new()) };
    let words: Vec<(&str, ReplayGuard)> =
        ReplayGuard::ALL.iter().map(|g| (g.as_str(), *g)).collect();
    let guard = word(&section, "guard", &words);
    let flag_types = section.value::<Vec<String>>("flag_types").unwrap_or_default();
    section.finish();
    let pattern = |text| Pattern::new(text, two_levels);
    (guard.unwrap_or(ReplayGuard::Off), flag_types.into_iter().map(pattern).collect())
}

/// The delivery, and the headers to keep.
fn delivery(root: &Section<'_>) -> (Delivery, Vec<String>) {
    let mut kept_headers = vec!["Content-Type".to_owned(), CONTENT_ENCODING.to_owned()];
    let Some(section) = root.section("delivery") else {
        return (Delivery::default(), kept_headers);
    };
    let resends = section.parse("resends_for", |text: String| match text.as_str() {
        "never" => Ok(Resends::Never),
        _ => humantime::parse_duration(&text).map(Resends::For).map_err(|error| {
            format!("must be 'never' or a duration such as '3d', not '{text}': {error}")
        }),
    });
    let resends = resends.map(|read| read.value);
    let deadline = section.value("deadline");
    let body_limit = section.parse("body_limit", |Size(bytes)| {
        let least = limits::limit("body_default_bytes").map_or(0, |limit| *limit.range.start());
        // One source must not take the room of all others; an operator may give it more.
        let most = Limits::default().bodies_in_flight_bytes / 4;
        match (least..=most).contains(&bytes) {
            true => Ok(bytes),
            false => Err(Fault::new(
                format!("must be {least} to {most} bytes, a quarter of all bodies in flight"),
                "a source may have more: max_body",
            )),
        }
    });
    let body_limit_bytes = body_limit.map(|limit| limit.value);
    let kept = section.parse("keep_headers", |names| {
        let is_ours = |name: &&String| name.to_ascii_lowercase().starts_with("hooklatch-");
        let names = header_names(names)?;
        match names.iter().find(is_ours) {
            Some(ours) => Err(format!("'{ours}': only Hooklatch sets headers of this beginning")),
            None => Ok(names),
        }
    });
    kept_headers.extend(kept.into_iter().flat_map(|kept| kept.value));
    section.finish();
    (Delivery { resends, deadline, body_limit_bytes }, kept_headers)
}

/// Reads `[facts]`.
fn facts(section: Section<'_>) -> Facts {
    let of = |part| {
        let facts = section.list(part, |text: String| text.parse::<Fact>());
        (part, facts.into_iter().map(|fact| fact.value).collect::<Vec<_>>())
    };
    let parts = PARTS.map(of);
    section.finish();
    Facts(parts.into_iter().filter(|(_, facts)| !facts.is_empty()).collect())
}

/// Reads `[setup]`. The other fields stand elsewhere.
fn setup(root: &Section<'_>) -> Setup {
    let Some(section) = root.section("setup") else { return Setup::default() };
    let text = |key| section.get::<String>(key).map(|read| read.value);
    let setup = Setup {
        page: text("page"),
        fields: section.value::<Vec<String>>("fields").unwrap_or_default(),
        secret_from: text("secret_from"),
        verify_token_from: text("verify_token_from"),
        sample_type: text("sample_type"),
        redeliver: text("redeliver"),
        ..Setup::default()
    };
    for field in &setup.fields {
        if !field.contains(": ") {
            section.problem(format!("setup.fields: '{field}' is not of the form 'Name: value'"));
        }
    }
    section.finish();
    setup
}
