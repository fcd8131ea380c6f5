//! `hooklatch verify`: judges one captured request offline, with the receiver's own verifier.
//!
//! The verdict goes to standard output as one JSON line, the reason in words to standard error.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};

use bytes::Bytes;
use serde::Serialize;

use crate::document::Problems;
use crate::limits::Limits;
use crate::model::{EventId, Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Key, Request};

/// Checks one captured request offline; its body is standard input.
///
/// Exit 0: genuine. Exit 1: not. Exit 2: the question itself is wrong.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  hooklatch verify --provider stripe --secret env:STRIPE_SECRET \\\n    --header 'Stripe-Signature: t=1767225595,v1=…' --at 1767225600 < body.json"
)]
pub struct Args {
    /// A built-in provider, or the path of a provider file
    #[arg(long, value_name = "NAME|FILE")]
    pub provider: String,
    /// Where a secret is: env:NAME, file:PATH or literal:TEXT (for tests); may be given several times
    #[arg(long = "secret", value_name = "REF")]
    pub secrets: Vec<String>,
    /// When the request arrived, in seconds since 1970; now where it is not given
    #[arg(long, value_name = "UNIX")]
    pub at: Option<i64>,
    /// The request method
    #[arg(long, default_value = "POST")]
    pub method: String,
    /// The public URL, for providers that sign it
    #[arg(long)]
    pub url: Option<String>,
    /// A header line of the request; may be given several times
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
}

/// Judges the request whose body is `stdin`: true where it is genuine. An error of kind
/// `InvalidInput` says what is wrong with the arguments and names no secret.
pub fn run(
    args: &Args,
    stdin: &[u8],
    now: Timestamp,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool> {
    let scheme = scheme(&args.provider)?;
    let keys: Vec<Key> =
        args.secrets.iter().map(|reference| key(&scheme, reference)).collect::<Result<_>>()?;
    if keys.is_empty() && !scheme.is_unsigned() {
        return Err(wrong(format!("provider {} signs: give --secret", scheme.name())));
    }
    let headers = headers(&args.headers)?;
    let now = args.at.map_or(now, |at| Timestamp(at.saturating_mul(1000)));
    let request = Request {
        method: &args.method,
        url: args.url.as_deref(),
        headers: &headers,
        body: Bytes::copy_from_slice(stdin),
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
    serde_json::to_writer(&mut *out, verdict)?;
    writeln!(out)
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
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

fn key(scheme: &Scheme, reference: &str) -> Result<Key> {
    let text = match reference.split_once(':') {
        Some(("literal", text)) => text.to_owned(),
        Some(("env", name)) => {
            std::env::var(name).map_err(|error| wrong(format!("{reference}: {error}")))?
        }
        Some(("file", path)) => {
            let text = read(path, Limits::default().secret_bytes + 2)?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            text.strip_suffix('\r').unwrap_or(text).to_owned()
        }
        // Not quoted: it may be the secret itself, typed without its prefix.
        _ => return Err(wrong("--secret takes env:NAME, file:PATH or literal:TEXT".to_owned())),
    };
    let shown = if reference.starts_with("literal:") { "literal:…" } else { reference };
    verify::key(scheme, shown, &text).map_err(wrong)
}

/// A text file of at most `most` bytes.
fn read(path: &str, most: u64) -> Result<String> {
    let named = |error: Error| wrong(format!("{path}: {error}"));
    let mut text = String::new();
    let file = File::open(path).map_err(named)?;
    file.take(most + 1).read_to_string(&mut text).map_err(named)?;
    match text.len() as u64 > most {
        true => Err(wrong(format!("{path}: is over the limit of {most} bytes"))),
        false => Ok(text),
    }
}

fn headers(lines: &[String]) -> Result<Headers> {
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
