//! A flight that is cut at every message of either side.

use std::collections::BTreeMap;

use hooklatch::store::postgres::FlightOutcome;

use super::proxy::{Act, Proxy, Side};
use super::site::{Site, committed, said};

/// Cuts the flight behind each message of either side, first with statements that are still to be prepared and then
/// with everything sent in one piece. The flight's outcome must agree with the row.
async fn cut_everywhere(require_standby: bool) {
    let site = Site::new(&[]).await;
    let _standby = match require_standby {
        true => {
            let standby = site.server.standby("s1");
            site.server.set("synchronous_standby_names", "s1").await;
            Some(standby)
        }
        false => None,
    };
    let proxy = Proxy::start(&site.server).await;
    let mut key = 0;
    let mut seen = BTreeMap::new();
    for (warm, act) in [(false, Act::Break), (true, Act::Cut)] {
        let mut connection = site.connect(proxy.port, require_standby).await;
        if warm {
            key += 1;
            connection = committed(site.store(connection, key).await);
        }
        proxy.watch();
        key += 1;
        drop(committed(site.store(connection, key).await));
        let whole = [Side::Client, Side::Server].map(|side| (side, proxy.passed(side)));
        for (side, messages) in whole {
            println!("\n{act:?} of {side:?}, standby required {require_standby}");
            for number in 0..=messages.len() {
                let mut connection = site.connect(proxy.port, require_standby).await;
                if warm {
                    key += 1;
                    connection = committed(site.store(connection, key).await);
                }
                key += 1;
                proxy.arm(side, number, act.clone());
                let outcome = site.store(connection, key).await;
                let (said, kind) = (said(&outcome), kind(&outcome));
                drop(outcome);
                let is_there = site.has(key).await;
                let message = number.checked_sub(1).map_or("(nothing)", |n| &messages[n]);
                println!("{number:3} {message:32} | row {is_there:5} | {said}");
                match kind {
                    "committed" => assert!(is_there, "acknowledged and lost at {number} {message}"),
                    "not committed" => {
                        assert!(!is_there, "denied and stored at {number} {message}")
                    }
                    _ => {}
                }
                *seen.entry((kind, is_there)).or_insert(0) += 1;
            }
        }
    }
    println!("{seen:?}");
    // Each outcome occurs.
    for met in
        [("committed", true), ("not committed", false), ("unknown", true), ("unknown", false)]
    {
        assert!(seen.contains_key(&met), "{met:?} of {seen:?}");
    }
}

fn kind(outcome: &FlightOutcome) -> &'static str {
    match outcome {
        FlightOutcome::Committed(..) => "committed",
        FlightOutcome::NotCommitted(..) => "not committed",
        FlightOutcome::Unknown(_) => "unknown",
    }
}

#[tokio::test]
async fn a_flight_cut_at_any_message_never_says_what_is_not_so() {
    cut_everywhere(false).await;
}

#[tokio::test]
async fn a_flight_cut_at_any_message_with_a_standby_required_never_says_what_is_not_so() {
    cut_everywhere(true).await;
}
