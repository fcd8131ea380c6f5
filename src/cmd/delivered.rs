//! A delivery as handlers judge it: a stored event, or what the operator names. And what a handler's condition makes
//! of it, line by line.

use bytes::Bytes;
use serde::Serialize;

use crate::condition::TableResult;
use crate::config::{Config, Handler};
use crate::model::{EventId, Headers, Name};
use crate::payload::{Event, nearest_place};
use crate::routing::Decision;
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
        let scheme = config.scheme_of(&self.source);
        Event {
            id: self.id.as_str(),
            event_type: &self.event_type,
            headers: &self.headers,
            body: &self.body,
            form_field: scheme.and_then(|scheme| scheme.identity().form_field.as_deref()),
            inflated_bytes: scheme.map_or(0, |scheme| scheme.identity().inflated_bytes),
        }
    }

    /// What `handler` makes of it by this configuration: what the receiver decides when it accepts the event.
    pub(super) fn judged_by(&self, handler: &Handler, config: &Config) -> Judgement {
        let routes = config.source(&self.source).map(|source| config.routes(source));
        let route = routes.as_ref().and_then(|routes| routes.of(&handler.name));
        let (Some(routes), Some(route)) = (&routes, route) else {
            // The receiver's own events are not chosen by their values.
            return Judgement { holds: Some(true), ..Judgement::default() };
        };
        let event = self.event(config);
        let (decision, job, mut tables) = routes.explain(route, &event);
        let results = tables.iter_mut().flat_map(|table| &mut table.lines);
        let lines = route.when.iter().flat_map(|when| when.tables.iter().flatten());
        for (result, line) in results.zip(lines) {
            let may_lack = result.line.ends_with(" is not there");
            if result.read == "nothing"
                && !may_lack
                && let Some(near) = nearest_place(&event, &line.place)
            {
                result.read = format!("nothing; did you mean {near}?");
            }
        }
        Judgement {
            holds: match decision {
                Decision::True => Some(true),
                Decision::False => Some(false),
                Decision::Failed => None,
            },
            tables,
            group: job.group.map(|group| group.key.to_string()),
            undecided: job.undecided,
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
