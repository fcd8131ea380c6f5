//! `env` and `pass_env`: what a command's environment gets beyond the fixed variables.

use std::path::Path;

use crate::document::{Section, Value};
use crate::systemd;

use super::read::is_variable;
use super::secrets::Reference;

/// The variables that tell a command about its event. They cannot be configured.
const FACTS: [&str; 9] = [
    "HOOKLATCH_SOURCE",
    "HOOKLATCH_CALLER",
    "HOOKLATCH_EVENT_ID",
    "HOOKLATCH_EVENT_TYPE",
    "HOOKLATCH_JOB",
    "HOOKLATCH_ATTEMPT",
    "HOOKLATCH_REPLAY",
    "HOOKLATCH_RECEIVED_AT",
    "HOOKLATCH_HANDLER",
];

/// The value of a configured variable.
#[derive(PartialEq, Eq)]
pub(crate) enum Variable {
    Text(String),
    /// What a file or credential holds.
    Reference(Reference),
}

impl Variable {
    /// Where its value is read from, where it does not stand there itself.
    pub(super) fn reference(&self) -> Option<&Reference> {
        match self {
            Variable::Text(_) => None,
            Variable::Reference(reference) => Some(reference),
        }
    }
}

/// `env`: names and values, each with its place.
pub(super) fn read_env(section: &Section<'_>, folder: &Path) -> Vec<(String, Value<Variable>)> {
    let Some(env) = section.section("env") else { return Vec::new() };
    let mut variables = Vec::new();
    for (name, Value { value: text, at }) in env.strings() {
        let wrong = bad_variable(&name).or_else(|| {
            text.contains('\0').then(|| ("the value has a NUL character".to_owned(), None))
        });
        if let Some((message, help)) = wrong {
            env.problems().push(at.problem(message, help));
            continue;
        }
        match read_variable(text, folder) {
            Ok(value) => variables.push((name, Value { value, at })),
            Err((message, help)) => env.problems().push(at.problem(message, Some(help))),
        }
    }
    variables
}

/// `file:` and `credential:` are references, `literal:` is cut off, anything else is the text.
fn read_variable(text: String, folder: &Path) -> Result<Variable, (String, String)> {
    if let Some(literal) = text.strip_prefix("literal:") {
        return Ok(Variable::Text(literal.to_owned()));
    }
    if text.starts_with("env:") {
        return Err((
            "a variable is not passed on by reference".to_owned(),
            "name it in pass_env, or write literal: before a text that begins with env:".to_owned(),
        ));
    }
    if text.starts_with("file:") || text.starts_with("credential:") {
        return Reference::parse(&text, folder).map(Variable::Reference).map_err(|error| {
            let help = "write literal: before a text that only looks like a reference";
            (error.to_string(), help.to_owned())
        });
    }
    Ok(Variable::Text(text))
}

/// `pass_env`: names of the process's own variables.
pub(super) fn read_pass_env(
    section: &Section<'_>,
    env: &[(String, Value<Variable>)],
) -> Vec<Value<String>> {
    let names = section.texts("pass_env").unwrap_or_default();
    for name in &names {
        let wrong = bad_variable(&name.value).or_else(|| {
            let other = env.iter().find(|(other, _)| *other == name.value)?;
            let message =
                format!("'{}' is also set under env ({})", name.value, other.1.at.position());
            Some((message, Some("remove one of them".to_owned())))
        });
        if let Some((message, help)) = wrong {
            section.problems().push(name.at.problem(message, help));
        }
    }
    names
}

fn bad_variable(name: &str) -> Option<(String, Option<String>)> {
    if !is_variable(name) {
        return Some((format!("'{name}' is not a variable name"), None));
    }
    if systemd::VARIABLES.contains(&name) {
        let message = format!("{name} is what systemd says to hooklatch alone");
        return Some((message, Some("remove it".to_owned())));
    }
    let fact = FACTS.contains(&name);
    fact.then(|| (format!("{name} is set by hooklatch for every attempt"), None))
}
