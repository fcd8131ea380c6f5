//! The loop of the dispatcher: claims jobs, runs their attempts, and records the ends.
//!
//! One task owns the state. Each exchange with the store and each attempt is a task that ends with a [`Step`], so
//! that none delays another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::select;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::Instrument;

use crate::clock::Clock;
use crate::handler::{self, Cancellation, Handler, Report, RunnerPool};
use crate::limits::Limits;
use crate::model::{Broken, INTERNAL_SOURCE, Name, Outcome, RunnerName};
use crate::notify;
use crate::runner::AskedBy;
use crate::runner::message::Key;
use crate::store::{Claimed, Claims, Completion, Error, Jobs, Notice, NoticeJob, RunningAttempt};
use crate::traffic::Traffic;

use super::attempt::{self, Attempt, Ending, Exchange, Exchanged, PendingAcks};
use super::slots::{HandlerSlots, PendingClaim, Slots};
use super::start;
use super::worker::Worker;

/// How long a stop waits for the ends of the forwards that it has cancelled, and for their commits.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// The dispatcher's state.
pub(super) struct Flow {
    store: Jobs,
    clock: Clock,
    tick: Duration,
    slots: Slots,
    pool: RunnerPool,
    /// Changes of the runners' capacities.
    capacities: watch::Receiver<()>,
    /// Ends that the next exchange sends to the store.
    ends: Vec<Ending>,
    acks: PendingAcks,
    /// Tasks that a stop waits for: exchanges and forwards.
    work: JoinSet<Step>,
    /// Tasks that a stop does not wait for: waits for the ends of commands, which outlive this process, and retries
    /// of ends that the store refused.
    commands: JoinSet<Step>,
    /// The last check of the store, which may still be running.
    check: Option<JoinHandle<()>>,
    stopping: bool,
    stop_attempts: Cancellation,
    reloads: mpsc::Receiver<Reload>,
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
    Exchanged(Box<Exchanged>),
    Ended(Box<(Attempt, Report)>),
}

impl Flow {
    pub(super) fn new(
        store: Jobs,
        workers: Vec<Worker>,
        pool: RunnerPool,
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
            capacities: pool.changes(),
            pool,
            ends: Vec::new(),
            acks: PendingAcks::default(),
            work: JoinSet::new(),
            commands: JoinSet::new(),
            check: None,
            stopping: false,
            stop_attempts: Cancellation::default(),
            reloads,
            recovered: false,
        }
    }

    /// Runs until `stop` says how long to wait for running forwards and for the recording of ends.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<Duration>, hurry: Arc<Notify>) {
        let left = loop {
            let configured = self.slots.configured();
            let policies = configured.map(|(name, slots)| (name.clone(), slots.policy.clone()));
            select! {
                left = start::recover(&self.store, policies.collect(), self.tick) => break left,
                Some(reload) = self.reloads.recv() => self.reload(reload).await,
                Ok(_wait) = &mut stop => return,
            }
        };
        self.name_runners();
        // Before connecting, because a runner may be named by a running attempt only (R17).
        self.adopt(left.running);
        self.pool.connect(left.epoch);
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
                Some(reload) = self.reloads.recv() => self.reload(reload).await,
                // If the handle was dropped, it runs until the process ends.
                Ok(wait) = &mut stop, if !stop.is_terminated() => break wait,
            }
        };
        self.finish(wait, &hurry).await;
    }

    /// Passes the names of the handlers' runners to the pool.
    fn name_runners(&self) {
        let handlers = self.slots.configured().map(|(_, slots)| slots);
        self.pool.need(handlers.filter_map(HandlerSlots::runner).cloned().collect());
    }

    /// Replaces the handlers; the runners can start the new ones already. A check that is under way
    /// knows only the old handlers and would hold a new handler's first jobs, so it is aborted. What the store's
    /// writer already has of it is committed before those jobs exist.
    async fn reload(&mut self, reload: Reload) {
        if let Some(check) = self.check.take() {
            check.abort();
            let _aborted = check.await;
        }
        self.tick = Limits::duration(reload.limits.tick_millis);
        self.slots.reload(reload.workers, &reload.limits);
        self.name_runners();
        // Holds the jobs of removed handlers. Before that, recovery does so itself.
        if self.recovered {
            self.check();
        }
        // If the caller is gone, the configuration is in force all the same.
        let _ = reload.done.send(());
    }

    /// Waits for the ends of the attempts that an earlier receiver claimed for a runner, and may have asked it to
    /// start. Attempts without a runner are forwards, which recovery has settled.
    fn adopt(&mut self, running: Vec<RunningAttempt>) {
        for running in running {
            let Some(runner) = running.runner else { continue };
            let key = Key { job: running.job, attempt: running.attempt };
            let span = attempt::span(&running.source, &running.event_id, key, &running.handler);
            self.slots.adopt(&running.handler, &runner.name);
            let configured = self.slots.get(&running.handler);
            let command = configured.and_then(|slots| match &*slots.handler {
                Handler::Command(command) => Some(command.clone()),
                Handler::Forward(_) => None,
            });
            let client = self.pool.client(&runner.name);
            let pending = client.track(key, runner.incarnation, true);
            let attempt = Attempt {
                handler_name: running.handler,
                handler: None,
                key,
                runner: Some(runner.name),
                client: Some(client),
                counted: running.counted,
                since: running.since,
                begun: None,
                source: running.source,
                event_id: running.event_id,
                span: span.clone(),
            };
            let wait = async move {
                tracing::info!("claimed by an earlier receiver: waiting for its end");
                let report = handler::adopted(pending, command).await;
                Step::Ended(Box::new((attempt, report)))
            };
            self.commands.spawn(wait.instrument(span));
        }
    }

    /// Sends the ends of all attempts that have ended by now to the store, and makes the claims that may be made. One
    /// flush records a handler's ends at a runner and claims into the slots that they free.
    fn exchange(&mut self) {
        while let Some(step) = self.work.try_join_next().or_else(|| self.commands.try_join_next()) {
            self.handle(step);
        }
        let mut exchanges: BTreeMap<(Name, Option<RunnerName>), Exchange> = BTreeMap::new();
        for end in std::mem::take(&mut self.ends) {
            self.slots.release(&end.attempt.handler_name);
            // If the handler has moved, a claim for the new runner does not wait for an Ack to the old one.
            let key = (end.attempt.handler_name.clone(), end.attempt.runner.clone());
            exchanges.entry(key).or_default().ends.push(end);
        }
        let now = self.clock.monotonic();
        let capacities = self.pool.capacities();
        let paused = self.store.paused_now();
        while !self.stopping
            && let Some(pending) = self.slots.next_claim(now, &capacities, &paused)
        {
            let runner = pending.claim.runner.as_ref().map(|runner| runner.name.clone());
            let key = (pending.claim.handler.clone(), runner);
            exchanges.entry(key).or_default().claim = Some(pending);
        }
        for ((_, runner), exchange) in exchanges {
            let store = self.store.clone();
            self.work
                .spawn(async move { Step::Exchanged(Box::new(exchange.run(runner, store).await)) });
        }
    }

    /// Periodic safety net: finds jobs missed by a lost wake-up, a clock change (rule K1), or a replay for a handler
    /// that is not configured.
    fn check(&mut self) {
        self.slots.expect_jobs();
        if self.check.as_ref().is_some_and(|check| !check.is_finished()) {
            return;
        }
        let configured = self.slots.configured();
        let handlers: Vec<_> =
            configured.map(|(name, slots)| (name.clone(), slots.policy.longest())).collect();
        let store = self.store.clone();
        self.check = Some(tokio::spawn(async move {
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
        }));
    }

    fn handle(&mut self, step: Result<Step, JoinError>) {
        let step = match step {
            Ok(step) => step,
            // No step is aborted, so this is a panic: a programming error, here as anywhere.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        match step {
            Step::Exchanged(exchanged) => {
                let Exchanged { ended, unrecorded, runner, claim } = *exchanged;
                for end in unrecorded {
                    let store = self.store.clone();
                    // A stop does not wait for a store that fails: the next start settles the attempt.
                    self.commands
                        .spawn(async move { Step::Exchanged(Box::new(end.record(store).await)) });
                }
                if let Some(runner) = runner {
                    self.slots.forget_attempts(&runner, ended.len());
                }
                for key in ended {
                    self.acks.remove(key);
                }
                if let Some((pending, claims)) = claim {
                    self.handle_claims(pending, claims);
                }
            }
            Step::Ended(ended) => {
                let (attempt, report) = *ended;
                self.settle(attempt, report);
            }
        }
    }

    fn handle_claims(&mut self, pending: PendingClaim, claims: Result<Claims, Error>) {
        let claim = &pending.claim;
        match claims {
            Ok(Claims { number, jobs, due, pause }) => {
                self.slots.finish_claim(claim, jobs.len());
                self.slots.set_due(&claim.handler, number, due);
                self.slots.pause(claim, pause, self.clock.monotonic());
                for claimed in jobs {
                    self.begin(&pending, claimed);
                }
            }
            Err(error) => {
                tracing::error!(handler = %claim.handler, %error, "failed to claim");
                self.slots.fail_claim(claim, self.clock.monotonic());
            }
        }
    }

    /// Begins an attempt of the handler as it was configured when the job was claimed, also after a reload.
    fn begin(&mut self, PendingClaim { claim, handler }: &PendingClaim, claimed: Claimed) {
        let Claimed { facts, counted, since } = claimed;
        let key = Key { job: facts.job, attempt: facts.attempt };
        let span = attempt::span(&facts.source, &facts.event_id, key, &facts.handler);
        let mut attempt = Attempt {
            handler_name: facts.handler.clone(),
            handler: Some(Arc::clone(handler)),
            key,
            runner: claim.runner.as_ref().map(|runner| runner.name.clone()),
            client: None,
            counted,
            since,
            begun: Some(Instant::now()),
            source: facts.source.clone(),
            event_id: facts.event_id.clone(),
            span: span.clone(),
        };
        if self.stopping {
            let detail = "not begun: the receiver stopped first";
            return self.settle(attempt, Report::new(Outcome::NotStarted, detail));
        }
        match (&claim.runner, &**handler) {
            (Some(runner), Handler::Command(command)) => {
                let (client, incarnation) = (self.pool.client(&runner.name), runner.incarnation);
                let pending = client.track(key, incarnation, false);
                attempt.client = Some(client);
                let acknowledged = self.acks.before(key);
                let command = command.clone();
                let run = async move {
                    acknowledged.await;
                    let report = command.run(facts, incarnation, pending).await;
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
        let answers = self.configured_for(&attempt).is_some_and(|slots| slots.policy.answers);
        let report = if answers { report.at_once() } else { report };
        let pause = self.back_off(&attempt, &report);
        let notice = pause.and_then(|_| self.broken_notice(&attempt));
        // The policy of its handler as it is configured now, even if the attempt began under another one: a
        // restart would know no other.
        let configured = self.configured_for(&attempt);
        let policy = configured.map_or(&attempt::REMOVED, |slots| &slots.policy);
        let traffic = configured.map(|slots| slots.traffic.clone());
        let completion = attempt.completion(report, policy, pause, self.clock.now());
        let Completion { outcome, next, record, .. } = &completion;
        tracing::info!(%outcome, %next, detail = record.detail, "ended");
        self.ends.push(Ending {
            took: attempt.begun.map(|begun| begun.elapsed()),
            traffic,
            notice,
            _ack: attempt.client.as_ref().map(|_| self.acks.add(attempt.key)),
            completion: Arc::new(completion),
            attempt,
        });
    }

    /// The handler of an attempt as it is configured now.
    fn configured_for(&self, attempt: &Attempt) -> Option<&HandlerSlots> {
        self.slots.get(&attempt.handler_name)
    }

    /// Starts or continues the back-off of a handler that could not run, and returns the rest of its pause: zero if the
    /// handler's configuration has changed since. Ends the back-off of a handler that ran.
    fn back_off(&mut self, attempt: &Attempt, report: &Report) -> Option<Duration> {
        let handler = &attempt.handler_name;
        // An attempt of another configuration says nothing about what the handler runs now.
        let is_current = self.configured_for(attempt).is_some_and(|slots| {
            attempt.handler.as_ref().is_none_or(|begun| Arc::ptr_eq(begun, &slots.handler))
        });
        if !report.handler_broken {
            // Nor does an attempt that never began.
            if report.outcome != Outcome::NotStarted && is_current {
                self.slots.get_mut(handler)?.reset_back_off();
            }
            return None;
        }
        if !is_current {
            return Some(Duration::ZERO);
        }
        let (pause, tries) = self.slots.back_off(handler, self.clock.monotonic())?;
        tracing::warn!(seconds = pause.as_secs_f32(), "the handler cannot run and backs off");
        let now = self.clock.now();
        self.configured_for(attempt)?.traffic.broke(Broken {
            handler: handler.clone(),
            cause: attempt::cause(&report.record),
            tries,
            since: now,
            source: attempt.source.clone(),
            event_id: attempt.event_id.clone(),
            next_try_at: now.after(pause),
        });
        Some(pause)
    }

    /// The notice to operators that a handler cannot run, once for each back-off, after several failures.
    fn broken_notice(&mut self, attempt: &Attempt) -> Option<Notice> {
        // An event of the receiver itself must not cause another such event.
        let is_internal = attempt.source.as_str() == INTERNAL_SOURCE;
        let handler = &attempt.handler_name;
        let slots = self.slots.get_mut(handler).filter(|_| !is_internal)?;
        if !slots.backoff.report_once(notify::BROKEN_AFTER) {
            return None;
        }
        let job = NoticeJob {
            job: attempt.key.job,
            source: attempt.source.clone(),
            event_id: attempt.event_id.clone(),
        };
        Some(notify::broken(attempt.handler_name.clone(), job, self.clock.now()))
    }

    /// Waits for the running forwards, and cancels those that still run after the wait. Commands continue without
    /// this process.
    async fn finish(mut self, wait: Duration, hurry: &Notify) {
        self.stopping = true;
        if let Some(check) = &self.check {
            check.abort();
        }
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
                // The end of a command is recorded too, if it comes now.
                Some(step) = self.commands.join_next() => self.handle(step),
            }
        }
    }
}

/// One tick now, and then one every `period`.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
