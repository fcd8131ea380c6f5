//! The thread that has the quarantine's file to itself.
//!
//! What must stay true: it takes neither the main writer's queue nor its connection, and stops while
//! the disk has less than twice the floor below which accepts are refused. A file that is of no use is
//! thrown away and made anew; one that cannot be made costs nothing but what would be kept.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::Timestamp;
use crate::store::lock;
use crate::store::lock::Lock;
use crate::store::space::Space;
use crate::verify;

use super::file::{File, Use};
use super::rows::Prepared;
use super::tally::Counts;
use super::types::{LeftOut, Quarantined};
use super::{Waiting, weight};

/// Most deliveries of one transaction.
const BATCH_COUNT: usize = 128;

/// How often an idle file is looked through for what is too old: what is listed is younger anyhow.
const EXPIRE_EVERY: Duration = Duration::from_secs(3600);

/// Between two tries to make a file.
const TRY_EVERY: Duration = Duration::from_secs(60);

/// What the thread is told.
pub(super) enum Message {
    /// Keep this one, whose holder was found already.
    Keep(Box<Quarantined>, String),
    /// Do this with the file.
    Ask(Box<dyn FnOnce(&mut Keeper) + Send>),
    /// Nothing comes any more.
    Close,
}

/// What the thread owns and shares.
pub(super) struct Keeper {
    pub(super) path: PathBuf,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) space: Arc<Space>,
    pub(super) waiting: Arc<Waiting>,
    pub(super) counts: Arc<Mutex<Counts>>,
    pub(super) file: Option<File>,
    /// No try to open before then (monotonic).
    pub(super) not_before: Duration,
    /// The store's lock stays until this thread is done too: the file is one process's alone (R1).
    pub(super) _lock: Arc<Lock>,
}

impl Keeper {
    /// The thread's body: until it is told to close, or nobody is left to tell it anything.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        let mut next = None;
        loop {
            let message = match next.take() {
                Some(message) => Ok(message),
                None => messages.recv_timeout(EXPIRE_EVERY),
            };
            match message {
                Ok(Message::Keep(failed, holder)) => {
                    let mut batch = vec![(failed, holder)];
                    while batch.len() < BATCH_COUNT && next.is_none() {
                        match messages.try_recv() {
                            Ok(Message::Keep(failed, holder)) => batch.push((failed, holder)),
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    self.keep(batch);
                }
                Ok(Message::Ask(work)) => work(&mut self),
                Err(RecvTimeoutError::Timeout) => self.expire(),
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.write_counts();
    }

    fn keep(&mut self, batch: Vec<(Box<Quarantined>, String)>) {
        let room = self.has_space();
        let prepare = |(failed, holder): (Box<Quarantined>, String)| {
            self.waiting.bytes.fetch_sub(weight(&failed), Ordering::Relaxed);
            if !room {
                lock(&self.counts).add(&failed.source, LeftOut::NoSpace, 1);
                return None;
            }
            let body = failed.body.as_ref();
            // Off the workers' threads: the one place where something unproven is parsed.
            let id =
                body.and_then(|body| verify::claimed_id(&failed.scheme, &failed.headers, body));
            Some(Prepared::new(*failed, holder, id.map(|id| id.to_string())))
        };
        let batch: Vec<Prepared> = batch.into_iter().filter_map(prepare).collect();
        if batch.is_empty() {
            return;
        }
        let (limits, oldest) = (self.limits.clone(), self.oldest());
        match self.with_file(|file| file.keep(&batch, &limits, oldest)) {
            Some(given_up) => lock(&self.counts).add_all(&given_up),
            None => {
                let mut counts = lock(&self.counts);
                for delivery in &batch {
                    counts.add(delivery.source(), LeftOut::NoSpace, 1);
                }
            }
        }
        self.write_counts();
    }

    /// Forgets what is too old.
    pub(super) fn expire(&mut self) {
        if !self.is_there() {
            return;
        }
        let (limits, oldest) = (self.limits.clone(), self.oldest());
        if let Some(expired) = self.with_file(|file| file.keep(&[], &limits, oldest)) {
            lock(&self.counts).add_all(&expired);
            self.write_counts();
        }
    }

    /// Nothing is older. An id is remembered for `keep_ids`: what is accepted later than that could be
    /// an event for the second time.
    pub(super) fn oldest(&self) -> Timestamp {
        let age = self.limits.quarantine_age_millis.min(self.limits.keep_ids_millis);
        self.clock.now().before(Limits::duration(age))
    }

    /// Twice the floor: whatever is written here leaves accepts their space.
    fn has_space(&self) -> bool {
        let needed = self.limits.disk_floor_bytes.saturating_mul(2);
        self.space.free_bytes().is_none_or(|free| free >= needed)
    }

    /// Whether anything was ever kept: a file is made for a delivery, never to be looked at.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some() || self.path.exists()
    }

    fn write_counts(&mut self) {
        if !self.is_there() {
            return;
        }
        let counts = std::mem::take(&mut *lock(&self.counts));
        if !counts.is_empty() && self.with_file(|file| file.count(&counts)).is_none() {
            lock(&self.counts).add_all(&counts);
        }
    }

    /// Does `work` with the file, opened or made where it must be, and once more with a new one where it
    /// is of no use. None where there is no file to do it with, or no space.
    pub(super) fn with_file<T>(
        &mut self,
        mut work: impl FnMut(&mut File) -> rusqlite::Result<T>,
    ) -> Option<T> {
        if self.file.is_none() && self.clock.monotonic() < self.not_before {
            return None;
        }
        for _ in 0..2 {
            let opened = match self.file.take() {
                Some(file) => Ok(file),
                None => File::open(&self.path, &self.limits),
            };
            let error = match opened {
                Ok(mut file) => match work(&mut file) {
                    Ok(done) => {
                        self.file = Some(file);
                        return Some(done);
                    }
                    Err(error) => {
                        if Use::after(&error) == Use::Good {
                            self.file = Some(file);
                        }
                        error
                    }
                },
                Err(error) => error,
            };
            let path = self.path.display();
            match Use::after(&error) {
                Use::Good => {
                    // The counts tell; a line for each batch would be a flood of its own.
                    tracing::debug!(%error, file = %path, "the quarantine keeps nothing now");
                    return None;
                }
                Use::NotNow => {
                    tracing::warn!(%error, file = %path, "the quarantine cannot be used now");
                    break;
                }
                Use::Gone => {
                    tracing::warn!(%error, file = %path, "the quarantine is damaged and is made anew; what it kept is gone");
                }
            }
            if let Err(error) = File::throw_away(&self.path) {
                tracing::warn!(%error, file = %path, "failed to delete the quarantine");
                break;
            }
        }
        self.not_before = self.clock.monotonic() + TRY_EVERY;
        None
    }
}
