//! Which event or job is meant by the beginning of an id, and how much of an id is enough.

use uuid::Uuid;

use crate::model::{EventId, JobId};
use crate::store::border::Error;

/// Most ids that an error names. One more is looked for.
pub(crate) const NAMED: usize = 5;

/// Lengths that an id is shortened to, the first that is enough: a UUID's groups end there.
const SHORT_CHARS: [usize; 8] = [8, 13, 18, 23, 30, 40, 60, 100];

/// An id is shortened by no fewer characters.
const LEAST_SAVED: usize = 4;

/// An id that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FoundId {
    Event(EventId),
    Job(JobId),
}

impl FoundId {
    fn named(&self) -> String {
        match self {
            FoundId::Event(id) => format!("event {id}"),
            FoundId::Job(id) => format!("job {id}"),
        }
    }

    pub(crate) fn is(&self, id: &str) -> bool {
        match self {
            FoundId::Event(own) => own.as_str() == id,
            FoundId::Job(own) => own.to_string() == id,
        }
    }

    /// The only one of those that begin with `text`. `noun` says what was looked for.
    pub(crate) fn only(
        found: Vec<FoundId>,
        text: &str,
        noun: &'static str,
    ) -> Result<FoundId, Error> {
        // One id of several sources.
        let mut ids: Vec<FoundId> = Vec::new();
        for id in found {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let text = text.to_owned();
        if ids.len() > 1 {
            let mut named: Vec<String> = ids.iter().take(NAMED).map(FoundId::named).collect();
            if ids.len() > NAMED {
                named.push("…".to_owned());
            }
            return Err(Error::SeveralIds { text, ids: named.join(", ") });
        }
        ids.pop().ok_or(Error::NoId { text, noun })
    }
}

/// The first and the last UUID whose text begins so; none where none does.
pub(crate) fn uuids(beginning: &str) -> Option<(Uuid, Uuid)> {
    let rest = "00000000-0000-0000-0000-000000000000".get(beginning.len()..)?;
    let first = Uuid::try_parse(&format!("{beginning}{rest}")).ok()?;
    let last = Uuid::try_parse(&format!("{beginning}{}", rest.replace('0', "f"))).ok()?;
    // Not the other ways in which a UUID may be written.
    first.to_string().starts_with(beginning).then_some((first, last))
}

/// The beginnings to which this id may be shortened, shortest first. All of it is always enough.
pub(crate) fn short_forms(id: &str) -> impl Iterator<Item = &str> {
    // Version 7 begins with the time: the ids of a whole minute share their first group.
    let by_time = Uuid::try_parse(id).is_ok_and(|id| id.get_version_num() == 7);
    let least = if by_time { SHORT_CHARS[1] } else { SHORT_CHARS[0] };
    let lengths = least..id.len().saturating_sub(LEAST_SAVED);
    // An id is ASCII.
    SHORT_CHARS
        .into_iter()
        .filter(move |chars| lengths.contains(chars))
        .map_while(|chars| id.get(..chars))
}
