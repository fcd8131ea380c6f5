//! `hooklatch send`: plays a source's provider once, with the source's own secret and over real HTTP.
//!
//! It signs by itself where it can read the secret, and has the running receiver sign where it cannot.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::cli;
use crate::clock::Clock;
use crate::config::{Config, Endpoint, Environment};
use crate::control::{self, Reply, Request, Unsigned};
use crate::document::nearest;
use crate::exit::{Exit, Failure};
use crate::model::{EventType, Headers, Name, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Draft, Signer};

use super::output::{self, escape};
use super::played::{self, Answer};
use super::{block_on, random, store};

/// How much older than the tolerance a stale delivery is: enough for a clock that is corrected.
const STALE_BY: Duration = Duration::from_secs(60);

/// Sends what was asked for, prints the answers, and says whether they are the expected ones.
pub(super) fn run(args: &cli::Send) -> Result<Exit, Failure> {
    let config = store::load_whole(&args.file.config)?;
    let endpoint = config.endpoint(&args.source).ok_or_else(|| no_source(&config, &args.source))?;
    let event = event(args, &config, endpoint.scheme)?;
    if endpoint.certified {
        let source = &args.source;
        let message = format!(
            "source {source} knows its callers by the certificates that a proxy has checked, and send has none to prove itself"
        );
        return Err(wrong(message).help("send it through the proxy, with a client's certificate"));
    }
    let sent = block_on(async {
        let address = address(args, &config).await?;
        let signed = sign(args, &config, &endpoint, &event).await?;
        let mut answers = Vec::new();
        for _ in 0..if args.duplicate { 2 } else { 1 } {
            let posted =
                played::post(address, endpoint.path, &signed.headers, event.body.clone()).await;
            answers.push(posted.map_err(|error| nobody(args, address, &*error))?);
        }
        let Endpoint { path, replies, .. } = endpoint;
        Ok::<_, Failure>(Sent { address, path, replies, signed, answers })
    })??;
    let good = sent.is_expected(args);
    if args.format.json {
        output::json(&sent.json(args, &event, good))?;
    } else {
        sent.print(args, &event, good)?;
    }
    Ok(if good { Exit::Ok } else { Exit::No })
}

/// What is sent.
struct Event {
    id: String,
    body: Bytes,
    at: Timestamp,
}

fn event(args: &cli::Send, config: &Config, scheme: &Scheme) -> Result<Event, Failure> {
    let now = Clock::system().now();
    if EventType::from_raw(&args.event_type).raw().is_some() {
        return Err(wrong(format!("'{}' is no event type", escape(&args.event_type))));
    }
    if args.forge && scheme.is_unsigned() {
        return Err(wrong(format!("provider {} signs nothing to forge", scheme.name())));
    }
    let at = match (args.stale, scheme.tolerance()) {
        (false, _) => now,
        (true, Some(tolerance)) => earlier(now, tolerance + STALE_BY),
        (true, None) => {
            let provider = scheme.name();
            return Err(wrong(format!("provider {provider} signs no time, so nothing is too old")));
        }
    };
    let new_id = || -> Result<String, Failure> {
        Ok(format!("sample-{}", data_encoding::HEXLOWER.encode(&random::bytes::<8>()?)))
    };
    let given = args.id.as_ref().map(ToString::to_string);
    let Some(file) = &args.body else {
        let id = given.map_or_else(new_id, Ok)?;
        let body = verify::sample(scheme, &id, &args.event_type, at);
        return Ok(Event { id, body: body.into(), at });
    };
    let body = read(file, config.limits().bodies_in_flight_bytes)?;
    let told = verify::told(scheme, &body, &args.event_type);
    if told.event_type != args.event_type {
        let (file, kind) = (file.display(), escape(&told.event_type));
        return Err(wrong(format!(
            "the body in {file} makes it a {kind}, not a {}",
            args.event_type
        )));
    }
    if told.id_is_free {
        return Ok(Event { id: given.map_or_else(new_id, Ok)?, body, at });
    }
    let file = file.display();
    match (&told.id, given) {
        (Some(id), Some(given)) if *id != given => {
            Err(wrong(format!("the body in {file} has the id {id}, and the signature covers it")))
        }
        (id, given) => Ok(Event { id: id.clone().or(given).unwrap_or_default(), body, at }),
    }
}

fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub_unsigned(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
}

fn read(path: &Path, most: u64) -> Result<Bytes, Failure> {
    let named = |error| Failure::new(Exit::NotFound, format!("{}: {error}", path.display()));
    let length = std::fs::metadata(path).map_err(named)?.len();
    if length > most {
        return Err(wrong(format!("{}: {length} bytes; the limit is {most}", path.display())));
    }
    Ok(std::fs::read(path).map_err(named)?.into())
}

/// Where the receiver listens. Only it knows what a socket unit says, or which free port was taken.
async fn address(args: &cli::Send, config: &Config) -> Result<SocketAddr, Failure> {
    let configured = config.server().listen;
    let mut address = match args.to {
        Some(given) => given,
        None => match receiver(config, &Request::Listening).await {
            Ok(Reply::Listening(known)) if !known.is_empty() => known[0],
            Ok(other) => return Err(store::unexpected(&other)),
            Err(failure) if configured.port() == 0 => return Err(failure),
            // It does not run, or does not answer this user.
            Err(_) => configured,
        },
    };
    // The address of every interface is none to connect to.
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

/// The headers of a delivery, and who signed it.
struct Signed {
    headers: Headers,
    by: String,
}

async fn sign(
    args: &cli::Send,
    config: &Config,
    endpoint: &Endpoint<'_>,
    event: &Event,
) -> Result<Signed, Failure> {
    let draft = Draft {
        method: "POST",
        url: endpoint.signed_url.as_deref(),
        id: &event.id,
        event_type: &args.event_type,
        headers: Headers::new(),
        body: event.body.clone(),
    };
    let scheme = endpoint.scheme;
    let signer = match args.forge {
        true => Ok(Signer::forger(scheme.clone(), random::bytes()?)),
        false => config.signer(endpoint, &Environment::capture()),
    };
    let (mut headers, by) = match signer {
        Ok(signer) => {
            let headers = signer.sign(&draft, event.at).map_err(wrong)?;
            (headers, signer.reference().map(str::to_owned))
        }
        Err(unreadable) => {
            by_receiver(args, config, &draft, event.at).await.map_err(|failure| {
                let message =
                    format!("{unreadable}; nor can the receiver sign: {}", failure.message);
                let help = "run it as a user that can read the secret, or start the receiver";
                Failure::new(failure.exit, message).help(help)
            })?
        }
    };
    headers.push("Content-Type", "application/json");
    let by = by.unwrap_or_else(|| "nothing: the provider signs nothing".to_owned());
    Ok(Signed { headers, by })
}

async fn by_receiver(
    args: &cli::Send,
    config: &Config,
    draft: &Draft<'_>,
    at: Timestamp,
) -> Result<(Headers, Option<String>), Failure> {
    let unsigned = Unsigned {
        source: args.source.clone(),
        method: draft.method.to_owned(),
        url: draft.url.map(str::to_owned),
        id: draft.id.to_owned(),
        event_type: draft.event_type.to_owned(),
        body: data_encoding::BASE64.encode(&draft.body),
        at,
    };
    match receiver(config, &Request::Sign(unsigned)).await? {
        Reply::Sign(signed) => {
            let mut headers = Headers::new();
            signed.headers.into_iter().for_each(|(name, value)| headers.push(name, value));
            let by = signed.reference.map(|from| format!("{from}, by the receiver"));
            Ok((headers, by))
        }
        other => Err(store::unexpected(&other)),
    }
}

/// Asks the running receiver itself: a stopped store knows nothing of this.
async fn receiver(config: &Config, request: &Request) -> Result<Reply, Failure> {
    let path = control::socket_path(&config.store().path);
    let mut client = control::connect(&path, config.limits()).await.map_err(|error| {
        Failure::new(
            Exit::Unavailable,
            format!("no receiver answers at {}: {error}", path.display()),
        )
        .help("start it: hooklatch serve")
    })?;
    client.call(request).await.map_err(store::call_failure)
}

struct Sent<'a> {
    address: SocketAddr,
    path: &'a str,
    /// Whether its handler answers: with any status, and the second time the same.
    replies: bool,
    signed: Signed,
    answers: Vec<Answer>,
}

impl Sent<'_> {
    /// Whether the answers are what a receiver that works gives.
    fn is_expected(&self, args: &cli::Send) -> bool {
        if args.forge || args.stale {
            return self.answers.iter().all(|answer| answer.status == 401);
        }
        let good = |answer: &Answer| match self.replies {
            true => answer.result.is_some(),
            false => answer.status == 200,
        };
        let known = |answer: &Answer| match self.replies {
            true => answer.result.as_deref() == Some("reused"),
            false => answer.body["status"] == "duplicate",
        };
        let last = self.answers.last().is_some_and(known);
        self.answers.iter().all(good) && (!args.duplicate || last)
    }

    /// What an answer says in a word, or why a request with a key has none of its handler's.
    fn word<'a>(&self, answer: &'a Answer) -> &'a str {
        let of = |field: &str| answer.body[field].as_str();
        match (self.replies, &answer.result) {
            (true, Some(result)) => result,
            _ => of("status").or_else(|| of("detail")).unwrap_or_default(),
        }
    }

    fn json(&self, args: &cli::Send, event: &Event, good: bool) -> Value {
        let answer = |answer: &Answer| json!({ "status": answer.status, "result": answer.result, "body": answer.body });
        json!({
            "source": args.source,
            "url": format!("http://{}{}", self.address, self.path),
            "event_id": event.id,
            "event_type": args.event_type,
            "signed_with": self.signed.by,
            "answers": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "as_expected": good,
            "next": self.next(args, event, good),
        })
    }

    fn print(&self, args: &cli::Send, event: &Event, good: bool) -> Result<(), Failure> {
        let (id, kind) = (escape(&event.id), escape(&args.event_type));
        output::line(format!("sent      {id} ({kind}) to http://{}{}", self.address, self.path))?;
        output::line(format!("signed    with {}", escape(&self.signed.by)))?;
        for answer in &self.answers {
            let word = escape(self.word(answer));
            output::line(format!("answered  {} {word}", answer.status))?;
        }
        output::line(match (good, args.forge || args.stale) {
            (true, true) => "as it must be: refused",
            (true, false) => "as expected",
            (false, true) => "NOT as expected: it must be refused with 401",
            (false, false) if self.replies => "NOT as expected: its handler must answer it",
            (false, false) => "NOT as expected: it must be answered 200",
        })?;
        output::line(format!("next      {}", self.next(args, event, good)))
    }

    /// What to look at now.
    fn next(&self, args: &cli::Send, event: &Event, good: bool) -> String {
        let config = config_argument(&args.file.config);
        let last = self.answers.last();
        let status = last.map_or(0, |answer| answer.status);
        // The receiver knows best: the id may be the body's digest.
        let told = last.filter(|_| !self.replies).and_then(|answer| answer.body["event"].as_str());
        let stored = told.unwrap_or(&event.id);
        let answered = last.is_some_and(|answer| answer.result.is_some());
        let stands = answered || self.replies && matches!(status, 409 | 502 | 504);
        let source = &args.source;
        match (status, good) {
            _ if stands => format!("hooklatch show {} --source {source}{config}", escape(stored)),
            (401, true) => format!("hooklatch events --rejected --source {source}{config}"),
            (401, false) => format!(
                "hooklatch events --rejected --source {source}{config} (hooklatch reload, if its secret has changed)"
            ),
            (404, _) => {
                format!("hooklatch reload{config}: the receiver does not know this path yet")
            }
            (503, _) => "the receiver's log says why it cannot store".to_owned(),
            _ => format!("hooklatch events --source {source}{config}"),
        }
    }
}

/// The option that names this configuration, where it is not the usual one.
pub(super) fn config_argument(config: &Path) -> String {
    match config == Path::new(cli::DEFAULT_CONFIG) {
        true => String::new(),
        false => format!(" --config {}", config.display()),
    }
}

fn nobody(
    args: &cli::Send,
    address: SocketAddr,
    error: &(dyn std::error::Error + Send + Sync),
) -> Failure {
    let config = config_argument(&args.file.config);
    Failure::new(Exit::Unavailable, format!("nobody answers at {address}: {error}"))
        .help(format!("start the receiver: hooklatch serve{config}"))
}

fn no_source(config: &Config, source: &Name) -> Failure {
    let failure = Failure::new(Exit::NotFound, format!("no such source: {source}"));
    match nearest(source.as_str(), config.source_names().map(Name::as_str)) {
        Some(meant) => failure.help(format!("did you mean {meant}?")),
        None => failure.help(format!("add it: hooklatch init --source {source}")),
    }
}

fn wrong(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}
