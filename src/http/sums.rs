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
const EVERY: Duration = Duration::from_secs(10);

/// Tells for as long as it is polled.
pub(super) async fn run(traffic: Traffic) {
    loop {
        traffic.failing().await;
        sleep(EVERY).await;
        while tell(&traffic) {
            sleep(EVERY).await;
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
