//! What has changed in the store since the accept.
use super::{tokio, *};
use crate::store::codec;

/// Returns copies with a bit flipped in each seventh place, and copies cut at each fifth byte.
fn damaged(bytes: &[u8]) -> Vec<Vec<u8>> {
    let flip = |bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    let flipped = (0..bytes.len() * 8).step_by(7).map(flip);
    flipped.chain((0..bytes.len()).step_by(5).map(|end| bytes[..end].to_vec())).collect()
}

/// Changes of what else a handler is given, and of what the payload is read by.
const OTHERS: [&str; 8] = [
    "UPDATE event SET source = 'strhpe' WHERE row",
    "UPDATE event SET event_id = 'other' WHERE row",
    "UPDATE event SET type = 'c' WHERE row",
    "UPDATE event SET raw_type = 'x' WHERE row",
    "UPDATE event SET received_at = received_at + 1 WHERE row",
    "UPDATE event SET body_bytes = body_bytes + 1 WHERE row",
    // More than a process can have.
    "UPDATE event SET body_bytes = body_bytes + 9007199254740992 WHERE row",
    "UPDATE payload SET sum = sum + 1 WHERE event",
];

#[tokio::test]
async fn no_changed_byte_reaches_a_handler() {
    let mut bench = bench().await;
    let sample = stripe("e0000", "a", "{}");
    let bodies = damaged(&codec::compress_now(sample.body()).unwrap()).len();
    let headers = damaged(&sample.headers().to_wire()).len();
    let (changed, whole) = (bodies + headers + OTHERS.len(), 5);
    let mut sql = String::new();
    for nth in 0..changed + whole {
        let id = format!("e{nth:04}");
        let delivery = stripe(&id, "a", "{}");
        bench.accept("stripe", delivery.clone(), &["h"]).await;
        let row = format!("(SELECT row FROM event WHERE event_id = '{id}')");
        let payload = |column: &str, stored: &[u8], nth: usize| {
            let all = damaged(stored);
            let bytes = bench.bytes(&all[nth % all.len()]);
            format!("UPDATE payload SET {column} = {bytes} WHERE event = {row};")
        };
        sql += &if nth < bodies {
            payload("body", &codec::compress_now(delivery.body()).unwrap(), nth)
        } else if nth < bodies + headers {
            payload("headers", &delivery.headers().to_wire(), nth - bodies)
        } else if nth < changed {
            format!("{} = {row};", OTHERS[nth - bodies - headers])
        } else {
            String::new()
        };
    }
    bench.change_rows(&sql).await;
    let mut claimed = Vec::new();
    // A claim takes a part of them, and may find none of it whole.
    while bench.number("SELECT count(*) FROM job WHERE state = 'ready'").await > 0 {
        claimed.extend(bench.store.jobs.claim(&name("h"), changed, None).await.unwrap().jobs);
    }
    let mut ids = Vec::new();
    for claimed in &claimed {
        let facts = &claimed.facts;
        let of = stripe(facts.event_id.as_str(), "a", "{}");
        assert_eq!((facts.source.as_str(), &facts.event_type), ("stripe", of.event_type()));
        assert_eq!((&facts.body, facts.received_at), (of.body(), START));
        assert_eq!(facts.headers.to_wire(), of.headers().to_wire());
        ids.push(facts.event_id.to_string());
        assert!(bench.complete(claimed, Outcome::Succeeded, Next::Succeeded).await);
    }
    for nth in changed..changed + whole {
        assert!(ids.contains(&format!("e{nth:04}")), "nothing has changed of event {nth}");
    }
    // A bit that zstd does not read may be among them.
    assert!(ids.len() < whole + 3, "{ids:?}");
    bench.until_nothing_runs().await;
    let held = "SELECT count(*) FROM job WHERE state = 'held' AND reason = 'payload damaged'";
    assert_eq!(bench.number(held).await, codec::size(changed + whole - ids.len()));
}

#[tokio::test]
async fn a_later_delivery_of_the_event_mends_it() {
    let mut bench = bench().await;
    for (event, column) in [("body", "body"), ("headers", "headers")] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
        let change = format!(
            "UPDATE payload SET {column} = zeroblob(9)
             WHERE event = (SELECT row FROM event WHERE event_id = '{event}')"
        );
        bench.change_rows(&change).await;
        assert!(bench.starts().await.is_empty());
        bench.until_nothing_runs().await;
        // Another body mends nothing.
        let other = bench.accept("stripe", stripe(event, "a", "[]"), &["h"]).await;
        assert!(
            matches!(other, Accepted::Duplicate { replayed: 0, conflict: true, .. }),
            "{other:?}"
        );
        let again = bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
        assert!(
            matches!(again, Accepted::Duplicate { state: Some(State::Ready), replayed: 1, .. }),
            "{again:?}"
        );
        let claimed = bench.claim_one().await;
        let of = stripe(event, "a", "{}");
        assert_eq!((&claimed.facts.body, claimed.facts.attempt), (of.body(), 2));
        assert_eq!(claimed.facts.headers.to_wire(), of.headers().to_wire());
        bench.complete(&claimed, Outcome::Succeeded, Next::Succeeded).await;
        // What has run is not run again.
        let again = bench.accept("stripe", of, &["h"]).await;
        assert!(matches!(again, Accepted::Duplicate { replayed: 0, .. }), "{again:?}");
    }
    // The status says so for a day.
    let mended = MendedPayloads { payloads: 2, last_at: START };
    assert_eq!(bench.store.admin.status(Vec::new()).await.unwrap().mended, Some(mended));
    bench.advance(DAY).await;
    assert_eq!(bench.store.admin.status(Vec::new()).await.unwrap().mended, None);
}

#[tokio::test]
async fn a_check_compares_every_payload_and_names_the_damaged_ones() {
    let mut bench = bench().await;
    for nth in 0..12 {
        bench.accept("stripe", stripe(&format!("e{nth:02}"), "a", "{}"), &["h"]).await;
    }
    let changes = "
        UPDATE payload SET body = zeroblob(9) WHERE event = (SELECT row FROM event WHERE event_id = 'e03');
        DELETE FROM payload WHERE event = (SELECT row FROM event WHERE event_id = 'e05');
        UPDATE event SET type = 'c' WHERE event_id = 'e11'";
    bench.change_rows(changes).await;
    let (mut parts, mut after) = (Vec::new(), None);
    loop {
        let part = bench.store.admin.check_payloads(PayloadCheck { after }).await.unwrap();
        after = part.next;
        parts.push(part);
        if after.is_none() {
            break;
        }
    }
    let checked: Vec<u64> = parts.iter().map(|part| part.checked).collect();
    assert_eq!(checked, [5, 4, 2]);
    assert!(parts.is_sorted_by(|a, b| a.left > b.left) && parts[2].left == 0, "{parts:?}");
    let damaged: Vec<&String> = parts.iter().flat_map(|part| &part.damaged).collect();
    assert_eq!(damaged, ["stripe e03", "stripe e11"]);
}

/// The others of its group wait: their order is promised.
#[tokio::test]
async fn the_jobs_behind_a_damaged_one_wait() {
    let mut bench = bench().await;
    for event in ["e1", "e2"] {
        bench.event(event, "k", GroupRule::Block).await;
    }
    bench.change_rows("UPDATE payload SET headers = zeroblob(1) WHERE event = 1").await;
    assert!(bench.starts().await.is_empty());
    bench.until_nothing_runs().await;
    assert_eq!(bench.state("e1").await, (State::Held, Some("payload damaged".to_owned())));
    assert!(bench.starts().await.is_empty());
    bench.whole().await;
}
