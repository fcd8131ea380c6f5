//! The receiver's end of the API: two Unix sockets, served by one thread.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpMessage, HttpService, Request};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactoryExt, apply_fn_factory, fn_service, map_config,
};
use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody, to_bytes_limited};
use actix_web::dev::{AppConfig, Server as Workers, ServerHandle, ServiceRequest, ServiceResponse};
use actix_web::http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use actix_web::{App, HttpResponse};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tracing::{debug, info};

use super::budget::{self, Paid, Permit};
use super::by;
use super::failure::{Failure, FailureKind};
use super::operation::{Context, Effect, Parameters};
use super::receiver::ReceiverState;
use super::routes::{self, Answer};
use super::socket::{ListenError, bind, reading_socket_path, socket_path};
use super::stream::ByteStream;
use crate::http::{Bounds, Connection, Door};
use crate::limits;
use crate::panics::contained;
use crate::store::Admin;

/// How long a connection may be idle, and how long a request's head may take. The commands open a connection for each
/// request.
const IDLE: Duration = Duration::from_secs(5);

/// How long a closed connection's client may take to close its end; the server's timers count whole seconds.
const DISCONNECT: Duration = Duration::from_secs(1);

/// The bounds of a connection. A client may close its sending end, as `socat` does, and read its answer.
const BOUNDS: Bounds = Bounds {
    head_bytes: limits::HEAD_BYTES,
    head_time: IDLE,
    ends_with_client: false,
    are_deliveries: false,
};

/// A connection, which is closed when its reader takes nothing for [`limits::ADMIN_WAIT`].
type Bounded = Connection<Pin<Box<TimeoutStream<UnixStream>>>>;

/// What both sockets serve.
#[derive(Clone)]
struct Served {
    context: Context,
    closing: watch::Receiver<bool>,
    /// A place for each stream, and for each request that waits for a change.
    streams: Arc<Semaphore>,
    /// Whether this socket serves the reading routes alone.
    reads_only: bool,
}

/// The running API. Dropping it ends it, and leaves the dead sockets there.
#[derive(Debug)]
pub struct Listener {
    paths: [PathBuf; 2],
    closing: watch::Sender<bool>,
    handle: ServerHandle,
    task: JoinSet<io::Result<()>>,
}

/// Serves the store at `database`, and what its receiver knows, until [`Listener::stop`]. The caller holds
/// the store's lock; sockets left there by a dead receiver are replaced. To be called inside a tokio runtime.
pub fn listen(
    database: &Path,
    store: Admin,
    receiver: ReceiverState,
) -> Result<Listener, ListenError> {
    let (closing, closed) = watch::channel(false);
    let streams = Arc::new(Semaphore::new(limits::ADMIN_STREAMS));
    let context = Context { store, receiver: Some(receiver) };
    let served = Served { context, closing: closed, streams, reads_only: false };
    let paths = [socket_path(database), reading_socket_path(database)];
    let door = Door::new(limits::OPERATOR_CONNECTIONS, limits::ADMIN_REQUESTS, BOUNDS);
    let mut server = Workers::build()
        .workers(1)
        .disable_signals()
        .max_concurrent_connections(door.accepted())
        .shutdown_timeout(limits::ADMIN_WAIT.as_secs());
    for (path, reads_only) in paths.iter().zip([false, true]) {
        let socket = bind(path, 0o600)?;
        let served = Served { reads_only, ..served.clone() };
        let (door, stopping) = (door.beside(), server.graceful_shutdown_signal());
        let serving = server.listen_uds(path.display().to_string(), socket, move || {
            let (served, stopping) = (served.clone(), stopping.clone());
            let (door, turns) = (door.clone(), door.clone());
            let app = App::new().default_service(fn_service(move |request| {
                let answered = answer(served.clone(), request);
                async { Ok::<_, actix_web::Error>(answered.await) }
            }));
            let app = app.into_factory().map_err(|error| error.error_response());
            let app = map_config::<_, _, Request, _, _>(app, |()| AppConfig::default());
            let app = apply_fn_factory(app, move |request: Request, app| {
                let (turn, request) = turns.begin(request);
                turn.end(request.map(|request| app.call(request)))
            });
            let http = HttpService::build()
                .keep_alive(IDLE)
                .client_request_timeout(IDLE)
                .client_disconnect_timeout(DISCONNECT)
                .graceful_shutdown_signal(move || {
                    let stopping = stopping.clone();
                    async move { stopping.notified().await }
                })
                .on_connect_ext(|connection: &Bounded, data| {
                    data.insert(connection.gate());
                    if let Ok(peer) = connection.stream().get_ref().peer_cred() {
                        data.insert(peer);
                    }
                })
                .h1(app);
            let connected = fn_service(move |stream: UnixStream| {
                let mut stream = TimeoutStream::new(stream);
                stream.set_write_timeout(Some(limits::ADMIN_WAIT));
                let admitted = door.clone().admit(Box::pin(stream));
                async { Ok::<(Bounded, _), DispatchError>((admitted.await?, None)) }
            });
            apply_fn_factory(connected.and_then(http), |stream: UnixStream, served| {
                contained(served.call(stream))
            })
        });
        server = serving.map_err(|source| ListenError::Io { path: path.clone(), source })?;
    }
    let running = server.run();
    let handle = running.handle();
    let mut task = JoinSet::new();
    task.spawn(running);
    Ok(Listener { paths, closing, handle, task })
}

impl Listener {
    /// Removes the sockets, ends the streams, lets the other requests end within
    /// [`limits::ADMIN_WAIT`], and returns.
    pub async fn stop(mut self) {
        for path in &self.paths {
            if let Err(error) = fs::remove_file(path) {
                debug!(path = %path.display(), %error, "the admin socket was gone already");
            }
        }
        self.closing.send_replace(true);
        self.handle.stop(true).await;
        while self.task.join_next().await.is_some() {}
    }
}

async fn answer(served: Served, mut request: ServiceRequest) -> ServiceResponse {
    let answered = try_answer(&served, &mut request).await;
    let response = match answered {
        Ok(Answer::Json(text, paid)) => {
            let text = Text { text: text.into(), _paid: paid };
            response(HttpResponse::Ok(), "application/json").body(BoxBody::new(text))
        }
        Ok(Answer::Stream { content_type, parts, .. }) => {
            response(HttpResponse::Ok(), content_type).streaming(parts)
        }
        Err(failure) => problem(failure, request.path()),
    };
    request.into_response(response)
}

/// An answer in memory, and what it has paid for that.
struct Text {
    text: Bytes,
    _paid: Paid,
}

impl MessageBody for Text {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.text.len() as u64)
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let text = std::mem::take(&mut self.get_mut().text);
        Poll::Ready((!text.is_empty()).then_some(Ok(text)))
    }
}

fn response(
    mut builder: actix_web::HttpResponseBuilder,
    content_type: &str,
) -> actix_web::HttpResponseBuilder {
    builder.insert_header((CONTENT_TYPE, content_type));
    builder.insert_header((CACHE_CONTROL, "no-store"));
    builder
}

fn problem(failure: Failure, path: &str) -> HttpResponse {
    let kind = failure.kind;
    let builder = HttpResponse::build(kind.status());
    let mut builder = response(builder, "application/problem+json");
    if kind == FailureKind::WrongMethod {
        builder.insert_header((ALLOW, routes::allowed(path)));
    }
    // A struct of texts and numbers.
    builder.body(serde_json::to_vec(&failure.problem()).unwrap_or_default())
}

async fn try_answer(served: &Served, request: &mut ServiceRequest) -> Result<Answer, Failure> {
    let uri = request.head().uri.clone();
    let (route, path) = routes::find(request.method().as_str(), uri.path())?;
    if served.reads_only && route.effect == Effect::Changes {
        let message = "this socket serves the reading routes only";
        return Err(Failure::new(FailureKind::Forbidden, message));
    }
    let caller = request.conn_data::<UCred>().map(UCred::uid);
    let caller = caller.ok_or_else(|| Failure::unavailable("the caller's user is not known"))?;
    let by = by::read(request.headers())?;
    let mut closing = served.closing.clone();
    let stopping = || Failure::unavailable("the receiver is stopping");
    let (body, _long) = tokio::select! {
        // A stop does not wait for a client that is slow to send.
        _ = closing.wait_for(|closing| *closing) => return Err(stopping()),
        read = read_body(request, route.max_body_bytes) => read?,
    };
    if route.effect == Effect::Changes {
        // Before it is done: no change is made without this line.
        info!(uid = caller, method = route.method.as_str(), path = uri.path(), "admin API call");
    }
    let query = uri.query().unwrap_or_default().to_owned();
    let store = served.context.store.by(caller, by);
    let context = Context { store, receiver: served.context.receiver.clone() };
    let place = (route.effect == Effect::Waits).then(|| place(served)).transpose()?;
    let answer = (route.answer)(context, Parameters { path, query, body });
    let answer = tokio::select! {
        answer = answer => answer,
        _ = closing.wait_for(|closing| *closing), if place.is_some() => Err(stopping()),
    };
    match answer? {
        Answer::Stream { content_type, is_endless, parts } => {
            let parts = bounded(served, parts, is_endless)?;
            Ok(Answer::Stream { content_type, is_endless, parts })
        }
        json @ Answer::Json(..) => Ok(json),
    }
}

/// The body of a request, and the right to have it where it is long.
async fn read_body(
    request: &mut ServiceRequest,
    most: usize,
) -> Result<(Bytes, Option<Permit>), Failure> {
    let declared = request.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
    let is_long = most.min(declared.unwrap_or(most)) > limits::ADMIN_REQUEST_BYTES;
    let long = if is_long { Some(budget::request().await?) } else { None };
    let payload = BodyStream::new(request.take_payload());
    let unreadable = |why: String| {
        Failure::new(FailureKind::Malformed, format!("the body cannot be read: {why}"))
    };
    match timeout(limits::ADMIN_WAIT, to_bytes_limited(payload, most)).await {
        Ok(Ok(Ok(body))) => Ok((body, long)),
        Ok(Ok(Err(error))) => Err(unreadable(error.to_string())),
        Ok(Err(_)) => {
            let message = format!("the body has more than {most} bytes");
            Err(Failure::new(FailureKind::TooLarge, message))
        }
        Err(_) => Err(unreadable("it did not come in time".to_owned())),
    }
}

/// One of the places for what may take long, until it is dropped.
fn place(served: &Served) -> Result<OwnedSemaphorePermit, Failure> {
    Arc::clone(&served.streams).try_acquire_owned().map_err(|_| {
        let most = limits::ADMIN_STREAMS;
        let message = format!("{most} callers follow, wait or back up already; end one first");
        Failure::unavailable(message)
    })
}

/// A stream that has one of the places, and ends when the receiver stops: with an error, unless it is endless, so that
/// its reader does not take what it has for all of it.
fn bounded(served: &Served, parts: ByteStream, is_endless: bool) -> Result<ByteStream, Failure> {
    let place = place(served)?;
    let mut closing = served.closing.clone();
    let closed = async move {
        // An error means that the receiver is gone.
        let _ = closing.wait_for(|closing| *closing).await;
        drop(place);
    };
    let mut parts = parts.take_until(Box::pin(closed));
    Ok(Box::pin(stream::poll_fn(move |cx| match ready!(parts.poll_next_unpin(cx)) {
        None if !is_endless && parts.take_result().is_some() => {
            Poll::Ready(Some(Err(io::Error::other("the receiver is stopping"))))
        }
        part => Poll::Ready(part),
    })))
}
