//! What a connection hands to the HTTP decoder: never two heads at once, and with a head nothing else.
//!
//! The first byte says in how large steps the rest arrives. Where it is 0, three more bytes choose a request
//! with one large part instead, which a fuzzer would take long to grow. The decoder is the server's own.

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
    // A step of one byte for each of so many would take long.
    let (step, stream) =
        sized.as_ref().map_or((usize::from(step).max(1), stream), |(step, stream)| {
            (usize::from(*step) * 64 + 64, stream.as_slice())
        });
    thread_local! {
        // Its clock is a task of the thread that makes it, which need not run.
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
    /// Handed over and not decoded.
    buffer: BytesMut,
}

/// What comes next, as `http::connection` has it.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Head,
    Declared(usize),
    Chunks,
}

/// What was decoded of what was handed over.
#[derive(Default)]
struct Decoded {
    /// A head, and what follows it.
    head: Option<Turn>,
    /// The end of a body.
    end: bool,
}

impl Connection {
    /// One request after the other, as `http::connection` hands them over.
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
                    // Without a body there is no end to wait for.
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

    /// Decodes what there is, which holds one head at most.
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

/// What follows a head, as `http::connection` has it.
fn next(request: &Request) -> Turn {
    if request.chunked().unwrap_or(true) {
        return Turn::Chunks;
    }
    let length = probe::declared(request).unwrap_or(0);
    Turn::Declared(usize::try_from(length).unwrap_or(usize::MAX))
}
