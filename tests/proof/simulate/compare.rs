//! Compares the store's listings with the model.

use std::collections::BTreeMap;

use hooklatch::model::{JobId, State, Timestamp};
use hooklatch::store::{EventDetail, EventFilter, EventRow, HandlerJob, JobFilter, JobRow, Store};

use super::model::{Event, Job, Model};

/// Compares every event with the model, and returns the events.
pub(crate) async fn all(store: &Store, model: &mut Model) -> Vec<EventDetail> {
    let listed = store.admin.events(EventFilter::default()).await.unwrap().rows;
    assert_eq!(listed.len(), model.events.len(), "how many events there are");
    let mut ids = Vec::new();
    for (found, (row, event)) in listed.iter().zip(model.events.iter().rev()) {
        check_event(found, *row, event, model);
        let id = (event.delivery.source, event.delivery.id.clone());
        if event.variant == 0 {
            ids.push(id);
        }
    }
    let mut details = Vec::new();
    for (source, id) in ids {
        details.extend(self::id(store, model, source, &id).await);
    }
    let jobs = store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let found: Vec<Option<JobId>> = jobs.iter().map(|job| Some(job.job)).collect();
    let expected: Vec<Option<JobId>> = model.jobs.values().rev().map(|job| job.id).collect();
    assert_eq!(found, expected, "the jobs, newest first");
    details
}

/// Compares the events with one id, and records the ids of their new jobs in the model.
pub(crate) async fn id(
    store: &Store,
    model: &mut Model,
    source: &str,
    id: &str,
) -> Vec<EventDetail> {
    let source_name = Some(source.parse().unwrap());
    let details = store.admin.show(source_name, id.parse().unwrap(), None).await.unwrap();
    let rows = model.of_id(source, id);
    assert_eq!(details.len(), rows.len(), "how many bodies {source} {id} has");
    for (detail, row) in details.iter().zip(rows) {
        let event = model.events[&row].clone();
        check_event(&detail.event, row, &event, model);
        let body = event.payload_kept.then_some(event.delivery.body.as_bytes());
        assert_eq!(detail.body.as_deref(), body, "the body of {source} {id}");
        let jobs = model.jobs_of(row);
        assert_eq!(detail.jobs.len(), jobs.len(), "how many jobs {source} {id} has");
        for (found, row) in detail.jobs.iter().zip(jobs) {
            let taken =
                model.jobs.iter().any(|(other, j)| *other != row && j.id == Some(found.job.job));
            assert!(!taken, "two jobs have one id");
            model.jobs.get_mut(&row).unwrap().id.get_or_insert(found.job.job);
            let job = &model.jobs[&row];
            // The newer job may have been deleted, or not been seen yet.
            let newer = job.superseded_by.and_then(|by| model.jobs.get(&by)?.id);
            let newer = newer.or(found.job.superseded_by.filter(|_| job.superseded_by.is_some()));
            check_job(&found.job, job, &event, newer);
            let attempts: Vec<_> = found
                .attempts
                .iter()
                .map(|a| {
                    (a.number as usize, a.started_at.0, a.finished_at.map(|at| at.0), a.outcome)
                })
                .collect();
            let expected: Vec<_> = (1..)
                .zip(&job.attempts)
                .map(|(n, a)| (n, a.started_at, a.end.map(|end| end.0), a.end.map(|end| end.1)))
                .collect();
            assert_eq!(attempts, expected, "the attempts of {source} {id} for {}", job.handler);
        }
    }
    details
}

/// Checks that a job has at most one running attempt, and that it is the one claimed last.
pub(crate) async fn running(store: &Store, model: &Model) {
    let filter = JobFilter { state: Some(State::Running), ..JobFilter::default() };
    let listed = store.admin.jobs(filter).await.unwrap().rows;
    let found: Vec<_> = listed.iter().map(|job| (Some(job.job), job.attempt as usize)).collect();
    let running = model.jobs.values().rev().filter(|job| job.state == State::Running);
    let expected: Vec<_> = running.map(|job| (job.id, job.attempts.len())).collect();
    assert_eq!(found, expected, "the running jobs and their attempts");
}

fn check_event(found: &EventRow, row: u64, event: &Event, model: &Model) {
    let (mut jobs, mut handlers) = (event.removed.clone(), Vec::new());
    for job in model.jobs.values().filter(|job| job.event == row) {
        *jobs.entry(job.state).or_default() += 1;
        handlers.push(HandlerJob { handler: job.handler.parse().unwrap(), state: job.state });
    }
    handlers.sort_by(|a, b| a.handler.cmp(&b.handler));
    let delivery = &event.delivery;
    let expected = EventRow {
        source: delivery.source.parse().unwrap(),
        event_id: delivery.id.parse().unwrap(),
        variant: event.variant,
        event_type: delivery.kind.clone(),
        raw_type: None,
        received_at: Timestamp(event.received_at),
        body_bytes: delivery.body.len() as u64,
        duplicates: event.duplicates,
        last_duplicate_at: event.last_duplicate_at.map(Timestamp),
        conflicts: event.conflicts,
        flagged: event.flagged,
        payload_kept: event.payload_kept,
        jobs,
        handlers,
    };
    assert_eq!(format!("{found:?}"), format!("{expected:?}"), "the event as listed");
}

/// Checks that of each group at most one job runs, and that where one is behind another one keeps it waiting: no group
/// stands still for ever. Asks neither the store nor the model which job that is.
pub(crate) async fn groups(store: &Store) -> u64 {
    let jobs = store.admin.jobs(JobFilter::default()).await.unwrap().rows;
    let mut groups: BTreeMap<_, Vec<&JobRow>> = BTreeMap::new();
    for job in &jobs {
        if let Some(key) = &job.group {
            groups.entry((&job.handler, key)).or_default().push(job);
        }
    }
    let mut waiting = 0;
    for (group, jobs) in groups {
        let running = jobs.iter().filter(|job| job.state == State::Running).count();
        assert!(running <= 1, "{running} of {group:?} run");
        let in_front =
            |job: &&&JobRow| !job.behind && !matches!(job.state, State::Succeeded | State::Dropped);
        let behind = jobs.iter().filter(|job| job.behind).count();
        let front = jobs.iter().filter(in_front).count();
        assert!(behind == 0 || front > 0, "{group:?} stands still: {jobs:#?}");
        waiting += behind as u64;
    }
    waiting
}

fn check_job(found: &JobRow, job: &Job, event: &Event, newer: Option<JobId>) {
    let expected = JobRow {
        job: job.id.unwrap(),
        source: event.delivery.source.parse().unwrap(),
        event_id: event.delivery.id.parse().unwrap(),
        event_type: event.delivery.kind.clone(),
        handler: job.handler.parse().unwrap(),
        state: job.state,
        reason: job.reason.map(str::to_owned),
        attempt: u32::try_from(job.attempts.len()).unwrap(),
        replays: job.replays,
        created_at: Timestamp(job.created_at),
        due_at: job.due_at.map(Timestamp),
        settled_at: job.settled_at.map(Timestamp),
        paused: false,
        broken: None,
        stopped_at: match job.state {
            State::Dead => job.settled_at.map(Timestamp),
            State::Held => {
                let ended = job.attempts.last().and_then(|last| last.end).map_or(0, |end| end.0);
                Some(Timestamp(job.since.max(ended)))
            }
            _ => None,
        },
        last_detail: found.last_detail.clone(),
        detail: job.undecided.then(|| "undecided".to_owned()),
        group: job.group.as_ref().map(|(key, _)| key.clone()),
        behind: job.behind,
        superseded_by: newer,
    };
    assert_eq!(format!("{found:?}"), format!("{expected:?}"), "the job as listed");
}
