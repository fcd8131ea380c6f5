//! Every route of the API: the one table that the router, both sockets and the reference go by.

use std::any::type_name;
use std::io;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use super::backup::GetBackup;
use super::budget::{self, Paid};
use super::failure::{Failure, FailureKind};
use super::listener_info::SignDelivery;
use super::operation::{Context, Effect, Method, Operation, Parameters, parameter};
use super::operations::events::{FollowEvents, GetBody, ReplayEvent, ShortenIds, ShowEvent};
use super::operations::handlers::{ListHandlers, PauseHandler, ResumeHandler};
use super::operations::jobs::{
    CancelJob, DropJob, ListStuck, ReadOutput, ReplayJob, ResolveJob, ShowJob,
};
use super::operations::quarantine::{AcceptQuarantine, DropQuarantine, VerifyQuarantine};
use super::operations::receiver::{
    AwaitSecret, GetChanges, GetInfo, GetStatus, GetTraffic, ListListeners, ListSecrets, Reload,
};
use super::stream::{ByteStream, StreamOperation, start};
use crate::limits;
use crate::panics::contain;
use crate::store::{
    AuditFilter, Backfill, EventFilter, IdQuery, JobBatch, JobFilter, JobSelection, PayloadCheck,
    QuarantineFilter,
};

/// A route of the API.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub effect: Effect,
    /// The name of the type of its parameters.
    pub request: fn() -> &'static str,
    /// The name of the type of its answer; none where that comes in parts.
    pub reply: Option<fn() -> &'static str>,
    pub max_body_bytes: usize,
    pub(super) answer: fn(Context, Parameters) -> LocalBoxFuture<'static, Result<Answer, Failure>>,
    #[cfg(debug_assertions)]
    pub(crate) reread: crate::probe::Reread,
}

/// The answer to a request that was carried out.
pub(super) enum Answer {
    Json(Vec<u8>, Paid),
    Stream { content_type: &'static str, is_endless: bool, parts: ByteStream },
}

/// All routes, in the order of the reference. A literal segment stands before a parameter in its place.
pub const ROUTES: &[Route] = &[
    route::<GetInfo>(),
    route::<GetStatus>(),
    route::<GetChanges>(),
    route::<GetTraffic>(),
    route::<ListListeners>(),
    route::<ListSecrets>(),
    route::<EventFilter>(),
    stream::<FollowEvents>(),
    route::<ShowEvent>(),
    stream::<GetBody>(),
    route::<ReplayEvent>(),
    route::<IdQuery>(),
    route::<ShortenIds>(),
    route::<JobFilter>(),
    route::<ListStuck>(),
    route::<JobSelection>(),
    route::<JobBatch>(),
    route::<Backfill>(),
    route::<ShowJob>(),
    route::<ReadOutput>(),
    route::<ReplayJob>(),
    route::<ResolveJob>(),
    route::<CancelJob>(),
    route::<DropJob>(),
    route::<ListHandlers>(),
    route::<PauseHandler>(),
    route::<ResumeHandler>(),
    route::<QuarantineFilter>(),
    route::<VerifyQuarantine>(),
    route::<AcceptQuarantine>(),
    route::<DropQuarantine>(),
    route::<AuditFilter>(),
    route::<PayloadCheck>(),
    route::<SignDelivery>(),
    route::<Reload>(),
    route::<AwaitSecret>(),
    stream::<GetBackup>(),
];

const fn route<O: Operation>() -> Route {
    Route {
        method: O::METHOD,
        path: O::PATH,
        effect: O::EFFECT,
        request: type_name::<O>,
        reply: Some(type_name::<O::Reply>),
        max_body_bytes: match (O::METHOD, O::EFFECT) {
            (Method::Get, _) => limits::ADMIN_GET_BYTES,
            (Method::Post, Effect::Changes) => O::MAX_BODY_BYTES,
            (Method::Post, Effect::Reads | Effect::Waits) => limits::ADMIN_READING_BYTES,
        },
        answer: |context, parameters| Box::pin(answer::<O>(context, parameters)),
        #[cfg(debug_assertions)]
        reread: |parameters| crate::probe::reread::<O>(parameters, O::METHOD, O::PATH),
    }
}

const fn stream<O: StreamOperation>() -> Route {
    Route {
        method: Method::Get,
        path: O::PATH,
        effect: O::EFFECT,
        request: type_name::<O>,
        reply: None,
        max_body_bytes: 0,
        answer: |context, parameters| {
            Box::pin(async move {
                let operation: O = parameters.parse(Method::Get)?;
                let parts = start(operation, &context).await?;
                let (content_type, is_endless) = (O::CONTENT_TYPE, O::IS_ENDLESS);
                Ok(Answer::Stream { content_type, is_endless, parts })
            })
        },
        #[cfg(debug_assertions)]
        reread: |parameters| crate::probe::reread::<O>(parameters, Method::Get, O::PATH),
    }
}

/// What may make more than a mebibyte: an event has bodies and outputs, a check reads bodies, and a listing has up to
/// `list_count` rows, of which one of the audit list has up to 10 KiB.
const LARGE: &[&str] = &[
    ShowEvent::PATH,
    PayloadCheck::PATH,
    EventFilter::PATH,
    JobFilter::PATH,
    ListStuck::PATH,
    QuarantineFilter::PATH,
    AuditFilter::PATH,
];

async fn answer<O: Operation>(context: Context, parameters: Parameters) -> Result<Answer, Failure> {
    if !LARGE.contains(&O::PATH) {
        let text = made::<O>(&context, parameters).await?;
        let paid = budget::pay(text.len() as u64).await?;
        return Ok(Answer::Json(text, paid));
    }
    let mut paid = budget::pay(0).await?;
    loop {
        let making = budget::make().await?;
        let text = made::<O>(&context, parameters.clone()).await?;
        let bytes = text.len() as u64;
        if !paid.covers(bytes) {
            let Some(now) = budget::pay_now(bytes) else {
                // Others may make theirs while it waits. It changes nothing, and is made again.
                drop((text, making, paid));
                paid = budget::pay(bytes).await?;
                continue;
            };
            paid = now;
        }
        return Ok(Answer::Json(text, paid));
    }
}

/// The answer in JSON.
async fn made<O: Operation>(context: &Context, parameters: Parameters) -> Result<Vec<u8>, Failure> {
    let operation: O = parameters.parse(O::METHOD)?;
    let reply = operation.perform(context).await?;
    // It may be large, and this thread serves others.
    let text = tokio::task::spawn_blocking(move || contain(|| write(&reply))).await;
    text.unwrap_or_else(|error| Err(Failure::unavailable(error)))
}

fn write(reply: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut text = Text(Vec::new());
    serde_json::to_writer(&mut text, reply).map_err(Failure::unavailable)?;
    Ok(text.0)
}

/// An answer that is being written, and no longer than it may be.
struct Text(Vec<u8>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = limits::ADMIN_ANSWER_BYTES;
        if self.0.len() + bytes.len() > most {
            let message = format!("the answer has more than {most} bytes (ask for less)");
            return Err(io::Error::other(message));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The path parameters of a request: name and text, still percent-encoded.
pub(super) type PathParameters = Vec<(&'static str, String)>;

/// The route of a request.
pub(crate) fn find(method: &str, path: &str) -> Result<(&'static Route, PathParameters), Failure> {
    let at_path = || ROUTES.iter().filter_map(|route| Some((route, matches(route.path, path)?)));
    if let Some(found) = at_path().find(|(route, _)| route.method.as_str() == method) {
        return Ok(found);
    }
    if let Some((other, _)) = at_path().next() {
        let message = format!("use {}", other.method.as_str());
        return Err(Failure::new(FailureKind::WrongMethod, message));
    }
    let version = env!("CARGO_PKG_VERSION");
    let message = format!(
        "the receiver has version {version}, which has no such route (a command of another version needs a restart of the receiver)"
    );
    Err(Failure::new(FailureKind::NoRoute, message))
}

fn matches(pattern: &'static str, path: &str) -> Option<PathParameters> {
    if pattern.split('/').count() != path.split('/').count() {
        return None;
    }
    let mut parameters = Vec::new();
    for (wanted, given) in pattern.split('/').zip(path.split('/')) {
        match parameter(wanted) {
            Some(name) if !given.is_empty() => parameters.push((name, given.to_owned())),
            _ if wanted == given => {}
            _ => return None,
        }
    }
    Some(parameters)
}

/// The methods of the routes at a path, as an `Allow` header has them.
pub(super) fn allowed(path: &str) -> String {
    let at_path = ROUTES.iter().filter(|route| matches(route.path, path).is_some());
    at_path.map(|route| route.method.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use futures_util::future::join_all;

    use super::*;
    use crate::clock::Clock;
    use crate::limits::Limits;
    use crate::store::{Settings, Store};

    async fn ask(store: &Store, path: &str) -> Result<(), Failure> {
        let context = Context { store: store.admin.clone(), receiver: None };
        let (route, path) = find("GET", path).unwrap();
        let (query, body) = (String::new(), Bytes::new());
        (route.answer)(context, Parameters { path, query, body }).await.map(|_| ())
    }

    #[tokio::test]
    async fn what_may_be_large_waits_for_another_and_all_else_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { disk_floor_bytes: 0, ..Limits::default() };
        let settings = Settings { path: dir.path().join("t.db"), limits };
        let store = Store::open(&settings, Clock::system()).unwrap();
        let making = budget::make().await.unwrap();
        for refused in join_all(LARGE.iter().map(|path| ask(&store, path))).await {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("ask again"), "{why}");
        }
        for path in ["/v1/info", "/v1/status", "/v1/handlers"] {
            ask(&store, path).await.unwrap();
        }
        drop(making);
        for path in LARGE.iter().filter(|path| **path != ShowEvent::PATH) {
            ask(&store, path).await.unwrap();
        }
    }
}
