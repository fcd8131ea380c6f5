//! Attempts, and the exchanges with the store that record their ends.
//!
//! Must stay true:
//!
//! - An end is acknowledged to its runner after its commit only (R9).
//! - The Start of a job's next attempt is written after that Ack: until then the runner has the job, and refuses
//!   another attempt of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::Span;

use crate::handler::{Handler, Report, RunnerClient};
use crate::model::{DeadReason, HeldReason, OnUnknown, Outcome, Runner, Timestamp};
use crate::retry::{GiveUp, History, Next, Policy};
use crate::runner::message::Key;
use crate::store::{Claims, Completion, Error, Jobs, Notice, Record, RunningAttempt};
use crate::traffic::HandlerTraffic;

use super::slots::PendingClaim;

/// The policy for a handler that no node configures any more: a job whose attempt failed waits until the next check
/// of the store holds it.
pub(super) static REMOVED: Policy = Policy {
    on_unknown: OnUnknown::Hold,
    give_up: GiveUp::Attempts(u32::MAX),
    backoff_base: Duration::ZERO,
    backoff_max: Duration::ZERO,
    answers: false,
    pauses: Vec::new(),
};

/// An attempt that is running in the store.
pub(super) struct Attempt {
    pub(super) running: RunningAttempt,
    /// The handler as it was configured at the claim, and when this process began the attempt; `None` if an earlier
    /// receiver claimed it.
    pub(super) begun: Option<(Arc<Handler>, Instant)>,
    /// The handler's policy at the claim, where it is known.
    pub(super) policy: Option<Policy>,
    /// The client that acknowledges its end, if the runner may have the attempt.
    pub(super) client: Option<RunnerClient>,
    /// Names the attempt in every log line.
    pub(super) span: Span,
}

impl Attempt {
    pub(super) fn new(running: RunningAttempt, handler: Option<Arc<Handler>>) -> Self {
        let RunningAttempt { source, event_id: event, job, handler: name, attempt, .. } = &running;
        let span = tracing::info_span!("attempt", %source, %event, %job, handler = %name, attempt);
        let begun = handler.map(|handler| (handler, Instant::now()));
        Attempt { running, begun, policy: None, client: None, span }
    }

    pub(super) fn key(&self) -> Key {
        Key { job: self.running.job, attempt: self.running.attempt }
    }

    /// The record of its end. `pause` is set if the handler could not run: how long it pauses.
    pub(super) fn completion(
        &self,
        report: Report,
        policy: &Policy,
        pause: Option<Duration>,
        now: Timestamp,
    ) -> Completion {
        let Report { outcome, value_refused, retry_after, record, answer, .. } = report;
        let counts = pause.is_none() && outcome != Outcome::NotStarted;
        let RunningAttempt { job, attempt, since, .. } = self.running;
        let counted = self.running.counted + u32::from(counts);
        let next = match (outcome, pause) {
            // The job waits as long as its handler, and its number of counted attempts stays.
            (Outcome::Failed, Some(pause)) => Next::Wait { due_at: now.after(pause) },
            // Its caller waits, so no operator can correct the values in time.
            _ if value_refused && policy.answers => Next::Dead(DeadReason::Rejected),
            _ if value_refused => Next::Held(HeldReason::ValueRefused),
            _ => policy.next(outcome, History { counted, since }, retry_after, now),
        };
        Completion { job, attempt, outcome, counts, next, finished_at: now, record, answer }
    }
}

/// Why a handler could not run: the record's detail and, where a shell reported it, the last line of its errors.
pub(super) fn cause(record: &Record) -> String {
    match record.stderr.last_line() {
        Some(line) => format!("{}: {line}", record.detail),
        None => record.detail.clone(),
    }
}

/// An attempt whose end is to be recorded.
pub(super) struct Ending {
    pub(super) attempt: Attempt,
    pub(super) completion: Arc<Completion>,
    /// How long it ran, if this process began it.
    pub(super) took: Option<Duration>,
    pub(super) traffic: Option<Arc<HandlerTraffic>>,
    /// Stored after the commit: the notice quotes the recorded attempt.
    pub(super) notice: Option<Notice>,
    /// What [`PendingAcks::add`] returned; dropped once the Ack is written.
    pub(super) _ack: Option<oneshot::Sender<()>>,
}

impl Ending {
    /// Counts or logs the result of its commit, and stores the notice.
    fn report(&self, committed: &Result<bool, Error>, store: &Jobs) {
        let _inside = self.attempt.span.enter();
        match committed {
            Ok(true) => {
                if let Some(traffic) = &self.traffic {
                    let Completion { outcome, next, finished_at, .. } = &*self.completion;
                    traffic.ended(*outcome, next.state(), *finished_at, self.took);
                }
                if let Some(notice) = &self.notice {
                    store.notify(notice.clone());
                }
            }
            Ok(false) => tracing::error!("was settled already: this end changes nothing"),
            Err(error) => tracing::error!(%error, "failed to record the end"),
        }
    }
}

/// The Acks that are not written yet.
#[derive(Default)]
pub(super) struct PendingAcks(HashMap<Key, oneshot::Receiver<()>>);

impl PendingAcks {
    /// Adds the Ack of this attempt, which is written once the sender is dropped.
    pub(super) fn add(&mut self, key: Key) -> oneshot::Sender<()> {
        let (ack, written) = oneshot::channel();
        self.0.insert(key, written);
        ack
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.0.remove(&key);
    }

    /// Resolves once the Ack of the attempt before this one is written.
    pub(super) fn before(&mut self, key: Key) -> impl Future<Output = ()> + use<> {
        let written = self.0.remove(&Key { attempt: key.attempt.saturating_sub(1), ..key });
        async move {
            if let Some(written) = written {
                let _written = written.await;
            }
        }
    }
}

/// Ends of a handler's attempts at one runner, and the claim of the slots that they free.
#[derive(Default)]
pub(super) struct Exchange {
    pub(super) ends: Vec<Ending>,
    pub(super) claim: Option<PendingClaim>,
}

/// The result of an exchange.
pub(super) struct Exchanged {
    /// The attempts that are done with, and below the runner that they were claimed for.
    pub(super) ended: Vec<Key>,
    /// The ends that the store cannot commit now. They are recorded later, and acknowledged then.
    pub(super) unrecorded: Vec<Ending>,
    pub(super) runner: Option<Runner>,
    pub(super) claim: Option<(PendingClaim, Result<Claims, Error>)>,
}

impl Exchange {
    pub(super) async fn run(self, runner: Option<Runner>, store: Jobs) -> Exchanged {
        let completions: Vec<_> = self.ends.iter().map(|end| end.completion.clone()).collect();
        let claim = self.claim.as_ref().map(|pending| pending.claim.clone());
        let (committed, claims) = store.complete_and_claim(&completions, claim).await;
        let (mut ended, mut unrecorded, mut recorded) = (Vec::new(), Vec::new(), Vec::new());
        for (end, committed) in self.ends.into_iter().zip(committed) {
            end.report(&committed, &store);
            if let Err(Error::Unavailable(_)) = committed {
                unrecorded.push(end);
                continue;
            }
            ended.push(end.attempt.key());
            if committed.is_ok() {
                recorded.push(end);
            }
        }
        recorded.retain(|end| end.attempt.client.is_some());
        if let Some(client) = recorded.first().and_then(|end| end.attempt.client.as_ref()) {
            let keys: Vec<Key> = recorded.iter().map(|end| end.attempt.key()).collect();
            client.acknowledge(&keys).await;
        }
        // Behind the Acks: payloads cannot be read while the store is away.
        let claims = claims.await;
        let claim = self.claim.map(|pending| (pending, claims));
        Exchanged { ended, unrecorded, runner, claim }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::Clock;
    use crate::limits::Limits;
    use crate::store::{Settings, Store};

    const NOW: Timestamp = Timestamp(1_000_000);
    const POLICY: Policy = Policy {
        on_unknown: OnUnknown::Hold,
        give_up: GiveUp::Attempts(3),
        backoff_base: Duration::from_secs(10),
        backoff_max: Duration::from_secs(3600),
        answers: false,
        pauses: Vec::new(),
    };

    fn attempt() -> Attempt {
        let running = RunningAttempt {
            job: crate::random::job_id(NOW),
            attempt: 9,
            handler: "worker".parse().unwrap(),
            source: "github".parse().unwrap(),
            event_id: "d-1".parse().unwrap(),
            counted: 1,
            since: NOW,
            runner: None,
        };
        Attempt::new(running, None)
    }

    fn completed(outcome: Outcome, pause: Option<Duration>) -> Completion {
        let report = Report {
            outcome,
            handler_broken: pause.is_some(),
            value_refused: false,
            retry_after: None,
            record: Record::default(),
            answer: None,
        };
        attempt().completion(report, &POLICY, pause, NOW)
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

    #[test]
    fn a_refused_value_holds_the_job_and_counts_no_attempt() {
        let report = Report {
            value_refused: true,
            ..Report::new(Outcome::NotStarted, "value A is refused")
        };
        let answering = report.clone().at_once();
        let completion = attempt().completion(report, &POLICY, None, NOW);
        assert_eq!(
            (completion.counts, completion.next),
            (false, Next::Held(HeldReason::ValueRefused))
        );
        assert_eq!(completion.outcome, Outcome::NotStarted);
        let once = Policy { give_up: GiveUp::Attempts(1), answers: true, ..POLICY };
        let completion = attempt().completion(answering, &once, None, NOW);
        assert_eq!((completion.counts, completion.next), (false, Next::Dead(DeadReason::Rejected)));
        assert_eq!(completion.outcome, Outcome::NotStarted);
    }

    #[tokio::test]
    async fn an_end_that_cannot_be_committed_now_keeps_its_slot_at_the_runner_and_its_ack() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { path: dir.path().join("db"), limits: Limits::default() };
        let store = Store::open(&settings, Clock::manual(NOW)).unwrap();
        store.close().await;
        let mut acks = PendingAcks::default();
        let attempt = attempt();
        let next = Key { attempt: 10, ..attempt.key() };
        let ending = Ending {
            completion: Arc::new(completed(Outcome::Succeeded, None)),
            took: None,
            traffic: None,
            notice: None,
            _ack: Some(acks.add(attempt.key())),
            attempt,
        };
        let exchange = Exchange { ends: vec![ending], claim: None };
        let exchanged = exchange.run(None, store.jobs.clone()).await;
        assert_eq!((exchanged.ended.len(), exchanged.unrecorded.len()), (0, 1));
        assert!(acks.before(next).now_or_never().is_none(), "a Start would overtake the Ack");
    }

    #[test]
    fn the_next_attempt_of_a_job_waits_for_the_ack_of_the_one_before() {
        let job = crate::random::job_id(NOW);
        let [first, second, third] = [1, 2, 3].map(|attempt| Key { job, attempt });
        let mut acks = PendingAcks::default();
        let ack = acks.add(first);
        assert!(acks.before(first).now_or_never().is_some(), "its own Ack comes later");
        let mut written = Box::pin(acks.before(second));
        assert!(written.as_mut().now_or_never().is_none());
        drop(ack);
        assert!(written.now_or_never().is_some());

        let _ack = acks.add(second);
        acks.remove(second);
        assert!(acks.before(third).now_or_never().is_some());
    }
}
