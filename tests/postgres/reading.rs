//! What operators read: each verb's answer on a store of known rows, hostile filters, and a server that goes away.

use std::time::Duration;

use futures_util::FutureExt;
use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{AuditVerb, EventId, JobId, Name, Outcome, State, Timestamp};
use hooklatch::retry::Next;
use hooklatch::store::postgres::Admin;
use hooklatch::store::{
    AuditFilter, Error, EventFilter, IdKind, IdMatch, IdQuery, JobFilter, JobSelection, LateEnd,
    Page, Verb,
};
use tokio::time::{Instant, timeout};

use super::cluster::{CREATED, Cluster, START, accept, duplicate, github, stripe};
use super::server::PATIENCE;
use super::site::target;
use super::working::{add_jobs, claim, complete, end, holder, lose};

pub(crate) fn reader(cluster: &Cluster, limits: &Limits) -> Admin {
    Admin::new(target(cluster.server.port, false), limits, Clock::system())
}

async fn with_reader() -> (Cluster, Admin) {
    let cluster = Cluster::new(&[]).await;
    let admin = reader(&cluster, &Limits::default());
    (cluster, admin)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Events `id` of a source, which arrived at `START` plus their number in seconds; jobs of them in states; and the last
/// attempt of each job that has begun. `$1` of a node that all attempts ran on.
const FILL: &str = "
    CREATE FUNCTION pg_temp.event(source text, id text, type text, seconds bigint) RETURNS bigint LANGUAGE sql AS $$
        INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated, flagged)
        VALUES ($1, $2, 0, $3, sha256($2::bytea), 1700000000000 + 1000 * $4, 2, true, false, false) RETURNING row $$;
    CREATE FUNCTION pg_temp.job(event bigint, handler text, state text, reason text, said text) RETURNS bigint
    LANGUAGE sql AS $$
        INSERT INTO node (id, name, machine, session, count, version, state)
        VALUES (uuid_nil(), 'n', 'm', uuid_nil(), 3, 'v', 'active') ON CONFLICT DO NOTHING;
        INSERT INTO job (id, event, handler, state, reason, attempt, counted, since, due_at, created_at, settled_at)
        SELECT md5($1 || $2)::uuid, $1, $2, $3, $4, CASE WHEN $5 IS NULL THEN 0 ELSE 1 END, 0, received_at,
            CASE WHEN $3 = 'waiting' THEN received_at + 5000 END, received_at,
            CASE WHEN $3 IN ('succeeded', 'dead', 'dropped') THEN received_at + 9000 END
        FROM event WHERE row = $1;
        INSERT INTO attempt (job, number, started_at, node, claimant, finished_at, outcome, detail)
        SELECT row, 1, created_at + 1000, uuid_nil(), uuid_nil(), CASE WHEN $3 <> 'running' THEN created_at + 2000 END,
            CASE WHEN $3 <> 'running' THEN 'failed' END, $5
        FROM job WHERE job.event = $1 AND job.handler = $2 AND $5 IS NOT NULL;
        SELECT row FROM job WHERE job.event = $1 AND job.handler = $2 $$;
";

async fn fill(cluster: &Cluster, sql: &str) {
    cluster
        .run(&format!(
            "CREATE FUNCTION uuid_nil() RETURNS uuid LANGUAGE sql IMMUTABLE AS
        $$ SELECT '00000000-0000-0000-0000-000000000000'::uuid $$; {FILL} {sql}"
        ))
        .await;
}

async fn events(admin: &Admin, filter: EventFilter) -> Vec<String> {
    let rows = admin.events(filter).await.unwrap().rows;
    rows.into_iter().map(|row| row.event_id.to_string()).collect()
}

async fn jobs(admin: &Admin, filter: JobFilter) -> Vec<String> {
    let rows = admin.jobs(filter).await.unwrap().rows;
    rows.into_iter().map(|row| format!("{} {} {}", row.event_id, row.handler, row.state)).collect()
}

/// Four events: a pair of sources, a pair of handlers, one event without a payload's jobs.
const SOME: &str = "
    SELECT pg_temp.job(pg_temp.event('a', 'e1', 'push', 1), 'h', 'dead', 'rejected', 'exit 1');
    SELECT pg_temp.job(1, 'i', 'ready', NULL, NULL);
    SELECT pg_temp.job(pg_temp.event('a', 'e2', 'p%sh', 2), 'i', 'waiting', NULL, 'no');
    SELECT pg_temp.event('b', 'e3', 'push\\now', 3);
    UPDATE event SET removed_succeeded = 1, raw_type = 'a\\000b' WHERE event_id = 'e3';
    SELECT pg_temp.job(pg_temp.event('b', 'e4', 'pu_h', 4), 'h', 'running', NULL, '');
";

#[tokio::test]
async fn events_are_listed_newest_first_and_filtered() {
    let (cluster, admin) = with_reader().await;
    fill(&cluster, SOME).await;
    let all = EventFilter::default();
    let page = admin.events(all.clone()).await.unwrap();
    assert_eq!((page.next, page.looked_back_to), (None, None));
    let [e4, e3, e2, e1] = &page.rows[..] else { panic!("{page:?}") };
    assert_eq!(e1.jobs, [(State::Ready, 1), (State::Dead, 1)].into());
    let handlers = e1.handlers.iter().map(|job| (job.handler.as_str(), job.state));
    assert!(handlers.eq([("h", State::Dead), ("i", State::Ready)]));
    assert_eq!((e2.jobs.len(), e4.handlers.len()), (1, 1));
    assert_eq!((&e3.handlers[..], &e3.jobs), (&[][..], &[(State::Succeeded, 1)].into()));
    assert_eq!((e3.raw_type.as_deref(), e3.payload_kept), (Some("a\0b"), false));
    assert_eq!(e4.received_at, START.after(Duration::from_secs(4)));

    let of = |handler: Option<&str>, state| EventFilter {
        handler: handler.map(name),
        state,
        ..EventFilter::default()
    };
    let typed = |event_type: &str| EventFilter {
        event_type: Some(event_type.to_owned()),
        ..EventFilter::default()
    };
    let since = EventFilter { since: Some(START.after(Duration::from_secs(3))), ..all.clone() };
    for (filter, found) in [
        (of(Some("h"), None), ["e4", "e1"].as_slice()),
        (of(Some("i"), None), &["e2", "e1"]),
        (of(Some("i"), Some(State::Dead)), &[]),
        (of(Some("h"), Some(State::Dead)), &["e1"]),
        (of(None, Some(State::Running)), &["e4"]),
        (of(None, Some(State::Succeeded)), &["e3"]),
        (of(Some("h"), Some(State::Succeeded)), &[]),
        (of(None, Some(State::Dropped)), &[]),
        (EventFilter { source: Some(name("a")), ..all.clone() }, &["e2", "e1"]),
        (EventFilter { source: Some(name("none")), ..all.clone() }, &[]),
        (since, &["e4", "e3"]),
        (typed("push"), &["e1"]),
        (typed("pu*"), &["e4", "e3", "e1"]),
        (typed("*h"), &["e4", "e2", "e1"]),
        (typed("p*n*w"), &["e3"]),
        // What means something to LIKE means itself.
        (typed("p%sh"), &["e2"]),
        (typed("pu_h"), &["e4"]),
        (typed("pu__"), &[]),
        (typed("push\\now"), &["e3"]),
        (typed("%"), &[]),
        (typed("*\\"), &[]),
        (typed("*\0"), &[]),
        (typed("PUSH"), &[]),
    ] {
        assert_eq!(events(&admin, filter.clone()).await, found, "{filter:?}");
        let (followed, _) = admin.new_events(filter.clone(), None).await.unwrap();
        let followed = followed.iter().rev().map(|row| row.event_id.to_string());
        assert_eq!(followed.collect::<Vec<_>>(), found, "followed: {filter:?}");
    }
    let none = admin.events(EventFilter { limit: Some(0), ..all }).await.unwrap_err();
    assert_eq!(none, Error::NoRows { most: 1000 });
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_filtered() {
    let (cluster, admin) = with_reader().await;
    fill(&cluster, SOME).await;
    let lane = "INSERT INTO lane (handler, paused_at) VALUES ('h', 7), ('i', NULL)";
    cluster.run(lane).await;
    let all = JobFilter::default();
    let rows = admin.jobs(all.clone()).await.unwrap().rows;
    let [running, waiting, ready, dead] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((dead.reason.as_deref(), dead.attempt), (Some("rejected"), 1));
    assert_eq!(dead.last_detail.as_deref(), Some("exit 1"));
    assert_eq!(dead.stopped_at, dead.settled_at);
    assert_eq!((dead.paused, running.paused, ready.paused), (true, true, false));
    assert_eq!(waiting.due_at, Some(START.after(Duration::from_secs(7))));
    assert_eq!((ready.attempt, ready.last_detail.as_deref(), ready.stopped_at), (0, None, None));
    assert_eq!(admin.job(dead.job).await.unwrap().event_id.as_str(), "e1");
    assert_eq!(admin.paused().await.unwrap()[0].since, Timestamp(7));
    assert_eq!(admin.paused().await.unwrap().len(), 1);

    let state = |state| JobFilter { state: Some(state), ..JobFilter::default() };
    let detail =
        |text: &str| JobFilter { last_detail: Some(text.to_owned()), ..JobFilter::default() };
    let rejected = JobFilter { reason: Some("rejected".to_owned()), ..all.clone() };
    for (filter, found) in [
        (state(State::Dead), ["e1 h dead"].as_slice()),
        (state(State::Ready), &["e1 i ready"]),
        (state(State::Waiting), &["e2 i waiting"]),
        (state(State::Succeeded), &[]),
        (JobFilter { handler: Some(name("h")), ..all.clone() }, &["e4 h running", "e1 h dead"]),
        (JobFilter { source: Some(name("b")), ..all.clone() }, &["e4 h running"]),
        (JobFilter { source: Some(name("b")), ..state(State::Dead) }, &[]),
        (JobFilter { event_type: Some("*%*".to_owned()), ..all.clone() }, &["e2 i waiting"]),
        (JobFilter { event_type: Some("pu_*".to_owned()), ..state(State::Dead) }, &[]),
        (rejected.clone(), &["e1 h dead"]),
        (JobFilter { reason: Some("rejected\0".to_owned()), ..all.clone() }, &[]),
        (detail("exit 1"), &["e1 h dead"]),
        (detail(""), &["e4 h running", "e1 i ready"]),
        (detail("exit _"), &[]),
        (
            JobFilter { since: Some(START.after(Duration::from_secs(4))), ..all.clone() },
            &["e4 h running"],
        ),
    ] {
        assert_eq!(jobs(&admin, filter.clone()).await, found, "{filter:?}");
    }
}

/// Every row comes once, whatever the pages' size, and a filter that few rows match does not end the walk.
#[tokio::test]
async fn pages_go_on_where_the_last_one_ended() {
    let (cluster, admin) = with_reader().await;
    // Numbers have gaps, and 42,000 rows are more than two windows.
    let many = "
        INSERT INTO event (row, source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated,
            flagged)
        SELECT 3 * n, 's', 'e' || n, 0, CASE WHEN n % 20000 = 5 THEN 'rare' ELSE 'often' END, sha256(n::text::bytea),
            n, 2, false, false, false FROM generate_series(1, 42000) n;
        INSERT INTO job (id, event, handler, state, reason, since, created_at)
        SELECT gen_random_uuid(), row, 'h', 'held', 'restored', 0, received_at FROM event";
    cluster.run(many).await;
    async fn walk<T>(
        mut page: impl AsyncFnMut(Option<hooklatch::store::PageCursor>) -> Page<T>,
    ) -> (Vec<T>, usize) {
        let (mut rows, mut before, mut pages) = (Vec::new(), None, 0);
        loop {
            let Page { rows: more, next, looked_back_to } = page(before).await;
            rows.extend(more);
            pages += 1;
            assert_eq!(next.is_some(), looked_back_to.is_some());
            if next.is_none() {
                return (rows, pages);
            }
            before = next;
        }
    }
    let rare = Some("rare".to_owned());
    let (found, pages) = walk(async |before| {
        let filter = EventFilter { event_type: rare.clone(), before, ..EventFilter::default() };
        admin.events(filter).await.unwrap()
    })
    .await;
    let ids: Vec<_> = found.iter().map(|row| row.event_id.as_str()).collect();
    assert_eq!((&ids[..], pages), (&["e40005", "e20005", "e5"][..], 3));
    for state in [None, Some(State::Held)] {
        let (found, pages) = walk(async |before| {
            let event_type = rare.clone();
            let filter =
                JobFilter { event_type, state, before, limit: Some(1), ..JobFilter::default() };
            admin.jobs(filter).await.unwrap()
        })
        .await;
        let ids: Vec<_> = found.iter().map(|row| row.event_id.as_str()).collect();
        assert_eq!((&ids[..], pages), (&["e40005", "e20005", "e5"][..], 3), "{state:?}");
    }
    let (all, pages) = walk(async |before| {
        admin.events(EventFilter { before, ..EventFilter::default() }).await.unwrap()
    })
    .await;
    assert_eq!((all.len(), pages), (42_000, 42));
    assert!(all.iter().map(|row| row.received_at.0).eq((1..=42_000).rev()));
    // Nothing older is looked at behind a page that is older as a whole.
    let (found, pages) = walk(async |before| {
        let since = Some(Timestamp(41_000));
        let filter =
            EventFilter { event_type: rare.clone(), since, before, ..EventFilter::default() };
        admin.events(filter).await.unwrap()
    })
    .await;
    assert_eq!((found.len(), pages), (0, 2));

    let mut ask = JobSelection { filter: JobFilter::default(), after: None, verb: Verb::Drop };
    ask.filter.event_type = rare;
    let (mut jobs, mut looked_at, mut calls) = (Vec::new(), 0, 0);
    loop {
        let selected = admin.select(ask.clone()).await.unwrap();
        jobs.extend(selected.jobs);
        looked_at += selected.looked_at;
        calls += 1;
        ask.after = selected.next;
        if ask.after.is_none() {
            break;
        }
    }
    assert_eq!((jobs.len(), looked_at, calls), (3, 42_000, 3));
}

#[tokio::test]
async fn an_event_is_shown_whole() {
    let (cluster, admin) = with_reader().await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    assert_eq!(accept(&a, github("e", "push", "body")).await, Ok(CREATED));
    assert!(accept(&a, github("e", "push", "other body")).await.is_ok());
    assert!(accept(&a, github("twin", "push", "body")).await.is_ok());
    let first = claim(&a, 1).await.remove(0);
    let next = Next::Wait { due_at: START };
    complete(&a, end(&first, Outcome::Failed, next)).await;
    assert_eq!(claim(&b, 1).await[0].running.attempt, 2);
    let running = admin.running_attempt(first.running.job, None, "cancelled").await.unwrap();
    assert_eq!((running.attempt, running.runner.is_some()), (2, true));
    let job = first.running.job;
    let newer = admin.running_attempt(job, Some(1), "cancelled").await.unwrap_err();
    assert_eq!(newer, Error::NewerAttempt { job, seen: 1, attempt: 2 });
    lose(&cluster, "b").await;
    let wrong = admin.running_attempt(job, None, "cancelled").await.unwrap_err();
    assert_eq!(wrong, Error::WrongState { job, state: State::Held, verb: "cancelled" });
    let gone = JobId::from_bytes([7; 16]);
    assert_eq!(admin.job(gone).await.unwrap_err(), Error::NoJob(gone));
    assert_eq!(admin.running_attempt(gone, None, "x").await.unwrap_err(), Error::NoJob(gone));
    cluster
        .run(
            "INSERT INTO former_key SELECT gen_random_uuid(), row, 1, 5 FROM job WHERE attempt = 2;
            INSERT INTO restored (from_store, made_at, restored_at, held)
            VALUES (gen_random_uuid(), NULL, 1800000000000, 4), (gen_random_uuid(), NULL, 1600000000000, 5),
                (gen_random_uuid(), 1600000000000, 1800000000000, 6);
            INSERT INTO late_end SELECT f.id, 1, gen_random_uuid(), 'failed', 'old key', 6 FROM former_key f;
            INSERT INTO late_end SELECT id, 2, gen_random_uuid(), v.outcome, v.detail, v.at FROM job,
                (VALUES ('failed', 'first', 7), ('succeeded', 'last', 8)) v (outcome, detail, at) WHERE attempt = 2;
            INSERT INTO late_end SELECT id, 1, gen_random_uuid(), 'rejected', 'of another job', 9 FROM job
                WHERE attempt = 0;
            INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors, answered_at,
                status, headers, body, body_bytes)
            SELECT p.event, 'github', 'me', 'k', digest, 1, 2, 3, 4, 204, headers, body, body_bytes
            FROM payload p JOIN event e ON e.row = p.event WHERE event_id = 'e' AND variant = 0",
        )
        .await;

    let id: EventId = "e".parse().unwrap();
    let shown = admin.show(None, id.clone(), Some(0)).await.unwrap();
    let [event, variant] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!(event.body.as_deref(), Some(b"body".as_slice()));
    assert_eq!(event.headers[0], ("Content-Type".to_owned(), "application/json".to_owned()));
    assert!(event.digest.starts_with("230d8358"), "{}", event.digest);
    assert_eq!((variant.event.variant, &variant.body, variant.headers.len()), (1, &None, 4));
    assert_eq!(event.jobs.len(), 1);
    let [one, two] = &event.jobs[0].attempts[..] else { panic!("{event:?}") };
    assert_eq!((one.outcome, two.outcome), (Some(Outcome::Failed), Some(Outcome::Unknown)));
    assert_eq!(one.record.detail, "exit\u{fffd}status");
    let late = |outcome, detail: &str, at| {
        Some(LateEnd { outcome, detail: detail.to_owned(), received_at: Timestamp(at) })
    };
    assert_eq!(one.late_end, late(Outcome::Failed, "old key", 6));
    assert_eq!(two.late_end, late(Outcome::Succeeded, "last", 8));
    assert!(two.record.usage.is_none());
    assert_eq!(event.jobs[0].former_keys[0].replaced_at, Timestamp(5));
    assert_eq!(event.jobs[0].job.state, State::Held);
    assert!(event.jobs[0].job.stopped_at.is_some());
    assert_eq!(event.twins.len(), 1);
    assert_eq!(event.twins[0].event_id.as_str(), "twin");
    assert_eq!(event.restores.iter().map(|row| row.held).collect::<Vec<_>>(), [4]);
    let key = event.key.as_ref().unwrap();
    assert_eq!((key.caller.as_str(), key.status), ("me", Some(204)));
    assert_eq!(key.body.as_deref(), Some(b"body".as_slice()));
    assert!(variant.key.is_none());
    let all = admin.show(Some(name("github")), id.clone(), None).await.unwrap();
    assert_eq!(all[1].body.as_deref(), Some(b"other body".as_slice()));
    assert!(admin.show(Some(name("x")), id, None).await.unwrap().is_empty());
    assert_eq!(admin.secrets().await.unwrap()[0].source.as_str(), "github");
}

async fn found(admin: &Admin, kind: IdKind, text: &str) -> Result<String, String> {
    match admin.find(IdQuery { kind, text: text.to_owned(), source: None }).await {
        Ok(IdMatch::Event(event)) => Ok(format!("event {event}")),
        Ok(IdMatch::Job(row)) => Ok(format!("job {}", row.job)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn the_beginning_that_one_id_alone_has_finds_it() {
    const EVENTS: [&str; 7] = [
        "evt_abc1",
        "evt_abc2",
        "evt_abc2_and_more",
        "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "72d3162e-cc78-11e3-81ab-4c9367dc0959",
        "72D3162E-cc78-11e3-81ab-4c9367dc0958",
        "0a1b2c3d-4e5f-4a6b-8c7d-9e8f70615243",
    ];
    let (cluster, admin) = with_reader().await;
    // Ids of version 7 are made in the order of time: these share their first group.
    let mut sql = "SELECT pg_temp.event('github', 'evt_abc1', 'push', 0);".to_owned();
    for (nth, event) in EVENTS.into_iter().enumerate() {
        sql.push_str(&format!(
            "SELECT pg_temp.job(pg_temp.event('stripe', '{event}', 'a', 1), 'h', 'ready', NULL, NULL);
             UPDATE job SET id = '0199d0a3-5f6{nth}-7e21-a3b4-0c1d2e3f4a5b' WHERE row = lastval();"
        ));
    }
    fill(&cluster, &sql).await;
    let jobs = admin.jobs(JobFilter::default()).await.unwrap().rows;
    let jobs = jobs.iter().map(|row| row.job.to_string());
    let whole: Vec<String> = EVENTS.map(str::to_owned).into_iter().chain(jobs).collect();

    // The short form of an id finds it, and so does the whole id.
    let chars = admin.shorten(IdKind::Any, whole.clone()).await.unwrap();
    assert_eq!(chars[..7], [8, 8, 17, 36, 36, 8, 8]);
    assert_eq!(chars[7..], [13; 7]);
    for (nth, (id, chars)) in whole.iter().zip(chars).enumerate() {
        let one = if nth < EVENTS.len() { format!("event {id}") } else { format!("job {id}") };
        for text in [&id[..chars], id] {
            assert_eq!(found(&admin, IdKind::Any, text).await, Ok(one.clone()), "{text}");
        }
    }
    // An event whose id begins as a job's does.
    let like_a_job = "0199d0a3-5f60-7e21-a3b4-1".to_owned();
    for (kind, chars) in [(IdKind::Any, 25), (IdKind::Event, 8)] {
        assert_eq!(admin.shorten(kind, vec![like_a_job.clone()]).await.unwrap(), [chars]);
    }
    assert_eq!(found(&admin, IdKind::Event, "evt_abc2").await.unwrap(), "event evt_abc2");
    assert_eq!(found(&admin, IdKind::Event, "evt_abc2_").await.unwrap(), "event evt_abc2_and_more");
    for (kind, text, said) in [
        (
            IdKind::Any,
            "evt_abc",
            "several ids begin with 'evt_abc': event evt_abc1, event evt_abc2, event evt_abc2_and_more; type more of the one you mean",
        ),
        (IdKind::Any, "evt_x", "no event or job begins with 'evt_x'"),
        (IdKind::Any, "evt%", "no event or job begins with 'evt%'"),
        (IdKind::Any, "evt_\0", "no event or job begins with 'evt_\0'"),
        (IdKind::Any, "évt_", "no event or job begins with 'évt_'"),
        (IdKind::Event, &whole[9][..13], &format!("no event begins with '{}'", &whole[9][..13])),
        (IdKind::Job, "0a1b2c3d", "no job begins with '0a1b2c3d'"),
        (IdKind::Job, "0199D0A3-5f60", "no job begins with '0199D0A3-5f60'"),
        (
            IdKind::Any,
            "evt",
            "no event or job begins with 'evt' (type at least 4 characters of an id)",
        ),
    ] {
        assert_eq!(found(&admin, kind, text).await, Err(said.to_owned()), "{text}");
    }
    let said = found(&admin, IdKind::Job, "0199d0").await.unwrap_err();
    assert_eq!((said.matches("job ").count(), said.contains("…")), (5, true), "{said}");
    let of = |source: &str| IdQuery {
        kind: IdKind::Any,
        text: "evt_abc1".to_owned(),
        source: Some(name(source)),
    };
    assert!(matches!(admin.find(of("github")).await, Ok(IdMatch::Event(_))));
    assert!(admin.find(of("other")).await.is_err());
    let odd = vec!["evt_\0".to_owned(), String::new(), "é".repeat(20)];
    assert_eq!(admin.shorten(IdKind::Any, odd).await.unwrap().len(), 3);
}

/// Held and dead jobs of two causes, a group that stands still, and jobs of each other state.
const STANDING: &str = "
    SELECT pg_temp.job(pg_temp.event('s', 'e1', 'a', 1), 'h', 'held', 'unknown outcome', 'killed');
    SELECT pg_temp.job(pg_temp.event('s', 'e2', 'a', 2), 'h', 'held', 'unknown outcome', 'killed');
    SELECT pg_temp.job(pg_temp.event('s', 'e3', 'a', 3), 'h', 'held', 'suspected replay', NULL);
    SELECT pg_temp.job(pg_temp.event('t', 'e4', 'a', 4), 'i', 'dead', 'rejected', 'exit 2');
    UPDATE job SET group_key = 'k', group_rule = 'block' WHERE event = 4;
    SELECT pg_temp.job(pg_temp.event('t', 'e5', 'a', 5), 'i', 'ready', NULL, NULL);
    UPDATE job SET group_key = 'k', group_rule = 'block', behind = true WHERE event = 5;
    SELECT pg_temp.job(pg_temp.event('s', 'e6', 'a', 6), 'h', 'ready', NULL, NULL);
    SELECT pg_temp.job(pg_temp.event('s', 'e7', 'a', 7), 'h', 'ready', NULL, NULL);
    SELECT pg_temp.job(pg_temp.event('s', 'e8', 'a', 8), 'g', 'waiting', NULL, 'x');
    SELECT pg_temp.job(pg_temp.event('s', 'e9', 'a', 9), 'g', 'running', NULL, '');
    SELECT pg_temp.job(pg_temp.event('s', 'f1', 'a', 10), 'g', 'succeeded', NULL, '');
    UPDATE event SET has_key = true WHERE event_id IN ('e1', 'e2');
    INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
        VALUES (2, 's', '', 'k', sha256(''), 1, 2, 3);
    INSERT INTO lane (handler, paused_at) VALUES ('g', 5);
    INSERT INTO secret_use VALUES ('s', 'env A', 20), ('s', 'env B', 30), ('u', 'env C', 40);
    INSERT INTO restored (from_store, restored_at, held) VALUES (uuid_nil(), now_ms(), 1), (uuid_nil(), 1, 2);
";

#[tokio::test]
async fn what_waits_and_what_stands_still_is_counted_and_chosen() {
    let (cluster, admin) = with_reader().await;
    fill(&cluster, STANDING).await;
    let at = |seconds| START.after(Duration::from_secs(seconds));
    let status = admin.status(vec![name("t"), name("s"), name("u"), name("s")]).await.unwrap();
    let backlogs = |of: &[hooklatch::store::Backlog]| -> Vec<(String, u64, Timestamp)> {
        of.iter().map(|one| (one.handler.to_string(), one.jobs, one.since)).collect()
    };
    let own = |handler: &str, jobs, seconds| (handler.to_owned(), jobs, at(seconds));
    assert_eq!(backlogs(&status.ready), [own("h", 2, 6), own("i", 1, 5)]);
    assert_eq!(backlogs(&status.waiting), [own("g", 1, 13)]);
    assert_eq!(backlogs(&status.running), [own("g", 1, 10)]);
    let stuck: Vec<_> = status.stuck.iter().map(|one| (one.reason.as_str(), one.jobs)).collect();
    assert_eq!(stuck, [("suspected replay", 1), ("unknown outcome", 2), ("rejected", 1)]);
    assert_eq!(status.stuck[1].oldest_at, at(1));
    let blocked: Vec<_> =
        status.blocked.iter().map(|one| (one.handler.as_str(), one.groups)).collect();
    assert_eq!(blocked, [("i", 1)]);
    assert_eq!(admin.job(status.blocked[0].job).await.unwrap().event_id.as_str(), "e4");
    assert!(status.disk.database_bytes > 1 << 20, "{:?}", status.disk);
    let words: Vec<_> = status
        .sources
        .iter()
        .map(|one| {
            let event = one.event.as_ref().map(|(id, at)| (id.as_str(), *at));
            (one.source.as_str(), event, one.secret_matched_at)
        })
        .collect();
    assert_eq!(
        words,
        [
            ("s", Some(("f1", at(10))), Some(Timestamp(30))),
            ("t", Some(("e5", at(5))), None),
            ("u", None, Some(Timestamp(40))),
        ]
    );
    assert_eq!((status.newest_event_at, status.paused.len()), (Some(at(10)), 1));
    assert_eq!(status.restores.iter().map(|row| row.held).collect::<Vec<_>>(), [1]);
    assert_eq!(admin.stuck_counts().await.unwrap(), (3, 1));
    let unfinished = admin.unfinished().await.unwrap();
    assert_eq!(unfinished, [(name("g"), 2), (name("h"), 2), (name("i"), 1)]);
    let gauges = admin.gauges().await.unwrap();
    assert_eq!((gauges.paused.len(), gauges.secrets.len()), (1, 3));
    assert_eq!(backlogs(&gauges.jobs.ready), backlogs(&status.ready));
    assert_eq!(gauges.jobs.count(&name("h"), State::Held), 3);

    let stuck = admin.stuck().await.unwrap();
    let groups = stuck.groups.iter().map(|group| (group.newest.event_id.as_str(), group.jobs));
    assert!(groups.eq([("e3", 1), ("e2", 2), ("e4", 1)]), "{stuck:?}");
    assert_eq!((stuck.groups[1].oldest_at, stuck.more), (at(1), vec![]));

    let select = async |verb, filter| {
        let ask = JobSelection { filter, after: None, verb };
        let chosen = admin.select(ask).await.unwrap();
        assert_eq!((chosen.looked_at > 0, chosen.next), (true, None));
        (chosen.jobs.len(), chosen.suspected, chosen.answered)
    };
    let all = JobFilter::default();
    let held = JobFilter { state: Some(State::Held), ..all.clone() };
    let named = JobFilter { reason: Some("suspected replay".to_owned()), ..held.clone() };
    // The caller of e1 has had its answer; that of e2 waits for it.
    assert_eq!(select(Verb::Replay, held.clone()).await, (1, 1, 1));
    assert_eq!(select(Verb::Drop, held).await, (3, 0, 0));
    assert_eq!(select(Verb::Drop, all.clone()).await, (4, 0, 0));
    assert_eq!(select(Verb::Replay, named).await, (1, 0, 0));
    let ready = JobFilter { state: Some(State::Ready), ..all };
    assert_eq!(select(Verb::Drop, ready).await, (0, 0, 0));
}

#[tokio::test]
async fn the_audit_list_is_read_newest_first_and_filtered() {
    let (cluster, admin) = with_reader().await;
    cluster
        .run(
            r#"INSERT INTO audit (at, verb, subject, count, result, reason, uid, name, via) VALUES
                (1, 'pause', '{"handler":"h"}', 1, 'done', 'why', 7, 'me', 'dashboard'),
                (2, 'resume', '{}', 1, 'done', NULL, 4294967295, NULL, 'command'),
                (3, 'pause', '{"jobs":[]}', 1, 'asked', NULL, 0, NULL, 'command')"#,
        )
        .await;
    let at = async |filter| -> Vec<i64> {
        admin.audit(filter).await.unwrap().rows.iter().map(|row| row.at.0).collect()
    };
    let all = AuditFilter::default();
    assert_eq!(at(all.clone()).await, [3, 2, 1]);
    let pauses = AuditFilter { verb: Some(AuditVerb::Pause), ..all.clone() };
    assert_eq!(at(pauses.clone()).await, [3, 1]);
    assert_eq!(at(AuditFilter { since: Some(Timestamp(2)), ..pauses.clone() }).await, [3]);
    let first = admin.audit(AuditFilter { limit: Some(1), ..pauses.clone() }).await.unwrap();
    assert_eq!(first.looked_back_to, Some(Timestamp(3)));
    let last = admin.audit(AuditFilter { before: first.next, ..pauses }).await.unwrap().rows;
    assert_eq!((last[0].subject.handler.as_ref(), last[0].uid), (Some(&name("h")), 7));
    assert_eq!((last[0].reason.as_deref(), last[0].name.as_deref()), (Some("why"), Some("me")));
    assert_eq!(admin.audit(all).await.unwrap().rows[1].uid, u32::MAX);
}

#[tokio::test]
async fn nodes_are_listed_with_what_runs_there_and_what_they_configure() {
    let (cluster, admin) = with_reader().await;
    let (a, b) = (holder(&cluster, "a").await, holder(&cluster, "b").await);
    let c = holder(&cluster, "c").await;
    add_jobs(&a, 0, 2).await;
    claim(&a, 2).await;
    cluster.run("UPDATE handler SET digest = sha256('') WHERE node = (SELECT id FROM node WHERE name = 'b')").await;
    c.close();
    lose(&cluster, "c").await;
    let backend = cluster.server.client("app", "app").await;
    backend.batch_execute("SET application_name = 'hooklatch b'").await.unwrap();
    let nodes = admin.nodes().await.unwrap();
    let seen: Vec<_> = nodes
        .iter()
        .map(|node| {
            let differs = node.handlers.iter().any(|own| own.differs);
            (node.name.as_str(), node.state.as_str(), node.running, node.connections, differs)
        })
        .collect();
    assert_eq!(
        seen,
        [("a", "active", 2, 0, true), ("b", "active", 0, 1, true), ("c", "lost", 0, 0, false)]
    );
    assert_eq!((nodes[0].sessions, nodes[0].machine.as_str()), (1, "machine one"));
    assert!((0..60_000).contains(&nodes[0].silent_millis) && !nodes[0].version.is_empty());
    assert_eq!(nodes[0].handlers.len(), 1);
    cluster.run("UPDATE handler SET digest = sha256('')").await;
    assert!(!admin.nodes().await.unwrap()[0].handlers[0].differs);
    drop(b);
}

/// A transaction with a lower number commits after one with a higher number.
#[tokio::test]
async fn a_follower_misses_no_event_whose_number_is_lower_and_whose_commit_is_later() {
    let (cluster, admin) = with_reader().await;
    let a = holder(&cluster, "a").await;
    assert_eq!(accept(&a, stripe("e1", "{}")).await, Ok(CREATED));
    let ids = |found: &[hooklatch::store::EventRow]| -> Vec<String> {
        found.iter().map(|row| row.event_id.to_string()).collect()
    };
    let (found, place) = admin.new_events(EventFilter::default(), None).await.unwrap();
    assert_eq!(ids(&found), ["e1"]);
    let slow = cluster.admin().await;
    slow.batch_execute(
        "BEGIN; INSERT INTO event (source, event_id, variant, type, digest, received_at, body_bytes, guarded, repeated,
            flagged) VALUES ('s', 'e2', 0, 'a', sha256(''), 1, 1, false, false, false)",
    )
    .await
    .unwrap();
    assert_eq!(accept(&a, stripe("e3", "{}")).await, Ok(CREATED));
    assert_eq!(events(&admin, EventFilter::default()).await, ["e3", "e1"]);
    let (found, same) = admin.new_events(EventFilter::default(), Some(place)).await.unwrap();
    assert_eq!((ids(&found).len(), same), (0, place), "e2 is still to come");
    let why = admin.new_events(EventFilter::default(), None).await.unwrap_err();
    assert!(why.to_string().ends_with("commits wait; ask again"), "{why}");
    // It ends while the follower waits.
    let mut waiting = Box::pin(admin.new_events(EventFilter::default(), Some(place)));
    assert!((&mut waiting).now_or_never().is_none());
    slow.batch_execute("COMMIT").await.unwrap();
    let (found, place) = waiting.await.unwrap();
    assert_eq!(ids(&found), ["e2", "e3"]);
    let one = EventFilter { limit: Some(1), ..EventFilter::default() };
    add_jobs(&a, 0, 3).await;
    let mut place = place;
    for _ in 0..3 {
        let (found, next) = admin.new_events(one.clone(), Some(place)).await.unwrap();
        assert_eq!(found.len(), 1);
        place = next;
    }
    let (found, same) = admin.new_events(one, Some(place)).await.unwrap();
    assert_eq!((found.len(), same), (0, place));
    assert_eq!(accept(&a, stripe("e3", "{}")).await, Ok(duplicate(State::Ready)));
}

#[tokio::test]
async fn a_server_that_is_away_is_named_and_one_that_is_back_answers() {
    let (mut cluster, admin) = with_reader().await;
    fill(&cluster, SOME).await;
    assert_eq!(events(&admin, EventFilter::default()).await.len(), 4);
    assert_eq!(admin.stuck_counts().await.unwrap(), (0, 1));
    cluster.server.crash();
    for why in [
        admin.stuck_counts().await.unwrap_err(),
        admin.events(EventFilter::default()).await.unwrap_err(),
        admin.status(vec![]).await.unwrap_err(),
    ] {
        let Error::Unavailable(text) = &why else { panic!("{why}") };
        assert!(text.contains("database") || text.contains("connection"), "{why}");
    }
    cluster.server.launch();
    // The end of the old connection may still be on its way.
    let until = Instant::now() + PATIENCE;
    while admin.stuck_counts().await.is_err() {
        assert!(Instant::now() < until);
    }
    assert_eq!(events(&admin, EventFilter::default()).await.len(), 4);
}

#[tokio::test]
async fn a_slow_listing_is_stopped_and_look_ups_do_not_wait_for_it() {
    let cluster = Cluster::new(&[]).await;
    fill(&cluster, SOME).await;
    // No listing reaches this limit: its caller waits as long as the table is locked.
    let admin = reader(&cluster, &Limits { list_millis: 3_600_000, ..Limits::default() });
    assert_eq!(events(&admin, EventFilter::default()).await.len(), 4);
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; LOCK TABLE payload IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let looking = async {
        cluster.blocked(1).await;
        (admin.stuck_counts().await, jobs(&admin, JobFilter::default()).await.len())
    };
    let looked = tokio::select! {
        listed = admin.events(EventFilter::default()) => panic!("{listed:?}"),
        looked = timeout(PATIENCE, looking) => looked.expect("look-ups wait for the listing"),
    };
    assert_eq!(looked, (Ok((0, 1)), 4));
    // A caller that gives up leaves nothing behind: the listing above was given up while it waited at the server, these
    // at once.
    for _ in 0..3 {
        assert!(admin.events(EventFilter::default()).now_or_never().is_none());
    }
    assert!(admin.show(None, "e1".parse().unwrap(), None).now_or_never().is_none());
    let quick = reader(&cluster, &Limits { list_millis: 300, ..Limits::default() });
    let slow = quick.events(EventFilter::default()).await;
    assert_eq!(slow.unwrap_err(), Error::TooSlow(Duration::from_millis(300)));
    let counts = timeout(PATIENCE, admin.stuck_counts()).await;
    assert_eq!(counts.expect("waits for a statement that was given up"), Ok((0, 1)));
    gate.batch_execute("COMMIT").await.unwrap();
    assert_eq!(events(&admin, EventFilter::default()).await.len(), 4);
    let idle = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity
        WHERE usename = 'app' AND state <> 'idle' AND query NOT LIKE '%pg_stat_activity%')";
    cluster.server.wait_for(idle).await;
}
