//! A client's connection, with the bounds that actix lacks.
//!
//! `server` wraps the stream of every client; a request finds its [`Gate`] in the connection data. Without it,
//! actix decodes all requests that it has read before it answers the first, at about 6 KiB each (300 clients
//! that sent 20,000 small requests held 6.8 GB), bounds the time of a connection's first head only, and
//! waits forever for a client that does not read its answers. Must stay true: while a request is handled,
//! only its own body is read; actix gets at most one head at a time; every head has a time-out; idle
//! connections are closed when connections are scarce.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use actix_web::HttpMessage;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

use super::budget::Pool;
use super::chunks::{Chunks, declared};
use super::eviction::Place;
use crate::crash;

/// Bytes of one read while the length of the request is unknown: a usual head and body.
const AHEAD_BYTES: usize = 16 * 1024;

/// Memory of one connection: two buffers of 8 KiB each in the HTTP server, its task, and a head of
/// [`USUAL_HEAD_BYTES`].
const CONNECTION_BYTES: u64 = 24 * 1024;

/// A longer head takes twice its bound from the pool: one copy is here and one in the HTTP server.
const USUAL_HEAD_BYTES: usize = 4 * 1024;

/// How often, and at what interval, a new connection asks for room: for a second in total.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// One part in so many of the expected bytes counts as received from the start, so that a fifth of a second of
/// silence, which is longer than a round trip, does not count as a stall.
const CREDIT: u64 = 10;

/// Fewer connections have held too little memory to trim the heap after them.
const MANY: usize = 256;

/// How long after a drop of the connections the heap is trimmed, so that one trim serves many of them.
const SETTLED: Duration = Duration::from_secs(3);

/// Replaces a head over its bound, so that actix sends the refusal in the order of the requests. It declares a
/// body because actix discards the rest of a request only if it expects a body.
const IN_PLACE_OF_HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: _\r\ncontent-length: 1\r\n\r\n";

/// The kernel's buffer for answers that the client has not read. Several of ours fit: each has less than 1 KiB,
/// but for the answers of handlers.
const SEND_BUFFER_BYTES: usize = 16 * 1024;

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

/// Connects a connection to its current request: the request decides how much is read.
pub(super) struct Gate {
    state: Cell<ReadState>,
    /// Bytes read and not yet passed on.
    ahead: Cell<u64>,
    /// How many requests have begun on this connection.
    begun: Cell<u64>,
    /// The head was over its bound, and actix got [`IN_PLACE_OF_HEAD`].
    over_bound: Cell<bool>,
    open: Arc<Open>,
    /// Its place among the connections that may be evicted; `None` while a request is handled.
    place: RefCell<Option<Place>>,
    reader: Cell<Option<Waker>>,
}

impl Gate {
    /// Called when a request has arrived. A connection upgrade, whose body would end with the connection, has no
    /// body.
    pub(super) fn begin(&self, request: &impl HttpMessage) {
        self.begun.set(self.begun.get() + 1);
        if self.over_bound.get() {
            return self.state.set(ReadState::Rest);
        }
        let chunked = request.chunked().unwrap_or(true);
        let declared = declared(request).unwrap_or(0);
        self.state.set(if chunked { ReadState::Undeclared } else { ReadState::Declared(declared) });
    }

    pub(super) fn is_over_bound(&self) -> bool {
        self.over_bound.get()
    }

    /// Records how much has arrived of a head or body of `expected` bytes that began at `begun`.
    pub(super) fn record_progress(&self, begun: Instant, received: u64, expected: u64) {
        let mut place = self.place.borrow_mut();
        if received == 0 || place.is_none() {
            // Drop the old place first: it would count as an eviction in progress.
            *place = None;
            *place = Some(Place::new(self.open.pool.unfinished(), begun, expected));
        }
        if let Some(place) = &*place {
            place.received(received + expected.div_ceil(CREDIT));
        }
    }

    /// Resolves when this connection is evicted. The caller must then close it at once.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &*self.place.borrow() {
            Some(place) => place.poll_evicted(cx),
            None => Poll::Pending,
        }
    }

    /// Called when the body has been read to its end.
    pub(super) fn read_to_end(&self) {
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

/// The connections of all workers, and the bytes that they share.
#[derive(Debug)]
pub(super) struct Open {
    pool: Pool,
    now: AtomicUsize,
    most: usize,
    /// Most connections since the heap was last trimmed.
    peak: AtomicUsize,
    fell: Notify,
}

impl Open {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Open {
            pool: Pool::new((most as u64).saturating_mul(CONNECTION_BYTES)),
            now: AtomicUsize::new(0),
            most,
            peak: AtomicUsize::new(0),
            fell: Notify::new(),
        })
    }

    /// Admits a new connection, for which the slowest one may be evicted. `None` if the pool is full and no
    /// connection stalls.
    pub(super) async fn enter(self: &Arc<Self>) -> Option<Counted> {
        self.pay(CONNECTION_BYTES).await.then(|| Counted::new(self))
    }

    /// Takes `bytes`. It retries for a second, because a connection may begin to stall meanwhile.
    async fn pay(&self, bytes: u64) -> bool {
        for _ in 0..TRIES {
            if self.pool.unfinished().make_room(|| self.pool.take(bytes)).await {
                return true;
            }
            sleep(BETWEEN_TRIES).await;
        }
        false
    }

    pub(super) fn count(&self) -> u64 {
        self.now.load(Ordering::Relaxed) as u64
    }

    /// Whether more than half of the connections are in use. Then idle connections are closed: an idle
    /// connection costs a client one request in minutes, and enough of them would shut out all others.
    pub(super) fn is_crowded(&self) -> bool {
        self.now.load(Ordering::Relaxed) > self.most / 2
    }

    /// Calls `give_back` each time the number of connections has halved. Never returns.
    pub(super) async fn after_each_fall(self: Arc<Self>, give_back: impl Fn()) {
        loop {
            self.fell.notified().await;
            sleep(SETTLED).await;
            self.peak.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
            give_back();
        }
    }
}

/// An open connection in the count, and the bytes that it has taken.
#[derive(Debug)]
pub(super) struct Counted {
    open: Arc<Open>,
    bytes: u64,
}

impl Counted {
    fn new(open: &Arc<Open>) -> Self {
        let now = open.now.fetch_add(1, Ordering::Relaxed) + 1;
        open.peak.fetch_max(now, Ordering::Relaxed);
        Counted { open: Arc::clone(open), bytes: CONNECTION_BYTES }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.pool.give(self.bytes);
        self.open.pool.unfinished().notify_freed();
        let now = self.open.now.fetch_sub(1, Ordering::Relaxed) - 1;
        let peak = self.open.peak.load(Ordering::Relaxed);
        if peak >= MANY && now == peak / 2 {
            self.open.fell.notify_one();
        }
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    counted: Counted,
    gate: Rc<Gate>,
    head_bytes: u64,
    /// Waits for room for a long head.
    growing: Option<Pin<Box<dyn Future<Output = bool>>>>,
    /// Bytes read from the stream; from `handed` on they are not yet passed on.
    ahead: Vec<u8>,
    handed: usize,
    head: Head,
    /// The remaining length of the complete head that is being passed on.
    whole: usize,
    /// The number of the request whose chunks are read, and their state.
    chunks: (u64, Chunks),
    /// A head was passed on: actix must decode it before it gets more.
    paused: bool,
    /// How many requests came before the head, or the empty line before it, that has begun to arrive.
    coming: Option<u64>,
    head_time: Duration,
    /// When the arriving head must be complete, and how many requests came before it.
    deadline: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Connection {
    /// `head_bytes` and `head_time` bound each head; `write_time` bounds how long the client takes to read an
    /// answer.
    pub(super) fn new(
        stream: TcpStream,
        counted: Counted,
        head_bytes: u64,
        head_time: Duration,
        write_time: Duration,
    ) -> Self {
        let write_millis = u32::try_from(write_time.as_millis()).unwrap_or(u32::MAX);
        let bounded = sockopt::set_tcp_user_timeout(&stream, write_millis)
            .and_then(|()| sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES));
        if let Err(error) = bounded {
            tracing::debug!(%error, "a connection's answers are not bounded");
        }
        let gate = Gate {
            state: Cell::new(ReadState::Head),
            ahead: Cell::default(),
            begun: Cell::default(),
            over_bound: Cell::default(),
            open: Arc::clone(&counted.open),
            place: RefCell::default(),
            reader: Cell::default(),
        };
        gate.record_progress(Instant::now(), 0, CREDIT);
        Connection {
            stream,
            counted,
            gate: Rc::new(gate),
            head_bytes,
            growing: None,
            ahead: Vec::new(),
            handed: 0,
            head: Head::new(usize::try_from(head_bytes).unwrap_or(usize::MAX)),
            whole: 0,
            chunks: (0, Chunks::default()),
            paused: false,
            coming: None,
            head_time,
            deadline: None,
        }
    }

    pub(super) fn gate(&self) -> Rc<Gate> {
        Rc::clone(&self.gate)
    }

    /// Reads more from the stream. `ahead` does not grow if the client has closed.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut block = [MaybeUninit::uninit(); AHEAD_BYTES];
        let mut block = ReadBuf::uninit(&mut block);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut block))?;
        self.ahead.extend_from_slice(block.filled());
        self.gate.ahead.set((self.ahead.len() - self.handed) as u64);
        Poll::Ready(Ok(()))
    }

    /// Reads the next head until it is complete or the client has closed.
    fn read_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let unread = self.ahead.len();
            match self.head.take(&self.ahead[self.handed..]) {
                Took::Whole(bytes) => {
                    self.whole = bytes;
                    return Poll::Ready(Ok(()));
                }
                Took::OverBound => {
                    self.gate.over_bound.set(true);
                    (self.ahead, self.handed) = (IN_PLACE_OF_HEAD.to_vec(), 0);
                    self.whole = self.ahead.len();
                    return Poll::Ready(Ok(()));
                }
                Took::Part(0) => {}
                Took::Part(_) => self.coming = Some(self.gate.begun.get()),
            }
            if !ready!(self.pay_for_head(cx)) {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
            }
            if self.fill(cx)?.is_pending() {
                return self.wait_for_head(cx);
            }
            if self.ahead.len() == unread {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes room, once, for a head that is longer than usual. False if the pool is full.
    fn pay_for_head(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let held = self.ahead.len() - self.handed;
        if held <= USUAL_HEAD_BYTES || self.counted.bytes > CONNECTION_BYTES {
            return Poll::Ready(true);
        }
        let (open, bytes) = (Arc::clone(&self.counted.open), self.head_bytes * 2);
        let growing =
            self.growing.get_or_insert_with(|| Box::pin(async move { open.pay(bytes).await }));
        let paid = ready!(growing.as_mut().poll(cx));
        self.growing = None;
        if paid {
            self.counted.bytes += bytes;
        }
        Poll::Ready(paid)
    }

    /// Passes on the next `bytes` that were read ahead.
    fn pass_on(&mut self, out: &mut ReadBuf<'_>, bytes: usize) {
        out.put_slice(&self.ahead[self.handed..self.handed + bytes]);
        self.handed += bytes;
        self.gate.ahead.set((self.ahead.len() - self.handed) as u64);
        if self.handed == self.ahead.len() {
            // An idle connection keeps no buffer.
            (self.ahead, self.handed) = (Vec::new(), 0);
        }
    }

    fn is_head(&self) -> bool {
        matches!(self.gate.state.get(), ReadState::Head)
    }

    /// Pending, or the error of a head that takes too long. actix itself times the first head of a connection and
    /// answers it.
    fn wait_for_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let begun = self.gate.begun.get();
        if begun == 0 || self.coming != Some(begun) || !self.is_head() {
            return Poll::Pending;
        }
        let current = self.deadline.take().filter(|(of, _)| *of == begun);
        let (_, deadline) = self
            .deadline
            .insert(current.unwrap_or_else(|| (begun, Box::pin(sleep(self.head_time)))));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let empty = this.ahead.is_empty();
        let state = this.gate.state.get();
        if matches!(state, ReadState::Head | ReadState::Rest)
            && this.gate.poll_evicted(cx).is_ready()
        {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
        }
        match state {
            ReadState::Answer | ReadState::Declared(0) => {
                this.gate.reader.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            ReadState::Declared(left) => {
                let most = out.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
                let bytes = if empty {
                    let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
                    ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
                    let bytes = part.filled().len();
                    out.advance(bytes);
                    bytes
                } else {
                    let bytes = most.min(this.ahead.len() - this.handed);
                    this.pass_on(out, bytes);
                    bytes
                };
                this.gate.state.set(ReadState::Declared(left - bytes as u64));
                Poll::Ready(Ok(()))
            }
            ReadState::Rest => {
                // actix would buffer 128 KiB before it discards them.
                (this.ahead, this.handed) = (Vec::new(), 0);
                let mut block = [MaybeUninit::uninit(); AHEAD_BYTES];
                let mut block = ReadBuf::uninit(&mut block);
                ready!(Pin::new(&mut this.stream).poll_read(cx, &mut block))?;
                if block.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            ReadState::Undeclared => {
                let begun = this.gate.begun.get();
                if this.chunks.0 != begun {
                    this.chunks = (begun, Chunks::default());
                }
                if this.chunks.1.is_over() {
                    this.gate.reader.set(Some(cx.waker().clone()));
                    return Poll::Pending;
                }
                if empty {
                    ready!(this.fill(cx))?;
                }
                let most = out.remaining().min(this.ahead.len() - this.handed);
                let piece = &this.ahead[this.handed..this.handed + most];
                let bytes = this.chunks.1.pass_on(piece);
                this.pass_on(out, bytes);
                Poll::Ready(Ok(()))
            }
            ReadState::Head => {
                if std::mem::take(&mut this.paused) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if this.whole == 0 {
                    ready!(this.read_head(cx))?;
                }
                let bytes = out.remaining().min(this.whole);
                this.pass_on(out, bytes);
                this.whole -= bytes;
                this.paused = bytes > 0 && this.whole == 0;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        crash::point("answer.before");
        let written = Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes);
        if written.is_ready() {
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

/// Finds the blank line that ends a head. A blank line found too early costs a round of actix's dispatcher; one
/// that is missed would pass on two requests at once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// Before the first line; line ends here are skipped (RFC 9112, section 2.2).
    #[default]
    Before,
    Within,
    /// After a line's end.
    Behind,
}

impl Lines {
    /// The length of `bytes` up to the end of a blank line, and whether there is one. Without one, all of them.
    fn up_to_blank_line(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            *self = match (byte, *self) {
                (b'\n', Lines::Behind) => {
                    *self = Lines::Before;
                    return (at + 1, true);
                }
                (b'\n', Lines::Within) => Lines::Behind,
                (b'\r' | b'\n', as_before) => as_before,
                _ => Lines::Within,
            };
        }
        (bytes.len(), false)
    }
}

/// The result of [`Head::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Took {
    /// This many bytes of an incomplete head.
    Part(usize),
    /// The head is complete and has this many bytes.
    Whole(usize),
    OverBound,
}

/// Finds the end of a head in the bytes of a connection.
#[derive(Debug)]
pub(crate) struct Head {
    most: usize,
    seen: usize,
    lines: Lines,
}

impl Head {
    /// `most` includes line ends before the head.
    pub(crate) fn new(most: usize) -> Self {
        Head { most, seen: 0, lines: Lines::default() }
    }

    /// `bytes` begin with the head and grow with each call. Each byte is examined once.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Took {
        let (more, blank) = self.lines.up_to_blank_line(&bytes[self.seen..]);
        self.seen += more;
        if self.seen > self.most {
            return Took::OverBound;
        }
        if blank { Took::Whole(std::mem::take(&mut self.seen)) } else { Took::Part(self.seen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_over_its_bound_is_refused_however_it_is_split() {
        let text = b"\r\nGET / HTTP/1.1\r\nA: b\r\n\r\n";
        for step in 1..=text.len() {
            for (most, whole) in [(text.len(), true), (text.len() - 1, false)] {
                let mut head = Head::new(most);
                let cuts = (step..text.len()).step_by(step).chain([text.len()]);
                let last = cuts.map(|cut| head.take(&text[..cut])).last();
                let wanted = if whole { Took::Whole(text.len()) } else { Took::OverBound };
                assert_eq!(last, Some(wanted), "in steps of {step}");
            }
        }
    }

    #[test]
    fn a_blank_line_ends_a_head_however_it_is_split() {
        let text = b"\r\nGET / HTTP/1.1\r\nA: b\r\n\r\nGET /2 HTTP/1.1\n\nrest";
        let wanted = ["\r\nGET / HTTP/1.1\r\nA: b\r\n\r\n", "GET /2 HTTP/1.1\n\n"];
        for step in 1..=text.len() {
            let (mut lines, mut pieces, mut piece) = (Lines::default(), Vec::new(), Vec::new());
            for mut block in text.chunks(step) {
                while !block.is_empty() {
                    let (bytes, blank) = lines.up_to_blank_line(block);
                    piece.extend_from_slice(&block[..bytes]);
                    block = &block[bytes..];
                    if blank {
                        pieces.push(
                            String::from_utf8_lossy(&std::mem::take(&mut piece)).into_owned(),
                        );
                    }
                }
            }
            assert_eq!(pieces, wanted, "in steps of {step}");
            assert_eq!((lines, piece.as_slice()), (Lines::Within, b"rest".as_slice()));
        }
    }
}
