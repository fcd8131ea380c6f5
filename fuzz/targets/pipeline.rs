//! What a connection hands to the HTTP decoder: never two heads at once, and with a head nothing else.
//!
//! The first byte says in how large steps the rest arrives. The decoder is the server's own.

use std::cell::RefCell;

use actix_codec::Decoder;
use actix_http::h1::{Codec, Message};
use actix_http::{HttpMessage, Request, ServiceConfig};
use bytes::BytesMut;
use hooklatch::probe::Guard;

pub(super) fn check(data: &[u8]) {
    let Some((&step, stream)) = data.split_first() else { return };
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
        .serve(stream, usize::from(step).max(1));
}

struct Connection {
    codec: Codec,
    guard: Guard,
    /// Handed over and not decoded.
    buffer: BytesMut,
}

impl Connection {
    /// One request after the other, as `http::connection` hands them over.
    fn serve(&mut self, stream: &[u8], step: usize) {
        let mut rest = stream;
        while !rest.is_empty() {
            let block = &rest[..step.min(rest.len())];
            let (bytes, blank) = self.guard.hand_over(block);
            assert!(bytes <= block.len() && (bytes == block.len() || blank), "it goes on");
            self.buffer.extend_from_slice(&rest[..bytes]);
            rest = &rest[bytes..];
            if !blank && bytes == 0 {
                return;
            }
            match self.decode() {
                Err(()) => return,
                Ok(None) => {}
                Ok(Some(declared)) => {
                    assert!(self.buffer.is_empty(), "something came along with a head");
                    let body = declared.min(rest.len());
                    self.buffer.extend_from_slice(&rest[..body]);
                    rest = &rest[body..];
                    if body < declared || self.decode() != Ok(None) {
                        return;
                    }
                    assert!(self.buffer.is_empty(), "more than its body was decoded");
                }
            }
        }
    }

    /// Decodes what there is, which holds one head at most: how long its body is, none where it ends
    /// itself.
    fn decode(&mut self) -> Result<Option<usize>, ()> {
        let mut head = None;
        while let Some(message) = self.codec.decode(&mut self.buffer).map_err(drop)? {
            match message {
                Message::Item(request) => {
                    assert!(head.is_none(), "two requests at once");
                    head = Some(declared(&request)?);
                }
                Message::Chunk(Some(_)) => {}
                Message::Chunk(None) => {
                    assert!(self.buffer.is_empty(), "something came along with the end of a body");
                }
            }
        }
        Ok(head.flatten())
    }
}

/// The length of a body as `http::receive` has it; an upgrade's, which never ends, is given up.
fn declared(request: &Request) -> Result<Option<usize>, ()> {
    if request.chunked().map_err(drop)? {
        return Ok(None);
    }
    if request.upgrade() {
        return Err(());
    }
    let length = request.headers().get("content-length");
    let length = length.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Ok(Some(length.unwrap_or(0)))
}
