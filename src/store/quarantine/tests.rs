//! The quarantine through the store's front: its own folder, its own thread, and no promise.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::limits::{Limits, QUARANTINE_BODY_BYTES};
use crate::model::{AuditVerb, Headers, OnRedelivery, State};
use crate::provider::Scheme;
use crate::runner::tests::damage::damages;
use crate::store::tests::{Bench, DAY, HOUR, START, bench, bench_with, failed, limits, name};
use crate::store::*;
use crate::verify::{self, Draft};

/// Limits under which the rate keeps everything.
fn roomy() -> Limits {
    Limits {
        quarantine_rate_bytes_per_second: 1 << 30,
        quarantine_queue_bytes: 1 << 30,
        ..limits()
    }
}

async fn kept(bench: &Bench) -> Quarantine {
    let all = QuarantineFilter { limit: Some(usize::MAX), ..QuarantineFilter::default() };
    bench.store.admin.quarantined(all).await.unwrap()
}

fn of(kept: &Quarantine, source: &str, why: DiscardReason) -> u64 {
    kept.left_out.get(&name(source)).and_then(|left_out| left_out.get(&why)).copied().unwrap_or(0)
}

fn addresses(kept: &Quarantine) -> BTreeMap<String, usize> {
    let mut addresses = BTreeMap::new();
    for row in &kept.deliveries {
        *addresses.entry(row.address.clone().unwrap()).or_default() += 1;
    }
    addresses
}

fn folder(bench: &Bench) -> PathBuf {
    bench.beside(".quarantine")
}

/// The files of the folder, by name, with their sizes.
fn files(bench: &Bench) -> BTreeMap<String, u64> {
    let files = std::fs::read_dir(folder(bench)).unwrap().map(Result::unwrap);
    let size = |file: std::fs::DirEntry| {
        (file.file_name().into_string().unwrap(), file.metadata().unwrap().len())
    };
    files.map(size).collect()
}

/// A body that no compressor makes shorter.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    };
    (0..bytes).map(letter).collect()
}

#[tokio::test]
async fn what_failed_is_listed_and_filtered_over_a_restart() {
    let mut bench = bench_with(roomy());
    let mut headers = Headers::new();
    headers.push("X-GitHub-Delivery", "guid-1");
    bench.store.intake.quarantine(FailedDelivery { headers, ..failed("a", "192.0.2.1", "{}") });
    let late = START.after(HOUR);
    bench.store.intake.quarantine(FailedDelivery {
        received_at: late,
        reason: "missing_signature",
        body: None,
        body_bytes: 0,
        address: None,
        ..failed("b", "192.0.2.1", "")
    });
    bench.restart().await;
    let all = kept(&bench).await;
    assert_eq!((all.matching, all.deliveries.len()), (2, 2));
    let [b, a] = &all.deliveries[..] else { unreachable!() };
    assert_eq!((b.source.as_str(), b.received_at, b.body_kept), ("b", late, false));
    assert_eq!((a.source.as_str(), a.body_kept, a.body_bytes), ("a", true, 2));
    assert_eq!(a.unproven_event_id.as_deref(), Some("guid-1"));
    assert_eq!((a.address.as_deref(), &b.address), (Some("192.0.2.1"), &None));
    let some = async |filter| {
        let found = bench.store.admin.quarantined(filter).await.unwrap().deliveries;
        found.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let none = QuarantineFilter::default;
    let first = Some(a.id);
    assert_eq!(some(QuarantineFilter { source: Some(name("b")), ..none() }).await, [b.id]);
    assert_eq!(some(QuarantineFilter { since: Some(late), ..none() }).await, [b.id]);
    assert_eq!(some(QuarantineFilter { upto: first, ..none() }).await, [a.id]);
    let reason = Some("bad_signature".to_owned());
    assert_eq!(some(QuarantineFilter { reason, ..none() }).await, [a.id]);
    let page = async |before| {
        let one = QuarantineFilter { limit: Some(1), before, ..QuarantineFilter::default() };
        bench.store.admin.quarantined(one).await.unwrap()
    };
    let newest = page(None).await;
    let oldest = page(newest.next).await;
    assert_eq!((newest.deliveries[0].id, newest.matching), (b.id, 2));
    assert_eq!((oldest.deliveries[0].id, oldest.matching, oldest.next), (a.id, 2, None));
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder(&bench)), mode(folder(&bench).join("1"))), (0o700, 0o600));
}

#[tokio::test]
async fn a_folder_is_made_for_a_delivery_and_not_for_a_listing() {
    let bench = bench();
    assert_eq!(kept(&bench).await, Quarantine::default());
    assert_eq!(bench.store.admin.drop_quarantined(QuarantineFilter::default()).await.unwrap(), 0);
    assert!(!folder(&bench).exists());
}

#[tokio::test]
async fn the_address_with_most_bytes_gives_up_its_oldest_first() {
    let limits = Limits { quarantine_bytes: 1 << 20, ..roomy() };
    let bench = bench_with(limits.clone());
    for nth in 0..30 {
        bench.store.intake.quarantine(failed("github", "192.0.2.1", &noise(nth, 2_000)));
    }
    for nth in 0..1_000 {
        bench.store.intake.quarantine(failed("github", "198.51.100.1", &noise(nth, 2_000)));
    }
    let after = kept(&bench).await;
    let addresses = addresses(&after);
    assert_eq!(addresses["192.0.2.1"], 30, "the provider's are all there: {addresses:?}");
    assert!(addresses["198.51.100.1"] > 100, "and the rest is used: {addresses:?}");
    assert!(after.bytes <= 1 << 20, "{}", after.bytes);
    let total = addresses.values().sum::<usize>() as u64;
    assert_eq!(of(&after, "github", DiscardReason::Evicted) + total, 1_030);
    // What was given up is the oldest: the flood's last is there.
    assert_eq!(after.deliveries[0].address.as_deref(), Some("198.51.100.1"));
    bench.store.close().await;
    let on_disk: u64 = files(&bench).values().sum();
    assert!(on_disk <= 1 << 20, "the bound holds on disk too: {on_disk}");
}

#[tokio::test]
async fn a_whole_ipv6_network_counts_as_one_address() {
    let bench = bench_with(Limits { quarantine_bytes: 256 << 10, ..roomy() });
    for nth in 0..10 {
        bench.store.intake.quarantine(failed("github", "::ffff:192.0.2.1", &noise(nth, 1_000)));
    }
    for nth in 0..500_u64 {
        let address = format!("2001:db8:1:2::{nth:x}");
        bench.store.intake.quarantine(failed("github", &address, &noise(nth, 1_000)));
    }
    let genuine = kept(&bench).await;
    let genuine = genuine.deliveries.iter();
    let genuine = genuine.filter(|row| row.address.as_deref() == Some("::ffff:192.0.2.1"));
    assert_eq!(genuine.count(), 10);
}

#[tokio::test]
async fn what_is_over_the_rate_is_only_counted() {
    let limits = Limits { quarantine_rate_bytes_per_second: 4 << 10, ..limits() };
    let bench = bench_with(limits);
    for _ in 0..20_000 {
        bench.store.intake.quarantine(failed("github", "198.51.100.1", "{}"));
    }
    bench.store.intake.quarantine(failed("github", "192.0.2.1", "{}"));
    let after = kept(&bench).await;
    let addresses = addresses(&after);
    assert_eq!(addresses["192.0.2.1"], 1, "another address has a share of its own");
    let kept = addresses["198.51.100.1"] as u64;
    assert!((10..20).contains(&kept), "{kept}");
    assert_eq!(of(&after, "github", DiscardReason::OverRate), 20_000 - kept);
}

#[tokio::test]
async fn a_long_body_and_an_old_delivery_are_not_kept() {
    let bench = bench_with(roomy());
    let long = "x".repeat(QUARANTINE_BODY_BYTES as usize + 1);
    bench.store.intake.quarantine(failed("a", "192.0.2.1", &long));
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "short"));
    let rows = kept(&bench).await.deliveries;
    let told: Vec<_> = rows.iter().map(|row| (row.body_kept, row.body_bytes)).collect();
    assert_eq!(told, [(true, 5), (false, QUARANTINE_BODY_BYTES + 1)]);
    bench.clock.advance(7 * DAY);
    assert_eq!(kept(&bench).await.matching, 2);
    bench.clock.advance(Duration::from_secs(1));
    let after = kept(&bench).await;
    assert_eq!((after.matching, after.bytes, of(&after, "a", DiscardReason::Expired)), (0, 0, 2));
}

#[tokio::test]
async fn it_is_never_older_than_an_id_is_remembered() {
    let limits = Limits { keep_ids_millis: 86_400_000, ..roomy() };
    let bench = bench_with(limits);
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    bench.clock.advance(DAY + HOUR);
    assert_eq!(kept(&bench).await.matching, 0);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_deleted_and_the_others_stay() {
    let mut bench = bench_with(roomy());
    for nth in 0..6 {
        bench.store.intake.quarantine(failed("a", "192.0.2.1", &noise(nth, 3_000)));
    }
    bench.store.close().await;
    let path = |name: &str| folder(&bench).join(name);
    // As a power cut or a kill may leave them, and as an operator may.
    std::fs::write(path("1"), "").unwrap();
    std::fs::write(path("2"), vec![0; 4096]).unwrap();
    let whole = std::fs::read(path("3")).unwrap();
    std::fs::write(path("3"), &whole[..whole.len() / 2]).unwrap();
    std::fs::copy(path("4"), path("40")).unwrap();
    std::fs::write(path("unfinished"), &whole[..100]).unwrap();
    bench.restart().await;
    let left: Vec<i64> = kept(&bench).await.deliveries.iter().map(|row| row.id).collect();
    assert_eq!(left, [6, 5, 4, 3]);
    assert_eq!(files(&bench).into_keys().collect::<Vec<_>>(), ["3", "4", "5", "6"]);
    // Half a body can never be judged.
    bench.store.admin.set_judge(judge("right"));
    let all = QuarantineFilter::default();
    let judged = bench.store.admin.reverify(all, 0, true, None).await.unwrap();
    assert_eq!((judged.looked_at, judged.sources[&name("a")].bodiless), (4, 1));
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    assert_eq!(kept(&bench).await.deliveries[0].id, 7, "numbers go on");
}

#[tokio::test]
async fn an_error_of_the_system_deletes_nothing_and_is_not_tried_again_at_once() {
    let mut bench = bench_with(roomy());
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    assert_eq!(kept(&bench).await.matching, 1);
    bench.store.close().await;
    // A link to itself cannot be opened, as no file can where all descriptors are in use.
    let unopened = folder(&bench).join("2");
    std::os::unix::fs::symlink(&unopened, &unopened).unwrap();
    bench.restart().await;
    assert_eq!(kept(&bench).await.matching, 0);
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    assert_eq!(of(&kept(&bench).await, "a", DiscardReason::NoSpace), 1);
    assert_eq!(std::fs::read_dir(folder(&bench)).unwrap().count(), 2);
    std::fs::remove_file(&unopened).unwrap();
    assert_eq!(kept(&bench).await.matching, 0, "it is not tried for a while");
    bench.clock.advance(HOUR);
    assert_eq!(kept(&bench).await.matching, 1);
    // One that cannot be read now is not one without a body.
    let (file, aside) = (folder(&bench).join("1"), bench.beside(".aside"));
    std::fs::rename(&file, &aside).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    bench.store.admin.set_judge(judge("right"));
    let all = QuarantineFilter::default;
    let unread = bench.store.admin.reverify(all(), 0, true, None).await.unwrap();
    assert!(unread.refused.unwrap().contains("failed to read delivery 1"));
    assert_eq!((unread.looked_at, unread.next), (0, None));
    std::fs::rename(&aside, &file).unwrap();
    assert_eq!(bench.store.admin.reverify(all(), 0, true, None).await.unwrap().looked_at, 1);
}

#[tokio::test]
async fn the_folder_has_a_most_of_files() {
    let bench = bench_with(roomy());
    for _ in 0..600 {
        bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    }
    let after = kept(&bench).await;
    assert_eq!((after.matching, of(&after, "a", DiscardReason::Evicted)), (500, 100));
    assert_eq!(files(&bench).len(), 500);
}

#[tokio::test]
async fn a_folder_over_its_bytes_is_cut_to_them_when_it_is_opened() {
    let mut bench = bench_with(roomy());
    for _ in 0..6 {
        bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    }
    assert_eq!(kept(&bench).await.matching, 6);
    // As after a kill between the write of a delivery and the eviction that follows.
    bench.settings.limits.quarantine_bytes = 4 * 4096;
    bench.restart().await;
    let after = kept(&bench).await;
    assert_eq!((after.matching, of(&after, "a", DiscardReason::Evicted)), (4, 2));
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_costs_only_what_it_would_keep() {
    let bench = bench_with(roomy());
    std::fs::write(folder(&bench), "").unwrap();
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    let after = kept(&bench).await;
    assert_eq!((after.matching, of(&after, "a", DiscardReason::NoSpace)), (0, 1));
    let good = bench.accept("a", crate::store::tests::stripe("e", "a.b", "{}"), &["h"]).await;
    assert!(matches!(good, Accepted::Created { .. }));
}

#[tokio::test]
async fn nothing_is_kept_where_the_disk_is_near_its_floor() {
    // Above the floor, so that accepts are taken, and below twice the floor.
    let dir = tempfile::tempdir().unwrap();
    let stat = rustix::fs::statvfs(dir.path()).unwrap();
    let floor = stat.f_bavail * stat.f_frsize / 4 * 3;
    let bench = bench_with(Limits { disk_floor_bytes: floor, ..roomy() });
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    let after = kept(&bench).await;
    assert_eq!((after.matching, of(&after, "a", DiscardReason::NoSpace)), (0, 1));
    assert!(!folder(&bench).exists());
    bench.accept("a", crate::store::tests::stripe("e", "a.b", "{}"), &["h"]).await;
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes() {
    let bench = bench_with(Limits { quarantine_queue_bytes: 64 << 10, ..roomy() });
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let store = bench.store.clone();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let busy = async move {
        let work = move |_: &mut super::keeper::QuarantineKeeper| {
            begin.send(()).unwrap();
            held.recv().unwrap();
        };
        store.sqlite().intake.quarantine.ask(work).await
    };
    let busy = tokio::spawn(busy);
    begun.await.unwrap();
    // 60 KiB each: a second one does not fit beside the first.
    for _ in 0..3 {
        bench.store.intake.quarantine(failed("a", "192.0.2.1", &noise(1, 59_000)));
    }
    hold.send(()).unwrap();
    busy.await.unwrap().unwrap();
    let after = kept(&bench).await;
    assert_eq!((after.matching, of(&after, "a", DiscardReason::Busy)), (1, 2));
    bench.store.intake.quarantine(failed("a", "192.0.2.1", "{}"));
    assert_eq!(kept(&bench).await.matching, 2, "the room is given back");
}

/// A delivery signed as GitHub would with `secret`, which the source did not have then.
fn signed(secret: &str, id: &str, body: &str) -> FailedDelivery {
    let scheme = Scheme::embedded("github").unwrap();
    let key = verify::key(&scheme, "test", secret).unwrap();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let draft = Draft {
        method: "POST",
        id,
        event_type: "push",
        headers: Headers::new(),
        body: body.clone(),
        url: None,
    };
    let headers = verify::sign(&scheme, Some(&key), &draft, START).unwrap();
    FailedDelivery {
        headers: verify::evidence(&scheme, &headers),
        body_bytes: body.len() as u64,
        body: Some(body),
        ..failed("github", "192.0.2.1", "")
    }
}

fn judge(secret: &str) -> Reverifier {
    let scheme = Scheme::embedded("github").unwrap();
    let keys = [verify::key(&scheme, "test", secret).unwrap()];
    Arc::new(move |kept: QuarantinedDelivery, _: Option<&str>| {
        let (headers, body) = (&kept.headers, kept.body);
        let request = verify::Request { method: "POST", url: None, headers, body };
        let delivery = verify::verify(&scheme, &keys, request, kept.received_at);
        Ok(vec![Accept {
            source: kept.source,
            received_at: kept.received_at,
            delivery: delivery.map_err(|rejection| rejection.reason)?,
            jobs: vec![NewJob::of(name("h"))],
            on_redelivery: OnRedelivery::Ignore,
        }])
    })
}

async fn judged(bench: &Bench, accept: bool) -> ReverifyCounts {
    let mut sum = ReverifyCounts::default();
    let mut after = Some(0);
    while let Some(at) = after {
        let all = QuarantineFilter::default();
        let mut part = bench.store.admin.reverify(all, at, accept, None).await.unwrap();
        assert_eq!(part.refused, None);
        let part_of = part.sources.remove(&name("github")).unwrap_or_default();
        sum.good += part_of.good;
        sum.accepted += part_of.accepted;
        sum.duplicates += part_of.duplicates;
        sum.bodiless += part_of.bodiless;
        for (reason, count) in part_of.bad {
            *sum.bad.entry(reason).or_default() += count;
        }
        after = part.next;
    }
    sum
}

#[tokio::test]
async fn what_verifies_now_is_accepted_once_with_the_time_it_arrived() {
    let bench = bench_with(roomy());
    for nth in 0..300 {
        bench.store.intake.quarantine(signed(
            "right",
            &format!("guid-{nth}"),
            &format!("{{\"n\":{nth}}}"),
        ));
    }
    // The last one again, one of somebody else, one without a body.
    bench.store.intake.quarantine(signed("right", "guid-299", "{\"n\":299}"));
    bench.store.intake.quarantine(signed("wrong", "guid-x", "{}"));
    bench
        .store
        .intake
        .quarantine(FailedDelivery { body: None, ..failed("github", "192.0.2.1", "{}") });
    let without = bench.store.admin.reverify(QuarantineFilter::default(), 0, true, None);
    assert!(without.await.is_err(), "nobody has said how to judge");

    bench.store.admin.set_judge(judge("other"));
    let verdicts = judged(&bench, true).await;
    assert_eq!((verdicts.good, verdicts.bad["bad_signature"], verdicts.bodiless), (0, 302, 1));
    assert_eq!(kept(&bench).await.matching, 303, "what is bad stays");

    bench.clock.advance(5 * DAY);
    bench.store.admin.set_judge(judge("right"));
    let verdicts = judged(&bench, false).await;
    assert_eq!((verdicts.good, verdicts.accepted, kept(&bench).await.matching), (301, 0, 303));
    let verdicts = judged(&bench, true).await;
    assert_eq!(
        (verdicts.accepted, verdicts.duplicates, verdicts.bad["bad_signature"]),
        (300, 1, 1)
    );
    assert_eq!(kept(&bench).await.matching, 2);
    // A row for each step that accepts: their deliveries may be in many transactions.
    let audit = rows(&bench).await;
    assert_eq!((audit.len(), audit.iter().map(|row| row.count).sum()), (3, 301));
    assert!(audit.iter().all(|row| row.verb == AuditVerb::QuarantineAccept));
    let events = bench.store.admin.events(EventFilter::default()).await.unwrap().rows;
    assert_eq!(events.len(), 300);
    assert!(events.iter().all(|event| event.received_at == START));
    let job = bench.claim_one().await;
    assert_eq!(job.facts.received_at, START, "the handler is told when it arrived");
    assert_eq!(job.since, bench.clock.now(), "its time begins now");
    assert_eq!(bench.job(job.facts.job).await.state, State::Running);
    assert_eq!(judged(&bench, true).await.good, 0);
}

/// Ids and types of GitHub are under no signature: the sum alone finds a change of them.
#[tokio::test]
async fn a_damaged_delivery_is_never_accepted() {
    let all: Vec<_> = damages(300).collect();
    for damages in all.chunks(300) {
        let mut bench = bench_with(roomy());
        let delivery =
            |nth: usize| signed("right", &format!("guid-{nth}"), &format!("{{\"n\":{nth}}}"));
        for nth in 1..=damages.len() + 3 {
            bench.store.intake.quarantine(delivery(nth));
        }
        assert_eq!(kept(&bench).await.matching, damages.len() as u64 + 3);
        bench.store.close().await;
        for (damage, nth) in damages.iter().zip(1..) {
            let path = folder(&bench).join(format!("{nth}"));
            let whole = std::fs::read(&path).unwrap();
            std::fs::write(&path, damage.of(&whole)).unwrap();
        }
        bench.restart().await;
        bench.store.admin.set_judge(judge("right"));
        assert_eq!(judged(&bench, true).await.accepted, 3, "{damages:?}");
        let jobs = bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs;
        let given = |job: &Claimed| {
            let facts = &job.facts;
            let (id, kind) = (facts.event_id.to_string(), facts.event_type.to_string());
            (id, kind, facts.body.clone(), facts.received_at)
        };
        let whole = (damages.len() + 1..=damages.len() + 3).map(|nth| {
            (format!("guid-{nth}"), "push".to_owned(), delivery(nth).body.unwrap(), START)
        });
        let mut found: Vec<_> = jobs.iter().map(given).collect();
        found.sort();
        assert_eq!(found, whole.collect::<Vec<_>>(), "{damages:?}");
    }
}

async fn rows(bench: &Bench) -> Vec<AuditRow> {
    bench.store.admin.audit(AuditFilter::default()).await.unwrap().rows
}

#[tokio::test]
async fn nothing_is_accepted_or_deleted_without_its_row() {
    let mut bench = bench_with(roomy());
    bench.store.intake.quarantine(signed("right", "guid-1", "{}"));
    bench.store.intake.quarantine(failed("b", "192.0.2.1", "{}"));
    assert_eq!(kept(&bench).await.matching, 2);
    let all = QuarantineFilter::default;
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END;";
    bench.with_file(|conn| conn.execute_batch(refuse).unwrap()).await;
    bench.store.admin.set_judge(judge("right"));
    let judged = bench.store.admin.reverify(all(), 0, true, None).await.unwrap();
    assert!(judged.refused.is_some());
    assert!(bench.store.admin.events(EventFilter::default()).await.unwrap().rows.is_empty());
    assert!(bench.store.admin.drop_quarantined(all()).await.is_err());
    assert_eq!((kept(&bench).await.matching, rows(&bench).await.len()), (2, 0));

    bench.with_file(|conn| conn.execute_batch("DROP TRIGGER refuse").unwrap()).await;
    bench.store.admin.set_judge(judge("right"));
    let only = QuarantineFilter { source: Some(name("b")), ..all() };
    let judged = bench.store.admin.reverify(only.clone(), 0, true, None).await.unwrap();
    assert_eq!(judged.refused, None);
    let missing = QuarantineFilter { source: Some(name("c")), ..all() };
    assert_eq!(bench.store.admin.drop_quarantined(missing).await, Ok(0));
    assert_eq!(rows(&bench).await.len(), 0, "nothing was accepted, and nothing deleted");
    assert_eq!(bench.store.admin.drop_quarantined(only).await, Ok(1));
    let audit = rows(&bench).await;
    let said: Vec<_> = audit.iter().map(|row| (row.verb, row.count, row.result.as_str())).collect();
    let verb = AuditVerb::QuarantineDrop;
    assert_eq!(said, [(verb, 1, "done"), (verb, 1, "asked")]);
    assert!(audit.iter().all(|row| row.subject.source == Some(name("b"))));
}

#[tokio::test]
async fn what_the_store_cannot_take_now_stays() {
    let mut bench = bench_with(roomy());
    bench.store.intake.quarantine(signed("right", "guid-1", "{}"));
    assert_eq!(kept(&bench).await.matching, 1);
    bench.store.close().await;
    bench.settings.limits.disk_floor_bytes = u64::MAX;
    bench.restart().await;
    bench.store.admin.set_judge(judge("right"));
    let all = QuarantineFilter::default();
    let judged = bench.store.admin.reverify(all, 0, true, None).await.unwrap();
    assert!(judged.refused.unwrap().contains("too little space"));
    assert_eq!(kept(&bench).await.matching, 1);
}

#[tokio::test]
async fn what_is_too_old_is_not_accepted_even_where_nobody_has_looked_since() {
    let bench = bench_with(roomy());
    bench.store.intake.quarantine(signed("right", "e1", "{}"));
    assert_eq!(kept(&bench).await.matching, 1);
    bench.store.admin.set_judge(judge("right"));
    bench.clock.advance(8 * DAY);
    assert_eq!(judged(&bench, true).await, ReverifyCounts::default());
    assert!(bench.store.admin.events(EventFilter::default()).await.unwrap().rows.is_empty());
}
