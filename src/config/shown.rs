//! The forms of values in `config show`, for the derived serialization of [`Config`](super::Config). A secret is
//! a [`Reference`](super::Reference), which serializes as its place and stars.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::document::Value;
use crate::limits::Unit;
use crate::model::Repeats;
use crate::provider::{Resends, Scheme};
use crate::retry::GiveUp;

use super::read::millis;
use super::secrets::STARS;
use super::variables::Variable;

/// Variables whose values are shown, in addition to those of the locale (`LC_`). Any other may hold a secret.
const HARMLESS: [&str; 8] = ["HOME", "LANG", "LANGUAGE", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];

/// Writes a duration as in the configuration: `10min`.
pub(crate) fn duration_text(time: Duration) -> String {
    Unit::Millis.show(millis(time))
}

/// A variable's value if its name says that it is harmless.
pub(crate) fn variable_text(name: &str, variable: &Variable) -> String {
    match variable {
        Variable::Reference(reference) => format!("{reference} {STARS}"),
        Variable::Text(text) if HARMLESS.contains(&name) || name.starts_with("LC_") => text.clone(),
        Variable::Text(_) => STARS.to_owned(),
    }
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

pub(super) fn variables<S: Serializer>(
    all: &[(String, Value<Variable>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let shown = |(name, variable): &(String, Value<Variable>)| {
        (name.clone(), variable_text(name, &variable.value))
    };
    serializer.collect_seq(all.iter().map(shown))
}

pub(super) fn maybe_text<S: Serializer>(
    one: &Option<Value<impl Display>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    one.as_ref().map(|one| one.value.to_string()).serialize(serializer)
}

pub(super) fn give_up<S: Serializer>(give_up: &GiveUp, serializer: S) -> Result<S::Ok, S::Error> {
    match give_up {
        GiveUp::Attempts(count) => BTreeMap::from([("max_attempts", *count)]).serialize(serializer),
        GiveUp::After(time) => {
            BTreeMap::from([("give_up_after", duration_text(*time))]).serialize(serializer)
        }
    }
}

/// What an equal request means; `None` if the sender's id always names the event.
fn repeats(scheme: &Scheme) -> Option<String> {
    let identity = scheme.identity();
    match identity.repeats {
        Repeats::Window(window) => Some(duration_text(window)),
        Repeats::Duplicate if !identity.id_may_be_digest() => None,
        other => Some(other.to_string()),
    }
}

/// What a source has from its provider.
pub(super) fn scheme<S: Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
    let resends = scheme.setup().delivery.resends.map(|resends| match resends {
        Resends::Never => "never".to_owned(),
        Resends::For(time) => duration_text(time),
    });
    let facts = [
        ("provider", Some(scheme.name().to_owned())),
        ("tolerance", scheme.proof().tolerance().map(duration_text)),
        ("resends_for", resends),
        ("repeats", repeats(scheme)),
    ];
    BTreeMap::from(facts).serialize(serializer)
}
