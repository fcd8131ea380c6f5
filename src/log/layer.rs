//! The layer that turns each event into a line: its fields follow those of the spans around it, outermost first.

use std::sync::Arc;

use serde_json::Value;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::{Fields, Line};
use super::writer::Writer;

pub(super) struct Lines(pub(super) Arc<Writer>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut all = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                fields.0.iter().for_each(|(name, value)| all.set(name, value.clone()));
            }
        }
        event.record(&mut all);
        let at = all.0.iter().position(|(name, _)| *name == "message");
        let message = match at.map(|at| all.0.remove(at).1) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        self.0.write(&Line { level, target, message, fields: all });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn a_line_has_the_fields_of_its_spans() {
        let (subscriber, lines) = crate::log::kept();
        tracing::subscriber::with_default(subscriber, || {
            let late = tracing::field::Empty;
            let outer = tracing::info_span!("outer", source = "stripe", attempt = 1, late);
            let _outer = outer.enter();
            let _inner = tracing::info_span!("inner", job = %"j-1", attempt = 2).entered();
            outer.record("late", true);
            tracing::warn!(handler = ?"a\nb", seconds = 1.5, gone = None::<u64>, "ended");
        });
        let line: serde_json::Value = serde_json::from_slice(&lines.lock().unwrap()).unwrap();
        let wanted = serde_json::json!({
            "timestamp": line["timestamp"], "level": "WARN", "target": line["target"],
            "message": "ended", "source": "stripe", "attempt": 2, "late": true, "job": "j-1",
            "handler": "\"a\\nb\"", "seconds": 1.5,
        });
        assert_eq!(line, wanted);
    }
}
