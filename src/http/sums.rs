//! Tells the log of deliveries that were refused: the first of a kind at once, the rest in sums.
//!
//! Only `server` runs it. What must stay true: a flood of bad requests writes a line per source and reason
//! every [`EVERY`], and while nothing fails no timer runs.

use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use crate::traffic::{Told, Traffic};

/// Between two lines of the same kind: often enough for a person who watches, and 8,640 lines a day of
/// a scanner that never rests.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// Tells what there is each time that `every` has passed, for as long as it is polled.
pub(super) async fn run(traffic: Traffic, every: Duration) {
    loop {
        traffic.failing().await;
        sleep(every).await;
        while tell(&traffic) {
            sleep(every).await;
        }
    }
}

/// Tells what was not told yet. False where there was nothing.
pub(super) fn tell(traffic: &Traffic) -> bool {
    let (lines, again) = traffic.tell();
    for Told { source, answer, reason, count } in lines {
        warn!(source = source.map(display), answer, reason, count, "more deliveries were refused");
    }
    again
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log;
    use crate::model::Timestamp;

    #[tokio::test]
    async fn what_follows_the_first_is_told_in_one_line_once_its_time_has_come() {
        let (subscriber, written) = log::kept();
        let _here = tracing::subscriber::set_default(subscriber);
        let traffic = Traffic::default();
        let telling = tokio::spawn(run(traffic.clone(), Duration::from_millis(1)));
        for _ in 0..1000 {
            if traffic.unknown_path("/wp-login.php", Timestamp(0)) {
                traffic.begin_summing();
            }
        }
        while written.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        telling.abort();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["reason"], &line["count"]), (&"unknown_path".into(), &999.into()));
        assert!(line.get("source").is_none(), "{line}");
    }
}
