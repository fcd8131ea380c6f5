//! The bounded stream under the listeners of the dashboard, the admin API and the metrics: the deliveries' own
//! ([`Connection`]), with one place for each request.
//!
//! A listener admits each client by its [`Door`], and passes each request through it. Must stay true: a head over its
//! bounds is answered 431 and never decoded; a connection has one request at a time; a head that does not come takes no
//! place that a request needs, nor a body that does not come one that a request without a body needs; and who has no place
//! yet is closed first where connections are scarce.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_http::error::DispatchError;
use actix_http::{Request, Response};
use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::Payload;
use actix_web::http::ConnectionType;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::{Bounds, Connection, Gate};
use super::open::Open;
use super::unread::UnreadBody;

/// Clients beyond the connections that wait for one to be closed; the others wait in the kernel's queue.
const WAITING: usize = 64;

/// An answer goes to actix in parts of this size, because actix copies what it gets: as much as it buffers anyway.
const PART_BYTES: usize = 32 * 1024;

/// The body of an answer 431, as the deliveries' listener has it.
const OVER_BOUND: &str = r#"{"status":"head_too_large"}"#;

/// What the clients of some listeners share.
#[derive(Clone)]
pub(crate) struct Door {
    open: Arc<Open>,
    /// The places of requests that are being answered, and of those that bring a body, which may be slow.
    places: Arc<Semaphore>,
    places_with_body: Arc<Semaphore>,
    bounds: Bounds,
    connections: usize,
    requests: usize,
}

impl Door {
    /// So many requests are answered at once, and half as many that bring a body.
    pub(crate) fn new(connections: usize, requests: usize, bounds: Bounds) -> Self {
        Door {
            open: Open::new(connections),
            places: Arc::new(Semaphore::new(requests)),
            places_with_body: Arc::new(Semaphore::new(requests / 2)),
            bounds,
            connections,
            requests,
        }
    }

    /// For other clients, who share all but the places of requests that bring a body.
    pub(crate) fn beside(&self) -> Self {
        let places_with_body = Arc::new(Semaphore::new(self.requests / 2));
        Door { places_with_body, ..self.clone() }
    }

    /// The most connections that are accepted: those that are served, and those that wait.
    pub(crate) fn accepted(&self) -> usize {
        self.connections + WAITING
    }

    /// Admits a client. If all connections are taken, the most stalled one is closed.
    pub(crate) async fn admit<S>(self, stream: S) -> Result<Connection<S>, DispatchError> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let counted = self.open.enter().await.ok_or_else(refused)?;
        Ok(Connection::new(stream, counted, self.bounds))
    }

    /// Begins a request of a connection that was admitted. Without the request, its head was over its bounds.
    pub(crate) fn begin(&self, mut request: Request) -> (Turn, Option<Request>) {
        let Some(gate) = request.conn_data::<Rc<Gate>>().cloned() else {
            // Cannot happen: every connection has one.
            return (Turn { places: Arc::clone(&self.places), unread: None }, None);
        };
        gate.begin(&request);
        let is_over_bound = gate.is_over_bound();
        let has_body = gate.has_rest();
        let places = if has_body { &self.places_with_body } else { &self.places };
        let places = Arc::clone(places);
        let unread = UnreadBody::new(request.take_payload(), gate);
        // The HTTP server reads the body of a request for a WebSocket to the connection's end.
        let body = if has_body { unread.reader() } else { Payload::None };
        let request = (!is_over_bound).then(|| request.replace_payload(body).0);
        (Turn { places, unread: Some(unread) }, request)
    }
}

/// A request that has begun.
pub(crate) struct Turn {
    places: Arc<Semaphore>,
    unread: Option<UnreadBody>,
}

impl Turn {
    /// Waits for a place, and for the answer; without one the head was over its bounds.
    pub(crate) async fn end<R, E>(
        self,
        answering: Option<impl Future<Output = Result<R, E>>>,
    ) -> Result<Response<BoxBody>, E>
    where
        R: Into<Response<BoxBody>>,
    {
        let Some(answering) = answering else {
            let mut answer = HttpResponse::RequestHeaderFieldsTooLarge();
            let answer = answer.content_type("application/json").body(OVER_BOUND);
            return Ok(self.send(answer.into(), None));
        };
        let gate = self.unread.as_ref().map(UnreadBody::gate);
        let evicted = poll_fn(|cx| gate.map_or(Poll::Pending, |gate| gate.poll_evicted(cx)));
        let place = tokio::select! {
            biased;
            // It is never closed.
            place = Arc::clone(&self.places).acquire_owned() => place.ok(),
            () = evicted => {
                // For another connection, which needs its room.
                return Ok(self.send(HttpResponse::ServiceUnavailable().finish().into(), None));
            }
        };
        if let Some(gate) = gate {
            gate.keep();
        }
        let response = answering.await?;
        Ok(self.send(response.into(), place))
    }

    fn send(
        self,
        response: Response<BoxBody>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Response<BoxBody> {
        let close = self.unread.as_ref().is_none_or(|unread| unread.gate().has_rest());
        let mut response = response.map_body(|_, body| {
            let part = Bytes::new();
            BoxBody::new(Sent { part, body, _place: place, _unread: self.unread })
        });
        if close {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        response
    }
}

/// An answer that keeps its place and its request's payload until it is sent.
struct Sent {
    /// Bytes of the body that are not passed on yet.
    part: Bytes,
    body: BoxBody,
    _place: Option<OwnedSemaphorePermit>,
    _unread: Option<UnreadBody>,
}

impl MessageBody for Sent {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if this.part.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_next(cx)) {
                Some(Ok(part)) => this.part = part,
                end => return Poll::Ready(end),
            }
        }
        let bytes = this.part.len().min(PART_BYTES);
        Poll::Ready(Some(Ok(this.part.split_to(bytes))))
    }
}
