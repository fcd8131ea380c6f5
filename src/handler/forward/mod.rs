//! Forwards: one POST to a local endpoint per attempt.
//!
//! Two things are kept apart: what was certainly never sent (no connection came about: the attempt never
//! began) and what may have been (anything after: without an answer the effects are unknown). So nothing
//! is sent again by itself, over a [`kept`] connection either. Redirects are never followed.

pub(crate) mod answer;
mod kept;
mod request;
mod target;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::select;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Clock;
use crate::model::{Answer, Facts, Headers, Name, Outcome};
use crate::store::{Captured, Record};
use crate::verify::Resigner;

use super::{End, Report};

pub use kept::Kept;
pub use target::Target;

/// A configured forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSettings {
    /// Where it goes.
    pub target: Target,
    /// What signs the requests anew, by the source of their event: of the others they go on as they came.
    pub resigners: Arc<BTreeMap<Name, Resigner>>,
    /// How long the endpoint may take to answer, once connected.
    pub timeout: Duration,
    /// How long looking the host up and connecting may take.
    pub connect_timeout: Duration,
    /// Bytes recorded of the answer's body. No more is read, unless somebody waits for it.
    pub answer_bytes: usize,
    /// Somebody waits for the answer: whatever its status, it is one where its body came whole and has
    /// so many bytes at most.
    pub whole_answer_bytes: Option<usize>,
}

/// The port of `http:` where the target names none (RFC 9110, section 4.2.1).
const HTTP_PORT: u16 = 80;

impl ForwardSettings {
    /// Runs one attempt to its end. Never fails: whatever happens is an outcome.
    ///
    /// Once `end` is wished, what has no answer yet is given up. The future must be polled to its end:
    /// an attempt whose future is dropped is left to the next start's recovery. `clock` tells what a
    /// Retry-After date means where the answer has no date of its own. It has a connection of its own, or
    /// one of those `kept`.
    pub async fn run(
        &self,
        facts: &Facts,
        end: &End,
        clock: &Clock,
        kept: Option<&Kept>,
    ) -> Report {
        run(self, facts, end, clock, kept).await
    }

    /// Those of the delivery, as they came or signed anew. An `Err` says why they cannot be.
    fn headers<'f>(&self, facts: &'f Facts, clock: &Clock) -> Result<Cow<'f, Headers>, String> {
        match self.resigners.get(&facts.source) {
            None => Ok(Cow::Borrowed(&facts.headers)),
            Some(own) => own.sign(&facts.headers, &facts.body, clock.now()).map(Cow::Owned),
        }
    }
}

async fn run(
    settings: &ForwardSettings,
    facts: &Facts,
    end: &End,
    clock: &Clock,
    kept: Option<&Kept>,
) -> Report {
    let target = &settings.target;
    let reached = async {
        match kept.and_then(|kept| kept.take(target)) {
            Some(stream) => Ok(stream),
            None => connect(target).await,
        }
    };
    let connected = select! {
        connected = timeout(settings.connect_timeout, reached) => connected,
        _ = end.wished() => {
            return Report::new(Outcome::NotStarted, "not sent: the receiver stopped first");
        }
    };
    match connected {
        Ok(Ok(stream)) => {
            // Now, and not before the connection came about: an endpoint may take no signature that is seconds old.
            let headers = match settings.headers(facts, clock) {
                Ok(headers) => headers,
                Err(why) => {
                    let detail = format!("not sent: it cannot be signed: {why}");
                    return Report::new(Outcome::Failed, detail);
                }
            };
            let request = match request::build(target, facts, &headers) {
                Ok(request) => request,
                Err(error) => {
                    return Report::broken(format!("failed to write the request: {error}"));
                }
            };
            let (report, idle) = exchange(stream, request, settings, end, clock).await;
            if let (Some(kept), Some(stream)) = (kept, idle) {
                kept.put(target, stream);
            }
            report
        }
        Ok(Err(error)) => Report::broken(format!("failed to connect to {target}: {error}")),
        Err(_) => {
            let limit = humantime::format_duration(settings.connect_timeout);
            Report::broken(format!("failed to connect to {target} within {limit}"))
        }
    }
}

/// What both kinds of connection are.
trait Stream: AsyncRead + AsyncWrite + AsFd + Unpin + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

async fn connect(target: &Target) -> io::Result<Box<dyn Stream>> {
    match target {
        Target::Http { authority, .. } => {
            // An IPv6 address ends in its bracket, so a colon behind it begins a port.
            let has_port = authority.rfind(':') > authority.rfind(']');
            let stream = match has_port {
                true => TcpStream::connect(authority).await?,
                false => TcpStream::connect(format!("{authority}:{HTTP_PORT}")).await?,
            };
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Target::Unix { socket, .. } => Ok(Box::new(UnixStream::connect(socket).await?)),
    }
}

/// Sends the request and reads the answer. From here on no answer means that the effects are
/// unknown, also where the connection broke before the first byte: nobody can tell. Returns the stream too,
/// where the endpoint waits for another request on it.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    settings: &ForwardSettings,
    end: &End,
    clock: &Clock,
) -> (Report, Option<Box<dyn Stream>>) {
    let deadline = Instant::now() + settings.timeout;
    let (mut sender, mut connection) = match handshake(TokioIo::new(stream)).await {
        Ok(pair) => pair,
        Err(error) => return (unknown(in_full(&error)), None),
    };
    let (report, ended) = {
        let mut answer = pin!(async {
            let response = select! {
                biased;
                response = sender.send_request(request) => response,
                () = sleep_until(deadline) => {
                    let limit = humantime::format_duration(settings.timeout);
                    return unknown(format!("within {limit}"));
                }
                _ = end.wished() => return unknown("when the receiver stopped"),
            };
            let mut response = match response {
                Ok(response) => response,
                Err(error) => return unknown(in_full(&error)),
            };
            let mut kept = Captured::default();
            if let Some(most) = settings.whole_answer_bytes {
                if !answer::says_its_end(&response) {
                    let why = "it has neither a length nor chunks alone, so nothing says whether it is whole";
                    return answered(&response, kept, Err(why.to_owned()), settings.answer_bytes);
                }
                let read = select! {
                    read = keep_whole(response.body_mut(), most, &mut kept) => read,
                    () = sleep_until(deadline) => {
                        let limit = humantime::format_duration(settings.timeout);
                        Err(format!("its body did not end within {limit}"))
                    }
                    _ = end.wished() => Err("its body had not ended when the receiver stopped".to_owned()),
                };
                return answered(&response, kept, read, settings.answer_bytes);
            }
            // The status stands, however the rest of the answer fares.
            select! {
                () = keep(response.body_mut(), settings.answer_bytes, &mut kept) => {}
                () = sleep_until(deadline) => {}
                _ = end.wished() => {}
            }
            judge(&response, kept, clock)
        });
        select! {
            report = &mut answer => (report, false),
            // What the connection had read before it ended is still to be had.
            _ended = &mut connection => (answer.await, true),
        }
    };
    // What an attempt has given up on may still be answered, and nobody is to take that for his own.
    let is_answered = report.record.http_status.is_some();
    let idle = if ended || !is_answered { None } else { idle(&sender, connection).await };
    (report, idle)
}

/// The stream of a connection on which the request was sent and the answer came whole, and which both ends
/// leave open. Does not wait for what is not there.
async fn idle(
    sender: &SendRequest<Full<Bytes>>,
    mut connection: Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
) -> Option<Box<dyn Stream>> {
    let ended = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx).is_ready())).await;
    // It takes the next request only once it is done with this one.
    let is_idle = !ended && sender.is_ready();
    let parts = is_idle.then(|| connection.into_parts())?;
    parts.read_buf.is_empty().then(|| parts.io.into_inner())
}

/// Keeps the first `most` bytes of the answer and reads no further.
async fn keep(body: &mut Incoming, most: usize, kept: &mut Captured) {
    let declared = body.size_hint().exact();
    while kept.head.len() < most {
        let Some(Ok(frame)) = body.frame().await else { return };
        let Some(data) = frame.data_ref() else { continue };
        kept.total += data.len() as u64;
        kept.head.0.extend_from_slice(&data[..data.len().min(most - kept.head.len())]);
    }
    kept.total = declared.unwrap_or(kept.total);
}

/// Keeps all of the answer's body. An `Err` says, for people, why that is not to be had.
async fn keep_whole(body: &mut Incoming, most: usize, kept: &mut Captured) -> Result<(), String> {
    let over = || format!("its body has more than {most} bytes (limits.answer_whole_bytes)");
    if body.size_hint().lower() > most as u64 {
        return Err(over());
    }
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| format!("its body was cut short: {}", in_full(&error)))?;
        let Some(data) = frame.data_ref() else { continue };
        kept.total += data.len() as u64;
        if kept.total > most as u64 {
            return Err(over());
        }
        kept.head.0.extend_from_slice(data);
    }
    Ok(())
}

/// Somebody waits for the answer: any status is one, if the body was read whole. What was not has had
/// its effects all the same; where a caller waits for it nothing runs it again by itself.
fn answered(
    response: &Response<Incoming>,
    mut kept: Captured,
    read: Result<(), String>,
    recorded_bytes: usize,
) -> Report {
    let status = response.status().as_u16();
    let body = Bytes::copy_from_slice(&kept.head);
    kept.head.0.truncate(recorded_bytes);
    let headers = answer::headers(response.headers());
    let answer = read.and_then(|()| {
        Answer::new(status, &headers, body).ok_or_else(|| "it is not a final status".to_owned())
    });
    let (outcome, why) = match &answer {
        Ok(answer) if answer.is_error() => (Outcome::Failed, String::new()),
        Ok(_) => (Outcome::Succeeded, String::new()),
        Err(why) if response.status().is_success() => {
            (Outcome::Succeeded, format!(", and no answer: {why}"))
        }
        Err(why) => (Outcome::Unknown, format!(", and no answer: {why}")),
    };
    Report {
        record: Record {
            detail: format!("HTTP {status}{why}"),
            http_status: Some(status),
            stdout: kept,
            ..Record::default()
        },
        answer: answer.ok(),
        ..Report::new(outcome, "")
    }
}

fn judge(response: &Response<Incoming>, kept: Captured, clock: &Clock) -> Report {
    let status = response.status();
    let outcome = answer::outcome(status);
    let wish = (outcome == Outcome::Failed)
        .then(|| answer::retry_after(response.headers(), clock.now()))
        .flatten();
    Report {
        retry_after: wish,
        record: Record {
            detail: format!("HTTP {}", status.as_u16()),
            http_status: Some(status.as_u16()),
            stdout: kept,
            ..Record::default()
        },
        ..Report::new(outcome, "")
    }
}

fn unknown(how: impl Into<String>) -> Report {
    Report::new(Outcome::Unknown, format!("no answer after the request was sent: {}", how.into()))
}

/// An error with its causes.
fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
