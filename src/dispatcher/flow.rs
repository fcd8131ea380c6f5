//! The one loop: claim, run, settle.
//!
//! One task owns the state. Whatever takes time (an exchange with the store, an attempt) is a task of its
//! own and comes back as a [`Step`], so that nothing waits for anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::select;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::{Instrument, Span};

use crate::clock::Clock;
use crate::handler::{self, End, Ender, Handler, Link, Links, Report};
use crate::limits::Limits;
use crate::model::{
    Broken, EventId, INTERNAL_SOURCE, Name, OnUnknown, Outcome, Runner, RunnerName, State,
    Timestamp,
};
use crate::notify;
use crate::retry::{GiveUp, History, Next, Policy};
use crate::runner::AskedBy;
use crate::runner::message::Key;
use crate::store::{
    Claim, Claimed, Claims, Completion, Error, Notice, NoticeJob, Record, Running, Store,
};
use crate::traffic::{HandlerTraffic, Traffic};

use super::lanes::{Lane, Lanes};
use super::{Worker, start};

/// Between a claim that failed and the next one of the same handler.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// How long the last ends may take to come and be recorded, once they are wished.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What becomes of an attempt whose handler is no longer configured: where it failed, its job waits
/// until the next tick holds it.
const GONE: Policy = Policy {
    on_unknown: OnUnknown::Hold,
    give_up: GiveUp::Attempts(u32::MAX),
    backoff_base: Duration::ZERO,
    backoff_max: Duration::ZERO,
    answers: false,
};

/// The dispatcher's state.
pub(super) struct Flow {
    store: Store,
    clock: Clock,
    tick: Duration,
    lanes: Lanes,
    links: Links,
    /// Whether runners take attempts now.
    rooms: watch::Receiver<()>,
    /// What has ended and is not with the store yet.
    ends: Vec<(Ending, Completion)>,
    /// What must come to its end before this process may.
    work: JoinSet<Step>,
    /// Waits for the ends of commands, which outlive this process.
    commands: JoinSet<Step>,
    /// The look at the store that is under way.
    look: Option<AbortHandle>,
    stopping: bool,
    ender: Ender,
    end: End,
    reloads: mpsc::Receiver<Reload>,
    /// The reload that waits for the end of a look at the store.
    reload: Option<Reload>,
    /// What an earlier receiver left is known.
    recovered: bool,
}

/// The handlers are these from now on.
#[derive(Debug)]
pub(super) struct Reload {
    pub(super) workers: Vec<Worker>,
    pub(super) limits: Limits,
    /// Told once they are.
    pub(super) done: oneshot::Sender<()>,
}

/// Something that was under way has ended. The number is the handler's.
enum Step {
    Exchanged {
        lane: Option<usize>,
        /// Whose attempts are recorded, each as often as it had one.
        runners: Vec<RunnerName>,
        claim: Option<(Claim, Result<Claims, Error>)>,
    },
    /// After a claim of so many that failed.
    Rested(usize, usize),
    Ended(Box<(Attempt, Report)>),
    Clamped,
}

/// An attempt under way.
struct Attempt {
    /// None where its handler was not configured when this receiver started.
    lane: Option<usize>,
    /// Its handler's, configured or not.
    name: Name,
    /// What it runs; not known of an earlier receiver's.
    handler: Option<Arc<Handler>>,
    key: Key,
    /// Whose room it takes.
    runner: Option<RunnerName>,
    /// Whether that runner has it, or may.
    tracked: bool,
    /// Counted attempts before this one.
    counted: u32,
    since: Timestamp,
    /// When this process began it; none where an earlier one did.
    begun: Option<Instant>,
    /// Its event's.
    source: Name,
    event_id: EventId,
    /// Names the attempt in every log line.
    span: Span,
}

/// An attempt whose end is to be recorded.
struct Ending {
    lane: Option<usize>,
    key: Key,
    outcome: Outcome,
    /// Its job's, after it.
    state: State,
    took: Option<Duration>,
    traffic: Option<HandlerTraffic>,
    /// Stored after the commit: the notice quotes the recorded attempt.
    notice: Option<Notice>,
    /// To whom it is acknowledged.
    link: Option<Link>,
    runner: Option<RunnerName>,
    span: Span,
}

/// What goes to the store together: ends, and what is claimed in the slots that they leave.
#[derive(Default)]
struct Exchange {
    ends: Vec<(Ending, Completion)>,
    claim: Option<Claim>,
}

impl Exchange {
    async fn run(self, lane: Option<usize>, store: Store) -> Step {
        let Exchange { ends, claim } = self;
        let (ends, completions): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let completions: Vec<_> = completions.into_iter().map(Arc::new).collect();
        let (committed, claims) = store.complete_and_claim(&completions, claim.clone()).await;
        let mut runners = Vec::new();
        let mut settled: BTreeMap<RunnerName, (Link, Vec<Key>)> = BTreeMap::new();
        for ((end, done), committed) in ends.into_iter().zip(completions).zip(committed) {
            end.tell(&committed, &store);
            runners.extend(end.runner.clone());
            match (committed, &end.link, &end.runner) {
                (Ok(_), Some(link), Some(runner)) => {
                    let of_runner = settled.entry(runner.clone());
                    of_runner.or_insert((link.clone(), Vec::new())).1.push(end.key);
                }
                // It must not hold up the others.
                (Err(Error::Unavailable(_)), ..) => {
                    tokio::spawn(end.record(store.clone(), done));
                }
                _ => {}
            }
        }
        // After the commit only (R9), and before what was claimed with it is asked for: a Start that
        // overtook the Ack would find its place, or its job, still taken.
        for (link, keys) in settled.into_values() {
            link.settled(&keys).await;
        }
        Step::Exchanged { lane, runners, claim: claim.map(|claim| (claim, claims)) }
    }
}

impl Ending {
    /// Records an end that could not be committed with others, however long that takes, and acknowledges it then.
    async fn record(self, store: Store, done: Arc<Completion>) {
        let committed = store.complete(done).await;
        self.tell(&committed, &store);
        if let (Ok(_), Some(link)) = (committed, &self.link) {
            link.settled(&[self.key]).await;
        }
    }

    /// Tells of it what its commit has come to.
    fn tell(&self, committed: &Result<bool, Error>, store: &Store) {
        let _inside = self.span.enter();
        let Ending { outcome, state, took, traffic, .. } = self;
        match committed {
            Ok(true) => {
                traffic.iter().for_each(|traffic| traffic.ended(*outcome, *state, *took));
                if let Some(notice) = &self.notice {
                    store.notify(notice.clone());
                }
            }
            Ok(false) => tracing::error!("was settled already: this end changes nothing"),
            Err(error) => tracing::error!(%error, "failed to record the end"),
        }
    }
}

impl Flow {
    pub(super) fn new(
        store: Store,
        workers: Vec<Worker>,
        links: Links,
        traffic: &Traffic,
        limits: Limits,
        clock: Clock,
        reloads: mpsc::Receiver<Reload>,
    ) -> Self {
        let (ender, end) = End::pair();
        Flow {
            store,
            clock,
            tick: Limits::duration(limits.tick_millis),
            lanes: Lanes::new(workers, traffic, &limits),
            rooms: links.changes(),
            links,
            ends: Vec::new(),
            work: JoinSet::new(),
            commands: JoinSet::new(),
            look: None,
            stopping: false,
            ender,
            end,
            reloads,
            reload: None,
            recovered: false,
        }
    }

    /// Runs until `stop` says how long to wait for what is in flight, and until that is settled.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<Duration>, hurry: Arc<Notify>) {
        let left = loop {
            let policies = self.lanes.iter().map(|lane| (lane.name.clone(), lane.policy.clone()));
            select! {
                left = start::recover(&self.store, policies.collect(), self.tick) => break left,
                Some(reload) = self.reloads.recv() => self.reload(reload),
                Ok(_wait) = &mut stop => return,
            }
        };
        self.seek_runners();
        // Also to those that only what is running was claimed for (R17).
        self.adopt(left.running);
        self.links.connect(left.epoch);
        self.recovered = true;
        let wake = self.store.wake();
        let mut tick = ticks(self.tick);
        let wait = loop {
            if tick.period() != self.tick {
                tick = ticks(self.tick);
            }
            self.exchange();
            let patience = self.lanes.patience(self.clock.now(), self.clock.monotonic());
            select! {
                () = wake.notified() => self.lanes.want_all(),
                Some(step) = self.work.join_next() => self.on(step),
                Some(step) = self.commands.join_next() => self.on(step),
                Ok(()) = self.rooms.changed() => self.lanes.want_all(),
                () = sleep(patience.unwrap_or(self.tick)) => self.lanes.want_due(self.clock.now()),
                _now = tick.tick() => self.tick(),
                Some(reload) = self.reloads.recv() => self.reload(reload),
                // A handle that is gone cannot stop it any more: it runs on until the process ends.
                Ok(wait) = &mut stop, if !stop.is_terminated() => break wait,
            }
        };
        self.finish(wait, &hurry).await;
    }

    /// Tells which runners handlers name.
    fn seek_runners(&self) {
        self.links.need(self.lanes.iter().filter_map(Lane::runner).cloned().collect());
    }

    /// The handlers are others from now on; the runner runs them already. Not in the middle of a look at
    /// the store that goes by those there were, which would hold the first jobs of a new one: it is cut
    /// short, however long the store takes. What of it the writer has already comes before those jobs.
    fn reload(&mut self, reload: Reload) {
        if let Some(look) = &self.look {
            look.abort();
            self.reload = Some(reload);
            return;
        }
        self.tick = Limits::duration(reload.limits.tick_millis);
        self.lanes.reload(reload.workers, &reload.limits);
        self.seek_runners();
        // Holds the jobs of handlers that are gone. The first look is recovery's own.
        if self.recovered {
            self.tick();
        }
        // Who asked may be gone: they are in force all the same.
        let _ = reload.done.send(());
    }

    /// Waits for the ends of what an earlier receiver asked a runner to start.
    fn adopt(&mut self, running: Vec<Running>) {
        for running in running {
            let Running { job, attempt, handler, source, event_id, counted, since, runner } =
                running;
            let Some(runner) = runner else { continue };
            let key = Key { job, attempt };
            let span = span(&source, &event_id, key, &handler);
            let lane = self.lanes.take_for(&handler, &runner.name);
            let command = lane.and_then(|lane| match &*self.lanes.get_mut(lane).handler {
                Handler::Command(command) => Some(command.clone()),
                Handler::Forward(_) => None,
            });
            let tracked = self.links.to(&runner.name).adopt(key, runner.incarnation);
            let (inside, runner) = (span.clone(), Some(runner.name));
            let attempt = Attempt {
                lane,
                name: handler,
                handler: None,
                key,
                runner,
                tracked: true,
                counted,
                since,
                begun: None,
                source,
                event_id,
                span: inside,
            };
            let wait = async move {
                tracing::info!("claimed by an earlier receiver: waiting for its end");
                let report = handler::adopted(tracked, command).await;
                Step::Ended(Box::new((attempt, report)))
            };
            self.commands.spawn(wait.instrument(span));
        }
    }

    /// Records the ends that have come, and claims whatever may be claimed now. What a handler claims is
    /// committed together with the ends that leave it the slots. Of commands there is one such exchange of
    /// each handler at most: what ends meanwhile gathers for the next one, and for a moment where there is
    /// little of it. What ends of forwards is with the writer at once, which has its next batch then when it
    /// is done with this one.
    fn exchange(&mut self) {
        let mut exchanges: BTreeMap<Option<usize>, Exchange> = BTreeMap::new();
        let now = self.clock.monotonic();
        let lanes = self.ends.iter().filter_map(|(end, _)| end.lane);
        // As they are before the first of them is let go.
        let gather: BTreeSet<usize> = lanes
            .filter(|lane| {
                let lane = self.lanes.get(*lane);
                lane.is_held_up() || lane.gathers(now)
            })
            .collect();
        for (end, completion) in std::mem::take(&mut self.ends) {
            // No claim for a runner waits for an Ack to another one, which the handler had before.
            let with =
                end.lane.filter(|lane| self.lanes.get_mut(*lane).runner() == end.runner.as_ref());
            // In a stop nothing is claimed any more, and what is not with the writer at its end is lost.
            if !self.stopping && with.is_some_and(|lane| gather.contains(&lane)) {
                self.ends.push((end, completion));
                continue;
            }
            end.lane.into_iter().for_each(|lane| self.lanes.ended(lane));
            exchanges.entry(with).or_default().ends.push((end, completion));
        }
        if !self.stopping {
            for (lane, claim) in self.claims() {
                exchanges.entry(Some(lane)).or_default().claim = Some(claim);
            }
        }
        for (lane, exchange) in exchanges {
            lane.into_iter().for_each(|lane| self.lanes.get_mut(lane).exchanges += 1);
            self.work.spawn(exchange.run(lane, self.store.clone()));
        }
    }

    /// Whatever may be claimed now, by the handlers' numbers.
    fn claims(&mut self) -> Vec<(usize, Claim)> {
        let (now, rooms) = (self.clock.monotonic(), self.links.rooms());
        let paused = self.store.paused_now();
        let mut claims = Vec::new();
        while let Some((index, limit)) = self.lanes.next_claim(now, &rooms, &paused) {
            let lane = self.lanes.get_mut(index);
            let runner = lane.runner().and_then(|name| {
                let incarnation = rooms.get(name)?.incarnation;
                Some(Runner { name: name.clone(), incarnation })
            });
            claims.push((index, Claim { handler: lane.name.clone(), limit, runner }));
        }
        claims
    }

    /// What a lost wake-up, a moved clock (rule K1) or a replay for nobody has hidden comes to light.
    fn tick(&mut self) {
        self.lanes.want_all();
        if self.look.is_some() {
            return;
        }
        let lanes = self.lanes.iter().map(|lane| (lane.name.clone(), lane.policy.backoff_max));
        let (lanes, store): (Vec<_>, _) = (lanes.collect(), self.store.clone());
        let now = self.clock.now();
        let look = self.work.spawn(async move {
            notify::tick(&store, now).await;
            let known = lanes.iter().map(|(handler, _)| handler.clone()).collect();
            match store.hold_orphans(known).await {
                Ok(0) => {}
                Ok(jobs) => tracing::warn!(jobs, "held: their handler is not configured"),
                Err(error) => tracing::warn!(%error, "failed to look for jobs of no handler"),
            }
            for (handler, most) in lanes {
                match store.clamp_due(&handler, most).await {
                    Ok(0) => {}
                    Ok(jobs) => {
                        tracing::warn!(%handler, jobs, "the clock was set back: due earlier")
                    }
                    Err(error) => tracing::warn!(%handler, %error, "failed to look at due times"),
                }
            }
            Step::Clamped
        });
        self.look = Some(look);
    }

    fn on(&mut self, step: Result<Step, JoinError>) {
        let step = match step {
            Ok(step) => step,
            // A panic is a programmer's error, here as anywhere.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // Nothing but a look at the store is ever cut short.
            Err(_aborted) => Step::Clamped,
        };
        match step {
            Step::Exchanged { lane, runners, claim } => {
                runners.iter().for_each(|runner| self.lanes.acknowledged(runner));
                lane.into_iter().for_each(|lane| self.lanes.get_mut(lane).exchanges -= 1);
                if let (Some(lane), Some((asked, claims))) = (lane, claim) {
                    self.claimed(lane, asked, claims);
                }
            }
            Step::Rested(index, asked) => {
                self.lanes.claimed(index, asked, 0, None);
                let lane = self.lanes.get_mut(index);
                lane.resting -= 1;
                lane.wanted = true;
            }
            Step::Ended(ended) => self.settle(ended.0, ended.1),
            Step::Clamped => {
                self.look = None;
                if let Some(reload) = self.reload.take() {
                    self.reload(reload);
                }
            }
        }
    }

    fn claimed(&mut self, lane: usize, asked: Claim, claims: Result<Claims, Error>) {
        let Claim { handler, limit, runner } = asked;
        match claims {
            Ok(Claims { number, jobs, due }) => {
                let name = runner.as_ref().map(|one| &one.name);
                self.lanes.claimed(lane, limit, jobs.len(), name);
                self.lanes.set_due(lane, number, due);
                for claimed in jobs {
                    self.begin(lane, runner.clone(), claimed);
                }
            }
            // Until it has rested its slots stay taken, and its handler claims nothing.
            Err(error) => {
                tracing::error!(%handler, %error, "failed to claim");
                self.lanes.get_mut(lane).resting += 1;
                self.work.spawn(async move {
                    sleep(CLAIM_PAUSE).await;
                    Step::Rested(lane, limit)
                });
            }
        }
    }

    fn begin(&mut self, lane: usize, runner: Option<Runner>, claimed: Claimed) {
        let Claimed { facts, counted, since } = claimed;
        let key = Key { job: facts.job, attempt: facts.attempt };
        let span = span(&facts.source, &facts.event_id, key, &facts.handler);
        let handler = self.lanes.get_mut(lane).handler.clone();
        // A claim may have been under way when the handlers changed.
        let not_begun = match (self.stopping, self.lanes.runs(lane, &handler)) {
            (true, _) => Some("the receiver stopped first"),
            (false, false) => Some("its handler is not configured any more"),
            (false, true) => None,
        };
        let (tracked, inside) = (runner.is_some() && not_begun.is_none(), span.clone());
        let name = runner.as_ref().map(|runner| runner.name.clone());
        let attempt = Attempt {
            lane: Some(lane),
            name: facts.handler.clone(),
            handler: Some(handler.clone()),
            key,
            runner: name,
            tracked,
            counted,
            since,
            begun: Some(Instant::now()),
            source: facts.source.clone(),
            event_id: facts.event_id.clone(),
            span,
        };
        if let Some(why) = not_begun {
            let detail = format!("not begun: {why}");
            let record = Record { detail, ..Record::default() };
            let (outcome, handler_broken, retry_after) = (Outcome::NotStarted, false, None);
            let report = Report { outcome, handler_broken, retry_after, record, answer: None };
            return self.settle(attempt, report);
        }
        let ended = |attempt, report| Step::Ended(Box::new((attempt, report)));
        match (runner, &*handler) {
            (Some(runner), Handler::Command(command)) => {
                let Runner { name, incarnation } = runner;
                let (command, link) = (command.clone(), self.links.to(&name));
                let tracked = link.track(key, incarnation);
                let run =
                    async move { ended(attempt, command.run(facts, incarnation, tracked).await) };
                self.commands.spawn(run.instrument(inside));
            }
            (_, Handler::Forward(forward)) => {
                let (forward, end, clock) = (forward.clone(), self.end.clone(), self.clock.clone());
                let run = async move { ended(attempt, forward.run(&facts, &end, &clock).await) };
                self.work.spawn(run.instrument(inside));
            }
            (None, Handler::Command(_)) => unreachable!("a command is claimed for a runner"),
        }
    }

    fn settle(&mut self, attempt: Attempt, report: Report) {
        let _inside = attempt.span.clone().entered();
        let answers = self.lanes.policy(&attempt.name).is_some_and(|policy| policy.answers);
        let report = if answers { report.at_once() } else { report };
        let pause = attempt.lane.and_then(|lane| self.pause(lane, &attempt, &report));
        let notice = attempt.lane.filter(|_| pause.is_some());
        let notice = notice.and_then(|lane| self.broken_notice(lane, &attempt));
        // By the policy of its handler as it is configured now, whatever it was when it began.
        let policy = self.lanes.policy(&attempt.name).unwrap_or(&GONE);
        let completion = completion(&attempt, report, policy, pause, self.clock.now());
        let (outcome, next, detail) =
            (completion.outcome, completion.next, &completion.record.detail);
        tracing::info!(%outcome, %next, detail, "ended");
        let Attempt { lane, key, runner, tracked, begun, span, .. } = attempt;
        let link = runner.as_ref().filter(|_| tracked).map(|name| self.links.to(name));
        let traffic = lane.map(|lane| self.lanes.get_mut(lane).traffic.clone());
        let took = begun.map(|begun| begun.elapsed());
        let state = next.state();
        let end = Ending { lane, key, outcome, state, took, traffic, notice, link, runner, span };
        end.lane.into_iter().for_each(|lane| self.lanes.came(lane, self.clock.monotonic()));
        self.ends.push((end, completion));
    }

    /// A handler that could not run pauses: for how long.
    fn pause(&mut self, lane: usize, attempt: &Attempt, report: &Report) -> Option<Duration> {
        // What was begun before a reload says nothing of what the handler runs since.
        let another = |handler| !self.lanes.runs(lane, handler);
        let another = attempt.handler.as_ref().is_some_and(another);
        if !report.handler_broken {
            // Nor does what never began.
            if report.outcome != Outcome::NotStarted && !another {
                self.lanes.ran(lane);
            }
            return None;
        }
        if another {
            return Some(Duration::ZERO);
        }
        let pause = self.lanes.broke(lane, self.clock.monotonic());
        let seconds = pause.as_secs_f32();
        tracing::warn!(seconds, "the handler cannot run and backs off");
        let now = self.clock.now();
        self.lanes.get(lane).traffic.broke(Broken {
            handler: attempt.name.clone(),
            cause: cause(&report.record),
            tries: self.lanes.tries(lane),
            since: now,
            source: attempt.source.clone(),
            event_id: attempt.event_id.clone(),
            next_try_at: now.after(pause),
        });
        Some(pause)
    }

    /// What operators are notified of where a handler cannot run for long.
    fn broken_notice(&mut self, lane: usize, attempt: &Attempt) -> Option<Notice> {
        // What becomes of an event of the receiver's own causes no other one.
        if is_internal(&attempt.source) || !self.lanes.tell_broken(lane, notify::BROKEN_AFTER) {
            return None;
        }
        let (source, event_id) = (attempt.source.clone(), attempt.event_id.clone());
        let job = NoticeJob { job: attempt.key.job, source, event_id };
        Some(notify::broken(attempt.name.clone(), job, self.clock.now()))
    }

    /// Waits for what is under way, then ends it; commands go on without this process.
    async fn finish(mut self, wait: Duration, hurry: &Notify) {
        self.stopping = true;
        select! {
            () = self.drain() => {}
            () = sleep(wait) => self.end().await,
            () = hurry.notified() => self.end().await,
        }
        if !self.commands.is_empty() {
            tracing::info!(count = self.commands.len(), "commands go on under the runner");
        }
    }

    async fn end(&mut self) {
        tracing::warn!(count = self.work.len(), "the wait is over: ending what still runs");
        self.ender.wish(AskedBy::Stop);
        if timeout(LAST_WORDS, self.drain()).await.is_err() {
            let count = self.work.len();
            tracing::error!(count, "did not end: the next start will settle them");
        }
    }

    /// May be dropped at any time: no step is lost.
    async fn drain(&mut self) {
        loop {
            self.exchange();
            if self.work.is_empty() {
                return;
            }
            select! {
                Some(step) = self.work.join_next() => self.on(step),
                // A command that ends now is recorded now.
                Some(step) = self.commands.join_next() => self.on(step),
            }
        }
    }
}

/// Why a handler could not run: what its record says and, where a shell says no more than that, the last
/// line that it printed.
fn cause(record: &Record) -> String {
    match record.stderr.last_line() {
        Some(line) => format!("{}: {line}", record.detail),
        None => record.detail.clone(),
    }
}

/// One tick now, and then one each `period`.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Whether events of this source are the receiver's own.
fn is_internal(source: &Name) -> bool {
    source.as_str() == INTERNAL_SOURCE
}

/// Names an attempt in every log line.
fn span(source: &Name, event: &EventId, key: Key, handler: &Name) -> Span {
    let Key { job, attempt } = key;
    tracing::info_span!("attempt", %source, %event, %job, %handler, attempt)
}

/// What is recorded of an attempt's end. `pause`: the handler could not run, and pauses this long.
fn completion(
    attempt: &Attempt,
    report: Report,
    policy: &Policy,
    pause: Option<Duration>,
    now: Timestamp,
) -> Completion {
    let Report { outcome, retry_after, record, answer, .. } = report;
    let counts = pause.is_none() && outcome != Outcome::NotStarted;
    let counted = attempt.counted + u32::from(counts);
    let next = match (outcome, pause) {
        // Its handler could not run: the job waits with it and loses no attempt.
        (Outcome::Failed, Some(pause)) => Next::Wait { due_at: now.after(pause) },
        _ => policy.next(outcome, History { counted, since: attempt.since }, retry_after, now),
    };
    Completion {
        job: attempt.key.job,
        attempt: attempt.key.attempt,
        outcome,
        counts,
        next,
        finished_at: now,
        record,
        answer,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{DeadReason, HeldReason, JobId};

    const NOW: Timestamp = Timestamp(1_000_000);
    const POLICY: Policy = Policy {
        on_unknown: OnUnknown::Hold,
        give_up: GiveUp::Attempts(3),
        backoff_base: Duration::from_secs(10),
        backoff_max: Duration::from_secs(3600),
        answers: false,
    };

    fn completed(outcome: Outcome, pause: Option<Duration>) -> Completion {
        let (lane, key) = (Some(0), Key { job: JobId::new(NOW), attempt: 9 });
        let (tracked, begun, span) = (false, None, Span::none());
        let (runner, counted, since) = (None, 1, NOW);
        let (name, handler) = ("worker".parse().unwrap(), None);
        let attempt = Attempt {
            lane,
            name,
            handler,
            key,
            runner,
            tracked,
            counted,
            since,
            begun,
            source: "github".parse().unwrap(),
            event_id: "d-1".parse().unwrap(),
            span,
        };
        let (handler_broken, record) = (pause.is_some(), Record::default());
        let report = Report { outcome, handler_broken, retry_after: None, record, answer: None };
        completion(&attempt, report, &POLICY, pause, NOW)
    }

    #[test]
    fn an_attempt_counts_unless_its_handler_could_not_run() {
        let pause = Duration::from_secs(7);
        let paused = Next::Wait { due_at: NOW.after(pause) };
        let second = Next::Wait { due_at: NOW.after(Duration::from_secs(40)) };
        for (outcome, pause, counts, next) in [
            (Outcome::Succeeded, None, true, Next::Succeeded),
            (Outcome::Failed, None, true, second),
            (Outcome::Failed, Some(pause), false, paused),
            (Outcome::NotStarted, Some(pause), false, Next::Ready),
            (Outcome::NotStarted, None, false, Next::Ready),
            (Outcome::Rejected, None, true, Next::Dead(DeadReason::Rejected)),
            (Outcome::TimedOut, None, true, Next::Held(HeldReason::UnknownOutcome)),
            (Outcome::Unknown, None, true, Next::Held(HeldReason::UnknownOutcome)),
        ] {
            let completion = completed(outcome, pause);
            assert_eq!((completion.counts, completion.next), (counts, next), "{outcome}");
            assert_eq!((completion.outcome, completion.attempt), (outcome, 9));
        }
    }
}
