//! `hooklatch send`: makes a test delivery as the provider does, with the source's secret and over real
//! HTTP.
//!
//! It signs with the secret if it can read it; otherwise it asks the running receiver to sign. Then it
//! asks the receiver what the handlers did, and says whether that was expected.

mod handled;
mod public;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::admin::{Client, ListListeners, Operation, SignDelivery, socket_path};
use crate::cli;
use crate::clock::Clock;
use crate::config::{CannotSign, Config, Endpoint, Environment};
use crate::document::nearest;
use crate::exit::{Exit, Failure};
use crate::model::{EventId, EventType, Headers, Name, Timestamp, shell_word};
use crate::provider::Scheme;
use crate::store::EventDetail;
use crate::verify::{self, Draft, Signer};

use super::kit::provider::{self, Answer};
use super::output::{self, escape};
use super::runtime::block_on;
use super::{random, store};
use public::PublicUrl;

/// How much older than the tolerance a stale delivery is: more than a clock correction in between.
const STALE_BY: Duration = Duration::from_secs(60);

/// Makes the delivery, and prints the answers and what the handlers did. The exit code says whether that
/// was expected.
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
        let target = match &args.url {
            Some(url) => Target::Url(PublicUrl::parse(url, endpoint.path).map_err(wrong)?),
            None => Target::Receiver(address(args, &config).await?, endpoint.path),
        };
        let signed = sign(args, &config, &endpoint, &event).await?;
        let (mut answers, body) = (Vec::new(), event.body.clone());
        for _ in 0..if args.duplicate { 2 } else { 1 } {
            answers.push(target.post(args, &signed.headers, body.clone()).await?);
        }
        let Endpoint { path, replies, .. } = endpoint;
        let mut sent = Sent { target, path, replies, signed, answers, handled: None };
        let looks = !(args.no_wait || replies || args.forge || args.stale);
        if looks && sent.is_good(args) {
            let event = sent.stored(&event).parse().ok();
            sent.handled = Some(handled(args, &config, event, &body).await);
        }
        Ok::<_, Failure>(sent)
    })??;
    let verdict = sent.verdict(args, &config, &event);
    if args.format.json {
        output::json(&sent.json(args, &event, &verdict))?;
    } else {
        sent.print(args, &config, &event, &verdict)?;
    }
    Ok(if verdict.good { Exit::Ok } else { Exit::No })
}

/// Waits for the handlers of the stored event.
async fn handled(
    args: &cli::Send,
    config: &Config,
    event: Option<EventId>,
    body: &[u8],
) -> Result<EventDetail, Failure> {
    let unnamed = || Failure::new(Exit::Unavailable, "the answer does not name the event");
    let event = event.ok_or_else(unnamed)?;
    let client = connect(args, config).await?;
    handled::wait(&client, &args.source, &event, body, args.wait).await
}

/// The event to send, with the time to sign.
struct Event {
    id: String,
    body: Bytes,
    at: Timestamp,
}

fn event(args: &cli::Send, config: &Config, scheme: &Scheme) -> Result<Event, Failure> {
    let now = Clock::system().now();
    if EventType::from_raw(&args.event_type).raw().is_some() {
        return Err(wrong(format!("'{}' is not an event type", escape(&args.event_type))));
    }
    if args.forge && scheme.is_unsigned() {
        return Err(wrong(format!("provider {} signs nothing to forge", scheme.name())));
    }
    let at = match (args.stale, scheme.tolerance()) {
        (false, _) => now,
        (true, Some(tolerance)) => earlier(now, tolerance + STALE_BY),
        (true, None) => {
            let provider = scheme.name();
            return Err(wrong(format!(
                "signatures of provider {provider} carry no timestamp, so --stale cannot be tested"
            )));
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
    let in_body = verify::told(scheme, &body, &args.event_type);
    if let Some(lacks) = in_body.lacks {
        let (file, provider) = (file.display(), scheme.name());
        let message =
            format!("the body in {file} is not an event of {provider}: it has no {lacks}");
        return Err(wrong(message));
    }
    if in_body.event_type != args.event_type {
        let (file, kind) = (file.display(), escape(&in_body.event_type));
        let message = format!("the body in {file} has type {kind}, not {}", args.event_type);
        return Err(wrong(message));
    }
    if in_body.id_is_free {
        return Ok(Event { id: given.map_or_else(new_id, Ok)?, body, at });
    }
    let file = file.display();
    match (&in_body.id, given) {
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

/// The receiver's address. Only the receiver knows the address of a socket unit, or which free port it
/// took.
async fn address(args: &cli::Send, config: &Config) -> Result<SocketAddr, Failure> {
    let configured = config.server().listen;
    let mut address = match args.to {
        Some(given) => given,
        None => match receiver(args, config, &ListListeners {}).await {
            // It has one at least.
            Ok(known) => known.addresses.first().copied().unwrap_or(configured),
            Err(failure) if configured.port() == 0 => return Err(failure),
            // The receiver does not run, or does not answer this user.
            Err(_) => configured,
        },
    };
    // A client cannot connect to the unspecified address, which listens on every interface.
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
        Err(CannotSign::Empty(help)) => {
            let message = format!("the secret of source {} is empty", args.source);
            return Err(Failure::new(Exit::Config, message).help(help));
        }
        Err(CannotSign::Unreadable(unreadable)) => {
            by_receiver(args, config, &draft, event.at).await.map_err(|failure| {
                let message =
                    format!("{unreadable}; the receiver cannot sign either: {}", failure.message);
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
    let unsigned = SignDelivery {
        source: args.source.clone(),
        method: draft.method.to_owned(),
        url: draft.url.map(str::to_owned),
        id: draft.id.to_owned(),
        event_type: draft.event_type.to_owned(),
        body: data_encoding::BASE64.encode(&draft.body),
        at,
    };
    let signed = receiver(args, config, &unsigned).await?;
    let mut headers = Headers::new();
    signed.headers.into_iter().for_each(|(name, value)| headers.push(name, value));
    Ok((headers, signed.reference.map(|from| format!("{from}, by the receiver"))))
}

/// Asks the running receiver itself: a stopped store knows nothing of this.
async fn receiver<O: Operation>(
    args: &cli::Send,
    config: &Config,
    request: &O,
) -> Result<O::Reply, Failure> {
    connect(args, config).await?.call(request).await.map_err(store::call_failure)
}

async fn connect(args: &cli::Send, config: &Config) -> Result<Client, Failure> {
    let path = socket_path(&config.store().path);
    Client::connect(&path).await.map_err(|error| {
        let suffix = output::config_suffix(&args.file.config);
        store::no_receiver(&path, &error).help(format!("start it: hooklatch serve{suffix}"))
    })
}

/// The result of a test delivery.
struct Verdict {
    good: bool,
    text: String,
    /// The next command or step for the operator.
    next: String,
}

impl Verdict {
    fn new(good: bool, text: impl Into<String>, next: String) -> Self {
        Verdict { good, text: text.into(), next }
    }
}

/// The destination of a delivery.
enum Target<'a> {
    /// Directly to the receiver, at this path.
    Receiver(SocketAddr, &'a str),
    /// By the public URL, as the provider does.
    Url(PublicUrl),
}

impl Target<'_> {
    async fn post(
        &self,
        args: &cli::Send,
        headers: &Headers,
        body: Bytes,
    ) -> Result<Answer, Failure> {
        match self {
            Target::Receiver(address, path) => {
                let posted = provider::post(*address, path, headers, body).await;
                posted.map_err(|error| no_answer(args, *address, &*error))
            }
            Target::Url(url) => {
                let failed = |why| Failure::new(Exit::Unavailable, format!("{url}: {why}"));
                url.post(headers, body).await.map_err(failed)
            }
        }
    }
}

impl std::fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Receiver(address, path) => write!(f, "http://{address}{path}"),
            Target::Url(url) => url.fmt(f),
        }
    }
}

struct Sent<'a> {
    target: Target<'a>,
    path: &'a str,
    /// Whether the source's handler answers: with any status, and with the same answer the second time.
    replies: bool,
    signed: Signed,
    answers: Vec<Answer>,
    /// What the handlers did, or why that cannot be seen; `None` if it was not asked for.
    handled: Option<Result<EventDetail, Failure>>,
}

impl Sent<'_> {
    /// Whether the answers are those of a working receiver.
    fn is_good(&self, args: &cli::Send) -> bool {
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

    /// Whether the event was stored before, so that no handler ran for this delivery.
    fn came_before(&self) -> bool {
        let first = self.answers.first().filter(|_| !self.replies);
        first.is_some_and(|first| {
            first.body["status"] == "duplicate" && first.body["replayed"].is_null()
        })
    }

    /// Whether the last answer came from a server that is not a receiver.
    fn is_foreign(&self) -> bool {
        let last = self.answers.last();
        last.is_some_and(|last| last.result.is_none() && last.body["status"].is_null())
    }

    /// An answer's status in a word, or why a request with a key did not get its handler's answer.
    fn word<'a>(&self, answer: &'a Answer) -> &'a str {
        let of = |field: &str| answer.body[field].as_str();
        match (self.replies, &answer.result) {
            (true, Some(result)) => result,
            _ => of("status").or_else(|| of("detail")).unwrap_or_default(),
        }
    }

    fn json(&self, args: &cli::Send, event: &Event, verdict: &Verdict) -> Value {
        let answer = |answer: &Answer| json!({ "status": answer.status, "result": answer.result, "body": answer.body });
        json!({
            "source": args.source,
            "url": self.target.to_string(),
            "event_id": event.id,
            "event_type": args.event_type,
            "signed_with": self.signed.by,
            "answers": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "jobs": self.handled.as_ref().and_then(|seen| seen.as_ref().ok()).map(|seen| &seen.jobs),
            "as_expected": verdict.good,
            "verdict": verdict.text,
            "next": verdict.next,
        })
    }

    fn print(
        &self,
        args: &cli::Send,
        config: &Config,
        event: &Event,
        verdict: &Verdict,
    ) -> Result<(), Failure> {
        let (id, kind) = (escape(&event.id), escape(&args.event_type));
        output::fact("sent", format!("{id} ({kind}) to {}", self.target))?;
        output::fact("signed", format!("with {}", escape(&self.signed.by)))?;
        for answer in &self.answers {
            let word = escape(self.word(answer));
            output::fact("answered", format!("{} {word}", answer.status))?;
        }
        if let Some(Ok(seen)) = &self.handled {
            handled::print(seen, config)?;
        }
        output::line(&verdict.text)?;
        output::fact("next", &verdict.next)
    }

    fn verdict(&self, args: &cli::Send, config: &Config, event: &Event) -> Verdict {
        let suffix = output::config_suffix(&args.file.config);
        let good = self.is_good(args);
        let text = match (good, args.forge || args.stale) {
            (true, true) => "refused, as expected",
            (true, false) if self.came_before() => {
                "NOT as expected: this event came before, so nothing ran for this delivery"
            }
            (true, false) => match &self.handled {
                None => "as expected",
                Some(Ok(seen)) => return handled::verdict(seen, config, args.wait, &suffix),
                Some(Err(failure)) => {
                    let text = format!("NOT known what its handlers do: {}", failure.message);
                    let help = failure.help.clone();
                    let help = help.unwrap_or_else(|| "--no-wait looks at the answer only".into());
                    return Verdict::new(false, text, help);
                }
            },
            (false, true) => "NOT as expected: it must be refused with 401",
            (false, false) if self.replies => "NOT as expected: its handler must answer it",
            (false, false) => "NOT as expected: it must be answered 200",
        };
        Verdict::new(good && !self.came_before(), text, self.next(args, event, good, &suffix))
    }

    /// The event's id as the receiver answers it, because it may be the body's digest.
    fn stored<'s>(&'s self, event: &'s Event) -> &'s str {
        let last = self.answers.last().filter(|_| !self.replies);
        last.and_then(|answer| answer.body["event"].as_str()).unwrap_or(&event.id)
    }

    /// The operator's next step, chosen by the last answer.
    fn next(&self, args: &cli::Send, event: &Event, good: bool, config: &str) -> String {
        let last = self.answers.last();
        let status = last.map_or(0, |answer| answer.status);
        let answered = last.is_some_and(|answer| answer.result.is_some());
        let is_stored = answered || self.replies && matches!(status, 409 | 502 | 504);
        let source = &args.source;
        match (status, good) {
            _ if is_stored => {
                let stored = escape(&shell_word(self.stored(event)));
                format!("hooklatch show {stored} --source {source}{config}")
            }
            _ if matches!(self.target, Target::Url(_)) && self.is_foreign() => format!(
                "the receiver did not answer this: check that the proxy passes {} on to it",
                self.path
            ),
            (401, true) => format!("hooklatch events --rejected --source {source}{config}"),
            (401, false) => format!(
                "hooklatch events --rejected --source {source}{config} (hooklatch reload, if its secret has changed)"
            ),
            (404, _) => {
                format!("hooklatch reload{config}: the receiver does not know this path yet")
            }
            (413, _) => {
                let most = last.and_then(|answer| answer.body["limit_bytes"].as_u64());
                let most = most.map(|most| format!(", which is {} now", output::size(most)));
                let most = most.unwrap_or_default();
                format!("raise max_body of source {source}{most}, then hooklatch reload{config}")
            }
            (503, _) => "the receiver's log says why it cannot store".to_owned(),
            _ => format!("hooklatch events --source {source}{config}"),
        }
    }
}

fn no_answer(
    args: &cli::Send,
    address: SocketAddr,
    error: &(dyn std::error::Error + Send + Sync),
) -> Failure {
    let config = output::config_suffix(&args.file.config);
    Failure::new(Exit::Unavailable, format!("nothing answers at {address}: {error}"))
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
