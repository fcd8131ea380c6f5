//! `hooklatch config show`: prints the configuration in force, with its defaults and without secrets.

use std::io;

use anstyle::AnsiColor;
use serde_json::Value;

use crate::cli;
use crate::config::{self, Config, LimitRow, limit_rows};
use crate::exit::{Exit, Failure};

use super::output::{self, Cell, Field, below, size, whole, words_of};

/// Prints the whole configuration in force.
pub(super) fn run(args: &cli::Options) -> Result<Exit, Failure> {
    let config = config::load(args.config())?;
    output::either(&args.format, &config, || tables(&config))
}

/// The settings outside of sources, handlers and limits: the field in JSON, and the configuration's key.
const GENERAL: [(&str, &str); 4] = [
    ("listen", "server.listen"),
    ("trusted_proxies", "server.trusted_proxies"),
    ("metrics", "metrics.listen"),
    ("store", "storage.path"),
];

fn tables(config: &Config) -> Result<(), Failure> {
    // It serializes without secrets.
    let shown = serde_json::to_value(config).map_err(io::Error::from)?;
    let mut rows = Vec::new();
    for (field, key) in GENERAL {
        rows.push(setting(key, text(&shown[field])));
    }
    for section in ["storage", "node", "dashboard"] {
        settings(section, &shown[section], &mut rows);
    }
    for table in ["sources", "handlers"] {
        let all = shown[table].as_array().map_or(&[][..], Vec::as_slice);
        if all.is_empty() {
            rows.push(setting(table, "none"));
        }
        for one in all {
            let name = one["name"].as_str().unwrap_or_default();
            settings(&format!("{table}.{name}"), one, &mut rows);
        }
    }
    output::listing(rows, false, "nothing is set")?;
    output::line("")?;
    let limits = limit_rows(config.limits()).iter().map(limit).collect();
    output::listing(limits, false, "no limit")
}

fn setting(key: &str, text: impl Into<Field>) -> Vec<Cell> {
    vec![words_of("SETTING", key), words_of("VALUE", text)]
}

/// Adds a row for each setting in `value`, with its dotted key.
fn settings(key: &str, value: &Value, rows: &mut Vec<Vec<Cell>>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            // That of a source or a handler is in the key.
            let is_shown = |name: &str| name != "name" || key == "node";
            for (name, value) in fields.iter().filter(|(name, _)| is_shown(name)) {
                settings(&format!("{key}.{name}"), value, rows);
            }
        }
        value => {
            let bytes = value.as_u64().filter(|_| key.ends_with("_bytes"));
            let text = bytes.map_or_else(|| text(value), size);
            rows.push(setting(key, text));
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::Array(all) => all.iter().map(element).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

/// An element of a list: a text, a name with its value, or a reference with stars in place of its secret.
fn element(value: &Value) -> String {
    match value {
        Value::Array(pair) => pair.iter().map(element).collect::<Vec<_>>().join("="),
        Value::Object(reference) => reference.values().map(text).collect::<Vec<_>>().join(" "),
        value => text(value),
    }
}

fn limit(limit: &LimitRow) -> Vec<Cell> {
    // A changed value stands out.
    let value = match limit.value == limit.default {
        true => Field::from(&limit.value),
        false => output::painted(&limit.value, AnsiColor::Yellow),
    };
    vec![
        whole("LIMIT", &limit.key),
        words_of("VALUE", value),
        words_of("DEFAULT", &limit.default),
        words_of("RANGE", format!("{} to {}", limit.least, limit.most)),
        below("WHY", limit.reason),
    ]
}
