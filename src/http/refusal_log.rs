//! Logs how many deliveries were refused after the first of each kind.
//!
//! Only `server` runs it. What must stay true: a flood of bad requests writes one line for each source and reason
//! every [`EVERY`], and no timer runs while nothing is refused.

use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use crate::traffic::{RefusalCount, Traffic};

/// The pause between two lines of the same kind: often enough for an operator who watches, and 8,640 lines a day for a
/// scanner that never stops.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// Logs new counts at this interval. Never returns.
pub(super) async fn run(traffic: Traffic, every: Duration) {
    loop {
        traffic.first_refusal().await;
        sleep(every).await;
        while log_counts(&traffic) {
            sleep(every).await;
        }
    }
}

/// Logs the counts since the last call. False if there were none.
pub(super) fn log_counts(traffic: &Traffic) -> bool {
    let counts = traffic.take_refusal_counts();
    let were_any = !counts.is_empty();
    for RefusalCount { source, answer, reason, count } in counts {
        let source = source.map(tracing::field::display);
        warn!(source, answer, reason, count, "more deliveries were refused");
    }
    were_any
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log;
    use crate::model::Timestamp;

    #[tokio::test]
    async fn refusals_after_the_first_share_one_log_line() {
        let (subscriber, written) = log::kept();
        let _here = tracing::subscriber::set_default(subscriber);
        let traffic = Traffic::default();
        let logging = tokio::spawn(run(traffic.clone(), Duration::from_millis(1)));
        for _ in 0..1000 {
            if traffic.unknown_path("/wp-login.php", Timestamp(0)) {
                traffic.wake_refusal_log();
            }
        }
        while written.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        logging.abort();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["reason"], &line["count"]), (&"unknown_path".into(), &999.into()));
        assert!(line.get("source").is_none(), "{line}");
    }
}
