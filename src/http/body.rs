//! Reads one request body: bounded in size, in time, and by the budget.
//!
//! actix has no time-out for bodies, and its own extractor stops at 256 KiB and would inflate gzip;
//! a signature covers the raw bytes, so here they are read as they come.

use std::future::poll_fn;
use std::time::Duration;

use actix_web::dev::Payload;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::budget::Permit;
use super::connection::Gate;
use crate::limits::Limits;

/// Why a body was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// Over the source's limit.
    TooLarge,
    /// Paused for too long, or below the lowest rate.
    TooSlow,
    /// The budget is used up, or others needed its room and it came too slowly.
    NoRoom,
    /// The connection ended early, or the chunks make no sense.
    Broken,
}

/// How slow a body may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How long it may take before its rate counts, and how long any pause in it may be.
    grace: Duration,
    /// What it must reach over its whole length after that.
    bytes_per_second: u64,
}

impl Pace {
    /// The pace of `limits`.
    pub(super) fn new(limits: &Limits) -> Self {
        Pace {
            grace: Limits::duration(limits.body_grace_millis),
            bytes_per_second: limits.body_rate_bytes_per_second.max(1),
        }
    }

    /// How long after its start more than `received` bytes must be there, the last of which came
    /// at `last`. The pause is bounded too: a quick start must not buy an hour of silence.
    fn patience(&self, last: Duration, received: u64) -> Duration {
        let earned = Duration::from_millis(received.saturating_mul(1000) / self.bytes_per_second);
        self.grace + last.min(earned)
    }
}

/// Reads `payload` to its end. A large body's declared length is taken from the budget first; the
/// whole limit for one that declares none, once it is large; every other byte when it has come.
pub(super) async fn read(
    payload: &mut Payload,
    declared: Option<u64>,
    limit: u64,
    pace: Pace,
    permit: &mut Permit,
    gate: Option<&Gate>,
) -> Result<Bytes, Unread> {
    let coming = |start, received, expected| {
        if let Some(gate) = gate {
            gate.coming(start, received, expected);
        }
    };
    let declared = declared.unwrap_or(0);
    if declared > limit {
        return Err(Unread::TooLarge);
    }
    let start = Instant::now();
    coming(start, 0, declared.max(1));
    if !permit.declare(declared).await {
        return Err(Unread::NoRoom);
    }
    if declared > permit.small_body() {
        permit.coming(start, 0, declared);
    }
    let mut last = start;
    let mut body = BytesMut::new();
    loop {
        let patience = pace.patience(last - start, body.len() as u64);
        let next = tokio::select! {
            biased;
            () = permit.evicted() => return Err(Unread::NoRoom),
            () = evicted(gate) => return Err(Unread::NoRoom),
            next = timeout_at(start + patience, payload.next()) => next,
        };
        let chunk = match next {
            Err(_) => return Err(Unread::TooSlow),
            Ok(None) => {
                permit.complete();
                return Ok(body.freeze());
            }
            Ok(Some(Err(_))) => return Err(Unread::Broken),
            Ok(Some(Ok(chunk))) => chunk,
        };
        let total = body.len() as u64 + chunk.len() as u64;
        if total > limit {
            return Err(Unread::TooLarge);
        }
        let grows = total > declared && total > permit.small_body();
        // It may become as long as it may be.
        if !permit.make_room(if grows { limit } else { total }).await {
            return Err(Unread::NoRoom);
        }
        if body.is_empty() {
            // Pages that nothing was written to are not resident, so this costs what has arrived.
            body.reserve(usize::try_from(declared).unwrap_or(0));
        }
        if grows {
            // Grown step by step it would leave holes behind that cost as much again.
            body.reserve(usize::try_from(limit).unwrap_or(0).saturating_sub(body.len()));
        }
        if total != declared {
            permit.coming(start, total, if grows { limit } else { declared.max(total) });
        }
        body.extend_from_slice(&chunk);
        coming(start, total, if grows { limit } else { declared.max(total) });
        last = Instant::now();
    }
}

/// Resolves when the connection has to give its place to another.
async fn evicted(gate: Option<&Gate>) {
    match gate {
        Some(gate) => poll_fn(|cx| gate.poll_evicted(cx)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_trickle_nor_a_quick_start_buys_time() {
        let pace = Pace { grace: Duration::from_secs(5), bytes_per_second: 1000 };
        let after = |last, received| pace.patience(Duration::from_secs(last), received).as_secs();
        assert_eq!(after(0, 0), 5, "nothing came");
        assert_eq!(after(60, 100), 5, "a byte now and then");
        assert_eq!(after(1, 24_000_000), 6, "24 MB at once, then silence");
        assert_eq!(after(30, 60_000), 35, "twice as fast as needed: 5 s from the last byte");
        assert_eq!(after(30, 20_000), 25, "slower than needed: over at once");
    }
}
