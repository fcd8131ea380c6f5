//! A client's connection, with the bounds that actix leaves out.
//!
//! `server` puts one under every client; requests find its [`Gate`] in their connection data. Left
//! alone, actix decodes all it has read before it answers the first request, at some 6 KiB each
//! (300 clients that sent 20,000 small requests held 6.8 GB), bounds the time of a connection's
//! first head only, and waits for ever for a client that does not take its answers. Must stay true:
//! while a request is at work nothing but its own body is read; at most one head is handed over at
//! a time; every head has its time; no place is kept by an idle connection where places are few.

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

use super::budget::Lane;
use super::chunks::Chunks;
use super::eviction::Place;
use super::receive;
use crate::crash;

/// Read at once where it is not known how much belongs to a request: a usual head and body.
const AHEAD_BYTES: usize = 16 * 1024;

/// The price of a connection: two buffers of 8 KiB each that the HTTP server makes, its task, and a head of
/// [`USUAL_HEAD_BYTES`].
const CONNECTION_BYTES: u64 = 24 * 1024;

/// A longer head pays for what it may take: twice its bound, once here and once in the HTTP server.
const USUAL_HEAD_BYTES: usize = 4 * 1024;

/// How often, and how long apart, a connection asks for a place: for a second in all.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// This part of what is expected counts as received, so that a fifth of a second of silence, longer than a
/// round trip, makes no connection stall.
const CREDIT: u64 = 10;

/// Fewer connections than these have held too little for its return to be worth a look.
const MANY: usize = 256;

/// How long after a fall of the connections memory is given back, so that one look serves many of them.
const SETTLED: Duration = Duration::from_secs(3);

/// Handed to actix in place of a head that is over its bound, so that the answer comes in its order. A
/// body is declared because actix throws away a rest only where it waits for one.
const IN_PLACE_OF_HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: _\r\ncontent-length: 1\r\n\r\n";

/// What the kernel keeps of answers that are not taken. Several of ours fit: none has 1 KiB, but for those of
/// handlers.
const SEND_BUFFER_BYTES: usize = 16 * 1024;

/// What a connection may hand over now.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// The next request's head.
    Head,
    /// So many more bytes of the body.
    Declared(u64),
    /// A body in chunks.
    Undeclared,
    /// Nothing: the request is at work.
    Answer,
    /// Nothing more: the connection is about to be closed, and what comes is thrown away.
    Rest,
}

/// Where a connection and its current request meet.
pub(super) struct Gate {
    turn: Cell<Turn>,
    /// Bytes read and not yet handed over.
    ahead: Cell<u64>,
    /// Requests begun on this connection.
    begun: Cell<u64>,
    /// The head was over its bound, and actix has another in its place.
    over_bound: Cell<bool>,
    open: Arc<Open>,
    /// Among the connections that may have to give way; nothing while a request is at work.
    place: RefCell<Option<Place>>,
    reader: Cell<Option<Waker>>,
}

impl Gate {
    /// A request has come, with a body in chunks or of so many bytes. A connection upgrade, whose
    /// body would end with the connection, gets none.
    pub(super) fn begin(&self, request: &impl HttpMessage) {
        self.begun.set(self.begun.get() + 1);
        if self.over_bound.get() {
            return self.turn.set(Turn::Rest);
        }
        let chunked = request.chunked().unwrap_or(true);
        let declared = receive::declared(request).unwrap_or(0);
        self.turn.set(if chunked { Turn::Undeclared } else { Turn::Declared(declared) });
    }

    /// Whether its head was over the bound.
    pub(super) fn is_over_bound(&self) -> bool {
        self.over_bound.get()
    }

    /// So many bytes are there of a body of `expected` ones that began to come at `begun`.
    pub(super) fn coming(&self, begun: Instant, received: u64, expected: u64) {
        let mut place = self.place.borrow_mut();
        if received == 0 || place.is_none() {
            // The one before goes first, or it would be counted as one that leaves.
            *place = None;
            *place = Some(Place::new(self.open.lane.unfinished(), begun, expected));
        }
        if let Some(place) = &*place {
            place.received(received + expected.div_ceil(CREDIT));
        }
    }

    /// Resolves when this connection has to give its place to another, which it then does at once.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &*self.place.borrow() {
            Some(place) => place.poll_evicted(cx),
            None => Poll::Pending,
        }
    }

    /// Its body has been read to the end.
    pub(super) fn read_to_end(&self) {
        self.turn.set(Turn::Answer);
        *self.place.borrow_mut() = None;
    }

    /// Whether all that is left of its body is here already, and nobody needs to be waited for.
    pub(super) fn rest_is_here(&self) -> bool {
        matches!(self.turn.get(), Turn::Declared(left @ 1..) if left <= self.ahead.get())
    }

    /// Whether something is left of its body, so that the connection is to be closed.
    pub(super) fn has_rest(&self) -> bool {
        matches!(self.turn.get(), Turn::Declared(1..) | Turn::Undeclared | Turn::Rest)
    }

    /// It has been answered.
    pub(super) fn end(&self) {
        self.turn.set(if self.has_rest() { Turn::Rest } else { Turn::Head });
        // One that has to go keeps its place, which is free only once it is gone.
        let mut waker = Context::from_waker(Waker::noop());
        if self.poll_evicted(&mut waker).is_pending() {
            self.coming(Instant::now(), 0, CREDIT);
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The connections of all workers, and the bytes that they may take together.
#[derive(Debug)]
pub(super) struct Open {
    lane: Lane,
    now: AtomicUsize,
    most: usize,
    /// Most there were since memory was last given back.
    peak: AtomicUsize,
    fell: Notify,
}

impl Open {
    /// None yet, of so many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Open {
            lane: Lane::new((most as u64).saturating_mul(CONNECTION_BYTES)),
            now: AtomicUsize::new(0),
            most,
            peak: AtomicUsize::new(0),
            fell: Notify::new(),
        })
    }

    /// A place for a new connection. Where there is none the most stalled connection gives way; nothing
    /// where none is stalled.
    pub(super) async fn enter(self: &Arc<Self>) -> Option<Counted> {
        self.pay(CONNECTION_BYTES).await.then(|| Counted::new(self))
    }

    /// Takes `bytes`. A connection that is not stalled yet may be in a moment, so this tries for a while.
    async fn pay(&self, bytes: u64) -> bool {
        for _ in 0..TRIES {
            if self.lane.unfinished().make_room(|| self.lane.take(bytes)).await {
                return true;
            }
            sleep(BETWEEN_TRIES).await;
        }
        false
    }

    pub(super) fn count(&self) -> u64 {
        self.now.load(Ordering::Relaxed) as u64
    }

    /// Whether more than half of the places are taken. Then nobody keeps one to be idle in: an idle
    /// connection costs its owner one request in minutes, and enough of them would shut everyone out.
    pub(super) fn is_crowded(&self) -> bool {
        self.now.load(Ordering::Relaxed) > self.most / 2
    }

    /// Does `give_back` each time that many connections have gone, for as long as it is polled.
    pub(super) async fn after_each_fall(self: Arc<Self>, give_back: impl Fn()) {
        loop {
            self.fell.notified().await;
            sleep(SETTLED).await;
            self.peak.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
            give_back();
        }
    }
}

/// One of the open connections, and what it has paid.
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
        self.open.lane.give(self.bytes);
        self.open.lane.unfinished().notify_freed();
        let now = self.open.now.fetch_sub(1, Ordering::Relaxed) - 1;
        let peak = self.open.peak.load(Ordering::Relaxed);
        if peak >= MANY && now == peak / 2 {
            self.open.fell.notify_one();
        }
    }
}

/// A client's stream of bytes.
pub(super) struct Connection {
    stream: TcpStream,
    counted: Counted,
    gate: Rc<Gate>,
    head_bytes: u64,
    /// Waits for the room of a long head.
    growing: Option<Pin<Box<dyn Future<Output = bool>>>>,
    /// Read from the stream and, from `handed` on, not yet handed over.
    ahead: Vec<u8>,
    handed: usize,
    head: Head,
    /// How much of it is a whole head that is being handed over.
    whole: usize,
    /// Of which request's chunks so much has been handed over.
    chunks: (u64, Chunks),
    /// A head may have been handed over: it is to be decoded before anything follows.
    paused: bool,
    /// Behind how many requests a head, or an empty line before it, has begun to come.
    coming: Option<u64>,
    head_time: Duration,
    /// When the head that is coming must be there, and behind how many requests it comes.
    deadline: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Connection {
    /// `stream`, in its place among the open ones, with `head_bytes` and `head_time` for each head and `write_time` for
    /// the client to take an answer.
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
            turn: Cell::new(Turn::Head),
            ahead: Cell::default(),
            begun: Cell::default(),
            over_bound: Cell::default(),
            open: Arc::clone(&counted.open),
            place: RefCell::default(),
            reader: Cell::default(),
        };
        gate.coming(Instant::now(), 0, CREDIT);
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

    /// Reads more from the stream. `ahead` does not grow where the client has closed.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut block = [MaybeUninit::uninit(); AHEAD_BYTES];
        let mut block = ReadBuf::uninit(&mut block);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut block))?;
        self.ahead.extend_from_slice(block.filled());
        self.gate.ahead.set((self.ahead.len() - self.handed) as u64);
        Poll::Ready(Ok(()))
    }

    /// Reads the next head until it is whole. It is not where the client has closed.
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

    /// Pays once for a head that is longer than usual. False where there is no room.
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

    /// Hands over the next `bytes` of what was read ahead.
    fn hand_over(&mut self, out: &mut ReadBuf<'_>, bytes: usize) {
        out.put_slice(&self.ahead[self.handed..self.handed + bytes]);
        self.handed += bytes;
        self.gate.ahead.set((self.ahead.len() - self.handed) as u64);
        if self.handed == self.ahead.len() {
            // An idle connection keeps no buffer.
            (self.ahead, self.handed) = (Vec::new(), 0);
        }
    }

    fn is_head(&self) -> bool {
        matches!(self.gate.turn.get(), Turn::Head)
    }

    /// Pending, or the error of a head that takes too long. actix times the first one itself, and
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
        let turn = this.gate.turn.get();
        if matches!(turn, Turn::Head | Turn::Rest) && this.gate.poll_evicted(cx).is_ready() {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
        }
        match turn {
            Turn::Answer | Turn::Declared(0) => {
                this.gate.reader.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            Turn::Declared(left) => {
                let most = out.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
                let bytes = if empty {
                    let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
                    ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
                    let bytes = part.filled().len();
                    out.advance(bytes);
                    bytes
                } else {
                    let bytes = most.min(this.ahead.len() - this.handed);
                    this.hand_over(out, bytes);
                    bytes
                };
                this.gate.turn.set(Turn::Declared(left - bytes as u64));
                Poll::Ready(Ok(()))
            }
            Turn::Rest => {
                // actix would gather 128 KiB of it before it throws them away.
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
            Turn::Undeclared => {
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
                let bytes = this.chunks.1.hand_over(piece);
                this.hand_over(out, bytes);
                Poll::Ready(Ok(()))
            }
            Turn::Head => {
                if std::mem::take(&mut this.paused) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if this.whole == 0 {
                    ready!(this.read_head(cx))?;
                }
                let bytes = out.remaining().min(this.whole);
                this.hand_over(out, bytes);
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

/// Finds the blank line that is a head's end. One too many costs a round of the dispatcher; only one too
/// few would hand over two requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// Before the first line; line ends here are skipped (RFC 9112, section 2.2).
    #[default]
    Before,
    /// In a line.
    Within,
    /// Behind a line's end.
    Behind,
}

impl Lines {
    /// How many of `bytes` there are up to a blank line's end, or all; and whether there is one.
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
    /// So many bytes, and more are to come.
    Part(usize),
    /// All of it: so many bytes.
    Whole(usize),
    /// More bytes than it may have.
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
    /// A head of at most so many bytes, line ends before it included.
    pub(crate) fn new(most: usize) -> Self {
        Head { most, seen: 0, lines: Lines::default() }
    }

    /// `bytes` begin with the head and grow with each call; only the new ones are looked at.
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
    fn a_head_over_its_bound_is_never_whole_however_it_is_cut() {
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
    fn a_blank_line_ends_a_piece_however_it_is_cut() {
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
