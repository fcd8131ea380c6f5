//! What one attempt of a handler would do with an event, without doing it. Secrets are stars.

use serde::Serialize;

use super::configuration::Config;
use super::handlers::{Action, Handler};
use super::secrets::STARS;
use super::shown::variable_text;
use crate::model::Facts;
use crate::values::{Refused, arguments};

/// What an attempt would get and start.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Plan {
    /// The values by name, in the order of the configuration.
    pub(crate) values: Vec<(String, String)>,
    #[serde(flatten)]
    pub(crate) start: Start,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Start {
    Command {
        /// Program and arguments.
        command: Vec<String>,
        /// The variables of `env`; `values` and those of every attempt come on top.
        env: Vec<(String, String)>,
    },
    Forward {
        forward: String,
        /// The headers in addition to those of the delivery and of every attempt.
        headers: Vec<(String, String)>,
        /// Whether a part of the body is sent in place of all of it.
        part: bool,
    },
}

impl Config {
    /// # Errors
    /// A value of the event is not what the handler takes.
    pub(crate) fn plan(&self, handler: &Handler, facts: &Facts) -> Result<Plan, Refused> {
        let values = self.values_of(handler).map(|values| values.of(facts)).transpose()?;
        let values = values.unwrap_or_default();
        let start = match &handler.action {
            Action::Command(command) => {
                let mut argv = command.argv.value.clone();
                if !values.is_empty() {
                    argv.truncate(1);
                    argv.extend(arguments(&command.arguments, &values)?);
                }
                let shown = command.env.iter();
                let env = shown.map(|(name, one)| (name.clone(), variable_text(name, &one.value)));
                Start::Command { command: argv, env: env.collect() }
            }
            Action::Forward(forward) => {
                let (mut to, mut headers, mut part) =
                    (forward.target.to_string(), Vec::new(), false);
                if let Some(request) = self.request_of(handler, &forward.request) {
                    let filled = request.fill(facts)?;
                    to = forward.target.shown(&filled.path);
                    // A header without a value may be a secret.
                    let shown = filled.headers.into_iter().zip(&forward.request.headers);
                    headers = shown
                        .map(|((name, text), header)| match header.template.names().next() {
                            Some(_) => (name, text),
                            None => (name, STARS.to_owned()),
                        })
                        .collect();
                    part = filled.body.is_some();
                }
                Start::Forward { forward: to, headers, part }
            }
        };
        Ok(Plan { values, start })
    }
}
