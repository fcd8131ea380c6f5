//! The loop of the dispatcher: claims jobs, runs their attempts, and records the ends.
//!
//! One task owns the state. Each exchange with the store and each attempt is a task that ends with a [`Step`], so
//! that none delays another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::select;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::Instrument;

use crate::clock::Clock;
use crate::handler::{self, Cancellation, Handler, Report, RunnerPool, Stray};
use crate::limits::Limits;
use crate::model::{Broken, HeldReason, INTERNAL_SOURCE, Name, Outcome, Runner};
use crate::notify;
use crate::retry::{Next, Policy};
use crate::runner::AskedBy;
use crate::runner::message::Key;
use crate::store::{
    Claimed, Claims, Completion, Error, Jobs, Notice, NoticeJob, RunningAttempt, Stalled,
};
use crate::traffic::Traffic;

use super::attempt::{self, Attempt, Ending, Exchange, Exchanged, PendingAcks};
use super::control::{Dispatcher, Reload};
use super::slots::{HandlerSlots, PendingClaim, Slots};
use super::worker::Worker;
use super::{retention, start};

/// How long a stop waits for the ends of the forwards that it has cancelled, and for their commits.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// The pause between two tries of a handler to claim, or of an end that alone cannot be committed.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// The dispatcher's state.
pub(super) struct Flow {
    store: Jobs,
    clock: Clock,
    tick: Duration,
    slots: Slots,
    pool: RunnerPool,
    /// Changes of the runners' capacities.
    capacities: watch::Receiver<()>,
    strays: mpsc::UnboundedReceiver<Stray>,
    /// Ends that the next exchange sends to the store.
    ends: Vec<Ending>,
    acks: PendingAcks,
    /// Tasks that a stop waits for: exchanges, forwards, and what the ends of forwards still need: their policy, or the
    /// store, where it was not available.
    work: JoinSet<Step>,
    /// Tasks that a stop does not wait for: waits for the ends of commands and of strays, and what these ends still
    /// need. Commands outlive this process, and their runner keeps their ends.
    commands: JoinSet<Step>,
    /// The attempts cancelled through other nodes whose runners are asked to end them.
    cancelled: Vec<Key>,
    /// The last check of the store, which may still be running.
    check: Option<JoinHandle<()>>,
    stopping: bool,
    stop_attempts: Cancellation,
    reloads: mpsc::Receiver<Reload>,
    recovered: bool,
}

/// The result of a task.
enum Step {
    Exchanged(Box<Exchanged>),
    Ended(Box<(Attempt, Report)>),
    /// The end of a stray is recorded and acknowledged, or it never can be.
    Strayed,
    /// The end of an attempt whose handler was not configured here, with the policy that other nodes publish.
    Removed(Box<(Attempt, Report)>, Option<Policy>),
}

impl Dispatcher {
    /// Starts it and returns at once. Needs a tokio runtime's context. No other code may claim from the store or
    /// wait for its wake-ups. It connects to the runners that are needed, and counts every end in `traffic`.
    pub fn start(
        store: Jobs,
        workers: Vec<Worker>,
        pool: RunnerPool,
        traffic: &Traffic,
        limits: Limits,
        clock: Clock,
    ) -> Dispatcher {
        let (stop, stopped) = oneshot::channel();
        let hurry = Arc::new(Notify::new());
        let (reloads, reloaded) = mpsc::channel(1);
        let flow = Flow {
            store: store.clone(),
            clock: clock.clone(),
            tick: Limits::duration(limits.tick_millis),
            slots: Slots::new(workers, traffic, &limits),
            capacities: pool.changes(),
            strays: pool.strays(),
            pool,
            ends: Vec::new(),
            acks: PendingAcks::default(),
            work: JoinSet::new(),
            commands: JoinSet::new(),
            cancelled: Vec::new(),
            check: None,
            stopping: false,
            stop_attempts: Cancellation::default(),
            reloads: reloaded,
            recovered: false,
        };
        let (limits, retained) = watch::channel(limits);
        Dispatcher {
            flow: tokio::spawn(flow.run(stopped, hurry.clone())),
            retention: tokio::spawn(retention::run(store, retained, clock)),
            stop,
            hurry,
            reloads,
            limits,
        }
    }
}

impl Flow {
    /// Runs until `stop` says how long to wait for running forwards and for the recording of ends.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<Duration>, hurry: Arc<Notify>) {
        let (running, epoch) = loop {
            let handlers = self.slots.handlers.iter();
            let policies = handlers.map(|(name, slots)| (name.clone(), slots.policy.clone()));
            select! {
                left = start::recover(&self.store, policies.collect(), self.tick) => break left,
                Some(reload) = self.reloads.recv() => self.reload(reload).await,
                // If the handle was dropped, it runs until the process ends.
                Ok(_wait) = &mut stop, if !stop.is_terminated() => return,
            }
        };
        self.name_runners();
        // Before connecting, because a runner may be named by a running attempt only (R17).
        self.adopt(running);
        self.pool.connect(epoch);
        self.recovered = true;
        let wake = self.store.wake();
        let mut tick = ticks(self.tick);
        let wait = loop {
            if tick.period() != self.tick {
                tick = ticks(self.tick);
            }
            self.answer_roll_call();
            self.exchange();
            self.cancel_asked();
            let pause = self.slots.time_to_next_claim(self.clock.now(), self.clock.monotonic());
            select! {
                () = wake.notified() => self.slots.expect_jobs(),
                Some(step) = self.work.join_next() => self.handle(step),
                Some(step) = self.commands.join_next() => self.handle(step),
                Ok(()) = self.capacities.changed() => self.slots.expect_jobs(),
                Some(stray) = self.strays.recv() => self.attend(stray),
                () = sleep(pause.unwrap_or(self.tick)) => {
                    self.slots.expect_due_jobs(self.clock.now());
                }
                _now = tick.tick() => self.check(),
                Some(reload) = self.reloads.recv() => self.reload(reload).await,
                Ok(wait) = &mut stop, if !stop.is_terminated() => break wait,
            }
        };
        self.finish(wait, &hurry).await;
    }

    /// Tells the pool which runners handlers name or a roll call asks.
    fn name_runners(&self) {
        let mut named = self.store.unlisted().unwrap_or_default();
        let handlers = self.slots.handlers.values();
        named.extend(handlers.filter_map(HandlerSlots::runner).cloned());
        self.pool.need(named);
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
        // Nothing may be left that is claimed, and would say so.
        self.store.moves(Stalled::Claims);
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
            let Some(Runner { name, incarnation }) = running.runner.clone() else { continue };
            self.slots.adopt(&running.handler, &name);
            let configured = self.slots.handlers.get(&running.handler);
            let command = configured.and_then(|slots| slots.handler.command()).cloned();
            let client = self.pool.client(&name);
            let mut attempt = Attempt::new(running, None);
            let pending = client.track(attempt.key(), incarnation, true);
            attempt.client = Some(client);
            let span = attempt.span.clone();
            let wait = async move {
                tracing::info!("claimed by an earlier receiver: waiting for its end");
                let report = handler::adopted(pending, command).await;
                Step::Ended(Box::new((attempt, report)))
            };
            self.commands.spawn(wait.instrument(span));
        }
    }

    /// Waits for the end of a stray, an attempt that a runner has and this process does not know; then records it, as a
    /// late end unless the store knows it (N24), and acknowledges it.
    fn attend(&mut self, Stray { key, client, pending }: Stray) {
        self.store.note_stray(key.job, key.attempt);
        let (store, clock) = (self.store.clone(), self.clock.clone());
        self.commands.spawn(async move {
            let Report { outcome, record, .. } = handler::adopted(pending, None).await;
            let Key { job, attempt } = key;
            // It runs in no row, so nothing follows from it.
            let (counts, next, answer) = (false, Next::Held(HeldReason::UnknownOutcome), None);
            let finished_at = clock.now();
            let done =
                Completion { job, attempt, outcome, counts, next, finished_at, record, answer };
            match store.complete(done).await {
                // Retention has deleted the job with its ends.
                Ok(_) | Err(Error::NoJob(_)) => client.acknowledge(&[key]).await,
                Err(error) => tracing::error!(%key, %error, "failed to record the end of a stray"),
            }
            Step::Strayed
        });
    }

    /// A client has capacity behind the strays of its list.
    fn attend_strays(&mut self) {
        while let Ok(stray) = self.strays.try_recv() {
            self.attend(stray);
        }
    }

    /// Says what the runners list, once that is known (N40).
    fn answer_roll_call(&mut self) {
        if self.store.unlisted().is_none() {
            return;
        }
        self.name_runners();
        if let Some(listed) = self.pool.listed() {
            self.attend_strays();
            self.store.answer_roll_call(listed);
            self.name_runners();
        }
    }

    /// Sends the ends of all attempts that have ended by now to the store, and makes the claims that may be made. One
    /// flush records a handler's ends at a runner and claims into the slots that they free.
    fn exchange(&mut self) {
        while let Some(step) = self.work.try_join_next().or_else(|| self.commands.try_join_next()) {
            self.handle(step);
        }
        let mut exchanges: BTreeMap<(Name, Option<Runner>), Exchange> = BTreeMap::new();
        for end in std::mem::take(&mut self.ends) {
            let RunningAttempt { handler, runner, .. } = &end.attempt.running;
            self.slots.release(handler);
            // If the handler has moved, a claim for the new runner does not wait for an Ack to the old one.
            let key = (handler.clone(), runner.clone());
            exchanges.entry(key).or_default().ends.push(end);
        }
        let now = self.clock.monotonic();
        let capacities = self.pool.capacities();
        self.attend_strays();
        let paused = self.store.paused_now();
        while !self.stopping
            && let Some(pending) = self.slots.next_claim(now, &capacities, &paused)
        {
            let key = (pending.claim.handler.clone(), pending.claim.runner.clone());
            exchanges.entry(key).or_default().claim = Some(pending);
        }
        for ((_, runner), exchange) in exchanges {
            let store = self.store.clone();
            self.work
                .spawn(async move { Step::Exchanged(Box::new(exchange.run(runner, store).await)) });
        }
    }

    /// Asks the runners to end the attempts that were cancelled through other nodes (N21). If an attempt is just beginning,
    /// or its runner is not connected, a later call asks for it.
    fn cancel_asked(&mut self) {
        let asked = self.store.cancel_asked();
        let asked: Vec<Key> = asked.iter().map(|&(job, attempt)| Key { job, attempt }).collect();
        self.cancelled.retain(|key| asked.contains(key));
        for key in asked {
            if !self.cancelled.contains(&key) && self.pool.cancel(key).is_ok() {
                self.cancelled.push(key);
            }
        }
    }

    /// Makes, at each tick, the notices that are due, and finds what else would wait permanently: jobs whose wake-up
    /// was lost, jobs of a handler that is not configured, and jobs that a clock change has put off (K1).
    fn check(&mut self) {
        self.slots.expect_jobs();
        if self.check.as_ref().is_some_and(|check| !check.is_finished()) {
            return;
        }
        let handlers: Vec<Name> = self.slots.handlers.keys().cloned().collect();
        let store = self.store.clone();
        self.check = Some(tokio::spawn(async move {
            notify::tick(&store).await;
            match store.hold_orphans(handlers).await {
                Ok(0) => {}
                Ok(jobs) => tracing::warn!(jobs, "held: their handler is not configured"),
                Err(error) => tracing::warn!(%error, "failed to look for jobs of no handler"),
            }
            match store.clamp_due().await {
                Ok(0) => {}
                Ok(jobs) => tracing::warn!(jobs, "the clock was set back: due earlier"),
                Err(error) => tracing::warn!(%error, "failed to look at due times"),
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
                    let (store, runner) = (self.store.clone(), runner.clone());
                    let exchange = Exchange { ends: vec![end], claim: None };
                    // Only this process knows how a forward has ended.
                    let tasks = if runner.is_none() { &mut self.work } else { &mut self.commands };
                    tasks.spawn(async move {
                        sleep(STORE_PAUSE).await;
                        Step::Exchanged(Box::new(exchange.run(runner, store).await))
                    });
                }
                if let Some(runner) = runner {
                    self.slots.forget_attempts(&runner.name, ended.len());
                }
                for key in ended {
                    self.acks.remove(key);
                }
                if let Some((pending, claims)) = claim {
                    self.handle_claims(pending, claims);
                }
            }
            Step::Ended(ended) if self.configured_for(&ended.0).is_none() => {
                self.look_elsewhere(ended);
            }
            Step::Ended(ended) => {
                let (attempt, report) = *ended;
                self.settle(attempt, report, None);
            }
            Step::Removed(ended, elsewhere) => {
                let (attempt, report) = *ended;
                self.settle(attempt, report, elsewhere);
            }
            Step::Strayed => {}
        }
    }

    fn handle_claims(&mut self, pending: PendingClaim, claims: Result<Claims, Error>) {
        let claim = &pending.claim;
        match claims {
            Ok(Claims { number, jobs, due, pause }) => {
                self.store.moves(Stalled::Claims);
                self.slots.finish_claim(claim, jobs.len());
                self.slots.set_due(&claim.handler, number, due);
                self.slots.pause(claim, pause, self.clock.monotonic());
                for claimed in jobs {
                    self.begin(&pending, claimed);
                }
            }
            Err(_) if self.stopping => self.slots.finish_claim(claim, 0),
            Err(error) => {
                tracing::error!(handler = %claim.handler, %error, "failed to claim");
                self.store.stalled(Stalled::Claims, format!("handler {}: {error}", claim.handler));
                self.slots.finish_claim(claim, 0);
                self.slots.pause(claim, Some(STORE_PAUSE), self.clock.monotonic());
            }
        }
    }

    /// Begins an attempt of the handler as it was configured when the job was claimed, also after a reload.
    fn begin(&mut self, pending: &PendingClaim, claimed: Claimed) {
        let PendingClaim { claim, handler, policy } = pending;
        let Claimed { facts, counted, since } = claimed;
        let running = RunningAttempt {
            job: facts.job,
            attempt: facts.attempt,
            handler: facts.handler.clone(),
            source: facts.source.clone(),
            event_id: facts.event_id.clone(),
            counted,
            since,
            runner: claim.runner.clone(),
        };
        let mut attempt = Attempt::new(running, Some(Arc::clone(handler)));
        attempt.policy = Some(policy.clone());
        let (key, span) = (attempt.key(), attempt.span.clone());
        if self.stopping {
            let detail = "not begun: the receiver stopped first";
            return self.settle(attempt, Report::new(Outcome::NotStarted, detail), None);
        }
        let store = self.store.clone();
        // Asked directly before it begins: a registration meanwhile may have shown that another node has the job (N16).
        let may_begin = move || store.may_begin(key.job, key.attempt);
        match (&claim.runner, &**handler) {
            (Some(runner), Handler::Command(command)) => {
                let (client, incarnation) = (self.pool.client(&runner.name), runner.incarnation);
                let pending = client.track(key, incarnation, false);
                attempt.client = Some(client);
                let acknowledged = self.acks.before(key);
                let command = command.clone();
                let may_begin = acknowledged.map(move |()| may_begin());
                let run = async move {
                    let report = command.run(facts, incarnation, pending, may_begin).await;
                    Step::Ended(Box::new((attempt, report)))
                };
                self.commands.spawn(run.instrument(span));
            }
            (_, Handler::Forward(forward)) => {
                let forward = forward.clone();
                let stop = self.stop_attempts.clone();
                let clock = self.clock.clone();
                let run = async move {
                    let report = match may_begin() {
                        true => forward.run(&facts, &stop, &clock).await,
                        false => Report::new(Outcome::NotStarted, handler::TAKEN),
                    };
                    Step::Ended(Box::new((attempt, report)))
                };
                self.work.spawn(run.instrument(span));
            }
            (None, Handler::Command(_)) => unreachable!("a command is claimed for a runner"),
        }
    }

    /// Asks whether other nodes publish the handler of an attempt, which the configuration of now lacks (N29).
    fn look_elsewhere(&mut self, ended: Box<(Attempt, Report)>) {
        let store = self.store.clone();
        let tasks = match &ended.0.client {
            Some(_) => &mut self.commands,
            None => &mut self.work,
        };
        let look = async move {
            let handler = &ended.0.running.handler;
            let elsewhere = loop {
                match store.policy_elsewhere(handler).await {
                    Ok(elsewhere) => break elsewhere,
                    Err(why) => tracing::warn!(%handler, %why, "an end waits for its policy"),
                }
                sleep(STORE_PAUSE).await;
            };
            Step::Removed(ended, elsewhere)
        };
        tasks.spawn(look);
    }

    /// `elsewhere`: the policy that other nodes publish, where the handler is not configured here.
    fn settle(&mut self, attempt: Attempt, report: Report, elsewhere: Option<Policy>) {
        let _inside = attempt.span.clone().entered();
        let answers = self.configured_for(&attempt).is_some_and(|slots| slots.policy.answers);
        let report = if answers { report.at_once() } else { report };
        let (pause, notice) = self.back_off(&attempt, &report).unzip();
        // The policy of its handler as it is configured now, even if the attempt began under another one: a
        // restart would know no other. Where only other nodes have the handler, its job goes on there, by the policy at
        // the claim, or by theirs where that is not known. Where none has it, the handler is removed.
        let configured = self.configured_for(&attempt);
        let elsewhere =
            elsewhere.as_ref().map(|published| attempt.policy.as_ref().unwrap_or(published));
        let policy =
            configured.map(|slots| &slots.policy).or(elsewhere).unwrap_or(&attempt::REMOVED);
        let traffic = configured.map(|slots| slots.traffic.clone());
        let completion = attempt.completion(report, policy, pause, self.clock.now());
        let Completion { outcome, next, record, .. } = &completion;
        tracing::info!(%outcome, %next, detail = record.detail, "ended");
        self.ends.push(Ending {
            took: attempt.begun.as_ref().map(|(_, begun)| begun.elapsed()),
            traffic,
            notice: notice.flatten(),
            _ack: attempt.client.as_ref().map(|_| self.acks.add(attempt.key())),
            completion: Arc::new(completion),
            attempt,
        });
    }

    /// The handler of an attempt as it is configured now.
    fn configured_for(&self, attempt: &Attempt) -> Option<&HandlerSlots> {
        self.slots.handlers.get(&attempt.running.handler)
    }

    /// Starts or continues the back-off of a handler that could not run. Returns the rest of its pause, which is zero
    /// if the handler's configuration has changed since, and once for each back-off, after several failures, a
    /// notice to operators. Ends the back-off of a handler that ran.
    fn back_off(
        &mut self,
        attempt: &Attempt,
        report: &Report,
    ) -> Option<(Duration, Option<Notice>)> {
        // An attempt of another configuration says nothing about what the handler runs now.
        let is_current = self.configured_for(attempt).is_some_and(|slots| {
            let begun = attempt.begun.as_ref();
            begun.is_none_or(|(handler, _)| Arc::ptr_eq(handler, &slots.handler))
        });
        let RunningAttempt { job, handler, source, event_id, .. } = attempt.running.clone();
        if !report.handler_broken {
            // Nor does an attempt that never began.
            if report.outcome != Outcome::NotStarted && is_current {
                self.slots.handlers.get_mut(&handler)?.reset_back_off();
            }
            return None;
        }
        if !is_current {
            return Some((Duration::ZERO, None));
        }
        let (pause, tries) = self.slots.back_off(&handler, self.clock.monotonic())?;
        tracing::warn!(seconds = pause.as_secs_f32(), "the handler cannot run and backs off");
        let now = self.clock.now();
        let slots = self.slots.handlers.get_mut(&handler)?;
        slots.traffic.broke(Broken {
            handler: handler.clone(),
            cause: attempt::cause(&report.record),
            tries,
            since: now,
            source: source.clone(),
            event_id: event_id.clone(),
            next_try_at: now.after(pause),
        });
        // An event of the receiver itself must not cause another such event.
        let is_due =
            source.as_str() != INTERNAL_SOURCE && slots.backoff.report_once(notify::BROKEN_AFTER);
        let job = NoticeJob { job, source, event_id };
        Some((pause, is_due.then(|| notify::broken(handler, job, now))))
    }

    /// Waits for the running forwards, and cancels those that still run after the wait. Commands continue without
    /// this process.
    async fn finish(mut self, wait: Duration, hurry: &Notify) {
        self.stopping = true;
        self.store.end_claims();
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
        tracing::warn!(
            count = self.work.len(),
            "the wait is over: cancelling the forwards that still run"
        );
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
