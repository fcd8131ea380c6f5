//! Reads one request body within its bounds of size, time and memory.
//!
//! actix has no time-out for bodies, and its extractor stops at 256 KiB and would inflate gzip. A signature
//! covers the raw bytes, so this module reads them as they arrive.

use std::future::poll_fn;
use std::time::Duration;

use actix_web::dev::Payload;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::budget::Permit;
use super::cause::Cause;
use super::connection::Gate;
use super::reply::Answer;
use crate::limits::Limits;

/// The lowest rate of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How long a body may take before its rate counts, and the longest pause in it.
    grace: Duration,
    /// The lowest average after that.
    bytes_per_second: u64,
}

impl Pace {
    pub(super) fn new(limits: &Limits) -> Self {
        Pace {
            grace: Limits::duration(limits.body_grace_millis),
            bytes_per_second: limits.body_rate_bytes_per_second.max(1),
        }
    }

    /// How long after its start a body must have more than `received` bytes, the last of which arrived at `last`.
    /// This bounds the pause too: a quick start must not permit an hour of silence.
    fn patience(&self, last: Duration, received: u64) -> Duration {
        let earned = Duration::from_millis(received.saturating_mul(1000) / self.bytes_per_second);
        self.grace + last.min(earned)
    }
}

/// Reads `payload` to its end, or says why it is not read further. `declared` is at most `limit`. The permit first takes the declared length of a large body. A body of undeclared
/// length takes the whole limit once it is large. Every other byte is taken when it has arrived.
pub(super) async fn read(
    payload: &mut Payload,
    declared: Option<u64>,
    limit: u64,
    pace: Pace,
    permit: &mut Permit,
    gate: &Gate,
) -> Result<Bytes, Cause> {
    let declared = declared.unwrap_or(0);
    let start = Instant::now();
    gate.record_progress(start, 0, declared.max(1));
    if !permit.declare(declared).await {
        return Err(Cause::no_room());
    }
    if declared > permit.small_body() {
        permit.record_progress(start, 0, declared);
    }
    let mut last = start;
    let mut body = BytesMut::new();
    loop {
        let patience = pace.patience(last - start, body.len() as u64);
        let next = tokio::select! {
            biased;
            () = poll_fn(|cx| permit.poll_evicted(cx)) => return Err(Cause::no_room()),
            () = poll_fn(|cx| gate.poll_evicted(cx)) => return Err(Cause::no_room()),
            next = timeout_at(start + patience, payload.next()) => next,
        };
        let chunk = match next {
            Err(_) => return Err(Cause::new(Answer::TooSlow, "too_slow", "body too slow")),
            Ok(None) => {
                permit.complete();
                return Ok(body.freeze());
            }
            Ok(Some(Err(_))) => {
                let reason = "broken_body";
                return Err(Cause::new(Answer::Malformed(reason), reason, "the body ended early"));
            }
            Ok(Some(Ok(chunk))) => chunk,
        };
        let total = body.len() as u64 + chunk.len() as u64;
        if total > limit {
            return Err(Cause::too_large(limit));
        }
        let grows = total > declared && total > permit.small_body();
        // An undeclared body may reach the limit.
        if !permit.make_room(if grows { limit } else { total }).await {
            return Err(Cause::no_room());
        }
        if body.is_empty() {
            // Untouched pages are not resident, so the cost is only the bytes that have arrived.
            body.reserve(usize::try_from(declared).unwrap_or(0));
        }
        if grows {
            // A buffer that grows in steps leaves holes in the heap that cost as much again.
            body.reserve(usize::try_from(limit).unwrap_or(0).saturating_sub(body.len()));
        }
        let expected = if grows { limit } else { declared.max(total) };
        if total != declared {
            permit.record_progress(start, total, expected);
        }
        body.extend_from_slice(&chunk);
        gate.record_progress(start, total, expected);
        last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_or_a_quick_start_does_not_extend_the_time_of_a_body() {
        let pace = Pace { grace: Duration::from_secs(5), bytes_per_second: 1000 };
        let after = |last, received| pace.patience(Duration::from_secs(last), received).as_secs();
        assert_eq!(after(0, 0), 5, "nothing came");
        assert_eq!(after(60, 100), 5, "a byte now and then");
        assert_eq!(after(1, 24_000_000), 6, "24 MB at once, then silence");
        assert_eq!(after(30, 60_000), 35, "twice as fast as needed: 5 s from the last byte");
        assert_eq!(after(30, 20_000), 25, "slower than needed: over at once");
    }
}
