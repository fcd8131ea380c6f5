//! CHECK: compares stored payloads with what was accepted, a bounded number at each call.

use crate::limits::CHECKED_EVENTS;
use crate::store::border::{CheckedPayloads, Error, PayloadCheck};
use crate::store::sqlite::tables::{codec, payload};

use super::handle::Admin;

impl Admin {
    pub async fn check_payloads(&self, ask: PayloadCheck) -> Result<CheckedPayloads, Error> {
        let most = codec::size(CHECKED_EVENTS);
        self.engine.list(most, move |conn| payload::check(conn, ask.after)).await
    }
}
