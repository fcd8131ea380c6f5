//! `Retry-After` and `Date` of a forward's answer: the first line of the input is one, the second the other.

use std::time::Duration;

use hooklatch::model::Timestamp;
use hooklatch::probe;

pub(super) fn check(data: &[u8]) {
    let (wish, rest) = super::line(data);
    let (date, _) = super::line(rest);
    let date = (!date.is_empty()).then_some(date);
    // 2026-01-01, and the smallest and largest times of a clock.
    for now in [1_767_225_600_000, i64::MIN, i64::MAX].map(Timestamp) {
        let asked = probe::retry_after(wish, date, now);
        let text = std::str::from_utf8(wish).unwrap_or_default().trim();
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits {
            let seconds = Duration::from_secs(text.parse().unwrap_or(u32::MAX.into()));
            assert!(asked.is_none_or(|asked| asked == seconds), "plain seconds");
        }
        let undated = probe::retry_after(wish, None, now);
        assert!(asked.is_none() || undated.is_some(), "a Date makes no wish");
        // If both headers have the same date, the wait is 0.
        let at_once = probe::retry_after(wish, Some(wish), now);
        assert!(
            digits || at_once.is_none_or(|wait| wait.is_zero()),
            "a date is compared with Date"
        );
        assert!(
            at_once.is_some() || undated.is_none(),
            "whether a wish is readable is its own affair"
        );
    }
}
