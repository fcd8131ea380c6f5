//! The loop of the dispatcher: claims jobs, runs their attempts, and records the ends.
//!
//! One task owns the state. An exchange with the store and an attempt are tasks, and come back as a [`Step`], so that
//! none of them delays another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::select;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::Instrument;

use crate::clock::Clock;
use crate::handler::{self, Cancellation, Handler, Links, Report};
use crate::limits::Limits;
use crate::model::{Broken, INTERNAL_SOURCE, Outcome, Runner, RunnerName};
use crate::notify;
use crate::runner::AskedBy;
use crate::runner::message::Key;
use crate::store::{Claim, Claimed, Claims, Completion, Error, Jobs, Notice, NoticeJob, Running};
use crate::traffic::Traffic;

use super::attempt::{self, Attempt, Ending, Exchange, Exchanged, PendingAcks};
use super::slots::{HandlerSlots, Slots};
use super::{Worker, start};

/// Between a claim that failed and the next one of the same handler.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// How long a stop waits for the ends of the forwards that it has cancelled, and for their commits.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// The dispatcher's state.
pub(super) struct Flow {
    store: Jobs,
    clock: Clock,
    tick: Duration,
    slots: Slots,
    links: Links,
    /// Changes of the runners' capacities.
    capacities: watch::Receiver<()>,
    /// Ends that go to the store in this turn of the loop.
    ends: Vec<Ending>,
    acks: PendingAcks,
    /// Tasks that must end before this process may.
    work: JoinSet<Step>,
    /// Tasks that wait for the ends of commands, which outlive this process.
    commands: JoinSet<Step>,
    /// The check of the store that runs now.
    check: Option<AbortHandle>,
    stopping: bool,
    stop_attempts: Cancellation,
    reloads: mpsc::Receiver<Reload>,
    /// The reload that waits for the end of a check.
    reload: Option<Reload>,
    recovered: bool,
}

/// A new configuration of the handlers.
#[derive(Debug)]
pub(super) struct Reload {
    pub(super) workers: Vec<Worker>,
    pub(super) limits: Limits,
    /// Notified once it is in force.
    pub(super) done: oneshot::Sender<()>,
}

/// The result of a task.
enum Step {
    Exchanged(Exchanged),
    /// The pause after a failed claim is over: the index of the handler's slots, and how many it asked for.
    RetryClaim(usize, usize),
    Ended(Box<(Attempt, Report)>),
    Checked,
}

impl Flow {
    pub(super) fn new(
        store: Jobs,
        workers: Vec<Worker>,
        links: Links,
        traffic: &Traffic,
        limits: Limits,
        clock: Clock,
        reloads: mpsc::Receiver<Reload>,
    ) -> Self {
        Flow {
            store,
            clock,
            tick: Limits::duration(limits.tick_millis),
            slots: Slots::new(workers, traffic, &limits),
            capacities: links.changes(),
            links,
            ends: Vec::new(),
            acks: PendingAcks::default(),
            work: JoinSet::new(),
            commands: JoinSet::new(),
            check: None,
            stopping: false,
            stop_attempts: Cancellation::default(),
            reloads,
            reload: None,
            recovered: false,
        }
    }

    /// Runs until `stop` says how long to wait for running attempts, and until their ends are recorded.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<Duration>, hurry: Arc<Notify>) {
        let left = loop {
            let configured = self.slots.configured();
            let policies = configured.map(|slots| (slots.name.clone(), slots.policy.clone()));
            select! {
                left = start::recover(&self.store, policies.collect(), self.tick) => break left,
                Some(reload) = self.reloads.recv() => self.reload(reload),
                Ok(_wait) = &mut stop => return,
            }
        };
        self.name_runners();
        // Before connecting, so that a runner is connected too that only a running attempt names (R17).
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
            let pause = self.slots.time_to_next_claim(self.clock.now(), self.clock.monotonic());
            select! {
                () = wake.notified() => self.slots.expect_jobs(),
                Some(step) = self.work.join_next() => self.handle(step),
                Some(step) = self.commands.join_next() => self.handle(step),
                Ok(()) = self.capacities.changed() => self.slots.expect_jobs(),
                () = sleep(pause.unwrap_or(self.tick)) => {
                    self.slots.expect_due_jobs(self.clock.now());
                }
                _now = tick.tick() => self.check(),
                Some(reload) = self.reloads.recv() => self.reload(reload),
                // A handle that was dropped cannot stop it any more: it runs on until the process ends.
                Ok(wait) = &mut stop, if !stop.is_terminated() => break wait,
            }
        };
        self.finish(wait, &hurry).await;
    }

    /// Passes the names of the handlers' runners to the links.
    fn name_runners(&self) {
        self.links
            .need(self.slots.configured().filter_map(HandlerSlots::runner).cloned().collect());
    }

    /// Replaces the handlers; the runner runs the new ones already. A check of the store for the old handlers would
    /// hold the first jobs of a new one, so it is aborted first. What the writer has of it already is committed
    /// before those jobs.
    fn reload(&mut self, reload: Reload) {
        if let Some(check) = &self.check {
            check.abort();
            self.reload = Some(reload);
            return;
        }
        self.tick = Limits::duration(reload.limits.tick_millis);
        self.slots.reload(reload.workers, &reload.limits);
        self.name_runners();
        // Holds the jobs of removed handlers. Before recovery, recovery itself does that.
        if self.recovered {
            self.check();
        }
        // The caller may be gone: the configuration is in force all the same.
        let _ = reload.done.send(());
    }

    /// Waits for the ends of the attempts that an earlier receiver asked a runner to start.
    fn adopt(&mut self, running: Vec<Running>) {
        for running in running {
            let Some(runner) = running.runner else { continue };
            let key = Key { job: running.job, attempt: running.attempt };
            let span = attempt::span(&running.source, &running.event_id, key, &running.handler);
            let index = self.slots.adopt(&running.handler, &runner.name);
            let command = index.and_then(|index| match &*self.slots.get(index).handler {
                Handler::Command(command) => Some(command.clone()),
                Handler::Forward(_) => None,
            });
            let link = self.links.to(&runner.name);
            let tracked = link.adopt(key, runner.incarnation);
            let attempt = Attempt {
                index,
                handler_name: running.handler,
                handler: None,
                key,
                runner: Some(runner.name),
                link: Some(link),
                counted: running.counted,
                since: running.since,
                begun: None,
                source: running.source,
                event_id: running.event_id,
                span: span.clone(),
            };
            let wait = async move {
                tracing::info!("claimed by an earlier receiver: waiting for its end");
                let report = handler::adopted(tracked, command).await;
                Step::Ended(Box::new((attempt, report)))
            };
            self.commands.spawn(wait.instrument(span));
        }
    }

    /// Sends the ends of all attempts that have ended by now to the store, and makes the claims that may be made.
    /// A handler's ends share a flush with the claim of the slots that they free.
    fn exchange(&mut self) {
        while let Some(step) = self.work.try_join_next().or_else(|| self.commands.try_join_next()) {
            self.handle(step);
        }
        let mut exchanges: BTreeMap<(Option<usize>, Option<RunnerName>), Exchange> =
            BTreeMap::new();
        for end in std::mem::take(&mut self.ends) {
            if let Some(index) = end.attempt.index {
                self.slots.release(index);
            }
            // A claim for one runner does not wait for an Ack to another one, where its handler has moved.
            let key = (end.attempt.index, end.attempt.runner.clone());
            exchanges.entry(key).or_default().ends.push(end);
        }
        let now = self.clock.monotonic();
        let capacities = self.links.rooms();
        let paused = self.store.paused_now();
        while !self.stopping
            && let Some((index, limit)) = self.slots.next_claim(now, &capacities, &paused)
        {
            let slots = self.slots.get(index);
            let name = slots.runner().cloned();
            let runner = name.clone().and_then(|name| {
                let incarnation = capacities.get(&name)?.incarnation;
                Some(Runner { name, incarnation })
            });
            let claim = Claim { handler: slots.name.clone(), limit, runner };
            exchanges.entry((Some(index), name)).or_default().claim = Some((index, claim));
        }
        for ((_, runner), exchange) in exchanges {
            let store = self.store.clone();
            self.work.spawn(async move { Step::Exchanged(exchange.run(runner, store).await) });
        }
    }

    /// Periodic safety net: finds jobs missed by a lost wake-up, a clock change (rule K1), or a replay for a handler
    /// that is not configured.
    fn check(&mut self) {
        self.slots.expect_jobs();
        if self.check.is_some() {
            return;
        }
        let configured = self.slots.configured();
        let handlers: Vec<_> =
            configured.map(|slots| (slots.name.clone(), slots.policy.backoff_max)).collect();
        let store = self.store.clone();
        self.check = Some(self.work.spawn(async move {
            notify::tick(&store).await;
            let names = handlers.iter().map(|(handler, _)| handler.clone()).collect();
            match store.hold_orphans(names).await {
                Ok(0) => {}
                Ok(jobs) => tracing::warn!(jobs, "held: their handler is not configured"),
                Err(error) => tracing::warn!(%error, "failed to look for jobs of no handler"),
            }
            for (handler, most) in handlers {
                match store.clamp_due(&handler, most).await {
                    Ok(0) => {}
                    Ok(jobs) => {
                        tracing::warn!(%handler, jobs, "the clock was set back: due earlier");
                    }
                    Err(error) => tracing::warn!(%handler, %error, "failed to look at due times"),
                }
            }
            Step::Checked
        }));
    }

    fn handle(&mut self, step: Result<Step, JoinError>) {
        let step = match step {
            Ok(step) => step,
            // A panic is a programmer's error, here as anywhere.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // Only a check is ever aborted.
            Err(_aborted) => Step::Checked,
        };
        match step {
            Step::Exchanged(Exchanged { ended, runner, claim }) => {
                if let Some(runner) = runner {
                    self.slots.forget_attempts(&runner, ended.len());
                }
                for key in ended {
                    self.acks.remove(key);
                }
                if let Some((index, claim, claims)) = claim {
                    self.handle_claims(index, claim, claims);
                }
            }
            Step::RetryClaim(index, limit) => self.slots.retry_claim(index, limit),
            Step::Ended(ended) => self.settle(ended.0, ended.1),
            Step::Checked => {
                self.check = None;
                if let Some(reload) = self.reload.take() {
                    self.reload(reload);
                }
            }
        }
    }

    fn handle_claims(&mut self, index: usize, claim: Claim, claims: Result<Claims, Error>) {
        let Claim { handler, limit, runner } = claim;
        match claims {
            Ok(Claims { number, jobs, due }) => {
                let name = runner.as_ref().map(|runner| &runner.name);
                self.slots.finish_claim(index, limit, jobs.len(), name);
                self.slots.set_due(index, number, due);
                for claimed in jobs {
                    self.begin(index, runner.clone(), claimed);
                }
            }
            Err(error) => {
                tracing::error!(%handler, %error, "failed to claim");
                self.slots.suspend_claims(index);
                self.work.spawn(async move {
                    sleep(CLAIM_PAUSE).await;
                    Step::RetryClaim(index, limit)
                });
            }
        }
    }

    fn begin(&mut self, index: usize, runner: Option<Runner>, claimed: Claimed) {
        let Claimed { facts, counted, since } = claimed;
        let key = Key { job: facts.job, attempt: facts.attempt };
        let span = attempt::span(&facts.source, &facts.event_id, key, &facts.handler);
        let handler = self.slots.get(index).handler.clone();
        let mut attempt = Attempt {
            index: Some(index),
            handler_name: facts.handler.clone(),
            handler: Some(handler.clone()),
            key,
            runner: runner.as_ref().map(|runner| runner.name.clone()),
            link: None,
            counted,
            since,
            begun: Some(Instant::now()),
            source: facts.source.clone(),
            event_id: facts.event_id.clone(),
            span: span.clone(),
        };
        if self.stopping {
            return self.settle(attempt, not_begun("the receiver stopped first"));
        }
        // The handlers were reloaded while it was claimed.
        if !self.slots.is_current(index, &handler) {
            return self.settle(attempt, not_begun("its handler is not configured any more"));
        }
        match (runner, &*handler) {
            (Some(Runner { name, incarnation }), Handler::Command(command)) => {
                let link = self.links.to(&name);
                let tracked = link.track(key, incarnation);
                attempt.link = Some(link);
                let acknowledged = self.acks.before(key);
                let command = command.clone();
                let run = async move {
                    acknowledged.await;
                    let report = command.run(facts, incarnation, tracked).await;
                    Step::Ended(Box::new((attempt, report)))
                };
                self.commands.spawn(run.instrument(span));
            }
            (_, Handler::Forward(forward)) => {
                let forward = forward.clone();
                let stop = self.stop_attempts.clone();
                let clock = self.clock.clone();
                let run = async move {
                    let report = forward.run(&facts, &stop, &clock).await;
                    Step::Ended(Box::new((attempt, report)))
                };
                self.work.spawn(run.instrument(span));
            }
            (None, Handler::Command(_)) => unreachable!("a command is claimed for a runner"),
        }
    }

    fn settle(&mut self, attempt: Attempt, report: Report) {
        let _inside = attempt.span.clone().entered();
        let answers = self.slots.policy(&attempt.handler_name).is_some_and(|policy| policy.answers);
        let report = if answers { report.at_once() } else { report };
        let pause = attempt.index.and_then(|index| self.back_off(index, &attempt, &report));
        let notice = match (attempt.index, pause) {
            (Some(index), Some(_)) => self.broken_notice(index, &attempt),
            _ => None,
        };
        // By the policy of its handler as it is configured now, also if it began under another one.
        let policy = self.slots.policy(&attempt.handler_name).unwrap_or(&attempt::REMOVED);
        let completion = attempt.completion(report, policy, pause, self.clock.now());
        let Completion { outcome, next, record, .. } = &completion;
        tracing::info!(%outcome, %next, detail = record.detail, "ended");
        self.ends.push(Ending {
            took: attempt.begun.map(|begun| begun.elapsed()),
            traffic: attempt.index.map(|index| self.slots.get(index).traffic.clone()),
            notice,
            _ack: attempt.link.as_ref().map(|_| self.acks.add(attempt.key)),
            completion: Arc::new(completion),
            attempt,
        });
    }

    /// Starts or goes on with the back-off of a handler that could not run. Returns the rest of its pause.
    fn back_off(&mut self, index: usize, attempt: &Attempt, report: &Report) -> Option<Duration> {
        // An attempt that began before a reload says nothing about what the handler runs now.
        let is_outdated = match &attempt.handler {
            Some(handler) => !self.slots.is_current(index, handler),
            None => false,
        };
        if !report.handler_broken {
            // Nor does one that never began.
            if report.outcome != Outcome::NotStarted && !is_outdated {
                self.slots.reset_back_off(index);
            }
            return None;
        }
        if is_outdated {
            return Some(Duration::ZERO);
        }
        let (pause, tries) = self.slots.back_off(index, self.clock.monotonic());
        tracing::warn!(seconds = pause.as_secs_f32(), "the handler cannot run and backs off");
        let now = self.clock.now();
        self.slots.get(index).traffic.broke(Broken {
            handler: attempt.handler_name.clone(),
            cause: attempt::cause(&report.record),
            tries,
            since: now,
            source: attempt.source.clone(),
            event_id: attempt.event_id.clone(),
            next_try_at: now.after(pause),
        });
        Some(pause)
    }

    /// The notice to operators of a handler that cannot run for long.
    fn broken_notice(&mut self, index: usize, attempt: &Attempt) -> Option<Notice> {
        // An event of the receiver itself must not cause another one.
        let is_internal = attempt.source.as_str() == INTERNAL_SOURCE;
        if is_internal || !self.slots.report_broken_once(index, notify::BROKEN_AFTER) {
            return None;
        }
        let job = NoticeJob {
            job: attempt.key.job,
            source: attempt.source.clone(),
            event_id: attempt.event_id.clone(),
        };
        Some(notify::broken(attempt.handler_name.clone(), job, self.clock.now()))
    }

    /// Waits for the running forwards, then cancels them. Commands run on without this process.
    async fn finish(mut self, wait: Duration, hurry: &Notify) {
        self.stopping = true;
        select! {
            () = self.drain() => {}
            () = sleep(wait) => self.cancel().await,
            () = hurry.notified() => self.cancel().await,
        }
        if !self.commands.is_empty() {
            tracing::info!(count = self.commands.len(), "commands go on under the runner");
        }
    }

    async fn cancel(&mut self) {
        tracing::warn!(count = self.work.len(), "the wait is over: ending what still runs");
        self.stop_attempts.cancel(AskedBy::Stop);
        if timeout(CANCEL_WAIT, self.drain()).await.is_err() {
            let count = self.work.len();
            tracing::error!(count, "did not end: the next start will settle them");
        }
    }

    /// Handles every step until no work is left. Dropping the future loses no step.
    async fn drain(&mut self) {
        loop {
            self.exchange();
            if self.work.is_empty() {
                return;
            }
            select! {
                Some(step) = self.work.join_next() => self.handle(step),
                // A command that ends now is recorded now.
                Some(step) = self.commands.join_next() => self.handle(step),
            }
        }
    }
}

/// The report of a claimed attempt that this receiver does not begin.
fn not_begun(why: &str) -> Report {
    Report::new(Outcome::NotStarted, format!("not begun: {why}"))
}

/// One tick now, and then one each `period`.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
