//! The rows of new events: event, payload and jobs, and what the jobs do to their groups (I6, I7).
//!
//! The groups of all jobs are locked first (N35). An event takes its number behind those locks (N37). Each new job of
//! a group begins behind; then it takes the place of older ones, where the latest wins; and then the oldest job behind
//! goes on, where no job holds the group. So each statement sees what a claim has done before it (N36).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio_postgres::Row;
use uuid::Uuid;

use crate::limits::BATCH_JOBS;
use crate::model::{GroupRule, HeldReason, Timestamp};
use crate::store::border::{Accept, Delay, NewJob};
use crate::store::codec;
use crate::store::decide::delivery::Twins;
use crate::store::decide::group::{first_wait, keeps_place};
use crate::store::decide::new_job;

use super::flight::{Flight, Param};
use super::group::{LOCK, RELEASE_OF_JOBS};
use super::notices::NodeNotices;
use super::prepared::{Form, NewEvent};
use super::stop::Stop;

/// Stores the events whose id and body are new, with payload and jobs, and returns their places in the arrays, from
/// 1.
///
/// - Numbers are given in the order of the arrays, unless `number` has one. Rows are inserted in the order of `place`.
/// - An event without `repeated` is skipped if its body is only in repeated events, because retention has deleted the
///   first. As an EXISTS, this look-up could become a hash of all repeated events.
/// - $28: the quarantine has kept the delivery, so that its arrival is rightly long ago.
/// - DO NOTHING skips a row that a unique index refuses. A row that breaks a CHECK is an error (S5).
/// - The jobs' time is read behind the locks of their groups (N41).
const STORE: &str = "
    WITH clock AS MATERIALIZED (
        SELECT clock_ms() AS now
    ), new AS MATERIALIZED (
        SELECT coalesce(number, nextval('event_row_seq')) AS row, given.*
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::boolean[],
            $8::boolean[], $9::boolean[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bigint[],
            $15::bigint[], $29::bigint[])
            WITH ORDINALITY AS given (source, event_id, variant, type, raw_type, digest, guarded, repeated, flagged,
                received_at, body_bytes, headers, body, number, place, sum, n)
    ), stored AS (
        INSERT INTO event (row, source, event_id, variant, type, raw_type, digest, guarded, repeated, flagged,
            received_at, body_bytes)
        SELECT row, source, event_id, variant, type, raw_type, digest, guarded, repeated, flagged,
            CASE WHEN $28 THEN received_at ELSE arrived(received_at) END, body_bytes
        FROM new
        WHERE NOT guarded OR repeated OR (SELECT later.row FROM event later WHERE later.source = new.source
            AND later.digest = new.digest AND later.guarded AND later.repeated LIMIT 1) IS NULL
        ORDER BY place
        ON CONFLICT DO NOTHING
        RETURNING row, received_at
    ), payloads AS (
        INSERT INTO payload (event, headers, body, sum)
        SELECT row, headers, body, new.sum + stored.received_at FROM new JOIN stored USING (row)
    ), jobs AS (
        INSERT INTO job (id, event, handler, state, reason, detail, since, created_at, due_at, due_from, wait_since,
            group_key, group_rule, behind)
        SELECT id, row, handler, state, reason, detail, now + since, now, now + due, now, now + wait, key, rule, behind
        FROM unnest($16::bigint[], $17::uuid[], $18::text[], $19::text[], $20::text[], $21::text[], $22::bigint[],
            $23::bigint[], $24::bigint[], $25::text[], $26::text[], $27::boolean[])
            WITH ORDINALITY AS job (n, id, handler, state, reason, detail, since, due, wait, key, rule, behind, nth)
        JOIN new USING (n) JOIN stored USING (row) CROSS JOIN clock
        ORDER BY nth
    )
    SELECT n FROM new JOIN stored USING (row)";

/// Drops what the newest of these jobs ($1) replaces in each group: the older job that holds it, and at most $2 of
/// those behind, the newest first. An attempt that has begun meanwhile runs on.
const SUPERSEDE: &str = "
    WITH new AS MATERIALIZED (
        SELECT DISTINCT ON (handler, group_key) id, handler, group_key, event, created_at
        FROM job WHERE id = ANY ($1::uuid[]) ORDER BY handler, group_key, event DESC
    ), old AS MATERIALIZED (
        SELECT older.row, new.id, new.event, new.created_at FROM new CROSS JOIN LATERAL (
            SELECT row FROM job h
            WHERE h.handler = new.handler AND h.group_key = new.group_key AND h.holds AND NOT h.behind
            UNION ALL
            (SELECT row FROM job b
            WHERE b.handler = new.handler AND b.group_key = new.group_key AND b.behind AND b.event < new.event
            ORDER BY b.event DESC LIMIT $2::bigint)) older
    )
    UPDATE job SET state = 'dropped', reason = 'superseded', due_at = NULL, settled_at = old.created_at,
        behind = false, superseded_by = old.id
    FROM old
    WHERE job.row = old.row AND job.event < old.event AND state IN ('ready', 'waiting') AND group_rule = 'latest'
    RETURNING old.id, old.created_at, job.attempt, job.wait_since";

/// Sets when new jobs ($1) are due, and since when they wait.
const RETIME: &str = "
    UPDATE job SET since = timed.since, due_at = timed.due, wait_since = timed.wait
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[]) AS timed (id, since, due, wait)
    WHERE job.id = timed.id AND state = 'waiting'";

/// The events in the order in which they are inserted and decided: by keys that are the same at each node, so that two
/// nodes rarely deadlock; and one behind an earlier one that has its id or its body, so that the first to arrive is the
/// first of both.
pub(super) fn order(events: &[&NewEvent]) -> Vec<usize> {
    let mut of_ids = HashMap::new();
    let mut of_bodies = HashMap::new();
    let mut keys = Vec::with_capacity(events.len());
    for event in events {
        let (source, id, digest) = (event.source(), event.id(), event.digest().0);
        let body = event.guarded().then_some(digest);
        let own = (source, body, body.is_none().then_some(id));
        let of_id = of_ids.get(&(source, id)).copied();
        let of_body = body.and_then(|body| of_bodies.get(&(source, body)).copied());
        let key = own.max(of_id.unwrap_or(own)).max(of_body.unwrap_or(own));
        of_ids.insert((source, id), key);
        body.map(|body| of_bodies.insert((source, body), key));
        keys.push(key);
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    // The sort is stable.
    order.sort_by_key(|place| keys[*place]);
    order
}

/// Groups, by handler and key.
pub(super) type Groups = BTreeSet<(String, String)>;

/// The groups of the jobs that these events may make.
pub(super) fn groups<'a>(events: impl Iterator<Item = &'a NewEvent>) -> Groups {
    events.flat_map(|event| &event.new.jobs).filter_map(group_of).collect()
}

/// The group of a new job.
pub(super) fn group_of(job: &NewJob) -> Option<(String, String)> {
    let group = job.group.as_ref()?;
    Some((job.handler.as_str().to_owned(), group.key.as_str().to_owned()))
}

pub(super) async fn lock(flight: &mut Flight, groups: &Groups) {
    if !groups.is_empty() {
        let (handlers, keys): (Vec<String>, Vec<String>) = groups.iter().cloned().unzip();
        flight.send(LOCK, vec![Box::new(handlers), Box::new(keys)]).await;
    }
}

/// The new jobs in one transaction that are of groups, or held.
#[derive(Default)]
pub(super) struct GroupedJobs {
    held: Vec<Uuid>,
    /// The jobs of groups.
    all: Vec<Uuid>,
    /// The jobs that replace older ones.
    latest: Vec<Uuid>,
    delays: HashMap<Uuid, Delay>,
}

impl GroupedJobs {
    pub(super) fn add(&mut self, job: &NewJob, id: Uuid, held: Option<HeldReason>) {
        self.held.extend(held.map(|_| id));
        let Some(group) = &job.group else { return };
        self.all.push(id);
        if group.rule == GroupRule::Latest && held.is_none() {
            self.latest.push(id);
            self.delays.extend(job.delay.map(|delay| (id, delay)));
        }
    }

    /// Lets the stored ones take their places, and counts the held ones. The last statements of a transaction.
    pub(super) async fn settle(
        self,
        flight: &mut Flight,
        notices: &NodeNotices,
    ) -> Result<(), Stop> {
        if !self.latest.is_empty() {
            let most = codec::size(BATCH_JOBS - 1 + self.latest.len());
            let replaced = vec![Box::new(self.latest) as Param, Box::new(most)];
            let replaced = flight.send(SUPERSEDE, replaced).await;
            if !self.delays.is_empty() {
                let rows = flight.rows(replaced).await.ok_or(Stop::Failed)?;
                let times = times(&self.delays, rows)?;
                flight.send(RETIME, times).await;
            }
        }
        if !self.all.is_empty() {
            flight.send(RELEASE_OF_JOBS, vec![Box::new(self.all)]).await;
        }
        notices.note_jobs(flight, self.held).await;
        Ok(())
    }
}

/// When the jobs are due that have replaced others: the parameters of [`RETIME`].
fn times(delays: &HashMap<Uuid, Delay>, replaced: &[Row]) -> Result<Vec<Param>, Stop> {
    let mut found = BTreeMap::new();
    for row in replaced {
        let now = Timestamp(row.try_get(1)?);
        let (_, replaced) = found.entry(row.try_get::<_, Uuid>(0)?).or_insert((now, Vec::new()));
        let attempt: i64 = row.try_get(2)?;
        let since: Option<i64> = row.try_get(3)?;
        replaced.push((attempt.try_into().unwrap_or(u32::MAX), since.map(Timestamp)));
    }
    let (mut ids, mut since, mut due, mut wait) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (id, (now, replaced)) in found {
        let Some(delay) = delays.get(&id) else { continue };
        let start = new_job::start(None, Some(*delay), first_wait(&replaced), now);
        ids.push(id);
        since.push(start.since.0);
        due.push(start.due_at.map(|due| due.0));
        wait.push(start.wait_since.map(|wait| wait.0));
    }
    Ok(vec![Box::new(ids), Box::new(since), Box::new(due), Box::new(wait)])
}

/// The columns of [`STORE`], an array each.
#[derive(Default)]
pub(super) struct Rows {
    sources: Vec<String>,
    event_ids: Vec<String>,
    variants: Vec<i64>,
    types: Vec<String>,
    raw_types: Vec<Option<Vec<u8>>>,
    digests: Vec<Vec<u8>>,
    guarded: Vec<bool>,
    repeated: Vec<bool>,
    flagged: Vec<bool>,
    received_at: Vec<i64>,
    body_bytes: Vec<i64>,
    headers: Vec<Vec<u8>>,
    bodies: Vec<Vec<u8>>,
    sums: Vec<i64>,
    numbers: Vec<Option<i64>>,
    places: Vec<i64>,
    job_events: Vec<i64>,
    job_ids: Vec<Uuid>,
    handlers: Vec<String>,
    states: Vec<String>,
    reasons: Vec<Option<String>>,
    details: Vec<Option<String>>,
    since: Vec<i64>,
    due: Vec<Option<i64>>,
    wait: Vec<Option<i64>>,
    keys: Vec<Option<String>>,
    rules: Vec<Option<String>>,
    behind: Vec<bool>,
    kept: bool,
}

impl Rows {
    pub(super) fn add(
        &mut self,
        event: &NewEvent,
        form: Form,
        twins: &Twins,
        grouped: &mut GroupedJobs,
    ) {
        let Accept { received_at, delivery, jobs, .. } = &event.new;
        self.sources.push(event.source().as_str().to_owned());
        self.event_ids.push(event.id().as_str().to_owned());
        self.variants.push(form.variant);
        self.types.push(delivery.event_type().as_str().to_owned());
        self.raw_types.push(event.raw_type());
        self.digests.push(event.digest().0.to_vec());
        self.guarded.push(event.guarded());
        self.repeated.push(form.repeated);
        self.flagged.push(form.flagged);
        self.received_at.push(received_at.0);
        self.kept |= event.kept;
        self.body_bytes.push(codec::size(delivery.body().len()));
        self.headers.push(event.headers.clone());
        self.bodies.push(event.body.clone());
        self.sums.push(event.sum);
        self.numbers.push(form.number);
        self.places.push(codec::size(form.place));
        for (job, id) in twins.made(jobs.iter().zip(&event.job_ids)) {
            let held = new_job::held(job, form.held);
            grouped.add(job, *id, held);
            // As offsets: the statement adds the database's time.
            let start = new_job::start(held, job.delay, None, Timestamp(0));
            self.job_events.push(codec::size(self.sources.len()));
            self.job_ids.push(*id);
            self.handlers.push(job.handler.as_str().to_owned());
            self.states.push(start.state.as_str().to_owned());
            self.reasons.push(held.map(|held| held.as_str().to_owned()));
            // PostgreSQL's text cannot have NUL, which the detail may quote.
            self.details.push(job.undecided.as_ref().map(|why| why.replace('\0', "\u{fffd}")));
            self.since.push(start.since.0);
            self.due.push(start.due_at.map(|due| due.0));
            self.wait.push(start.wait_since.map(|since| since.0));
            let group = job.group.as_ref();
            self.keys.push(group.map(|group| group.key.as_str().to_owned()));
            self.rules.push(group.map(|group| group.rule.as_str().to_owned()));
            self.behind.push(group.is_some_and(|group| keeps_place(group.rule, held)));
        }
    }

    pub(super) async fn send(self, flight: &mut Flight) -> usize {
        let params: Vec<Param> = vec![
            Box::new(self.sources),
            Box::new(self.event_ids),
            Box::new(self.variants),
            Box::new(self.types),
            Box::new(self.raw_types),
            Box::new(self.digests),
            Box::new(self.guarded),
            Box::new(self.repeated),
            Box::new(self.flagged),
            Box::new(self.received_at),
            Box::new(self.body_bytes),
            Box::new(self.headers),
            Box::new(self.bodies),
            Box::new(self.numbers),
            Box::new(self.places),
            Box::new(self.job_events),
            Box::new(self.job_ids),
            Box::new(self.handlers),
            Box::new(self.states),
            Box::new(self.reasons),
            Box::new(self.details),
            Box::new(self.since),
            Box::new(self.due),
            Box::new(self.wait),
            Box::new(self.keys),
            Box::new(self.rules),
            Box::new(self.behind),
            Box::new(self.kept),
            Box::new(self.sums),
        ];
        flight.send(STORE, params).await
    }
}
