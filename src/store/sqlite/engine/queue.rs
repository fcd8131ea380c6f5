//! The writer's queue, with its admission.
//!
//! Accepts are bounded in number and bytes, and refused beyond that. Jobs in flight and people bound the claims,
//! the completions and the operator's verbs: a full queue never refuses them, and they go first in a batch (S7).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::limits::Limits;
use crate::store::border::Refused;
use crate::store::mutex::lock;

use super::copy_task::{CopyError, CopyTask};

/// How the writer treats a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// May be refused: the provider sends the delivery again.
    Accept {
        /// Its size in memory, which counts for the queue and for the batch.
        bytes: usize,
    },
    /// A verb of the operator or the dispatcher: tried once, and its caller gets the error.
    Verb,
    /// Retried until it is committed, across a full disk and a repair: losing it would break a promise.
    Kept,
}

/// The statements of one request.
pub(crate) trait Work: Send {
    /// Runs the statements. Called again after a rollback, so it must not keep anything of the last run.
    fn run(&mut self, tx: &Connection) -> rusqlite::Result<()>;
    /// Called once, after the flush of its commit.
    fn committed(self: Box<Self>);
    /// Called once instead, when the writer gives it up.
    fn refused(self: Box<Self>, why: Refused);
}

/// Where the result of a request arrives.
pub(crate) type WriteReply<T> = oneshot::Receiver<Result<T, Refused>>;

/// A request to the writer.
pub(crate) struct WriteRequest {
    pub(crate) priority: Priority,
    pub(crate) work: Box<dyn Work>,
    /// How often it needed a page that is damaged.
    pub(crate) damaged: u32,
}

impl WriteRequest {
    /// A request that runs a closure, and its reply. The writer's thread calls `then` with the result after the flush and
    /// before the reply.
    pub(crate) fn new<T, F, G>(priority: Priority, run: F, then: G) -> (WriteRequest, WriteReply<T>)
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
        G: FnOnce(&T) + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let work = Box::new(Task { run, then, done: None, answer });
        (WriteRequest { priority, work, damaged: 0 }, receiver)
    }
}

struct Task<T, F, G> {
    run: F,
    then: G,
    done: Option<T>,
    answer: oneshot::Sender<Result<T, Refused>>,
}

impl<T, F, G> Work for Task<T, F, G>
where
    T: Send,
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    G: FnOnce(&T) + Send,
{
    fn run(&mut self, tx: &Connection) -> rusqlite::Result<()> {
        self.done = Some((self.run)(tx)?);
        Ok(())
    }

    // H1: the caller may be gone; the commit stands all the same.
    fn committed(self: Box<Self>) {
        if let Some(done) = self.done {
            (self.then)(&done);
            let _ = self.answer.send(Ok(done));
        }
    }

    fn refused(self: Box<Self>, why: Refused) {
        let _ = self.answer.send(Err(why));
    }
}

/// The writer's next task.
pub(crate) enum NextWork {
    /// Commit these: at least one.
    Batch(Vec<WriteRequest>),
    /// The checkpointer met an I/O error: repair.
    Broken(String),
    /// Make a copy.
    Copy(CopyTask),
}

/// The queue of one writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    max_count: usize,
    max_bytes: usize,
    batch_count: usize,
    batch_bytes: usize,
}

#[derive(Default)]
struct State {
    verbs: VecDeque<WriteRequest>,
    accepts: VecDeque<WriteRequest>,
    accept_bytes: usize,
    door: Option<Refused>,
    broken: Option<String>,
    /// Probes of whether the writer still comes for its work.
    asking: Vec<oneshot::Sender<()>>,
    copy: Option<CopyTask>,
    /// A copy waits or is being made.
    copying: bool,
    /// The writer waits and has not been woken yet.
    idle: bool,
    closed: bool,
}

impl State {
    /// Answers the probes. Only the writer's thread calls it: it is alive.
    fn answer(&mut self) {
        for asking in self.asking.drain(..) {
            let _ = asking.send(());
        }
    }
}

impl Queue {
    /// An empty, open queue.
    pub(crate) fn new(limits: &Limits) -> Self {
        let size = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        Queue {
            state: Mutex::default(),
            filled: Condvar::new(),
            max_count: size(limits.writer_queue_count),
            max_bytes: size(limits.writer_queue_bytes),
            batch_count: size(limits.batch_count),
            batch_bytes: size(limits.batch_bytes),
        }
    }

    /// Hands an item to the writer, or says why not.
    pub(crate) fn push(&self, item: WriteRequest) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refused::Stopping);
        }
        match item.priority {
            // A verb can wait for space, which it may itself free; for a repair it would wait blindly.
            Priority::Verb if matches!(state.door, Some(Refused::Degraded(_))) => {
                return state.door.clone().map_or(Ok(()), Err);
            }
            Priority::Verb | Priority::Kept => state.verbs.push_back(item),
            Priority::Accept { bytes } => {
                if let Some(why) = &state.door {
                    return Err(why.clone());
                }
                // One item over the byte bound is taken into an empty queue, or it never fits.
                let full = state.accepts.len() >= self.max_count
                    || (state.accept_bytes.saturating_add(bytes) > self.max_bytes
                        && !state.accepts.is_empty());
                if full {
                    return Err(Refused::QueueFull);
                }
                state.accept_bytes += bytes;
                state.accepts.push_back(item);
            }
        }
        self.wake(state);
        Ok(())
    }

    /// Hands kept items to the writer in one go, so that they share a batch. A closed queue drops them, which ends the
    /// wait of their callers.
    pub(crate) fn push_kept(&self, items: Vec<WriteRequest>) {
        let mut state = lock(&self.state);
        if !state.closed {
            state.verbs.extend(items);
            self.wake(state);
        }
    }

    /// Asks for a copy, or says why there can be none now.
    pub(crate) fn push_copy(&self, task: CopyTask) -> Result<(), CopyError> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refused::Stopping.into());
        }
        // A copy may be all that is left of a removed database.
        if let Some(why) = &state.door
            && !matches!(why, Refused::Gone(_))
        {
            return Err(why.clone().into());
        }
        if std::mem::replace(&mut state.copying, true) {
            return Err(CopyError::Busy);
        }
        state.copy = Some(task);
        self.wake(state);
        Ok(())
    }

    /// Another copy may be asked for.
    pub(crate) fn copy_ended(&self) {
        lock(&self.state).copying = false;
    }

    /// Why accepts are refused, or nothing.
    pub(crate) fn door(&self) -> Result<(), Refused> {
        let state = lock(&self.state);
        match &state.door {
            _ if state.closed => Err(Refused::Stopping),
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Items that wait, and the bytes of the accepts among them.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let state = lock(&self.state);
        ((state.verbs.len() + state.accepts.len()) as u64, state.accept_bytes as u64)
    }

    /// Shuts the door and refuses the accepts that wait already.
    pub(crate) fn shut(&self, why: &Refused) {
        let refused = {
            let mut state = lock(&self.state);
            state.door = Some(why.clone());
            state.accept_bytes = 0;
            std::mem::take(&mut state.accepts)
        };
        for item in refused {
            item.work.refused(why.clone());
        }
    }

    /// Opens the door again.
    pub(crate) fn open(&self) {
        lock(&self.state).door = None;
    }

    /// Asks the writer whether it is alive. It answers when it next comes for work or rests, so a shut
    /// door, a full disk or a repair does not keep it from answering; only a step that never ends does.
    /// Nothing where the queue is closed.
    pub(crate) fn ask(&self) -> Option<oneshot::Receiver<()>> {
        let (asking, answer) = oneshot::channel();
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        state.asking.push(asking);
        self.wake(state);
        Some(answer)
    }

    /// Tells the writer of an I/O error that another thread met.
    pub(crate) fn report_broken(&self, reason: String) {
        let mut state = lock(&self.state);
        state.broken = Some(reason);
        self.wake(state);
    }

    /// Forgets the reported errors of connections that are closed now.
    pub(crate) fn forget_broken(&self) {
        lock(&self.state).broken = None;
    }

    /// Refuses further requests; the writer ends after those in the queue.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        // Dropping it answers its caller.
        state.copy = None;
        self.filled.notify_all();
    }

    /// Whether the queue was closed.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Waits for the next thing to do. None where the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<NextWork> {
        let mut state = lock(&self.state);
        loop {
            state.answer();
            let next = self.next(&mut state);
            if next.is_some() || state.closed {
                return next;
            }
            state.idle = true;
            state = self.filled.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// The next thing to do now.
    pub(crate) fn take_now(&self) -> Option<NextWork> {
        let mut state = lock(&self.state);
        state.answer();
        self.next(&mut state)
    }

    fn next(&self, state: &mut State) -> Option<NextWork> {
        if let Some(reason) = state.broken.take() {
            return Some(NextWork::Broken(reason));
        }
        if let Some(task) = state.copy.take() {
            return Some(NextWork::Copy(task));
        }
        let batch = self.batch(state);
        (!batch.is_empty()).then_some(NextWork::Batch(batch))
    }

    /// Puts kept items back, before all others.
    pub(crate) fn put_back(&self, items: Vec<WriteRequest>) {
        let mut state = lock(&self.state);
        for item in items.into_iter().rev() {
            state.verbs.push_front(item);
        }
    }

    /// Waits `pause`, or until the queue is closed.
    pub(crate) fn rest(&self, pause: Duration) {
        let deadline = Instant::now() + pause;
        let mut state = lock(&self.state);
        while !state.closed {
            state.answer();
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            state.idle = true;
            state = self
                .filled
                .wait_timeout(state, left)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
    }

    /// Wakes the writer where it waits. Most find it at work, and need not ask the kernel.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        if idle {
            self.filled.notify_one();
        }
    }

    fn batch(&self, state: &mut State) -> Vec<WriteRequest> {
        let mut batch: Vec<WriteRequest> =
            state.verbs.drain(..state.verbs.len().min(self.batch_count)).collect();
        let mut bytes = 0;
        while batch.len() < self.batch_count {
            let Some(&WriteRequest { priority: Priority::Accept { bytes: next }, .. }) =
                state.accepts.front()
            else {
                break;
            };
            if bytes > 0 && bytes + next > self.batch_bytes {
                break;
            }
            bytes += next;
            state.accept_bytes -= next;
            batch.extend(state.accepts.pop_front());
        }
        batch
    }
}
