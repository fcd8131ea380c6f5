//! Which event a delivery is: where its id and type are, what a repeat means, how a list is split, and what is kept of it.
//!
//! `verify` reads it to name events; `config`, `http` and `cmd` ask what an id can be and which types exist. Must stay
//! true: nothing here depends on a proof; whether an id is signed is [`Proof::covers_id`](super::Proof::covers_id).

use std::time::Duration;

use crate::document::nearest;
use crate::model::{Repeats, ReplayGuard};
use crate::pattern::Pattern;
use crate::payload::Pointer;
use crate::provider::place::Place;

/// The longest window without a warning of `config check`.
const SWALLOW_MAX: Duration = Duration::from_secs(60);

/// How one provider names and repeats its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The first place with a value is the id.
    pub(crate) ids: Vec<Place>,
    /// The first place with a value is the type.
    pub(crate) types: Vec<Place>,
    /// The second level of the type, as in `pull_request.opened`.
    pub(crate) subtype: Option<Place>,
    /// The types that the provider publishes, for warnings; `*` stands for a part that the sender chooses.
    pub(crate) listed: Vec<String>,
    /// The field of a form that holds the JSON.
    pub form_field: Option<String>,
    /// What an equal request means, where the digest is the id or the receiver makes it.
    pub(crate) repeats: Repeats,
    /// Why no two events have equal bodies; with a window, why none have within it.
    pub(crate) distinct: Option<String>,
    /// The list in the body whose elements are the events; their ids and types are places of an element.
    pub(crate) each: Option<Pointer>,
    /// Top-level members that differ between two deliveries of one event.
    pub(crate) volatile: Vec<String>,
    /// What to do if the same body comes under another id.
    pub(crate) guard: ReplayGuard,
    /// The types whose bodies repeat by nature: the guard `hold` only flags them.
    pub(crate) flag_types: Vec<Pattern>,
    /// The most bytes that a compressed body is inflated to: the source's `max_body`, else the file's limit.
    pub inflated_bytes: u64,
    /// The parameters of the query that are stored with an event, because a handler of the source reads them.
    pub(crate) kept_query: Vec<String>,
    /// The headers that are stored with an event, those that say how to read the body first.
    pub(crate) kept_headers: Vec<String>,
}

impl Identity {
    /// Whether the id can only be the body's digest: two equal bodies are then one event.
    pub fn id_is_digest(&self) -> bool {
        self.ids == [Place::Digest]
    }

    /// Whether an event has an id at all; see [`Scheme::with_keys`](super::Scheme::with_keys).
    pub fn has_id(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Whether the id may be the body's digest, if the sender gives none.
    pub fn id_may_be_digest(&self) -> bool {
        self.ids.contains(&Place::Digest)
    }

    /// Whether the body's digest is the id or a part of it.
    pub(crate) fn uses_digest(&self) -> bool {
        self.ids.iter().flat_map(Place::parts).any(|place| *place == Place::Digest)
    }

    /// Whether every request is an event, with an id that the receiver makes.
    pub fn id_is_generated(&self) -> bool {
        self.ids.contains(&Place::New)
    }

    /// Whether an equal request asks for another run.
    pub fn has_triggers(&self) -> bool {
        self.repeats == Repeats::Trigger
    }

    /// Whether two events with equal bodies may be taken for one for longer than [`SWALLOW_MAX`].
    pub(crate) fn swallows_equal_bodies(&self) -> bool {
        let is_long = match self.repeats {
            Repeats::Duplicate => true,
            Repeats::Window(window) => window > SWALLOW_MAX,
            Repeats::Trigger | Repeats::LookAgain => false,
        };
        is_long && self.id_may_be_digest() && self.distinct.is_none()
    }

    /// The header that the id must come in; `None` if it may be elsewhere.
    pub fn id_header(&self) -> Option<&str> {
        match &self.ids[..] {
            [only] => only.header(),
            _ => None,
        }
    }

    /// The places of the id for tables and pages: `header X-Id, else the body's digest`.
    pub fn id_summary(&self) -> String {
        let places: Vec<String> = self.ids.iter().map(Place::to_string).collect();
        places.join(", else ")
    }

    /// The guard for an event of this type, if the id is not signed.
    pub fn guard_for(&self, event_type: &str) -> ReplayGuard {
        let flagged = self.flag_types.iter().any(|pattern| pattern.matches(event_type));
        match self.guard {
            ReplayGuard::Hold if flagged => ReplayGuard::Flag,
            guard => guard,
        }
    }

    /// Whether one request may bring several events.
    pub fn has_lists(&self) -> bool {
        self.each.is_some()
    }

    /// Whether types have two levels, as in `pull_request.opened`.
    pub fn two_levels(&self) -> bool {
        self.subtype.is_some()
    }

    /// Whether a handler's entry `text` matches a type that the provider publishes; `None` if its file lists no
    /// types.
    pub fn publishes_type(&self, text: &str) -> Option<bool> {
        let wanted = Pattern::new(text, self.two_levels());
        let meant =
            |known: &String| wanted.matches(known) || Pattern::new(known, false).matches(text);
        (!self.listed.is_empty()).then(|| self.listed.iter().any(meant))
    }

    /// The listed type, or family of types, that is most similar to `text`.
    pub fn nearest_type(&self, text: &str) -> Option<String> {
        let listed = &self.listed;
        let families = listed
            .iter()
            .flat_map(|known| known.match_indices('.').map(|(end, _)| known[..end].to_owned()));
        let mut known = listed.clone();
        if text.ends_with(".*") {
            known.extend(families.map(|family| format!("{family}.*")));
        } else if self.two_levels() {
            known.extend(families);
        }
        let lower: Vec<String> = known.iter().map(|known| known.to_lowercase()).collect();
        let near = nearest(&text.to_lowercase(), lower.iter().map(String::as_str))?.to_owned();
        known.into_iter().zip(lower).find(|(_, lower)| *lower == near).map(|(known, _)| known)
    }
}
