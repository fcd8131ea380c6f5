//! The audit list says who changed what: a row for each change, in its transaction, and none for what changes nothing.
use futures_util::future::LocalBoxFuture;

use super::{tokio, *};
use crate::limits::{AUDIT_ROWS, BY_NAME_BYTES, BY_REASON_BYTES};
use crate::pattern::Pattern;

/// Makes a change of a handle for one user. False if it has changed nothing.
type Make = fn(Admin, JobId) -> LocalBoxFuture<'static, Result<bool, Error>>;

/// Each change that is one transaction, and what its subject says of the held job `J` of event `e`.
fn changes() -> Vec<(AuditVerb, Make, &'static str)> {
    fn batch(verb: Verb, job: JobId) -> JobBatch {
        JobBatch { verb, state: State::Held, regardless: false, jobs: vec![(job, 1), (job, 7)] }
    }
    fn event(handler: Option<&str>) -> Replay {
        Replay::Event { source: None, event: id("e"), handler: handler.map(name) }
    }
    vec![
        (
            AuditVerb::Replay,
            |admin, job| {
                Box::pin(async move {
                    admin.replay(Replay::Job(job, Some(1)), false).await.map(|_| true)
                })
            },
            r#"{"job":"J","attempt":1}"#,
        ),
        (
            AuditVerb::Replay,
            |admin, job| {
                Box::pin(async move {
                    admin.replay(Replay::NewKey(job, None), false).await.map(|_| true)
                })
            },
            r#"{"job":"J","attempt":1,"new_key":"K"}"#,
        ),
        (
            AuditVerb::Replay,
            |admin, _| {
                Box::pin(
                    async move { Ok(!admin.replay(event(None), false).await?.jobs.is_empty()) },
                )
            },
            r#"{"event":"e","source":"stripe","jobs":[["J",1]]}"#,
        ),
        (
            AuditVerb::Replay,
            |admin, _| {
                Box::pin(async move { admin.replay(event(Some("new")), true).await.map(|_| true) })
            },
            r#"{"event":"e","source":"stripe","handler":"new","jobs":[["K",0]]}"#,
        ),
        (
            AuditVerb::Replay,
            |admin, job| {
                Box::pin(async move {
                    Ok(admin.move_batch(batch(Verb::Replay, job)).await?.changed < 2)
                })
            },
            r#"{"state":"held","jobs":[["J",1]]}"#,
        ),
        (
            AuditVerb::Drop,
            |admin, job| {
                Box::pin(
                    async move { Ok(admin.move_batch(batch(Verb::Drop, job)).await?.changed < 2) },
                )
            },
            r#"{"state":"held","jobs":[["J",1]]}"#,
        ),
        (
            AuditVerb::Drop,
            |admin, job| Box::pin(async move { admin.drop_job(job, Some(1)).await.map(|_| true) }),
            r#"{"job":"J","attempt":1}"#,
        ),
        (
            AuditVerb::Resolve,
            |admin, job| {
                Box::pin(
                    async move { admin.resolve(job, 1, Resolution::Failed).await.map(|_| true) },
                )
            },
            r#"{"job":"J","attempt":1,"state":"dead"}"#,
        ),
        (
            AuditVerb::MakeMissing,
            |admin, _| {
                let types = vec![Pattern::new("*", true)];
                let wanted =
                    vec![EventMatcher { sources: vec![name("stripe")], types, only: None }];
                let ask = Backfill {
                    handler: name("new"),
                    since: START,
                    wanted,
                    dry_run: false,
                    from: None,
                };
                Box::pin(async move { Ok(admin.make_missing(ask).await?.made > 0) })
            },
            r#"{"handler":"new","since":"2023-11-14T22:13:20.000Z","jobs":[["K",0]]}"#,
        ),
        (
            AuditVerb::Pause,
            |admin, _| Box::pin(async move { admin.pause(&name("h")).await }),
            r#"{"handler":"h"}"#,
        ),
        (
            AuditVerb::Resume,
            |admin, _| Box::pin(async move { admin.resume(&name("paused")).await }),
            r#"{"handler":"paused"}"#,
        ),
    ]
}

async fn rows(bench: &Bench) -> Vec<AuditRow> {
    bench.store.admin.audit(AuditFilter::default()).await.unwrap().rows
}

/// What the changes may change.
async fn state(bench: &Bench) -> String {
    let admin = &bench.store.admin;
    let jobs = admin.jobs(JobFilter::default()).await.unwrap().rows;
    format!("{jobs:?} {:?}", admin.paused().await.unwrap())
}

fn caller() -> By {
    By {
        name: Some("ann".to_owned()),
        via: Via::Dashboard,
        reason: Some("the API was down".to_owned()),
    }
}

#[tokio::test]
async fn a_change_and_its_row_are_one_transaction_and_what_changes_nothing_has_no_row() {
    for (verb, make, subject) in changes() {
        let mut bench = bench().await;
        let claimed = bench.running("e").await;
        let job = claimed.facts.job;
        bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
        bench.store.admin.pause(&name("paused")).await.unwrap();
        let (before, first) = (state(&bench).await, rows(&bench).await);
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((first.len(), first[0].uid, &first[0].name), (1, own, &None));

        let tables = [
            "INSERT ON audit",
            "INSERT ON job",
            "UPDATE ON job",
            "INSERT ON paused",
            "DELETE ON paused",
        ];
        let mut refused = 0;
        for event in tables {
            bench.refuse(event, "true").await;
            let made = match event {
                // Of the other tables, each change writes some.
                "INSERT ON audit" => make(bench.store.admin.clone(), job).await,
                _ if event.ends_with("job")
                    == matches!(verb, AuditVerb::Pause | AuditVerb::Resume) =>
                {
                    Ok(false)
                }
                _ if event == "INSERT ON job" && !subject.contains("new\"") => Ok(false),
                _ if event == "UPDATE ON job" && subject.contains("new\"") => Ok(false),
                _ if event == "INSERT ON paused" && verb != AuditVerb::Pause => Ok(false),
                _ if event == "DELETE ON paused" && verb != AuditVerb::Resume => Ok(false),
                _ => make(bench.store.admin.clone(), job).await,
            };
            refused += u32::from(made.is_err());
            bench.allow().await;
            assert_eq!(state(&bench).await, before, "{verb} {subject} {event}");
            assert_eq!(rows(&bench).await, first, "{verb} {subject} {event}");
        }
        assert_eq!(refused, 2, "{verb} {subject}");

        bench.advance(HOUR).await;
        let admin = bench.store.admin.by(7, caller());
        assert_eq!(make(admin.clone(), job).await, Ok(true), "{verb} {subject}");
        assert_ne!(state(&bench).await, before, "{verb} {subject}");
        let all = rows(&bench).await;
        let row = AuditRow {
            at: bench.clock.now(),
            verb,
            subject: all[0].subject.clone(),
            count: 1,
            result: DONE.to_owned(),
            reason: caller().reason,
            uid: 7,
            name: caller().name,
            via: Via::Dashboard,
        };
        assert_eq!(all, [vec![row], first].concat(), "{verb} {subject}");
        let jobs = bench.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
        let said = serde_json::to_string(&all[0].subject).unwrap().replace(&job.to_string(), "J");
        let said = jobs.iter().fold(said, |said, row| said.replace(&row.job.to_string(), "K"));
        assert_eq!(said, subject, "{verb}");

        // The same once more is refused, or finds nothing to change.
        let after = state(&bench).await;
        assert!(matches!(
            make(admin, job).await,
            Ok(false) | Err(Error::WrongState { .. } | Error::NoJob(_))
        ));
        assert_eq!((state(&bench).await, rows(&bench).await), (after, all), "{verb} {subject}");
    }
}

#[tokio::test]
async fn a_change_that_the_store_does_not_make_stands_between_two_rows() {
    let mut bench = bench().await;
    let admin = bench.store.admin.by(7, caller());
    let change = |result: Result<(), Error>| async move { result.map(|()| ((), 3)) };
    let subject = || AuditSubject { handler: Some(name("h")), ..AuditSubject::default() };
    let failed = Error::Unavailable("é".repeat(BY_REASON_BYTES));
    admin.surround(AuditVerb::Cancel, subject(), 4, change(Ok(()))).await.unwrap();
    admin.surround(AuditVerb::Reload, subject(), 1, change(Err(failed))).await.unwrap_err();
    let all = rows(&bench).await;
    let said: Vec<_> =
        all.iter().rev().map(|row| (row.verb, row.count, &row.result[..4])).collect();
    let expected = [
        (AuditVerb::Cancel, 4, "aske"),
        (AuditVerb::Cancel, 3, DONE),
        (AuditVerb::Reload, 1, "aske"),
        (AuditVerb::Reload, 0, "the "),
    ];
    assert_eq!(said, expected);
    assert_eq!(all[3].result, ASKED);
    assert!(all[0].result.len() <= BY_REASON_BYTES && all[0].result.ends_with('é'));
    assert!(all.iter().all(|row| row.subject == subject() && row.uid == 7));

    // Without its first row a change is not begun.
    bench.refuse("INSERT ON audit", "true").await;
    let begun = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mark = Arc::clone(&begun);
    let change = async move {
        mark.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok::<_, Error>(((), 1))
    };
    let refused = bench.store.admin.surround(AuditVerb::Cancel, subject(), 1, change).await;
    assert!(refused.is_err() && !begun.load(std::sync::atomic::Ordering::SeqCst));
}

#[tokio::test]
async fn a_store_that_cannot_be_written_now_holds_up_no_reload_and_gets_its_rows_later() {
    let bench = bench().await;
    let release = bench.hold_writer().await;
    let admin = bench.store.admin.clone();
    let reload = async { Ok::<_, Error>(((), 1)) };
    admin.surround(AuditVerb::Reload, AuditSubject::default(), 1, reload).await.unwrap();
    assert!(rows(&bench).await.is_empty());
    bench.advance(HOUR).await;
    drop(release);
    admin.pause(&name("h")).await.unwrap();
    let said: Vec<_> = rows(&bench).await.into_iter().map(|row| (row.result, row.at)).collect();
    let row = |result: &str, at| (result.to_owned(), at);
    assert_eq!(said, [row(DONE, bench.clock.now()), row(DONE, START), row(ASKED, START)]);
}

#[tokio::test]
async fn the_list_is_bounded_in_rows_and_time_and_read_in_pages() {
    let bench = bench().await;
    for nth in 0..AUDIT_ROWS {
        bench.advance(HOUR).await;
        match nth % 2 {
            0 => bench.store.admin.pause(&name("h")).await,
            _ => bench.store.admin.resume(&name("h")).await,
        }
        .unwrap();
    }
    let full = rows(&bench).await;
    assert_eq!((full.len() as i64, full[0].at), (AUDIT_ROWS, bench.clock.now()));
    bench.store.admin.pause(&name("h")).await.unwrap();
    let all = rows(&bench).await;
    assert_eq!((all.len() as i64, &all[1..]), (AUDIT_ROWS, &full[..full.len() - 1]));

    let mut paged = Vec::new();
    let mut filter = AuditFilter { limit: Some(3), ..AuditFilter::default() };
    loop {
        let page = bench.store.admin.audit(filter.clone()).await.unwrap();
        assert!(page.rows.len() <= 3);
        paged.extend(page.rows);
        filter.before = page.next;
        if filter.before.is_none() {
            break;
        }
    }
    assert_eq!(paged, all);
    let since = bench.clock.now().before(2 * HOUR);
    let filter =
        AuditFilter { verb: Some(AuditVerb::Resume), since: Some(since), ..AuditFilter::default() };
    let found = bench.store.admin.audit(filter).await.unwrap().rows;
    let wanted = |row: &&AuditRow| row.verb == AuditVerb::Resume && row.at >= since;
    assert_eq!(found, all.iter().filter(wanted).cloned().collect::<Vec<_>>());
    assert_eq!(found.len(), 2);

    // As old as ids: what retention deletes of them it deletes here.
    expired(&bench, START, since).await;
    let young: Vec<_> = all.into_iter().filter(|row| row.at >= since).collect();
    assert_eq!((rows(&bench).await, young.len()), (young, 4));
}

#[tokio::test]
async fn the_schema_takes_what_a_caller_may_say_and_no_more() {
    let bench = bench().await;
    let by = |name: usize, reason: usize| By {
        name: Some("é".repeat(name / 2)),
        via: Via::Command,
        reason: Some("é".repeat(reason / 2)),
    };
    // On PostgreSQL each byte may have been a NUL, in whose place there is a letter of 3 bytes.
    let beyond = |bytes: usize| match engine() {
        EngineKind::Sqlite => bytes + 2,
        EngineKind::Postgres => 3 * bytes + 2,
    };
    for (nth, (name_bytes, reason_bytes, is_taken)) in [
        (BY_NAME_BYTES, BY_REASON_BYTES, true),
        (beyond(BY_NAME_BYTES), BY_REASON_BYTES, false),
        (BY_NAME_BYTES, beyond(BY_REASON_BYTES), false),
        (0, BY_REASON_BYTES, false),
        (BY_NAME_BYTES, 0, false),
    ]
    .into_iter()
    .enumerate()
    {
        let by = by(name_bytes, reason_bytes);
        assert_eq!(by.check().is_ok(), is_taken, "{by:?}");
        let paused = bench.store.admin.by(1, by.clone()).pause(&name(&format!("h{nth}"))).await;
        assert_eq!(paused.is_ok(), is_taken, "{by:?}");
    }
    assert_eq!(rows(&bench).await.len(), 1);
}

#[tokio::test]
async fn a_job_with_another_attempt_than_the_one_seen_is_left_alone() {
    let bench = bench().await;
    let claimed = bench.running("e").await;
    let job = claimed.facts.job;
    let admin = &bench.store.admin;
    let changed = |attempt| Error::NewerAttempt { job, seen: 2, attempt };
    assert_eq!(admin.running_attempt(job, Some(2), "cancelled").await.unwrap_err(), changed(1));
    assert_eq!(admin.running_attempt(job, Some(1), "cancelled").await.unwrap().attempt, 1);
    bench.complete(&claimed, Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome)).await;
    let before = state(&bench).await;
    for what in [Replay::Job(job, Some(2)), Replay::NewKey(job, Some(2))] {
        assert_eq!(admin.replay(what, true).await.unwrap_err(), changed(1));
    }
    assert_eq!(admin.drop_job(job, Some(2)).await.unwrap_err(), changed(1));
    assert_eq!((state(&bench).await, rows(&bench).await), (before, Vec::new()));
    assert!(changed(1).to_string().starts_with("the job has changed: "));
    admin.drop_job(job, Some(1)).await.unwrap();
}
