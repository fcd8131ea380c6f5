//! A log line and its fields.

use std::fmt;

use serde_json::Value;
use tracing::Level;
use tracing::field::{Field, Visit};

use crate::limits::LOG_VALUE_BYTES;

#[derive(Debug)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) message: String,
    pub(super) fields: Fields,
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
        text.truncate(text.floor_char_boundary(LOG_VALUE_BYTES));
        self.set(name, text.into());
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value[..value.floor_char_boundary(LOG_VALUE_BYTES)].to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field.name(), format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field.name(), value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    /// JSON has no NaN and no infinity: they become null.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_truncated_at_a_character_boundary() {
        let mut fields = Fields::default();
        fields.text("a", "ä".repeat(LOG_VALUE_BYTES));
        assert_eq!(fields.0[0].1.as_str().map(str::len), Some(LOG_VALUE_BYTES));
    }
}
