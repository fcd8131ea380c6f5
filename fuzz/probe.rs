//! Entry points to internal parsers of outside input, for the fuzz targets.
//!
//! Only `fuzz/` and `tests/http/corpus.rs` may call it; the product does not. Must stay true: every
//! function passes bytes to the product's code and returns the result, and takes no decision of its
//! own, so that a fuzz target tests the product.

#![allow(missing_docs, reason = "hidden from the documentation; named after the code they call")]

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::http::Uri;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::admin::operation::{Method, Parameters, encode};
use crate::admin::routes::find;
use crate::cmd;
use crate::config::read_values;
use crate::document::Section;
use crate::handler::forward::answer;
use crate::http::chunks::{self, Chunks};
use crate::http::head::{Head, Took};
use crate::limits::{self, Limits};
use crate::model::{Digest, Headers, Timestamp, summed};
use crate::payload::walk::written;
use crate::payload::{Pointer, json_of};
use crate::provider::place::Place;
use crate::provider::template::Template;
use crate::runner::message::{ToReceiver, ToRunner};
use crate::runner::{ledger, wire};
use crate::values::{self, ValueRule};
use crate::verify::extract;

#[path = "probe/condition.rs"]
mod condition_probe;

pub use condition_probe::{condition, explained};

use condition_probe::{configured, with_event};

/// A message that was read: its header as the product writes it, and the body that followed.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub written: Vec<u8>,
    pub body: Vec<u8>,
}

/// The result of reading a connection: a message, `None` at its end, or an error's text.
pub type Read = Result<Option<Message>, String>;

/// Reads as the runner does, from a connection that delivers at most `step` bytes at a time.
pub fn runner_reads(bytes: &[u8], step: usize) -> Read {
    runner_frame::<ToRunner>(bytes, step, limits::TO_RUNNER_BYTES)
}

/// Reads a runner's message as the receiver does.
pub fn receiver_reads(bytes: &[u8], step: usize) -> Read {
    runner_frame::<ToReceiver>(bytes, step, limits::TO_RECEIVER_BYTES)
}

/// What the next runner makes of a ledger with these whole lines, each with the sum that it lacks, in words; and the
/// lines that it could read, written again without sums, with whether those were all.
pub fn ledger(bytes: &[u8]) -> (String, Vec<u8>, bool) {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let lines = bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let read: Vec<Option<ledger::Line>> =
        lines.clone().map(|line| serde_json::from_slice(line).ok()).collect();
    let all = read.iter().all(Option::is_some);
    let written = read.iter().flatten().flat_map(|line| {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        text
    });
    let given = lines.flat_map(|line| match std::str::from_utf8(line) {
        Ok(text) => summed::line(text).into_bytes(),
        Err(_) => [line, &b"\n"[..]].concat(),
    });
    let given: Vec<u8> = given.collect();
    (format!("{:?}", ledger::read(&given)), written.collect(), all)
}

/// The delay that a forward's endpoint asks for with the headers Retry-After and Date.
pub fn retry_after(delay: &[u8], date: Option<&[u8]>, now: Timestamp) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_bytes(delay).ok()?);
    if let Some(date) = date {
        headers.insert(header::DATE, HeaderValue::from_bytes(date).ok()?);
    }
    answer::retry_after(&headers, now)
}

/// The value at a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Absent,
    Text(String),
    Other,
    Twice,
}

/// The value at each pointer of a body, or of a form's field; `None` if that is not JSON. Texts that
/// are not pointers are left out.
pub fn facts(body: &[u8], form_field: Option<&str>, pointers: &[String]) -> Option<Vec<Fact>> {
    let pointers: Vec<Pointer> = pointers.iter().filter_map(|p| Pointer::parse(p).ok()).collect();
    let json = json_of(body, form_field)?;
    let found = written(&json, &pointers.iter().collect::<Vec<_>>())?;
    let fact = |raw: Result<Option<String>, _>| match raw {
        Ok(None) => Fact::Absent,
        Ok(Some(raw)) => extract::text(&raw).map_or(Fact::Other, Fact::Text),
        Err(_) => Fact::Twice,
    };
    Some(found.into_iter().map(fact).collect())
}

/// The text of a handler's value, written as in `values.V`, for a body; or why that is refused.
///
/// # Errors
/// The problems of a value that the configuration refuses.
pub fn value(written: &str, body: &[u8]) -> Result<Result<String, String>, Vec<String>> {
    let read = |section: &Section<'_>| Some(read_values(section));
    let rules = configured(&format!("values.V = {written}\n"), read)?;
    let rules: Vec<ValueRule> = rules.into_iter().map(|rule| rule.value).collect();
    with_event(body, |event| {
        let texts = values::evaluate(&rules, event).map_err(|refused| refused.to_string());
        Ok(texts.map(|texts| texts.into_iter().map(|(_, text)| text).collect()))
    })
}

/// One argument of a command, filled with the value `V`; `None` where that is refused.
///
/// # Errors
/// The configuration refuses the argument.
pub fn argument(written: &str, value: &str) -> Result<Option<String>, String> {
    let parsed = values::Template::parse(written, |name| name == "V");
    let templates = [parsed.map_err(|unknown| unknown.to_string())?];
    let values = [("V".to_owned(), value.to_owned())];
    Ok(values::arguments(&templates, &values).ok().map(|filled| filled.concat()))
}

/// The digest of a body without the volatile fields.
pub fn digest(body: &[u8], volatile: &[String]) -> Digest {
    extract::digest(body, volatile)
}

/// Parses a JSON pointer and prints it.
pub fn pointer(text: &str) -> Result<String, String> {
    Pointer::parse(text).map(|pointer| pointer.to_string())
}

/// Whether a text names a place in a request.
pub fn is_place(text: &str) -> bool {
    Place::parse(text).is_ok()
}

/// The signed content of a request; `value` returns the value of a part (`{id}`, `{body}`, …). `None` if
/// the template refuses the request, an `Err` if the text is not a template.
pub fn fill(template: &str, value: impl Fn(&str) -> Vec<u8>) -> Result<Option<Vec<u8>>, String> {
    let template = Template::parse(template)?;
    let parts = ["{timestamp}", "{id}", "{body}", "{method}", "{url}"];
    let named = template.headers().map(|name| format!("{{header:{name}}}"));
    let values: Vec<(String, Vec<u8>)> = parts
        .iter()
        .map(|part| (*part).to_owned())
        .chain(named)
        .map(|part| (part.clone(), value(&part)))
        .collect();
    let of = |part: &crate::provider::template::Part| {
        let name = part.to_string();
        values.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, value)| value).into()
    };
    Ok(template.fill(of).ok().map(|pieces| pieces.concat()))
}

/// The bounds on what an HTTP connection passes to the server at a time: heads and chunks.
#[derive(Debug)]
pub struct Guard {
    head: Head,
    chunks: Chunks,
}

impl Default for Guard {
    fn default() -> Self {
        let bytes = usize::try_from(Limits::default().head_bytes).unwrap_or(usize::MAX);
        Guard { head: Head::new(bytes), chunks: Chunks::default() }
    }
}

impl Guard {
    /// The length of the head that `bytes` begin with; `None` if it is incomplete.
    ///
    /// # Errors
    /// The head is larger than its bound.
    pub fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        self.chunks = Chunks::default();
        match self.head.scan(bytes) {
            Took::Part(_) => Ok(None),
            Took::Whole(bytes) => Ok(Some(bytes)),
            Took::OverBound => Err("over its bound"),
        }
    }

    /// The number of bytes of a chunked body that may be passed on, whether the body has ended, and
    /// whether it is well-formed.
    pub fn chunks(&mut self, bytes: &[u8]) -> (usize, bool, bool) {
        let handed = self.chunks.pass_on(bytes);
        (handed, self.chunks.is_over(), self.chunks != Chunks::Broken)
    }
}

/// The declared length of a request's body in bytes, as the HTTP server reads it; `None` without one.
pub fn declared(request: &impl actix_web::HttpMessage) -> Option<u64> {
    chunks::declared(request)
}

/// [`reread`] for the type of one route.
pub(crate) type Reread = fn(Parameters) -> Result<(String, Vec<u8>), String>;

/// Reads a request to the admin API as the receiver does. Returns the target and the body that the client writes for
/// it, or the text of the problem.
pub fn admin_request(method: &str, target: &str, body: &[u8]) -> Result<(String, Vec<u8>), String> {
    let uri: Uri = target.parse().map_err(|_| "not a target".to_owned())?;
    let (route, path) = find(method, uri.path()).map_err(|failure| failure.message)?;
    let query = uri.query().unwrap_or_default().to_owned();
    let parameters = Parameters { path, query, body: Bytes::copy_from_slice(body) };
    (route.reread)(parameters)
}

/// Reads the parameters of a request of type `T`, and writes them as the client does.
pub(crate) fn reread<T: Serialize + DeserializeOwned>(
    parameters: Parameters,
    method: Method,
    path: &str,
) -> Result<(String, Vec<u8>), String> {
    let operation: T = parameters.parse(method).map_err(|failure| failure.message)?;
    encode(&operation, method, path).map_err(|error| error.to_string())
}

/// Reads the headers of a captured request as `hooklatch verify --header` does.
pub fn captured_headers(lines: &[String]) -> Option<Headers> {
    cmd::verify::headers(lines).ok()
}

fn runner_frame<T: DeserializeOwned + Serialize + std::fmt::Debug>(
    bytes: &[u8],
    step: usize,
    header_bytes: u64,
) -> Read {
    let body_bytes = limits::RUNNER_BODY_BYTES;
    let bounds = wire::Bounds { header_bytes, body_bytes, wait: Duration::from_secs(60) };
    let mut from = Trickle { bytes, step: step.max(1) };
    let read = block_on(wire::read::<T>(&mut from, bounds)).map_err(|error| error.to_string())?;
    let Some((message, body)) = read else { return Ok(None) };
    let mut written = Vec::new();
    block_on(wire::write(&mut written, &message, &body, bounds)).map_err(|e| e.to_string())?;
    Ok(Some(Message { written, body }))
}

/// A connection that brings a few bytes at a time, and then ends.
struct Trickle<'b> {
    bytes: &'b [u8],
    step: usize,
}

impl AsyncRead for Trickle<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (now, later) =
            this.bytes.split_at(this.step.min(this.bytes.len()).min(out.remaining()));
        out.put_slice(now);
        this.bytes = later;
        Poll::Ready(Ok(()))
    }
}

/// Uses one runtime per thread, because creating one for each input would slow the fuzzer down.
fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    }
    RUNTIME.with_borrow_mut(|runtime| match runtime {
        Some(runtime) => runtime.block_on(future),
        empty => {
            let made = Builder::new_current_thread().enable_time().build();
            #[allow(clippy::expect_used, reason = "no runtime, no test")]
            empty.insert(made.expect("a runtime")).block_on(future)
        }
    })
}
