//! Reads `env` and `pass_env`, which add to the fixed variables of a command's environment.

use std::path::Path;

use crate::document::{Fault, Section, Value};
use crate::systemd;

use super::read::is_variable;
use super::secrets::Reference;

/// The variables that tell a command about its event. They cannot be configured.
const FACTS: &str = "HOOKLATCH_SOURCE HOOKLATCH_CALLER HOOKLATCH_EVENT_ID HOOKLATCH_SENDER_ID HOOKLATCH_EVENT_TYPE \
    HOOKLATCH_JOB HOOKLATCH_ATTEMPT HOOKLATCH_REPLAY HOOKLATCH_RECEIVED_AT HOOKLATCH_HANDLER";

/// The value of a configured variable.
#[derive(PartialEq, Eq)]
pub(crate) enum Variable {
    Text(String),
    /// The content of a file or credential.
    Reference(Reference),
}

/// `env`: names and values, each with its place.
pub(super) fn read_env(section: &Section<'_>, folder: &Path) -> Vec<(String, Value<Variable>)> {
    let Some(env) = section.section("env") else { return Vec::new() };
    let mut variables = Vec::new();
    for (name, text) in env.strings() {
        let variable = text.convert(env.problems(), |text| match bad_variable(&name) {
            Some(fault) => Err(fault),
            None => read_variable(text, folder),
        });
        variables.extend(variable.map(|variable| (name, variable)));
    }
    variables
}

/// `file:` and `credential:` are references, `literal:` is cut off, anything else is the text.
fn read_variable(text: String, folder: &Path) -> Result<Variable, Fault> {
    if text.contains('\0') {
        return Err("the value has a NUL character".into());
    }
    if let Some(literal) = text.strip_prefix("literal:") {
        return Ok(Variable::Text(literal.to_owned()));
    }
    if text.starts_with("env:") {
        return Err(Fault::new(
            "a variable is not passed on by reference",
            "name it in pass_env, or write literal: before a text that begins with env:",
        ));
    }
    if text.starts_with("file:") || text.starts_with("credential:") {
        let help = "write literal: before a text that only looks like a reference";
        let reference = Reference::parse(&text, folder).map_err(|fault| fault.with_help(help))?;
        return Ok(Variable::Reference(reference));
    }
    Ok(Variable::Text(text))
}

/// `pass_env`: names of the process's own variables.
pub(super) fn read_pass_env(
    section: &Section<'_>,
    env: &[(String, Value<Variable>)],
) -> Vec<Value<String>> {
    let names = section.texts("pass_env").unwrap_or_default();
    for Value { value: name, at } in &names {
        if let Some(fault) = bad_variable(name) {
            section.report(at, fault);
        } else if let Some((_, set)) = env.iter().find(|(other, _)| other == name) {
            let message = format!("'{name}' is also set under env ({})", set.at);
            section.reject(at, message, "remove one of them");
        }
    }
    names
}

fn bad_variable(name: &str) -> Option<Fault> {
    if !is_variable(name) {
        return Some(format!("'{name}' is not a variable name").into());
    }
    if systemd::VARIABLES.contains(&name) {
        let message = format!("{name} is what systemd says to hooklatch alone");
        return Some(Fault::new(message, "remove it"));
    }
    let message = || format!("{name} is set by hooklatch for every attempt").into();
    (FACTS.split(' ').any(|fact| fact == name) || name.starts_with("HOOKLATCH_HEADER_"))
        .then(message)
}
