//! `hooklatch verify`: judges one captured request offline, with the receiver's own verifier.
//!
//! The verdict goes to standard output as one JSON line, the reason in words to standard error.

use std::io::{self, Read};
use std::path::Path;

use anstyle::Style;
use serde::Serialize;

use crate::cli::Verify;
use crate::clock::Clock;
use crate::config::{Environment, Reference};
use crate::document::Problems;
use crate::exit::{Exit, Failure};
use crate::limits::CONFIG_BYTES;
use crate::model::{EventId, Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Genuine, Key, Request, Verified};

use super::{input, output};

type Result<T> = std::result::Result<T, Failure>;

/// Judges the request whose body is on standard input. A failure names no secret.
pub(super) fn run(args: &Verify) -> Result<Exit> {
    let mut body = Vec::new();
    io::stdin().lock().read_to_end(&mut body).map_err(Failure::io("read the body"))?;
    let scheme = scheme(&args.provider)?;
    let scheme = match &args.sender {
        Some(sender) => scheme.with_sender(sender),
        None => scheme,
    };
    let environment = Environment::capture();
    let keys = args.secrets.iter().map(|text| key(&scheme, text, &environment));
    let keys: Vec<Key> = keys.collect::<Result<_>>()?;
    if keys.is_empty() && !scheme.proof().is_absent() {
        return Err(wrong(format!("provider {} signs: give --secret", scheme.name())));
    }
    let headers = headers(&args.headers)?;
    let at = args.at.map(|at| Timestamp(at.saturating_mul(1000)));
    let at = at.unwrap_or_else(|| Clock::system().now());
    let request = Request {
        method: &args.method,
        url: args.url.as_deref(),
        headers: &headers,
        body: body.into(),
    };
    let say = |kind: &str, text: String| output::said(kind, Style::new(), &text);
    match verify::judge(&scheme, &keys, request.clone(), at, Some("new")) {
        Ok(Genuine::Challenge(_)) => {
            output::json_line(&Verdict::Handshake)?;
            say("genuine", "a challenge, which is answered and never stored".to_owned());
            Ok(Exit::Ok)
        }
        Ok(Genuine::Event(events, left_out)) => {
            for one in &events {
                let (event_id, event_type) = (one.event_id(), one.event_type().as_str());
                output::json_line(&Verdict::Accept { event_id, event_type })?;
            }
            match events.first().map(Verified::secret) {
                Some(Some(reference)) => say("genuine", format!("signed with {reference}")),
                Some(None) => say("accepted", format!("provider {} proves nothing", scheme.name())),
                None => say("genuine", "the list of events is empty".to_owned()),
            }
            if let Some(rejection) = left_out {
                say("left out", rejection.to_string());
            }
            Ok(Exit::Ok)
        }
        Err(rejection) => {
            output::json_line(&Verdict::Reject { reason: rejection.reason })?;
            say("rejected", rejection.to_string());
            if let Some(hint) = verify::hint(&scheme, &keys, &request, &rejection, at) {
                say("hint", hint);
            }
            Ok(Exit::No)
        }
    }
}

/// The line on standard output.
#[derive(Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Verdict<'a> {
    Accept { event_id: &'a EventId, event_type: &'a str },
    Reject { reason: &'a str },
    Handshake,
}

fn wrong(message: impl Into<String>) -> Failure {
    Exit::Usage.failure(message)
}

fn scheme(provider: &str) -> Result<Scheme> {
    if let Some(scheme) = Scheme::embedded(provider) {
        return Ok(scheme);
    }
    if !provider.contains('/') && !provider.ends_with(".toml") {
        let message = format!("there is no built-in provider '{provider}'");
        return Err(wrong(message).help(Scheme::help(provider, [])));
    }
    let text = input::text(Path::new(provider), CONFIG_BYTES)?;
    let problems = Problems::new();
    Scheme::parse(provider, &text, &problems).ok_or_else(|| {
        let all: Vec<String> = problems.into_sorted().iter().map(ToString::to_string).collect();
        wrong(all.join("\n"))
    })
}

fn key(scheme: &Scheme, text: &str, environment: &Environment) -> Result<Key> {
    let (shown, secret) = match text.strip_prefix("literal:") {
        Some(secret) => ("literal:…", zeroize::Zeroizing::new(secret.to_owned())),
        None => {
            // A bad reference is not quoted: it may be the secret itself, typed without its prefix.
            let reference = Reference::parse(text, Path::new("."))
                .map_err(|_| wrong("--secret takes env:NAME, file:PATH or literal:TEXT"))?;
            let secret =
                reference.read(environment).map_err(|error| wrong(format!("--secret {error}")))?;
            (text, secret)
        }
    };
    verify::key(scheme, shown, &secret).map_err(wrong)
}

pub(crate) fn headers(lines: &[String]) -> Result<Headers> {
    let mut headers = Headers::new();
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(wrong(format!("--header '{line}' is not of the form 'Name: value'")));
        };
        headers.push(name.trim(), value.trim().as_bytes());
    }
    Ok(headers)
}
