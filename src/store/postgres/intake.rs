//! The handle of `http` on PostgreSQL.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::model::{JobId, Timestamp};
use crate::store::border::{Accept, Accepted, Ask, Asked, KeyState, Refused, Stall};
use crate::store::decide::notice::Notice;

use super::answer::{Question, Request};
use super::operate::housekeeping::Housekeeping;
use super::writer::{Writer, decided};

/// The pause between two looks of a caller who waits: a job's end at another node is seen after that time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a request is tried: the most that `accept_wait_millis` allows. `http` answers before the provider's
/// deadline by itself, and what is queued then may still be stored (H3).
const TRIED_FOR: Duration = Duration::from_secs(60);

/// The store as `http` uses it: accepts deliveries and asks for stored answers.
#[derive(Clone)]
pub struct Intake {
    pub(in crate::store) writer: Writer,
    keeping: Housekeeping,
}

impl Intake {
    pub fn new(writer: Writer, keeping: Housekeeping) -> Self {
        Intake { writer, keeping }
    }

    /// Counts a notice as soon as the database can be written. Returns at once.
    pub fn notify(&self, notice: Notice) {
        self.keeping.notify(notice);
    }

    /// Fails with the reason while accepts are refused.
    pub fn ready(&self) -> Result<(), Refused> {
        self.writer.ready()
    }

    pub fn stalls(&self) -> Vec<Stall> {
        self.writer.stalls()
    }

    /// ACCEPT: the event and its jobs in one transaction; returns when its commit is known, for a duplicate too. Once
    /// queued it belongs to the writer: dropping the future cancels nothing (H1).
    pub async fn accept(&self, new: Accept) -> Result<Accepted, Refused> {
        self.writer.accept(new, Instant::now() + TRIED_FOR).await
    }

    /// ACCEPT of the events of one delivery, in one transaction: all are stored or none is (S6). Their jobs' time begins
    /// with the database's.
    pub async fn accept_all(
        &self,
        new: Vec<Accept>,
        _now: Timestamp,
    ) -> Result<Vec<Accepted>, Refused> {
        self.writer.accept_all(new, Instant::now() + TRIED_FOR).await
    }

    /// ASK: if the key is new, stores the event, its job and the key in one transaction. If the last run of its job is
    /// known to have failed, puts the job back. Else returns the state of the key. Returns when its commit is known,
    /// and is not undone by dropping the future, as [`Intake::accept`].
    pub async fn ask(&self, ask: Ask) -> Result<Asked, Refused> {
        self.ready()?;
        let asked = self.question(Question::ask(ask).await?).await?;
        asked.ok_or_else(|| Refused::Failed("no answer".to_owned()))
    }

    /// Waits until the job of a key does not run any more and is not to run, at most `wait`, and says what has become
    /// of it. What it says is committed (I1, N5).
    ///
    /// # Errors
    /// No job has this id, or the store could not be read until the end.
    pub async fn await_answer(&self, job: JobId, wait: Duration) -> Result<KeyState, Refused> {
        let deadline = Instant::now() + wait;
        // Subscribes before it reads: a commit in between notifies it.
        let mut waiting = self.writer.subscribe(job);
        loop {
            let found = self.question(Question::Job(job)).await;
            let left = deadline.saturating_duration_since(Instant::now());
            match found {
                Ok(Some(Asked::Known { state: KeyState::Pending, .. })) if left.is_zero() => {
                    return Ok(KeyState::Pending);
                }
                Ok(Some(Asked::Known { state: KeyState::Pending, .. })) => {}
                Ok(Some(Asked::Known { state, .. })) => return Ok(state),
                Ok(_) => return Err(Refused::Failed(format!("no such job: {job}"))),
                Err(why @ (Refused::Stopping | Refused::Failed(_))) => return Err(why),
                Err(why) if left.is_zero() => return Err(why),
                Err(_) => {}
            }
            let _ = timeout(left.min(LOOK_AGAIN), waiting.changed()).await;
        }
    }

    async fn question(&self, question: Question) -> Result<Option<Asked>, Refused> {
        let deadline = Instant::now() + TRIED_FOR;
        let (request, answer) = Request::new(question, deadline);
        self.writer.ask(request)?;
        match timeout_at(deadline, answer).await {
            Ok(answer) => decided(answer)?.open().await,
            Err(_) => Err(Refused::Unconfirmed("no answer in time".to_owned())),
        }
    }
}
