//! Collects a line's fields: those of the spans around it, from the outermost in, then its own.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::sink::Sink;

/// The longest value, in bytes: longer than anything that is meant for people.
const VALUE_BYTES: usize = 4096;

/// What a line says.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) message: String,
    pub(super) fields: Fields,
}

/// A field's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    /// As JSON writes it: a number, `true` or `false`.
    Plain(String),
}

/// Names and values; a name stands once, with its last value.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(pub(super) Vec<(&'static str, Value)>);

impl Fields {
    fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    fn text(&mut self, name: &'static str, mut text: String) {
        text.truncate(text.floor_char_boundary(VALUE_BYTES));
        self.set(name, Value::Text(text));
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value[..value.floor_char_boundary(VALUE_BYTES)].to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field.name(), format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field.name(), value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), Value::Plain(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = value.to_string();
        // JSON has no word for what is no number.
        self.set(
            field.name(),
            if value.is_finite() { Value::Plain(text) } else { Value::Text(text) },
        );
    }
}

/// Makes a line of each event and hands it on.
pub(super) struct Lines(Arc<Sink>);

impl Lines {
    pub(super) fn new(sink: Arc<Sink>) -> Self {
        Lines(sink)
    }
}

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
            Some(Value::Text(text) | Value::Plain(text)) => text,
            None => String::new(),
        };
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        self.0.write(&Line { level, target, message, fields: all });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_the_spans_around_it() {
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

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let mut fields = Fields::default();
        fields.text("a", "ä".repeat(VALUE_BYTES));
        let Value::Text(text) = &fields.0[0].1 else { panic!("no text") };
        assert_eq!(text.len(), VALUE_BYTES);
    }
}
