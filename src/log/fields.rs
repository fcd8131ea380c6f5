//! A log line and its fields.

use std::fmt;

use tracing::Level;
use tracing::field::{Field, Visit};

/// Longest value in bytes. Longer ones are truncated.
const VALUE_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) message: String,
    pub(super) fields: Fields,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    /// As JSON writes it: a number, `true` or `false`.
    Plain(String),
}

/// Each name once, with its last value.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(pub(super) Vec<(&'static str, Value)>);

impl Fields {
    pub(super) fn set(&mut self, name: &'static str, value: Value) {
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
        // JSON has no NaN or infinity.
        self.set(
            field.name(),
            if value.is_finite() { Value::Plain(text) } else { Value::Text(text) },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_truncated_at_a_character_boundary() {
        let mut fields = Fields::default();
        fields.text("a", "ä".repeat(VALUE_BYTES));
        let Value::Text(text) = &fields.0[0].1 else { panic!("no text") };
        assert_eq!(text.len(), VALUE_BYTES);
    }
}
