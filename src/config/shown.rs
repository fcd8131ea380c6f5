//! How the configuration in force is shown: by [`Config`]'s derived serialization, with these forms. A secret is a
//! [`Reference`](super::Reference), which serializes as its place and stars.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::document::Value;
use crate::limits::{self, Limits, Unit};
use crate::provider::Scheme;
use crate::retry::GiveUp;

use super::handlers::Sign;
use super::secrets::STARS;
use super::settings::dotted;
use super::variables::Variable;

/// Variables whose values are shown, in addition to those of the locale (`LC_`). Any other may hold a secret.
const HARMLESS: [&str; 8] = ["HOME", "LANG", "LANGUAGE", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];

/// A limit in force.
#[derive(Debug, Serialize)]
pub struct LimitRow {
    /// The key in the configuration, with its table.
    pub key: String,
    pub value: String,
    pub default: String,
    pub least: String,
    pub most: String,
    /// Why there is such a limit.
    pub reason: &'static str,
}

/// Every limit, in the order of their table.
pub(crate) fn limit_rows(limits: &Limits) -> Vec<LimitRow> {
    let row = |limit: &limits::Limit| {
        let show = |value| limit.unit.show(value);
        LimitRow {
            key: dotted(limit.key),
            value: show(limits.get(limit.key).unwrap_or(limit.default)),
            default: show(limit.default),
            least: show(*limit.range.start()),
            most: show(*limit.range.end()),
            reason: limit.reason,
        }
    };
    limits::TABLE.iter().map(row).collect()
}

/// As in the configuration: `10min`.
pub(crate) fn duration_text(time: Duration) -> String {
    Unit::Millis.show(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// As in the configuration, but for secrets.
pub(crate) fn sign_text(sign: &Sign) -> String {
    match sign {
        Sign::No => "no".to_owned(),
        Sign::Source => "yes".to_owned(),
        Sign::With(reference) => format!("{reference} {STARS}"),
    }
}

/// A variable's value if its name says that it is harmless.
pub(crate) fn variable_text(name: &str, variable: &Variable) -> String {
    match variable {
        Variable::Reference(reference) => format!("{reference} {STARS}"),
        Variable::Text(text) if HARMLESS.contains(&name) || name.starts_with("LC_") => text.clone(),
        Variable::Text(_) => STARS.to_owned(),
    }
}

pub(super) fn all_limits<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    limit_rows(limits).serialize(serializer)
}

pub(super) fn duration<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&duration_text(*time))
}

pub(super) fn placed_duration<S: Serializer>(
    time: &Value<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration(&time.value, serializer)
}

pub(super) fn text<S: Serializer>(one: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(one)
}

pub(super) fn texts<S: Serializer>(all: &[impl Display], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(ToString::to_string))
}

pub(super) fn sign<S: Serializer>(
    sign: &Option<Value<Sign>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    sign.as_ref().map(|sign| sign_text(&sign.value)).serialize(serializer)
}

pub(super) fn variables<S: Serializer>(
    all: &[(String, Value<Variable>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let shown = |(name, variable): &(String, Value<Variable>)| {
        (name.clone(), variable_text(name, &variable.value))
    };
    serializer.collect_seq(all.iter().map(shown))
}

pub(super) fn give_up<S: Serializer>(give_up: &GiveUp, serializer: S) -> Result<S::Ok, S::Error> {
    match give_up {
        GiveUp::Attempts(count) => BTreeMap::from([("max_attempts", *count)]).serialize(serializer),
        GiveUp::After(time) => {
            BTreeMap::from([("give_up_after", duration_text(*time))]).serialize(serializer)
        }
    }
}

/// What a source has from its provider.
pub(super) fn scheme<S: Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
    let facts = [
        ("provider", Some(scheme.name().to_owned())),
        ("tolerance", scheme.tolerance().map(duration_text)),
        ("resends_for", scheme.resends_for().map(duration_text)),
    ];
    BTreeMap::from(facts).serialize(serializer)
}
