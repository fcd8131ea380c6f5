//! What a node publishes of its handlers, by which the nodes of a database are compared.
//!
//! Must stay true: nothing of it is a secret, or a value of a command's environment, because every node and every reader
//! of the database sees it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::dispatcher::Worker;
use crate::model::Digest;
use crate::store::postgres::PublishedHandler;

use super::configuration::Config;
use super::handlers::Handler;
use super::resolve::digest;
use super::settings::limit_rows;

/// The limits by which a command is run, in addition to its own keys.
const LIMITS: [&str; 4] = [
    "limits.output_head_bytes",
    "limits.output_tail_bytes",
    "limits.answer_whole_bytes",
    "limits.stdin_memory_bytes",
];

impl Config {
    /// What other nodes know of a handler. Equal files give equal digests.
    pub(super) fn published(&self, handler: &Handler, worker: &Worker) -> PublishedHandler {
        let command = handler.command();
        let digest = command
            .map(|command| digest(handler, command, &self.form_fields(handler), self.limits()));
        // Texts and numbers.
        let mut shown = serde_json::to_value(handler).unwrap_or_default();
        let digest = Digest::of(format!("{shown} {digest:?}"));
        let mut settings = BTreeMap::new();
        if let Some(command) = command {
            let names = command.env.iter().map(|(name, _)| name.as_str());
            shown["env"] = names.collect();
            let limits = limit_rows(self.limits()).into_iter();
            let limits = limits.filter(|limit| LIMITS.contains(&limit.key.as_str()));
            settings.extend(limits.map(|limit| (limit.key, limit.value)));
        }
        if let Value::Object(keys) = &shown {
            for (key, value) in keys.iter().filter(|(key, _)| *key != "name") {
                add(key, value, &mut settings);
            }
        }
        PublishedHandler {
            handler: handler.name.clone(),
            digest,
            policy: worker.policy.clone(),
            runs: worker.runs,
            runner: command.filter(|_| worker.runs).map(|command| command.runner.value.clone()),
            sources: handler.sources.iter().map(|source| source.value.clone()).collect(),
            settings,
        }
    }
}

/// Adds a key with its value as a text. The keys of a table are dotted.
fn add(key: &str, value: &Value, settings: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Null => return,
        Value::Object(table) => {
            for (name, value) in table {
                add(&format!("{key}.{name}"), value, settings);
            }
            return;
        }
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(Value::to_string).collect();
            format!("[{}]", all.join(", "))
        }
        value => value.to_string(),
    };
    settings.insert(key.to_owned(), text);
}
