//! The sum over what a handler is given of an event: made when the event is stored, compared before a handler runs. And
//! that over an answer, which is compared before its caller gets it again.

use std::io;

use crate::model::{EventType, Facts, Headers, HeldReason, Name, Timestamp};
use crate::store::codec;
use crate::verify::Verified;

/// What the store says of a job whose payload is not what was accepted: a notice's fixed text.
pub(crate) const DAMAGED: &str = "a stored payload is damaged";

/// What the store says where retention passes over events that cannot be read: a notice's fixed text.
pub(crate) const UNDELETED: &str = "an old event cannot be deleted, because it cannot be read";

/// The most events that retention passes over. More do not come from one bad page: its walk ends with the error.
pub(crate) const PASSED_OVER: usize = 100;

/// The bytes at the end of a zstd frame that are the checksum of its content (RFC 8878, 3.1.1).
pub(crate) const FRAME_CHECKSUM_BYTES: usize = 4;

/// What a handler is given of an event, in its stored form.
pub(crate) struct Given<'a> {
    pub(crate) source: &'a str,
    pub(crate) event_id: &'a str,
    pub(crate) event_type: &'a EventType,
    /// The headers, as HTTP writes them.
    pub(crate) headers: &'a [u8],
    /// The body, compressed with zstd: its checksum stands for it.
    pub(crate) body: &'a [u8],
}

impl<'a> Given<'a> {
    pub(crate) fn of(
        source: &'a Name,
        delivery: &'a Verified,
        headers: &'a [u8],
        body: &'a [u8],
    ) -> Given<'a> {
        let (source, event_id) = (source.as_str(), delivery.event_id().as_str());
        Given { source, event_id, event_type: delivery.event_type(), headers, body }
    }

    /// The CRC-32 of all but the arrival, and the arrival added: PostgreSQL may store another one than the node says, and
    /// adds it itself.
    pub(crate) fn sum(&self, received_at: Timestamp) -> i64 {
        let sum = checksum(&[
            self.source.as_bytes(),
            self.event_id.as_bytes(),
            self.event_type.as_str().as_bytes(),
            self.event_type.raw().unwrap_or_default().as_bytes(),
            self.headers,
            end_of(self.body),
        ]);
        i64::from(sum).wrapping_add(received_at.0)
    }
}

/// The CRC-32 of these parts, such that no byte moves from one to the next.
fn checksum(parts: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for part in parts {
        sum.update(&(part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    sum.finalize()
}

/// What stands for all of a frame.
fn end_of(frame: &[u8]) -> &[u8] {
    frame.last_chunk::<FRAME_CHECKSUM_BYTES>().map_or(frame, |end| &end[..])
}

/// The bytes of [`answer_frame`].
pub(crate) const ANSWER_FRAME_BYTES: usize = 12;

/// What is stored behind the body of an answer: a frame that zstd passes over (RFC 8878, 3.1.2), with the CRC-32 of the
/// answer.
pub(crate) fn answer_frame(status: u16, headers: &[u8], body: &[u8]) -> [u8; ANSWER_FRAME_BYTES] {
    let sum = checksum(&[&status.to_le_bytes(), headers, end_of(body)]).to_le_bytes();
    // Its magic number, and the number of bytes that follow.
    let mut frame = [0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 0, 0, 0, 0];
    frame[8..].copy_from_slice(&sum);
    frame
}

/// A payload as the store has it.
pub(crate) struct KeptPayload {
    /// The headers, as HTTP writes them.
    pub(crate) headers: Vec<u8>,
    /// The body, compressed with zstd.
    pub(crate) body: Vec<u8>,
    pub(crate) body_bytes: usize,
    /// The sum that was made when the event was stored.
    pub(crate) sum: i64,
}

impl KeptPayload {
    /// Adds headers and body to what a handler gets, where all of it is what was accepted.
    pub(crate) async fn open(self, facts: &mut Facts) -> io::Result<()> {
        let KeptPayload { headers, body, body_bytes, sum } = self;
        let given = Given {
            source: facts.source.as_str(),
            event_id: facts.event_id.as_str(),
            event_type: &facts.event_type,
            headers: &headers,
            body: &body,
        };
        if sum != given.sum(facts.received_at) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its sum is another one"));
        }
        facts.body = codec::decompress(body, body_bytes).await?.into();
        facts.headers = Headers::from_wire(&headers);
        Ok(())
    }
}

/// Why a job is held whose payload was read twice in vain, and what is said of that.
pub(crate) fn unread(error: &io::Error) -> (HeldReason, String) {
    match error.kind() {
        io::ErrorKind::InvalidData => {
            (HeldReason::PayloadDamaged, format!("the payload is damaged: {error}"))
        }
        _ => (HeldReason::PayloadUnreadable, format!("the payload cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::tests::START;

    #[test]
    fn each_bit_of_what_a_handler_is_given_is_in_the_sum() {
        let (source, event_id) = ("stripe", "e");
        let event_type = EventType::from_raw("a.b");
        let headers = b"Content-Type: application/json\r\n".to_vec();
        let body = codec::compress_now(b"{\"amount\": 1}").unwrap();
        let given = |headers: &[u8], body: &[u8]| {
            Given { source, event_id, event_type: &event_type, headers, body }.sum(START)
        };
        let sum = given(&headers, &body);
        for bit in 0..headers.len() * 8 {
            let mut changed = headers.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(given(&changed, &body), sum, "bit {bit} of the headers");
        }
        for bit in 0..body.len() * 8 {
            let mut changed = body.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let whole = given(&headers, &changed) == sum;
            let opened = whole.then(|| codec::decompress_now(&changed, 13).ok()).flatten();
            assert!(opened.is_none_or(|body| body == b"{\"amount\": 1}"), "bit {bit} of the body");
        }
        let other = |source: &str, event_id: &str, kind: EventType, at: i64| {
            let (event_type, headers, body) = (&kind, &headers[..], &body[..]);
            Given { source, event_id, event_type, headers, body }.sum(Timestamp(at))
        };
        let kind = || event_type.clone();
        assert_eq!(other("stripe", "e", kind(), START.0), sum);
        for changed in [
            other("strhpe", "e", kind(), START.0),
            other("stripe", "d", kind(), START.0),
            other("stripe", "e", EventType::from_raw("a.c"), START.0),
            other("stripe", "e", EventType::from_parts("a.b", Some("x")), START.0),
            other("stripe", "e", kind(), START.0 ^ 1),
        ] {
            assert_ne!(changed, sum);
        }
    }
}
