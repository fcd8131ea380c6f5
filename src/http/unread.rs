//! A request's payload, kept until its answer is sent, and the answer that keeps it.
//!
//! While the payload lives, actix sees that a part of it was not read, and discards that for a bounded time before it
//! closes; otherwise it would drain chunks as long as they arrive.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_http::BoxedPayloadStream;
use actix_http::error::PayloadError;
use actix_web::dev::Payload;
use bytes::Bytes;
use futures_util::Stream;

use super::connection::Gate;

/// The unread part of a request, kept until its answer is sent. Dropping it admits the next request.
pub(super) struct UnreadBody {
    payload: Rc<RefCell<Payload>>,
    gate: Rc<Gate>,
}

impl UnreadBody {
    pub(super) fn new(payload: Payload, gate: Rc<Gate>) -> Self {
        UnreadBody { payload: Rc::new(RefCell::new(payload)), gate }
    }

    /// The payload for a service that may drop it.
    pub(super) fn reader(&self) -> Payload {
        let reader: BoxedPayloadStream = Box::pin(Reader(Rc::clone(&self.payload)));
        Payload::from(reader)
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        self.gate.end();
    }
}

struct Reader(Rc<RefCell<Payload>>);

impl Stream for Reader {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_next(cx)
    }
}
