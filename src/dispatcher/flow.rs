//! The one loop: claim, run, settle.
//!
//! One task owns the state. Whatever takes time (a claim, an attempt, a completion) is a task of its
//! own and comes back as a [`Step`], so that nothing waits for anything else.

use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{Instrument, Span};

use crate::clock::Clock;
use crate::handler::{AskedBy, End, Ender, Report};
use crate::limits::Limits;
use crate::model::{JobId, Name, Outcome, Timestamp};
use crate::retry::{History, Next, Policy};
use crate::store::{Claimed, Completion, Error, Record, Store};

use super::lanes::Lanes;
use super::{Worker, start};

/// Between a claim that failed and the next one of the same handler.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

/// How long the last ends may take to come and be recorded, beyond the longest grace.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The dispatcher's state.
pub(super) struct Flow {
    store: Store,
    clock: Clock,
    tick: Duration,
    lanes: Lanes,
    work: JoinSet<Step>,
    clamping: bool,
    stopping: bool,
    ender: Ender,
    end: End,
}

/// Something that was under way has ended. The number is the handler's.
enum Step {
    Claimed(usize, Result<(Vec<Claimed>, Option<Timestamp>), Error>),
    Ended(Box<(Attempt, Report)>),
    Settled(usize),
    Clamped,
}

/// An attempt under way.
struct Attempt {
    lane: usize,
    job: JobId,
    number: u32,
    /// Counted attempts before this one.
    counted: u32,
    since: Timestamp,
    /// Names the attempt in every log line.
    span: Span,
}

impl Flow {
    pub(super) fn new(store: Store, workers: Vec<Worker>, limits: Limits, clock: Clock) -> Self {
        let (ender, end) = End::pair();
        Flow {
            store,
            clock,
            tick: Limits::duration(limits.tick_millis),
            lanes: Lanes::new(workers, &limits),
            work: JoinSet::new(),
            clamping: false,
            stopping: false,
            ender,
            end,
        }
    }

    /// Runs until `stop` says how long to wait for what is in flight, and until that is settled.
    pub(super) async fn run(mut self, mut stop: oneshot::Receiver<Duration>, hurry: Arc<Notify>) {
        let policies = self.lanes.iter().map(|lane| (lane.name.clone(), lane.policy.clone()));
        let policies = policies.collect();
        select! {
            () = start::recover(&self.store, policies, self.tick) => {}
            Ok(_wait) = &mut stop => return,
        }
        let wake = self.store.wake();
        let mut tick = interval(self.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let wait = loop {
            self.claim();
            let patience = self.lanes.patience(self.clock.now(), self.clock.monotonic());
            select! {
                () = wake.notified() => self.lanes.want_all(),
                Some(step) = self.work.join_next() => self.on(step),
                () = sleep(patience.unwrap_or(self.tick)) => self.lanes.want_due(self.clock.now()),
                _now = tick.tick() => self.tick(),
                // A handle that is gone cannot stop it any more: it runs on until the process ends.
                Ok(wait) = &mut stop, if !stop.is_terminated() => break wait,
            }
        };
        self.finish(wait, &hurry).await;
    }

    /// Claims whatever may be claimed now.
    fn claim(&mut self) {
        while let Some((index, slots)) = self.lanes.next_claim(self.clock.monotonic()) {
            let (store, name) = (self.store.clone(), self.lanes.get_mut(index).name.clone());
            self.work.spawn(async move {
                let claimed = claim(&store, &name, slots).await;
                if let Err(error) = &claimed {
                    tracing::error!(handler = %name, %error, "failed to claim");
                    sleep(CLAIM_PAUSE).await;
                }
                Step::Claimed(index, claimed)
            });
        }
    }

    /// What a lost wake-up, a moved clock (rule K1) or a replay for nobody has hidden comes to light.
    fn tick(&mut self) {
        self.lanes.want_all();
        if std::mem::replace(&mut self.clamping, true) {
            return;
        }
        let lanes = self.lanes.iter().map(|lane| (lane.name.clone(), lane.policy.backoff_max));
        let (lanes, store): (Vec<_>, _) = (lanes.collect(), self.store.clone());
        self.work.spawn(async move {
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
    }

    fn on(&mut self, step: Result<Step, JoinError>) {
        let step = match step {
            Ok(step) => step,
            // A panic is a programmer's error, here as anywhere.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_aborted) => return,
        };
        match step {
            Step::Claimed(index, Ok((claimed, due))) => {
                self.lanes.claimed(index, claimed.len());
                self.lanes.get_mut(index).due = due;
                for claimed in claimed {
                    self.begin(index, claimed);
                }
            }
            Step::Claimed(index, Err(_)) => {
                self.lanes.claimed(index, 0);
                self.lanes.get_mut(index).wanted = true;
            }
            Step::Ended(ended) => self.settle(ended.0, ended.1),
            Step::Settled(index) => self.lanes.get_mut(index).running -= 1,
            Step::Clamped => self.clamping = false,
        }
    }

    fn begin(&mut self, lane: usize, claimed: Claimed) {
        let Claimed { facts, counted, since } = claimed;
        let span = tracing::info_span!(
            "attempt",
            source = %facts.source,
            event = %facts.event_id,
            job = %facts.job,
            handler = %facts.handler,
            attempt = facts.attempt,
        );
        let (job, number, inside) = (facts.job, facts.attempt, span.clone());
        let attempt = Attempt { lane, job, number, counted, since, span };
        if self.stopping {
            let detail = "not begun: the receiver stopped first".to_owned();
            let record = Record { detail, ..Record::default() };
            let (outcome, handler_broken, retry_after) = (Outcome::NotStarted, false, None);
            return self.settle(attempt, Report { outcome, handler_broken, retry_after, record });
        }
        let handler = self.lanes.get_mut(lane).handler.clone();
        let (end, clock) = (self.end.clone(), self.clock.clone());
        let run = async move {
            let report = handler.run(facts, &end, &clock).await;
            Step::Ended(Box::new((attempt, report)))
        };
        self.work.spawn(run.instrument(inside));
    }

    fn settle(&mut self, attempt: Attempt, report: Report) {
        let _inside = attempt.span.clone().entered();
        let pause = match report.handler_broken {
            true => {
                let pause = self.lanes.broke(attempt.lane, self.clock.monotonic());
                let seconds = pause.as_secs_f32();
                tracing::warn!(seconds, "the handler cannot run and backs off");
                Some(pause)
            }
            false => {
                self.lanes.ran(attempt.lane);
                None
            }
        };
        let policy = &self.lanes.get_mut(attempt.lane).policy;
        let completion = completion(&attempt, report, policy, pause, self.clock.now());
        let (outcome, next, detail) =
            (completion.outcome, completion.next, &completion.record.detail);
        tracing::info!(%outcome, ?next, detail, "ended");
        let (store, index, span) = (self.store.clone(), attempt.lane, attempt.span.clone());
        let complete = async move {
            match store.complete(completion).await {
                Ok(true) => {}
                Ok(false) => tracing::error!("was settled already: this end changes nothing"),
                Err(error) => tracing::error!(%error, "failed to record the end"),
            }
            Step::Settled(index)
        };
        self.work.spawn(complete.instrument(span));
    }

    /// Waits for what is under way, then ends it.
    async fn finish(mut self, wait: Duration, hurry: &Notify) {
        self.stopping = true;
        select! {
            () = self.drain() => return,
            () = sleep(wait) => {}
            () = hurry.notified() => {}
        }
        tracing::warn!(count = self.work.len(), "the wait is over: ending what still runs");
        self.ender.wish(AskedBy::Stop);
        let grace = self.lanes.iter().map(|lane| lane.handler.grace()).max().unwrap_or_default();
        // SIGKILL comes after one grace; the end of an unkillable process is not waited for.
        if timeout(grace.saturating_add(LAST_WORDS), self.drain()).await.is_err() {
            let count = self.work.len();
            tracing::error!(count, "did not end: the next start will settle them");
        }
    }

    /// May be dropped at any time: no step is lost.
    async fn drain(&mut self) {
        while let Some(step) = self.work.join_next().await {
            self.on(step);
        }
    }
}

/// Claims, and looks when the next one is due.
async fn claim(
    store: &Store,
    name: &Name,
    slots: usize,
) -> Result<(Vec<Claimed>, Option<Timestamp>), Error> {
    let claimed = store.claim(name, slots).await?;
    // What is claimed must run, whatever comes of this second question: a tick asks it again.
    let due = store.next_due(std::slice::from_ref(name)).await.ok().flatten();
    Ok((claimed, due))
}

/// What is recorded of an attempt's end. `pause`: the handler could not run, and pauses this long.
fn completion(
    attempt: &Attempt,
    report: Report,
    policy: &Policy,
    pause: Option<Duration>,
    now: Timestamp,
) -> Completion {
    let Report { outcome, retry_after, record, .. } = report;
    let counts = pause.is_none() && outcome != Outcome::NotStarted;
    let counted = attempt.counted + u32::from(counts);
    let next = match (outcome, pause) {
        // Its handler could not run: the job waits with it and loses no attempt.
        (Outcome::Failed, Some(pause)) => Next::Wait { due_at: now.after(pause) },
        _ => policy.next(outcome, History { counted, since: attempt.since }, retry_after, now),
    };
    Completion {
        job: attempt.job,
        attempt: attempt.number,
        outcome,
        counts,
        next,
        finished_at: now,
        record,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{DeadReason, HeldReason, OnUnknown};
    use crate::retry::GiveUp;

    const NOW: Timestamp = Timestamp(1_000_000);
    const POLICY: Policy = Policy {
        on_unknown: OnUnknown::Hold,
        give_up: GiveUp::Attempts(3),
        backoff_base: Duration::from_secs(10),
        backoff_max: Duration::from_secs(3600),
    };

    fn completed(outcome: Outcome, pause: Option<Duration>) -> Completion {
        let (lane, job, number) = (0, JobId::new(NOW), 9);
        let attempt = Attempt { lane, job, number, counted: 1, since: NOW, span: Span::none() };
        let (handler_broken, record) = (pause.is_some(), Record::default());
        let report = Report { outcome, handler_broken, retry_after: None, record };
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
