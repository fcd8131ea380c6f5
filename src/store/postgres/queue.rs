//! The writer's queue, with its admission.
//!
//! Accepts are bounded in number and bytes, with those that are tried again, and refused beyond that (S7). While the
//! database cannot be used, new requests are refused; requests in the queue stay there until their deadline. Ends and
//! claims are bounded by the jobs in flight, and always taken.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;
use crate::store::border::Refused;
use crate::store::mutex::lock;

use super::request::Request;

/// The queue of one writer.
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Notify,
    given_up: Notify,
    max_count: usize,
    max_bytes: usize,
    batch_count: usize,
    batch_bytes: usize,
}

#[derive(Default)]
struct State {
    items: VecDeque<Request>,
    /// Ends, claims and what is published, which go first.
    kept: VecDeque<Request>,
    bytes: usize,
    /// The number and bytes of the requests that the writer has taken and tries again.
    held: (usize, usize),
    /// Why new items are refused.
    door: Option<Refused>,
    closed: bool,
    claims_ended: bool,
    /// Why the writer has ended: nothing takes an item any more.
    ended: Option<Refused>,
}

impl Queue {
    /// An empty queue. It refuses items until [`Queue::open`].
    pub(super) fn new(limits: &Limits) -> Self {
        let size = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let door = Some(Refused::Unreachable("not connected yet".to_owned()));
        Queue {
            state: Mutex::new(State { door, ..State::default() }),
            filled: Notify::new(),
            given_up: Notify::new(),
            max_count: size(limits.writer_queue_count),
            max_bytes: size(limits.writer_queue_bytes),
            batch_count: size(limits.batch_count),
            batch_bytes: size(limits.batch_bytes),
        }
    }

    /// Why items are refused, or nothing.
    pub(super) fn door(&self) -> Result<(), Refused> {
        lock(&self.state).door()
    }

    /// Hands an item to the writer, or says why not.
    pub(super) fn push(&self, item: Request) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        state.door()?;
        let bytes = item.bytes();
        let count = state.items.len() + state.held.0;
        // An item over the byte bound is taken into an empty queue; otherwise it would never fit.
        let is_full = count >= self.max_count
            || (state.bytes + state.held.1 + bytes > self.max_bytes && count > 0);
        if is_full {
            return Err(Refused::QueueFull);
        }
        state.bytes += bytes;
        state.items.push_back(item);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Hands over items that wait for the next session where there is none. Refused only where the writer ends (S7).
    pub(super) fn push_kept(&self, items: Vec<Request>) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refused::Stopping);
        }
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        state.kept.extend(items);
        let ended = state.ended_claims();
        drop(state);
        ended.into_iter().for_each(|claim| claim.refuse(Refused::Stopping));
        self.filled.notify_one();
        Ok(())
    }

    /// Refuses the claims in the queue, and later ones. The writer refuses those that it has taken and not sent.
    pub(super) fn end_claims(&self) {
        let mut state = lock(&self.state);
        state.claims_ended = true;
        let ended = state.ended_claims();
        drop(state);
        ended.into_iter().for_each(|claim| claim.refuse(Refused::Stopping));
    }

    pub(super) fn has_ended_claims(&self) -> bool {
        let state = lock(&self.state);
        state.claims_ended || state.closed
    }

    pub(super) fn shut(&self, why: Refused) {
        lock(&self.state).door = Some(why);
    }

    pub(super) fn open(&self) {
        lock(&self.state).door = None;
    }

    /// The items with a deadline that wait, and their bytes.
    pub(super) fn waiting(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.items.len() as u64, state.bytes as u64)
    }

    /// Refuses further items; the writer ends after those in the queue.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.filled.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// The writer ends without the answers that it waits for.
    pub(super) fn give_up(&self) {
        self.given_up.notify_one();
    }

    /// Returns after [`Queue::give_up`]. One task may wait.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// Refuses the items that wait, and all later ones: the writer ends.
    pub(super) fn end(&self, why: &Refused) {
        let mut state = lock(&self.state);
        (state.door, state.ended) = (Some(why.clone()), Some(why.clone()));
        let items = std::mem::take(&mut state.items);
        let kept = std::mem::take(&mut state.kept);
        drop(state);
        kept.into_iter().chain(items).for_each(|item| item.refuse(why.clone()));
    }

    /// Waits for items until `deadline`: none if there are none by then. `None` if the queue is closed and empty. `held`:
    /// the number and bytes of the requests that were taken and are tried again. One task at a time may wait.
    pub(super) async fn take(
        &self,
        deadline: Instant,
        held: (usize, usize),
    ) -> Option<Vec<Request>> {
        loop {
            {
                let mut state = lock(&self.state);
                state.held = held;
                let batch = self.batch(&mut state);
                if !batch.is_empty() {
                    return Some(batch);
                }
                if state.closed {
                    return None;
                }
            }
            // `Notify` keeps a notification that comes before the wait.
            if timeout_at(deadline, self.filled.notified()).await.is_err() {
                return Some(Vec::new());
            }
        }
    }

    /// Waits until `deadline`, or until the queue is closed.
    pub(super) async fn rest(&self, deadline: Instant) {
        while !self.is_closed() && timeout_at(deadline, self.filled.notified()).await.is_ok() {}
    }

    fn batch(&self, state: &mut State) -> Vec<Request> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.batch_count
            && let Some(item) = state.kept.pop_front()
        {
            bytes += item.bytes();
            batch.push(item);
        }
        while batch.len() < self.batch_count
            && let Some(next) = state.items.front().map(Request::bytes)
            && (batch.is_empty() || bytes + next <= self.batch_bytes)
        {
            bytes += next;
            state.bytes -= next;
            batch.extend(state.items.pop_front());
        }
        batch
    }
}

impl State {
    fn ended_claims(&mut self) -> VecDeque<Request> {
        if !self.claims_ended {
            return VecDeque::new();
        }
        let kept = std::mem::take(&mut self.kept).into_iter();
        let (claims, others) = kept.partition(|request| request.claimed_handler().is_some());
        self.kept = others;
        claims
    }

    fn door(&self) -> Result<(), Refused> {
        match &self.door {
            _ if self.closed => Err(Refused::Stopping),
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }
}
