//! A client's connection, with the bounds that actix lacks.
//!
//! `server` wraps the stream of every client of the deliveries' listeners, and `door` those of the dashboard, the admin
//! API and the metrics; a request finds its [`Gate`] in the connection data. Without this wrapper, a head of 64 KiB may
//! make actix's decoder panic, and actix decodes all requests that it has read before it answers the first, at about 6 KiB
//! each (300 clients that sent 20,000 small requests held 6.8 GB), bounds the time of a connection's first head only, and
//! waits forever for a client that does not read its answers. Must stay true: while a request is handled, only its own
//! body is passed to actix; it gets at most one head at a time; every head has a time-out; idle connections are closed
//! when connections are scarce.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use actix_web::HttpMessage;
use bytes::{Buf as _, BytesMut};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::chunks::{Chunks, declared};
use super::eviction::Place;
use super::head::{Head, Took};
use super::open::{Counted, Open};
use crate::crash;
use crate::limits::{CONNECTION_BYTES, SEND_BUFFER_BYTES, USUAL_HEAD_BYTES};

/// Bytes of one read: a usual head and body.
const AHEAD_BYTES: usize = 16 * 1024;

/// A tenth of the expected bytes counts as received at once, so that no head or body is slow in its first fifth of
/// a second, which is longer than a round trip.
const CREDIT: u64 = 10;

/// Replaces a head over its bound, so that actix sends the refusal in the order of the requests. It declares a
/// body because actix discards the rest of a request only if it expects a body.
const IN_PLACE_OF_HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: _\r\ncontent-length: 1\r\n\r\n";

/// What a connection passes to actix now.
#[derive(Debug, Clone, Copy)]
enum ReadState {
    /// The next request's head.
    Head,
    /// This many more bytes of the body.
    Declared(u64),
    /// A body in chunks.
    Undeclared,
    /// Nothing: the request is being handled.
    Answer,
    /// Nothing more: the connection closes soon, and what arrives is discarded.
    Rest,
}

/// What bounds each connection of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The most bytes of a head.
    pub(crate) head_bytes: u64,
    pub(crate) head_time: Duration,
    /// A client that closes its end has left, and its answer ends.
    pub(crate) ends_with_client: bool,
    /// The answers are those to deliveries, which have fail points.
    pub(crate) are_deliveries: bool,
}

/// Shared by a connection and its current request: says what may be passed to actix.
pub(crate) struct Gate {
    state: Cell<ReadState>,
    /// Bytes read and not yet passed on.
    ahead: Cell<u64>,
    /// No request has begun on this connection.
    is_first: Cell<bool>,
    /// The head was over its bound, and actix got [`IN_PLACE_OF_HEAD`].
    over_bound: Cell<bool>,
    open: Arc<Open>,
    /// Its place among the connections that may be evicted; `None` while a request is handled.
    place: RefCell<Option<Place>>,
    /// When the head that has begun to arrive must be complete.
    head_deadline: RefCell<Option<Pin<Box<Sleep>>>>,
    reader: Cell<Option<Waker>>,
}

impl Gate {
    /// Called when a request has arrived. A WebSocket request, whose body would end with the connection, has
    /// none here.
    pub(super) fn begin(&self, request: &impl HttpMessage) {
        crash::point("request.panic");
        self.is_first.set(false);
        self.head_deadline.take();
        if self.over_bound.get() {
            return self.state.set(ReadState::Rest);
        }
        let chunked = request.chunked().unwrap_or(true);
        let declared = declared(request).unwrap_or(0);
        self.state.set(if chunked { ReadState::Undeclared } else { ReadState::Declared(declared) });
    }

    /// Called after [`Gate::begin`] once a request has a place of its own: its connection is not evicted any more.
    pub(super) fn keep(&self) {
        *self.place.borrow_mut() = None;
    }

    pub(super) fn is_over_bound(&self) -> bool {
        self.over_bound.get()
    }

    /// Records that `received` of the `expected` bytes have arrived since `begun`. For a head `received` is 0.
    pub(super) fn record_progress(&self, begun: Instant, received: u64, expected: u64) {
        let mut place = self.place.borrow_mut();
        if received == 0 || place.is_none() {
            // Drop the old place first: it would count as an eviction in progress.
            *place = None;
            *place = Some(Place::new(&self.open.pool.unfinished, begun, expected));
        }
        if let Some(place) = &*place {
            place.received(received + expected.div_ceil(CREDIT));
        }
    }

    /// Resolves when this connection is evicted. The caller must then end its request.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.place.borrow().as_ref().map_or(Poll::Pending, |place| place.poll_evicted(cx))
    }

    /// Called when the body has been read to its end.
    pub(super) fn body_ended(&self) {
        self.state.set(ReadState::Answer);
        *self.place.borrow_mut() = None;
    }

    /// Whether the rest of the body has been read from the stream already.
    pub(super) fn rest_is_here(&self) -> bool {
        matches!(self.state.get(), ReadState::Declared(left @ 1..) if left <= self.ahead.get())
    }

    /// Whether a part of the body is unread, so that the connection must be closed.
    pub(super) fn has_rest(&self) -> bool {
        matches!(
            self.state.get(),
            ReadState::Declared(1..) | ReadState::Undeclared | ReadState::Rest
        )
    }

    /// Called when the request is answered.
    pub(super) fn end(&self) {
        self.state.set(if self.has_rest() { ReadState::Rest } else { ReadState::Head });
        // An evicted connection keeps its place until it is closed, which frees the room.
        let mut waker = Context::from_waker(Waker::noop());
        if self.poll_evicted(&mut waker).is_pending() {
            self.record_progress(Instant::now(), 0, CREDIT);
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

pub(crate) struct Connection<S> {
    stream: S,
    counted: Counted,
    gate: Rc<Gate>,
    bounds: Bounds,
    /// Waits for room for a long head.
    growing: Option<Pin<Box<dyn Future<Output = bool>>>>,
    /// Bytes read from the stream and not yet passed on.
    ahead: BytesMut,
    head: Head,
    /// The remaining length of the complete head that is being passed on.
    head_left: usize,
    /// A head was passed on: actix must decode it before it gets more.
    paused: bool,
    /// The chunks of the request whose head was passed on last.
    chunks: Chunks,
}

/// Bounds what a client leaves unread of its answers: their bytes in the kernel, and the longest time in which it reads
/// nothing.
pub(crate) fn bound_answers(stream: &TcpStream, write_time: Duration) {
    let write_millis = u32::try_from(write_time.as_millis()).unwrap_or(u32::MAX);
    let bounded = sockopt::set_tcp_user_timeout(stream, write_millis)
        .and_then(|()| sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES));
    if let Err(error) = bounded {
        tracing::debug!(%error, "a connection's answers are not bounded");
    }
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S, counted: Counted, bounds: Bounds) -> Self {
        let gate = Gate {
            state: Cell::new(ReadState::Head),
            ahead: Cell::default(),
            is_first: Cell::new(true),
            over_bound: Cell::default(),
            open: Arc::clone(&counted.open),
            place: RefCell::default(),
            head_deadline: RefCell::default(),
            reader: Cell::default(),
        };
        gate.record_progress(Instant::now(), 0, CREDIT);
        Connection {
            stream,
            counted,
            gate: Rc::new(gate),
            bounds,
            growing: None,
            ahead: BytesMut::new(),
            head: Head::new(usize::try_from(bounds.head_bytes).unwrap_or(usize::MAX)),
            head_left: 0,
            paused: false,
            chunks: Chunks::default(),
        }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    pub(crate) fn gate(&self) -> Rc<Gate> {
        Rc::clone(&self.gate)
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    /// Reads more from the stream. `ahead` does not grow if the client has closed.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut block = [MaybeUninit::uninit(); AHEAD_BYTES];
        let mut block = ReadBuf::uninit(&mut block);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut block))?;
        self.ahead.extend_from_slice(block.filled());
        self.gate.ahead.set(self.ahead.len() as u64);
        Poll::Ready(Ok(()))
    }

    /// Pending until the request is answered, or its client has closed its end where that ends an answer.
    fn wait_for_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.gate.reader.set(Some(cx.waker().clone()));
        while self.bounds.ends_with_client && self.ahead.len() < AHEAD_BYTES {
            let before = self.ahead.len();
            ready!(self.fill(cx))?;
            if self.ahead.len() == before {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Passes on the next `bytes` that were read ahead.
    fn pass_on(&mut self, out: &mut ReadBuf<'_>, bytes: usize) {
        out.put_slice(&self.ahead[..bytes]);
        self.ahead.advance(bytes);
        self.gate.ahead.set(self.ahead.len() as u64);
        if self.ahead.is_empty() {
            // An idle connection keeps no buffer.
            self.ahead = BytesMut::new();
        }
    }

    /// Passes on the next head, once it is complete.
    fn pass_head(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.paused) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.head_left == 0 {
            ready!(self.read_head(cx))?;
        }
        let bytes = out.remaining().min(self.head_left);
        self.head_left -= bytes;
        self.paused = bytes > 0 && self.head_left == 0;
        self.chunks = Chunks::default();
        self.pass_on(out, bytes);
        Poll::Ready(Ok(()))
    }

    /// Reads the next head until it is complete or the client has closed.
    fn read_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.head.scan(&self.ahead) {
                Took::Whole(bytes) => {
                    self.head_left = bytes;
                    return Poll::Ready(Ok(()));
                }
                Took::OverBound => {
                    self.gate.over_bound.set(true);
                    self.ahead = BytesMut::from(IN_PLACE_OF_HEAD);
                    self.head_left = self.ahead.len();
                    return Poll::Ready(Ok(()));
                }
                // actix itself bounds the time of a connection's first head, and answers it.
                Took::Part(bytes) if bytes > 0 && !self.gate.is_first.get() => {
                    let mut deadline = self.gate.head_deadline.borrow_mut();
                    deadline.get_or_insert_with(|| Box::pin(sleep(self.bounds.head_time)));
                }
                Took::Part(_) => {}
            }
            if !ready!(self.pay_for_head(cx)) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            let before = self.ahead.len();
            if self.fill(cx)?.is_pending() {
                let mut deadline = self.gate.head_deadline.borrow_mut();
                let Some(deadline) = &mut *deadline else { return Poll::Pending };
                ready!(deadline.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if self.ahead.len() == before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes room, once, for a head that is longer than usual. False if the pool is full.
    fn pay_for_head(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.ahead.len() <= USUAL_HEAD_BYTES || self.counted.bytes > CONNECTION_BYTES {
            return Poll::Ready(true);
        }
        let (open, bytes) = (Arc::clone(&self.counted.open), self.bounds.head_bytes * 2);
        let growing =
            self.growing.get_or_insert_with(|| Box::pin(async move { open.pay(bytes).await }));
        let paid = ready!(growing.as_mut().poll(cx));
        self.growing = None;
        if paid {
            self.counted.bytes += bytes;
        }
        Poll::Ready(paid)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let state = this.gate.state.get();
        match state {
            ReadState::Head | ReadState::Rest if this.gate.poll_evicted(cx).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            ReadState::Head => this.pass_head(cx, out),
            ReadState::Answer | ReadState::Declared(0) => this.wait_for_answer(cx),
            ReadState::Undeclared if this.chunks.is_over() => this.wait_for_answer(cx),
            ReadState::Declared(left) => {
                let most = out.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
                let bytes = if this.ahead.is_empty() {
                    // Straight to actix: what it does not take now stays in the kernel's buffer.
                    let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
                    ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
                    let bytes = part.filled().len();
                    out.advance(bytes);
                    bytes
                } else {
                    let bytes = most.min(this.ahead.len());
                    this.pass_on(out, bytes);
                    bytes
                };
                this.gate.state.set(ReadState::Declared(left - bytes as u64));
                Poll::Ready(Ok(()))
            }
            ReadState::Undeclared => {
                if this.ahead.is_empty() {
                    ready!(this.fill(cx))?;
                }
                let most = out.remaining().min(this.ahead.len());
                let bytes = this.chunks.pass_on(&this.ahead[..most]);
                this.pass_on(out, bytes);
                Poll::Ready(Ok(()))
            }
            ReadState::Rest => {
                // actix would buffer 128 KiB of what is discarded.
                this.ahead = BytesMut::new();
                ready!(this.fill(cx))?;
                if this.ahead.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.bounds.are_deliveries {
            crash::point("answer.before");
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if this.bounds.are_deliveries && written.is_ready() {
            crash::point("answer.after");
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
