//! No two requests that differ in what a built-in provider signs have the same signed content and both run: tried with
//! all requests of short texts around the borders of the templates of its families.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Presented, digest, pieces};
use crate::model::{Digest, EventId, Headers, ReplayGuard, Timestamp};
use crate::payload::Pointer;
use crate::provider::template::{Part, Template};
use crate::provider::{Scheme, StampPlace};
use crate::verify::extract::Facts;
use crate::verify::{Request, equal_digest, event_id, guarded_digest, stamp};

const URL: &str = "https://h.example/t";

/// The most requests of one provider, roughly.
const REQUESTS: usize = 4_000;

/// A request under construction: what its parts have so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Draft {
    method: &'static str,
    query: Option<String>,
    headers: Vec<(String, String)>,
    stamp: Option<String>,
    /// The members of a JSON body, by their places.
    members: Vec<(Pointer, String)>,
    body: String,
    listed: Option<String>,
}

/// All texts of at most so many of these atoms.
fn texts(atoms: &[String], most: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..most {
        last = last
            .iter()
            .flat_map(|text| atoms.iter().map(move |atom| format!("{text}{atom}")))
            .collect();
        all.extend(last.iter().cloned());
    }
    all.sort_by_key(|text| text.len());
    all.dedup();
    all
}

/// How many values each of so many parts may have, so that there are at most about [`REQUESTS`].
fn words_of(parts: usize) -> usize {
    (2..).find(|words: &usize| words.saturating_pow(parts as u32) > REQUESTS).unwrap()
}

/// The literals of a template's text.
fn literals(template: &str) -> Vec<String> {
    let between = template.split('}').map(|piece| piece.split('{').next().unwrap());
    between.filter(|literal| !literal.is_empty()).map(str::to_owned).collect()
}

/// The signed spellings of times within the tolerance, all of one length as numbers.
fn times(scheme: &Scheme) -> Vec<String> {
    let unit = scheme.proof().timestamp.as_ref().unwrap().unit;
    let now = Timestamp(1_767_225_600_000);
    let is_near = |time: &&str| {
        stamp::parse(time, unit).is_some_and(|time| now.since(time) < Duration::from_secs(60))
    };
    let all = [
        "1767225600",
        "1767225599",
        "1767225600.5",
        "1767225600000",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.1Z",
        "2026-01-01T00:00:00+00:00",
    ];
    all.into_iter().filter(is_near).map(|time| stamp::signed(time, unit).to_owned()).collect()
}

/// The drafts with every value of one part.
fn with_part(drafts: &[Draft], scheme: &Scheme, part: &Part, words: &[String]) -> Vec<Draft> {
    let proof = scheme.proof();
    let each = |change: &dyn Fn(&mut Draft, &String)| -> Vec<Draft> {
        let changed = |draft: &Draft| {
            let draft = draft.clone();
            words
                .iter()
                .map(move |word| {
                    let mut draft = draft.clone();
                    change(&mut draft, word);
                    draft
                })
                .collect::<Vec<_>>()
        };
        drafts.iter().flat_map(changed).collect()
    };
    let header = |name: &str| {
        let name = name.to_owned();
        each(&move |draft, word| draft.headers.push((name.clone(), word.clone())))
    };
    let is_time = |place: &Pointer| {
        let stamp = proof.timestamp.as_ref();
        stamp.is_some_and(|stamp| matches!(&stamp.place, StampPlace::Json(own) if own == place))
    };
    match part {
        Part::Timestamp => {
            let set = |draft: &Draft| {
                let draft = draft.clone();
                times(scheme)
                    .into_iter()
                    .map(move |time| Draft { stamp: Some(time), ..draft.clone() })
            };
            drafts.iter().flat_map(set).collect()
        }
        Part::Id => header(proof.signed_id_header().unwrap()),
        Part::Header(name) => header(name),
        Part::Method => {
            let methods = ["GET", "POST"];
            drafts
                .iter()
                .flat_map(|draft| methods.map(|method| Draft { method, ..draft.clone() }))
                .collect()
        }
        Part::Url | Part::OtherPort | Part::Path => {
            let mut all = each(&|draft, word| draft.query = Some(word.clone()));
            all.extend_from_slice(drafts);
            all
        }
        Part::UrlForm => {
            let urls = with_part(drafts, scheme, &Part::Url, words);
            with_part(&urls, scheme, &Part::Form, words)
        }
        Part::Form | Part::Body | Part::JsonString | Part::Crc32 => {
            each(&|draft, word| draft.body.clone_from(word))
        }
        Part::Field(name) => {
            let form = |word: &str| {
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.append_pair(name, word);
                form.finish()
            };
            each(&move |draft, word| draft.body = form(word))
        }
        Part::Item(_) => each(&|draft, word| draft.listed = Some(word.clone())),
        Part::Named(own) => {
            let mut all = Vec::new();
            let time = proof.time_header().unwrap().to_ascii_lowercase();
            let list = own.to_ascii_lowercase();
            for listed in [&["x-a"][..], &["x-a", "x-b"], &["x-a", "x-z"]] {
                let mut names = [listed, &[&list, &time]].concat();
                names.sort_unstable();
                let mut named = drafts.to_vec();
                for draft in &mut named {
                    draft.headers.push((own.clone(), names.join(",")));
                    draft.headers.push((time.clone(), "1767225600000".to_owned()));
                }
                all.extend(listed.iter().fold(named, |drafts, name| {
                    with_part(&drafts, scheme, &Part::Header((*name).to_owned()), words)
                }));
            }
            all
        }
        Part::Listed(_) => {
            let mut all = Vec::new();
            for listed in ["x-a", "x-a x-b"] {
                let named: Vec<Draft> = drafts
                    .iter()
                    .map(|draft| Draft { listed: Some(listed.to_owned()), ..draft.clone() })
                    .collect();
                let names: Vec<&str> = listed.split(' ').collect();
                let filled = names.iter().fold(named, |drafts, name| {
                    with_part(&drafts, scheme, &Part::Header((*name).to_owned()), words)
                });
                all.extend(filled);
            }
            all
        }
        Part::Json(place) if is_time(place) => {
            with_part(drafts, scheme, &Part::Free(place.clone()), &times(scheme))
        }
        Part::Json(place) | Part::Free(place) => {
            each(&|draft, word| draft.members.push((place.clone(), word.clone())))
        }
        Part::Lines(members) => members.iter().fold(drafts.to_vec(), |drafts, (_, place)| {
            let mut all = with_part(&drafts, scheme, &Part::Json(place.clone()), words);
            all.extend(drafts);
            all
        }),
        Part::Sender => drafts.to_vec(),
    }
}

/// The JSON body with these members.
fn body_of(members: &[(Pointer, String)]) -> Value {
    let mut body = json!({});
    for (place, text) in members {
        let mut at = &mut body;
        for step in place.steps() {
            let is_index = step.parse::<usize>().is_ok();
            if is_index && !at.is_array() {
                *at = json!([{}]);
            }
            at = match is_index {
                true => &mut at[0],
                false => &mut at[step.as_str()],
            };
        }
        *at = json!(text);
    }
    body
}

/// The signed content of the request, and what is remembered of it: its event's id, and the digest by which the replay
/// guard knows it. `None` if it is refused.
fn judged(scheme: &Scheme, draft: &Draft) -> Option<(Vec<u8>, EventId, Digest)> {
    let body = match draft.members.is_empty() {
        true => draft.body.clone(),
        false => body_of(&draft.members).to_string(),
    };
    let mut headers = Headers::new();
    draft.headers.iter().for_each(|(name, value)| headers.push(name, value.as_str()));
    let url = match &draft.query {
        Some(query) => format!("{URL}?{query}"),
        None => URL.to_owned(),
    };
    let method = if draft.method.is_empty() { "POST" } else { draft.method };
    let request = Request { method, url: Some(&url), headers: &headers, body: Bytes::from(body) };
    let presented = Presented {
        stamp: draft.stamp.as_deref(),
        listed: draft.listed.as_deref(),
        ..Presented::default()
    };
    let found = Facts::read(scheme, &request.body);
    let template = scheme.proof().signed_content()?;
    let content = pieces(scheme, template, &request, &presented, Some(&found)).ok()?.concat();
    let own_id = digest(scheme, &request, &presented, &found).ok()?;
    let body = &request.body;
    let equal = equal_digest(scheme, &request, body, body);
    let named = event_id(scheme, &headers, &found, equal, own_id.as_deref()).ok()?;
    Some((content, named.id, guarded_digest(scheme, &found, body, equal)))
}

#[test]
fn no_two_requests_of_a_provider_have_one_signed_content() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for name in Scheme::embedded_names() {
        let whole = Scheme::embedded(name).unwrap();
        let whole =
            if whole.proof().sender_word().is_some() { whole.with_sender("s") } else { whole };
        let templates = || whole.families().filter_map(|family| family.proof().signed_content());
        let lists = templates().any(Template::lists_headers);
        // One secret may be that of all families.
        let mut known: HashMap<Vec<u8>, (EventId, Digest, Draft)> = HashMap::new();
        for scheme in whole.families() {
            let Some(template) = scheme.proof().signed_content() else { continue };
            let parts: Vec<&Part> = template.parts().collect();
            let mut atoms: Vec<String> =
                templates().flat_map(|own| literals(&own.to_string())).collect();
            atoms.extend(["a", "{", "1"].map(str::to_owned));
            atoms.sort();
            atoms.dedup();
            if parts.iter().any(|part| matches!(part, Part::Lines(_))) {
                atoms = ["a", "\n"].map(str::to_owned).to_vec();
            }
            if parts.iter().any(|part| matches!(part, Part::Named(_))) {
                atoms = [";", "x-b:", "a"].map(str::to_owned).to_vec();
            }
            if scheme.proof().signs_sorted_form() {
                atoms = ["a", ".", "=", "&", "?"].map(str::to_owned).to_vec();
                atoms.extend(scheme.identity().form_field.clone());
            }
            let urls = usize::from(template.has(&Part::UrlForm));
            let members = template.pointers().count().max(parts.len() + urls);
            let mut words = texts(&atoms, 2);
            words.truncate(words_of(members));
            let start = vec![Draft::default()];
            let mut drafts =
                parts.iter().fold(start, |drafts, part| with_part(&drafts, scheme, part, &words));
            // As `prove` does, in all families.
            drafts.retain(|draft| !lists || draft.body.starts_with('{'));
            let before = tried;
            for draft in drafts {
                let Some((content, id, digest)) = judged(scheme, &draft) else { continue };
                tried += 1;
                let first = || (id.clone(), digest, draft.clone());
                let (own_id, own_digest, other) = known.entry(content).or_insert_with(first);
                // The second one is a duplicate by its id, or is held by its digest.
                let is_held = scheme.identity().guard == ReplayGuard::Hold;
                if *own_digest != digest || *own_id != id && !is_held {
                    wrong.push(format!("{name}: {other:?} and {draft:?}"));
                }
            }
            assert!(tried > before, "{name} signs nothing of these");
        }
    }
    assert!(tried > 20_000, "only {tried} requests");
    wrong.truncate(10);
    assert_eq!(wrong, Vec::<String>::new());
}
