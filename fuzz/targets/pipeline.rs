//! The bytes that a connection passes to the HTTP decoder at a time: at most one head, and no other data with
//! it.
//!
//! The first byte of the input is the size of the steps in which the rest arrives. If it is 0, three more bytes
//! choose a request with one large part, which a fuzzer would not grow quickly. The decoder is the server's.

use std::cell::RefCell;

use actix_codec::Decoder;
use actix_http::h1::{Codec, Message};
use actix_http::{HttpMessage, Request, ServiceConfig};
use bytes::BytesMut;
use hooklatch::probe::{self, Guard};

use super::sizes::{PARTS, sizes};

pub(super) fn check(data: &[u8]) {
    let Some((&step, stream)) = data.split_first() else { return };
    let sized = match (step, stream) {
        (0, [part, size, step, rest @ ..]) => {
            let part = PARTS[usize::from(*part) % PARTS.len()];
            let size = sizes().cycle().nth((*size).into()).unwrap_or(1);
            Some((*step, [&part.request(size), rest].concat()))
        }
        _ => None,
    };
    // Large inputs in steps of one byte would take too long.
    let (step, stream) =
        sized.as_ref().map_or((usize::from(step).max(1), stream), |(step, stream)| {
            (usize::from(*step) * 64 + 64, stream.as_slice())
        });
    thread_local! {
        // The decoder's clock is a task of this thread, which need not run.
        static SET: tokio::task::LocalSet = tokio::task::LocalSet::new();
        static CONFIG: RefCell<Option<ServiceConfig>> = const { RefCell::new(None) };
    }
    let config = SET.with(|set| {
        let _within = set.enter();
        CONFIG.with_borrow_mut(|made| made.get_or_insert_with(ServiceConfig::default).clone())
    });
    Connection { codec: Codec::new(config), guard: Guard::default(), buffer: BytesMut::new() }
        .serve(stream, step);
}

struct Connection {
    codec: Codec,
    guard: Guard,
    /// Bytes that were passed on but not decoded yet.
    buffer: BytesMut,
}

/// The part that is expected next, as in `http::connection`.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Head,
    Declared(usize),
    Chunks,
}

/// A part that was decoded.
#[derive(Default)]
struct Decoded {
    /// A head, and the part after it.
    head: Option<Turn>,
    /// The end of a body.
    end: bool,
}

impl Connection {
    /// Passes one request after the other to the decoder, as `http::connection` does.
    fn serve(&mut self, stream: &[u8], step: usize) -> Option<()> {
        let (mut rest, mut turn, mut read) = (stream, Turn::Head, 0);
        while read < rest.len() {
            read = rest.len().min(read + step);
            let block = &rest[..read];
            let (bytes, over, sound) = match turn {
                Turn::Head => match self.guard.head(block).ok()? {
                    Some(bytes) => (bytes, true, true),
                    None => continue,
                },
                Turn::Declared(left) => (left.min(block.len()), left <= block.len(), true),
                Turn::Chunks => self.guard.chunks(block),
            };
            assert!(bytes <= block.len() && (bytes == block.len() || over), "it goes on");
            self.buffer.extend_from_slice(&block[..bytes]);
            (rest, read) = (&rest[bytes..], 0);
            let decoded = self.decode();
            assert!(sound || decoded.is_err(), "no chunks, and decoded");
            let Decoded { head, end } = decoded.ok()?;
            turn = match (turn, head) {
                (Turn::Head, Some(next)) => {
                    assert!(self.buffer.is_empty() && over, "something came along with a head");
                    // A request without a body has no end of a body to wait for.
                    if next == Turn::Declared(0) { Turn::Head } else { next }
                }
                (Turn::Head, None) => {
                    assert!(self.buffer.is_empty(), "a whole head is not decoded");
                    turn
                }
                (_, Some(_)) => panic!("a head where a body was due"),
                (Turn::Declared(left), None) if !over => Turn::Declared(left - bytes),
                (Turn::Chunks, None) if !over => turn,
                (_, None) => {
                    assert!(self.buffer.is_empty(), "something came along with a body's end");
                    assert!(end, "a body's end is seen too early");
                    Turn::Head
                }
            };
            assert!(!end || turn == Turn::Head, "a body's end is seen too late");
        }
        Some(())
    }

    /// Decodes the available bytes, which contain at most one head.
    fn decode(&mut self) -> Result<Decoded, ()> {
        let mut decoded = Decoded::default();
        while let Some(message) = self.codec.decode(&mut self.buffer).map_err(drop)? {
            match message {
                Message::Item(request) => {
                    assert!(decoded.head.is_none(), "two requests at once");
                    decoded.head = Some(next(&request));
                }
                Message::Chunk(Some(_)) => {}
                Message::Chunk(None) => decoded.end = true,
            }
        }
        Ok(decoded)
    }
}

/// The part after a head, as in `http::connection`.
fn next(request: &Request) -> Turn {
    if request.chunked().unwrap_or(true) {
        return Turn::Chunks;
    }
    let length = probe::declared(request).unwrap_or(0);
    Turn::Declared(usize::try_from(length).unwrap_or(usize::MAX))
}
