//! A delivery as handlers judge it: a stored event, or what the operator names. And what a handler's condition makes
//! of it, line by line.

use bytes::Bytes;
use serde::Serialize;

use crate::condition::{TableResult, Values};
use crate::config::{Config, Handler};
use crate::model::{EventId, GroupKey, Headers, Name};
use crate::payload::{Event, nearest_place};
use crate::store::EventDetail;

/// A delivery with its payload.
pub(super) struct Delivered {
    pub(super) source: Name,
    pub(super) id: EventId,
    pub(super) event_type: String,
    pub(super) headers: Headers,
    pub(super) body: Bytes,
}

/// What a handler's condition and key make of a delivery.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Judgement {
    /// Whether the condition holds, and the key can be read; `None` if that cannot be decided.
    pub(super) holds: Option<bool>,
    /// One of these must hold; empty without a condition.
    pub(super) tables: Vec<TableResult>,
    /// The jobs among which it keeps its place.
    pub(super) group: Option<String>,
    /// Why it cannot be decided.
    pub(super) undecided: Option<String>,
}

impl Delivered {
    /// A stored event; `None` if its payload has been deleted.
    pub(super) fn of(detail: &EventDetail) -> Option<Self> {
        let mut headers = Headers::new();
        for (name, value) in &detail.headers {
            headers.push(name, value.as_bytes());
        }
        Some(Delivered {
            source: detail.event.source.clone(),
            id: detail.event.event_id.clone(),
            event_type: detail.event.event_type.clone(),
            headers,
            body: detail.body.as_ref()?.to_vec().into(),
        })
    }

    pub(super) fn event<'e>(&'e self, config: &'e Config) -> Event<'e> {
        Event {
            id: self.id.as_str(),
            event_type: &self.event_type,
            headers: &self.headers,
            body: &self.body,
            form_field: config.scheme_of(&self.source).and_then(|scheme| scheme.form_field()),
        }
    }

    /// What the condition and the key of `handler` make of it, by this configuration.
    pub(super) fn judged_by(&self, handler: &Handler, config: &Config) -> Judgement {
        let (when, key) = (handler.condition(), handler.key());
        let (event, places) = (self.event(config), handler.places().map(|place| &place.value));
        let values = Values::read(&event, places, config.condition_kept_bytes());
        let decided = when.map_or(Ok(true), |when| when.decide(&values));
        let grouped = key.as_ref().map_or(Ok(None), |key| key.of(&self.source, &values));
        let mut tables = when.map(|when| when.explain(&values)).unwrap_or_default();
        for (table, lines) in tables.iter_mut().zip(when.iter().flat_map(|when| &when.tables)) {
            for (line, at) in table.lines.iter_mut().zip(lines) {
                let may_lack = line.line.ends_with(" is not there");
                if line.read == "nothing"
                    && !may_lack
                    && let Some(near) = nearest_place(&event, &at.place)
                {
                    line.read = format!("nothing; did you mean {near}?");
                }
            }
        }
        let doubt = decided.as_ref().err().or(grouped.as_ref().err());
        let undecided = doubt.map(ToString::to_string);
        Judgement {
            holds: match decided {
                Ok(false) => Some(false),
                _ => undecided.is_none().then_some(true),
            },
            tables,
            group: grouped.ok().flatten().as_ref().map(GroupKey::to_string),
            undecided: if decided == Ok(false) { None } else { undecided },
        }
    }
}

impl Judgement {
    /// The lines of the condition: whether each holds, and what it read.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (nth, table) in self.tables.iter().enumerate() {
            if nth > 0 {
                lines.push("or".to_owned());
            }
            let longest = table.lines.iter().map(|line| line.line.chars().count()).max();
            for line in &table.lines {
                let verdict = match line.holds {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "?",
                };
                let read = line.why.as_ref().unwrap_or(&line.read);
                lines.push(format!(
                    "{verdict:<4}{:<width$}  {}{read}",
                    line.line,
                    if line.why.is_some() { "" } else { "it was " },
                    width = longest.unwrap_or_default(),
                ));
            }
        }
        lines
    }
}
