//! The meaning of an endpoint's answer.

use std::time::Duration;

use hyper::body::Body;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use crate::model::{Headers, Outcome, Timestamp};

/// The outcome for a status. A redirect is a failure and is never followed: a request that was signed for one
/// endpoint must not be sent to another.
pub(super) fn outcome(status: StatusCode) -> Outcome {
    match status.as_u16() {
        200..=299 => Outcome::Succeeded,
        400 | 410 | 422 => Outcome::Rejected,
        _ => Outcome::Failed,
    }
}

/// The delay that the endpoint asks for (RFC 9110, section 10.2.3), in seconds or as a date. A date is compared
/// with the answer's own Date, so that a difference of the clocks has no effect, or with `now` if the answer
/// has no Date. `None` if it cannot be read.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // A number that does not fit is the longest delay; the policy clamps it.
        return Some(Duration::from_secs(text.parse().unwrap_or(u32::MAX.into())));
    }
    let date = headers.get(header::DATE).and_then(|date| http_date(date.to_str().ok()?));
    Some(http_date(text)?.since(date.unwrap_or(now)))
}

/// Whether a complete body differs from a lost connection (RFC 9112, section 6.3): it has a length or
/// is chunked. The request allows no other coding.
pub(super) fn says_its_end<B: Body>(response: &Response<B>) -> bool {
    let mut codings = response.headers().get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let in_chunks = codings.next().is_some_and(is_chunked) && codings.next().is_none();
    in_chunks || response.body().size_hint().exact().is_some()
}

/// The header lines of an answer, in order.
pub(super) fn headers(from: &HeaderMap) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in from {
        headers.push(name.as_str(), value.as_bytes());
    }
    headers
}

fn http_date(text: &str) -> Option<Timestamp> {
    let time = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Timestamp(time.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_status_is_an_outcome() {
        for status in 100..1000u16 {
            let expected = match status {
                200..300 => Outcome::Succeeded,
                400 | 410 | 422 => Outcome::Rejected,
                _ => Outcome::Failed,
            };
            assert_eq!(outcome(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date() {
        // 1994-11-06 08:49:37 UTC, the RFC's own example.
        let now = Timestamp(784_111_777_000);
        let seconds = |text: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            date.map(|date| headers.insert(header::DATE, date.parse().unwrap()));
            retry_after(&headers, now).map(|delay| delay.as_secs())
        };
        assert_eq!(seconds("120", None), Some(120));
        assert_eq!(seconds("99999999999999999999", None), Some(u64::from(u32::MAX)));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT", None), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT", None), Some(0));
        let date = Some("Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT", date), Some(30));
        for bad in ["", "-1", "1.5", "soon", "1 minute", "Sun, 06 Nov"] {
            assert_eq!(seconds(bad, None), None, "{bad}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
