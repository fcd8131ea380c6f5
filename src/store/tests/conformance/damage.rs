//! What has changed in the store since the accept.
use std::collections::BTreeSet;

use super::{tokio, *};
use crate::pattern::Pattern;
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

/// Nothing could be compared with what was accepted.
#[tokio::test]
async fn no_payload_is_stored_without_a_sum() {
    let query = match engine() {
        EngineKind::Sqlite => {
            "SELECT count(*) FROM pragma_table_info('payload') WHERE name = 'sum' AND \"notnull\" = 1"
        }
        EngineKind::Postgres => {
            "SELECT count(*) FROM pg_attribute WHERE attrelid = 'hooklatch.payload'::regclass
                 AND attname = 'sum' AND attnotnull"
        }
    };
    assert_eq!(bench().await.number(query).await, 1);
}

/// A block that PostgreSQL cannot read (58030): of the body, which is read behind the claim, and of the row, at which
/// the claim looks.
#[tokio::test]
async fn what_the_server_cannot_read_of_a_job_stops_that_job_alone() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    for (column, rows) in [
        ("CASE WHEN event = 1 THEN unread(body) ELSE body END", "true"),
        ("body", "CASE WHEN event = 1 THEN unread(body) IS NULL ELSE true END"),
    ] {
        let mut bench = bench().await;
        for event in ["e1", "e2"] {
            bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
        }
        // Each row is found by its index, as in a large table. A volatile function would be run for all rows of the view.
        let change = format!(
            "CREATE FUNCTION unread(bytea) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
                 BEGIN RAISE 'could not read block 3' USING ERRCODE = '58030'; END $$;
             ALTER TABLE payload RENAME TO kept_payload;
             CREATE VIEW payload AS SELECT event, headers, sum, {column} AS body FROM kept_payload WHERE {rows};
             GRANT SELECT ON payload TO PUBLIC;
             DO $$ BEGIN
                 EXECUTE format('ALTER DATABASE %I SET enable_seqscan = off', current_database());
             END $$"
        );
        bench.change_rows(&change).await;
        let mut claimed = Vec::new();
        // The first claim fails where it looks at the row itself, and holds what has made it fail.
        for _ in 0..2 {
            let claims = bench.store.jobs.claim(&name("h"), 9, None).await;
            claimed.extend(claims.map(|claims| claims.jobs).unwrap_or_default());
        }
        let started: Vec<&str> = claimed.iter().map(|one| one.facts.event_id.as_str()).collect();
        assert_eq!(started, ["e2"], "{column}");
        assert!(bench.complete(&claimed[0], Outcome::Succeeded, Next::Succeeded).await);
        bench.until_nothing_runs().await;
        let held = "SELECT count(*) FROM job WHERE event = 1 AND reason = 'payload unreadable'";
        assert_eq!(bench.number(held).await, 1, "{column}");
    }
}

/// A damaged page, a block that the disk does not give, and a damaged length for which there is no memory.
#[tokio::test]
async fn retention_passes_over_what_the_server_cannot_read() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    for code in ["XX001", "58030", "53200"] {
        let mut bench = bench().await;
        for event in ["e1", "e2", "e3"] {
            bench.accept("stripe", stripe(event, "a", "{}"), &[]).await;
        }
        let change = format!(
            "CREATE FUNCTION unread() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE 'invalid page in block 3' USING ERRCODE = '{code}'; END $$;
             CREATE TRIGGER unread BEFORE DELETE ON payload FOR EACH ROW WHEN (OLD.event = 1)
                 EXECUTE FUNCTION unread()"
        );
        bench.change_rows(&change).await;
        bench.advance(DAY).await;
        let day = bench.clock.now();
        for deleted in [2, 0] {
            assert_eq!(expired(&bench, day, START).await, (deleted, 0), "{code}");
        }
        assert_eq!(bench.number("SELECT event FROM payload").await, 1, "{code}");
    }
}

/// No verb needs them: what runs ends, what is held is shown, and a person can drop it.
#[tokio::test]
async fn a_source_or_id_that_is_none_any_more_keeps_no_job_from_its_end() {
    for change in ["source = 'S tripe'", "event_id = 'e ' || row", "source = ''"] {
        let mut bench = bench().await;
        let claimed = bench.running("e1").await;
        bench.accept("stripe", stripe("e2", "a", "{}"), &["h"]).await;
        bench.change_rows(&format!("UPDATE event SET {change}")).await;
        let wanted = vec![(name("alert"), vec![Pattern::new("job.held", true)])];
        bench.store.admin.set_interest(NoticeSubscribers::new(wanted));
        assert!(bench.starts().await.is_empty(), "{change}");
        let running = bench.store.jobs.running().await.unwrap();
        assert!(running.iter().any(|running| running.job == claimed.facts.job), "{change}");
        let unknown = Next::Held(HeldReason::UnknownOutcome);
        assert!(bench.complete(&claimed, Outcome::Unknown, unknown).await, "{change}");
        bench.until_nothing_runs().await;
        bench.store.jobs.tell_notices().await.unwrap();
        let held = JobFilter { state: Some(State::Held), ..JobFilter::default() };
        let held = bench.store.admin.jobs(held).await.unwrap().rows;
        let reasons: BTreeSet<_> = held.iter().filter_map(|job| job.reason.as_deref()).collect();
        assert_eq!(reasons, BTreeSet::from(["payload damaged", "unknown outcome"]), "{change}");
        bench.store.admin.status(vec![name("stripe")]).await.unwrap();
        let events = bench.store.admin.events(EventFilter::default()).await.unwrap().rows;
        // And those of the notices.
        assert!(events.len() > 2, "{change}");
        for job in held {
            bench.store.admin.drop_job(job.job, None).await.unwrap();
        }
    }
}

async fn whole(bench: &Bench, event: &str) -> Result<Option<Vec<u8>>, Error> {
    let of = body_of(event);
    let Some(mut parts) = bench.store.admin.body(of).await? else { return Ok(None) };
    let mut whole = Vec::new();
    while let Some(part) = parts.part().await? {
        whole.extend_from_slice(&part);
    }
    Ok(Some(whole))
}

fn body_of(event: &str) -> BodyOf {
    BodyOf { source: name("stripe"), event: event.parse().unwrap(), variant: 0, answer: false }
}

#[tokio::test]
async fn a_body_comes_whole_in_parts_or_ends_with_an_error() {
    let mut bench = bench().await;
    // Under zstd one has 1.9 MiB, which are two pieces, and one a few hundred bytes.
    let digest = |n: u32| Digest::of(n.to_le_bytes()).to_string();
    let long: String = (0..60_000).map(digest).collect();
    for (id, data) in [("short", String::new()), ("long", long), ("flat", "x".repeat(3 << 20))] {
        let of = stripe(id, "a", &format!("\"{data}\""));
        bench.accept("stripe", of.clone(), &["h"]).await;
        assert!(whole(&bench, id).await.unwrap().unwrap() == of.body()[..], "{id}");
    }
    assert!(whole(&bench, "none").await.unwrap().is_none());
    let check = async |bench: &Bench| {
        let asked = PayloadCheck { after: None };
        let found = bench.store.admin.check_payloads(asked).await.unwrap();
        (found.checked, found.damaged)
    };
    assert_eq!(check(&bench).await, (3, Vec::new()));
    let of_long = "WHERE event = (SELECT row FROM event WHERE event_id = 'long')";
    let cut = format!("UPDATE payload SET body = substr(body, 1, 1100000) {of_long}");
    bench.change_rows(&cut).await;
    assert!(whole(&bench, "long").await.is_err());
    assert_eq!(check(&bench).await, (3, vec!["stripe long".to_owned()]));
    let mut parts = bench.store.admin.body(body_of("long")).await.unwrap().unwrap();
    assert!(parts.part().await.unwrap().is_some());
    bench.change_rows(&format!("DELETE FROM payload {of_long}")).await;
    let ended = loop {
        match parts.part().await {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert!(ended.is_err(), "what came before is not the whole of it");
    assert!(whole(&bench, "long").await.unwrap().is_none());
}

#[tokio::test]
async fn an_event_whose_body_is_damaged_is_shown_without_it() {
    let mut bench = bench().await;
    for event in ["whole", "cut"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    let cut = "UPDATE payload SET body = substr(body, 1, 20)
        WHERE event = (SELECT row FROM event WHERE event_id = 'cut')";
    bench.change_rows(cut).await;
    for (event, damaged) in [("whole", false), ("cut", true)] {
        let shown = bench.store.admin.show(None, id(event), None).await.unwrap().remove(0);
        assert_eq!((shown.damaged, shown.body.is_none()), (damaged, damaged), "{event}");
        assert_eq!((shown.headers.is_empty(), shown.jobs.len()), (false, 1), "{event}");
        let checked = bench.store.admin.check_body(body_of(event)).await;
        assert_eq!(matches!(checked, Err(Error::Damaged(_))), damaged, "{event}: {checked:?}");
    }
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
