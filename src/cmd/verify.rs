//! `hooklatch verify`: judges one captured request offline, with the receiver's own verifier.
//!
//! The verdict goes to standard output as one JSON line, the reason in words to standard error.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use serde::Serialize;

use crate::cli::Verify;
use crate::clock::Clock;
use crate::config::{Environment, Reference};
use crate::document::Problems;
use crate::exit::{Exit, Failure};
use crate::limits::Limits;
use crate::model::{EventId, Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Key, Request};

type Result<T> = std::result::Result<T, Failure>;

/// Judges the request whose body is on standard input.
pub(super) fn run(args: &Verify) -> Result<Exit> {
    let mut body = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut body)
        .map_err(|error| Failure::new(Exit::Io, format!("failed to read the body: {error}")))?;
    let (mut out, mut err) = (anstream::stdout().lock(), anstream::stderr().lock());
    let now = Clock::system().now();
    let good = judge(args, &Environment::capture(), &body, now, &mut out, &mut err)?;
    Ok(if good { Exit::Ok } else { Exit::No })
}

/// Judges the request whose body is `body`: true where it is genuine. A failure names no secret.
fn judge(
    args: &Verify,
    environment: &Environment,
    body: &[u8],
    now: Timestamp,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool> {
    let scheme = scheme(&args.provider)?;
    let keys: Vec<Key> =
        args.secrets.iter().map(|text| key(&scheme, text, environment)).collect::<Result<_>>()?;
    if keys.is_empty() && !scheme.is_unsigned() {
        return Err(wrong(format!("provider {} signs: give --secret", scheme.name())));
    }
    let headers = headers(&args.headers)?;
    let now = args.at.map_or(now, |at| Timestamp(at.saturating_mul(1000)));
    let request = Request {
        method: &args.method,
        url: args.url.as_deref(),
        headers: &headers,
        body: Bytes::copy_from_slice(body),
    };
    match verify::verify(&scheme, &keys, request.clone(), now) {
        Ok(verified) => {
            let (event_id, event_type) = (verified.event_id(), verified.event_type().as_str());
            print(out, &Verdict::Accept { event_id, event_type })?;
            match verified.secret() {
                Some(reference) => writeln!(err, "genuine: signed with {reference}")?,
                None => writeln!(err, "accepted: provider {} proves nothing", scheme.name())?,
            }
            Ok(true)
        }
        Err(rejection) => {
            print(out, &Verdict::Reject { reason: rejection.reason })?;
            writeln!(err, "rejected: {rejection}")?;
            if let Some(hint) = verify::hint(&scheme, &keys, &request, &rejection, now) {
                writeln!(err, "hint: {hint}")?;
            }
            Ok(false)
        }
    }
}

/// The line on standard output.
#[derive(Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Verdict<'a> {
    Accept { event_id: &'a EventId, event_type: &'a str },
    Reject { reason: &'a str },
}

fn print(out: &mut dyn Write, verdict: &Verdict<'_>) -> Result<()> {
    serde_json::to_writer(&mut *out, verdict).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message)
}

fn scheme(provider: &str) -> Result<Scheme> {
    if let Some(scheme) = Scheme::embedded(provider) {
        return Ok(scheme);
    }
    if !provider.contains('/') && !provider.ends_with(".toml") {
        let known = Scheme::embedded_names().collect::<Vec<_>>().join(", ");
        return Err(wrong(format!("no provider '{provider}'; built in are: {known}")));
    }
    let text = read(provider, Limits::default().config_bytes)?;
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
            let secret = reference
                .read(environment, Limits::default().secret_bytes)
                .map_err(|error| wrong(format!("--secret {error}")))?;
            (text, secret)
        }
    };
    verify::key(scheme, shown, &secret).map_err(wrong)
}

/// A text file of at most `most` bytes.
fn read(path: &str, most: u64) -> Result<String> {
    let named = |error: io::Error| wrong(format!("{path}: {error}"));
    let mut text = String::new();
    let file = File::open(path).map_err(named)?;
    file.take(most + 1).read_to_string(&mut text).map_err(named)?;
    match text.len() as u64 > most {
        true => Err(wrong(format!("{path}: is over the limit of {most} bytes"))),
        false => Ok(text),
    }
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

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
