//! Forwards: one POST to a local endpoint per attempt, over a connection that serves this attempt alone.
//!
//! What must stay true:
//!
//! - A request that was certainly never sent (no connection was made) is an attempt that never started. Once
//!   there is a connection, an attempt without an answer has unknown effects.
//! - Nothing is sent twice, and redirects are never followed.
//! - The connection ends with the attempt: an endpoint that has answered early, or whose answer is too long,
//!   is not sent the rest of the request.

pub(crate) mod answer;
mod request;
mod target;
#[cfg(test)]
mod tests;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::iter::successors;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::select;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Clock;
use crate::model::{Answer, Facts, Headers, Name, Outcome};
use crate::store::OutputExcerpt;
use crate::verify::Signer;

use super::{Cancellation, Report};
use request::Filled;
use target::Server;

pub use request::{is_free_header, is_header_text};
pub use target::Target;
pub use values::RequestValues;

/// A configured forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSettings {
    pub target: Target,
    /// Signers of the requests, by the source of their event. Requests of other sources keep their signature.
    pub resigners: Arc<BTreeMap<Name, Signer>>,
    /// How long the endpoint may take to answer, once connected.
    pub timeout: Duration,
    /// How long the look-up of the host and the connecting may take.
    pub connect_timeout: Duration,
    /// Bytes recorded of the answer's body. No more is read, unless a caller waits for the answer.
    pub answer_bytes: usize,
    /// Set if a client waits for the answer: the largest body that it may have. Any status is an answer then, if its
    /// body is complete.
    pub whole_answer_bytes: Option<usize>,
    /// What it makes of each event, unless that is the request as it came.
    pub request: Option<Arc<RequestValues>>,
}

/// The port of `http:` if the target names none (RFC 9110, section 4.2.1).
const HTTP_PORT: u16 = 80;

impl ForwardSettings {
    /// Runs one attempt to its end. Never fails: every error is an outcome.
    ///
    /// Cancelling `stop` ends the wait for an answer. The future must be polled to its end: an attempt whose
    /// future is dropped is left to the recovery of the next start. `clock` gives the time of signatures, and
    /// of the answer if that has no Date.
    pub async fn run(&self, facts: &Facts, stop: &Cancellation, clock: &Clock) -> Report {
        let target = &self.target;
        let (facts, filled) = match self.fill(facts).await {
            Ok(filled) => filled,
            Err(why) => return Report::value_refused(why),
        };
        let facts = &*facts;
        let connected = select! {
            connected = timeout(self.connect_timeout, connect(target)) => connected,
            _ = stop.cancelled() => {
                return Report::new(Outcome::NotStarted, "not sent: the receiver stopped first");
            }
        };
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Report::broken(format!("failed to connect to {target}: {error}"));
            }
            Err(_) => {
                let limit = humantime::format_duration(self.connect_timeout);
                return Report::broken(format!("failed to connect to {target} within {limit}"));
            }
        };
        // Signed after connecting, because an endpoint may refuse a signature that is some seconds old.
        let headers = match self.headers(facts, clock) {
            Ok(headers) => headers,
            Err(why) => {
                let detail = format!("not sent: it cannot be signed: {why}");
                return Report::new(Outcome::Failed, detail);
            }
        };
        let request = match request::build(target, facts, &headers, filled.as_ref()) {
            Ok(request) => request,
            Err(error) => return Report::broken(format!("failed to write the request: {error}")),
        };
        self.exchange(stream, request, stop, clock).await
    }

    /// The facts with the body that is sent, and what else the event's values change. An `Err` is for the operator.
    async fn fill<'f>(&self, facts: &'f Facts) -> Result<(Cow<'f, Facts>, Option<Filled>), String> {
        let Some(request) = self.request.clone() else { return Ok((Cow::Borrowed(facts), None)) };
        let own = facts.clone();
        // A large body takes a while.
        let filled = spawn_blocking(move || request.fill(&own)).await;
        let filled = filled.map_err(|panicked| panicked.to_string())?;
        let filled = filled.map_err(|refused| refused.to_string())?;
        let facts = match &filled.body {
            Some(body) => Cow::Owned(Facts { body: body.clone(), ..facts.clone() }),
            None => Cow::Borrowed(facts),
        };
        Ok((facts, Some(filled)))
    }

    /// The delivery's headers, signed again where the source has a signer. An `Err` says why they cannot be.
    fn headers<'f>(&self, facts: &'f Facts, clock: &Clock) -> Result<Cow<'f, Headers>, String> {
        match self.resigners.get(&facts.source) {
            None => Ok(Cow::Borrowed(&facts.headers)),
            Some(own) => own.resign(&facts.headers, &facts.body, clock.now()).map(Cow::Owned),
        }
    }

    /// Sends the request and reads the answer. From here on an attempt without an answer has unknown effects,
    /// even if the connection was lost before the first byte was sent: the sender cannot know.
    async fn exchange(
        &self,
        stream: Box<dyn Stream>,
        request: Request<Full<Bytes>>,
        stop: &Cancellation,
        clock: &Clock,
    ) -> Report {
        let deadline = Instant::now() + self.timeout;
        let (sender, connection) = match handshake(TokioIo::new(stream)).await {
            Ok(pair) => pair,
            Err(error) => return unknown(in_full(&error)),
        };
        let mut report = pin!(self.answer(sender, request, deadline, stop, clock));
        select! {
            report = &mut report => report,
            // The data that the connection read before its end must still be taken from it.
            _closed = connection => report.await,
        }
    }

    async fn answer(
        &self,
        mut sender: SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
        deadline: Instant,
        stop: &Cancellation,
        clock: &Clock,
    ) -> Report {
        let within = format!("within {}", humantime::format_duration(self.timeout));
        let sent = select! {
            biased;
            sent = sender.send_request(request) => sent,
            () = sleep_until(deadline) => return unknown(within),
            _ = stop.cancelled() => return unknown("when the receiver stopped"),
        };
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return unknown(in_full(&error)),
        };
        let mut body = OutputExcerpt::default();
        let Some(most) = self.whole_answer_bytes else {
            // The status counts, even if the rest of the answer does not arrive.
            select! {
                () = read_head(response.body_mut(), self.answer_bytes, &mut body) => {}
                () = sleep_until(deadline) => {}
                _ = stop.cancelled() => {}
            }
            return judge(&response, body, clock);
        };
        let read = if answer::says_its_end(&response) {
            select! {
                read = read_whole(response.body_mut(), most, &mut body) => read,
                () = sleep_until(deadline) => Err(format!("its body did not end {within}")),
                _ = stop.cancelled() => Err("its body had not ended when the receiver stopped".to_owned()),
            }
        } else {
            Err("it has neither a length nor chunks alone, so nothing says whether it is whole"
                .to_owned())
        };
        judge_whole(&response, body, read, self.answer_bytes)
    }
}

/// A TCP or Unix connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

async fn connect(target: &Target) -> io::Result<Box<dyn Stream>> {
    match &target.server {
        Server::Http(authority) => {
            // An IPv6 address ends in its bracket, so a colon behind it begins a port.
            let has_port = authority.rfind(':') > authority.rfind(']');
            let stream = if has_port {
                TcpStream::connect(authority).await?
            } else {
                TcpStream::connect(format!("{authority}:{HTTP_PORT}")).await?
            };
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Server::Unix(socket) => Ok(Box::new(UnixStream::connect(socket).await?)),
    }
}

/// Reads the first `most` bytes of the answer's body and no further.
async fn read_head(body: &mut Incoming, most: usize, kept: &mut OutputExcerpt) {
    let declared = body.size_hint().exact();
    let mut pieces = body.into_data_stream();
    while kept.head.len() < most {
        let Some(Ok(data)) = pieces.next().await else { return };
        kept.total += data.len() as u64;
        kept.head.0.extend_from_slice(&data[..data.len().min(most - kept.head.len())]);
    }
    kept.total = declared.unwrap_or(kept.total);
}

/// Reads the whole body of the answer. An `Err` says, for the operator, why that failed.
async fn read_whole(
    body: &mut Incoming,
    most: usize,
    kept: &mut OutputExcerpt,
) -> Result<(), String> {
    let over = || format!("its body has more than {most} bytes (limits.answer_whole_bytes)");
    if body.size_hint().lower() > most as u64 {
        return Err(over());
    }
    let mut pieces = body.into_data_stream();
    while let Some(data) = pieces.next().await {
        let data = data.map_err(|error| format!("its body was cut short: {}", in_full(&error)))?;
        kept.total += data.len() as u64;
        if kept.total > most as u64 {
            return Err(over());
        }
        kept.head.0.extend_from_slice(&data);
    }
    Ok(())
}

/// The report of an answer that no client waits for: its status decides.
fn judge(response: &Response<Incoming>, kept: OutputExcerpt, clock: &Clock) -> Report {
    let outcome = answer::outcome(response.status());
    let mut report = answered(outcome, response, "", kept);
    if outcome == Outcome::Failed {
        report.retry_after = answer::retry_after(response.headers(), clock.now());
    }
    report
}

/// The report of an answer that a client waits for: any status is one, if the body was read completely. A request
/// with an incomplete answer has had its effects, and does not run again by itself.
fn judge_whole(
    response: &Response<Incoming>,
    mut kept: OutputExcerpt,
    read: Result<(), String>,
    recorded_bytes: usize,
) -> Report {
    let body = Bytes::copy_from_slice(&kept.head);
    kept.head.0.truncate(recorded_bytes);
    let headers = answer::headers(response.headers());
    let answer = read.and_then(|()| {
        let answer = Answer::new(response.status().as_u16(), &headers, body);
        answer.ok_or_else(|| "it is not a final status".to_owned())
    });
    match answer {
        Ok(answer) => {
            let outcome = if answer.is_error() { Outcome::Failed } else { Outcome::Succeeded };
            Report { answer: Some(answer), ..answered(outcome, response, "", kept) }
        }
        Err(why) => {
            let is_success = response.status().is_success();
            let outcome = if is_success { Outcome::Succeeded } else { Outcome::Unknown };
            answered(outcome, response, &format!(", and no answer: {why}"), kept)
        }
    }
}

fn answered(
    outcome: Outcome,
    response: &Response<Incoming>,
    why: &str,
    stdout: OutputExcerpt,
) -> Report {
    let status = response.status().as_u16();
    let mut report = Report::new(outcome, format!("HTTP {status}{why}"));
    report.record.http_status = Some(status);
    report.record.stdout = stdout;
    report
}

fn unknown(how: impl Into<String>) -> Report {
    Report::new(Outcome::Unknown, format!("no answer after the request was sent: {}", how.into()))
}

/// An error with its causes.
fn in_full(error: &(dyn Error + 'static)) -> String {
    let errors = successors(Some(error), |&error| error.source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
