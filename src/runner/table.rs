//! Every attempt that a runner has, and who may change it.
//!
//! The runner's one critical section. Whether a connection is still the admitted one is checked here, in the
//! step that changes the table, and not where the connection was accepted: a killed receiver's Start may be
//! read long after its successor was admitted (R3). Must stay true: at most one attempt of a job is here (R15);
//! only an Ack of the admitted receiver removes an attempt that has started (R9); a start is
//! in the ledger before the spawn.
//!
//! The table has the only copy of the outputs of an ended attempt. An end is queued for the receiver by its key
//! alone; its connection copies the outputs when the end is the next frame to be written.

mod reexec;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::commands::{Commands, Configured};
use super::ledger::{Bound, Inherited, Ledger, LedgerEntry, Line, Process};
use super::message::{Hello, HelloOk, Key, Listed, Refusal, Start, Stream, ToReceiver};
use super::peer::{Outgoing, Peer};
use super::spawn::Child;
use super::{AskedBy, Cancellation, Captured, Ended};
use crate::crash;
use crate::model::{Incarnation, RunnerName};

/// The attempts of a runner. Shared by its connections and its attempts.
#[derive(Debug)]
pub(super) struct Table {
    inner: Mutex<Inner>,
    /// Notified when attempts or connections change.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    name: RunnerName,
    incarnation: Incarnation,
    dead: Vec<Incarnation>,
    commands: Commands,
    capacity: usize,
    ledger: Ledger,
    bound: Option<Bound>,
    admitted: Option<Peer>,
    draining: bool,
    attempts: BTreeMap<Key, Attempt>,
}

#[derive(Debug)]
struct Attempt {
    /// The ledger's entry, with its outputs if this runner started it. An attempt that has ended is not acknowledged
    /// yet.
    entry: LedgerEntry,
    /// `Some` while it runs, unless a dead runner started it.
    living: Option<Living>,
}

/// A running attempt of this runner.
#[derive(Debug)]
struct Living {
    cancellation: Cancellation,
    /// `None` while it is being started.
    child: Option<Arc<Child>>,
}

/// The permission to start an attempt.
pub(super) struct Permission {
    pub(super) command: Arc<Configured>,
    pub(super) cancellation: Cancellation,
}

/// Why an attempt is not started, for the receiver and for the operator.
pub(super) type Refused = (Refusal, String);

impl Table {
    /// A table with the attempts that earlier runners left.
    pub(super) fn new(
        name: RunnerName,
        incarnation: Incarnation,
        commands: Vec<Configured>,
        capacity: usize,
        ledger: Ledger,
        inherited: Inherited,
    ) -> std::io::Result<Self> {
        let attempts = inherited.attempts.into_iter();
        let attempts = attempts.map(|(key, entry)| (key, Attempt { entry, living: None }));
        let mut inner = Inner {
            name,
            incarnation,
            dead: inherited.incarnations.into_iter().filter(|one| *one != incarnation).collect(),
            commands: Commands::new(commands),
            capacity,
            ledger,
            bound: inherited.bound,
            admitted: None,
            draining: false,
            attempts: attempts.collect(),
        };
        inner.rewrite()?;
        Ok(Table { inner: Mutex::new(inner), changed: watch::Sender::new(()) })
    }

    /// Ignores poison: outside tests a panic ends the process.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a receiver to these commands (`None` keeps those that are loaded), cuts the connection that
    /// was admitted before, and queues the list and the ends. All in one step, so that nothing of an older
    /// connection comes in between.
    pub(super) fn admit(
        &self,
        hello: &Hello,
        peer: &Peer,
        commands: Option<Vec<Configured>>,
    ) -> Result<(), String> {
        let mut inner = self.lock();
        let bound = inner.may_bind(hello)?;
        match commands {
            Some(commands) => inner.commands = Commands::new(commands),
            None => inner.commands.retain_for_new_connection(),
        }
        if inner.bound != Some(bound) {
            inner.bound = Some(bound);
            inner.try_note(&Line::Bound(bound));
        }
        if let Some(before) = inner.admitted.replace(peer.clone()) {
            before.cut();
        }
        self.changed.send_replace(());
        let attempts = inner.attempts.iter();
        let ended = attempts.map(|(key, attempt)| (*key, attempt.entry.end.is_some()));
        let attempts: Vec<Listed> = ended.map(|(key, ended)| Listed { key, ended }).collect();
        let ended: Vec<Key> = attempts.iter().filter(|one| one.ended).map(|one| one.key).collect();
        let list = HelloOk {
            incarnation: inner.incarnation,
            draining: inner.draining,
            free: inner.free(),
            answers_for: inner.dead.clone(),
            attempts,
        };
        inner.tell(ToReceiver::HelloOk(Box::new(list)));
        for key in ended {
            inner.queue(Outgoing::End(key));
        }
        Ok(())
    }

    /// Makes these commands and those of load `in_use` the ones that can be started, if `peer` is admitted.
    /// Commands that run already go on.
    pub(super) fn load(&self, peer: &Peer, number: u64, in_use: u64, commands: Vec<Configured>) {
        let mut inner = self.lock();
        if inner.is_admitted(peer) {
            inner.commands.load(number, in_use, commands);
        }
    }

    /// Adds an attempt before its command is started. Its complete body has been received.
    pub(super) fn start(&self, peer: &Peer, start: &Start) -> Result<Permission, Refused> {
        let mut inner = self.lock();
        let command = inner.may_start(peer, start)?;
        let (key, incarnation) = (start.key(), inner.incarnation);
        if let Err(error) = inner.ledger.note(&Line::Start(key, incarnation)) {
            let detail = format!("the ledger cannot be written: {error}");
            return Err((Refusal::NoResources, detail));
        }
        let cancellation = Cancellation::default();
        let living = Some(Living { cancellation: cancellation.clone(), child: None });
        let entry = LedgerEntry::new(incarnation, None);
        inner.attempts.insert(key, Attempt { entry, living });
        Ok(Permission { command, cancellation })
    }

    /// Notes the process of an attempt that has begun.
    pub(super) fn note_process(&self, key: Key, process: Option<Process>, child: Arc<Child>) {
        let mut inner = self.lock();
        if let Some(process) = process {
            inner.try_note(&Line::Process(key, process));
            crash::point("runner.process.noted");
        }
        if let Some(attempt) = inner.attempts.get_mut(&key) {
            attempt.entry.process = process;
            if let Some(living) = &mut attempt.living {
                living.child = Some(child);
            }
        }
        inner.tell(ToReceiver::Started { key });
        self.changed.send_replace(());
    }

    /// Removes an attempt that could not be started, and tells the receiver why.
    pub(super) fn refuse(&self, key: Key, (reason, detail): Refused) {
        let mut inner = self.lock();
        inner.try_note(&Line::Void(key));
        inner.attempts.remove(&key);
        inner.tell(ToReceiver::Refused { key, reason, detail });
        self.changed.send_replace(());
    }

    /// Notes the end of an attempt, then queues it for the receiver.
    pub(super) fn settle(&self, key: Key, ended: Ended) {
        let mut inner = self.lock();
        inner.try_note(&Line::Exit(key, ended.without_outputs()));
        crash::point("runner.exit.noted");
        match inner.attempts.get_mut(&key) {
            Some(attempt) => {
                attempt.entry.end = Some(ended);
                attempt.living = None;
            }
            None => tracing::error!(%key, "ended, and is not in the table"),
        }
        inner.queue(Outgoing::End(key));
        self.changed.send_replace(());
    }

    /// The message about the end of an attempt, with its outputs as the body. `None` if the receiver has
    /// acknowledged it meanwhile.
    pub(super) fn end(&self, key: Key) -> Option<(ToReceiver, Vec<u8>)> {
        let inner = self.lock();
        let end = inner.attempts.get(&key)?.entry.end.as_ref()?;
        Some(ToReceiver::ended(key, end))
    }

    /// Removes a settled attempt, if `peer` is admitted.
    pub(super) fn ack(&self, peer: &Peer, key: Key) {
        let mut inner = self.lock();
        if !inner.is_admitted(peer) {
            return;
        }
        // Every connection that lists it gets an Ack, and an earlier one may have removed it.
        let Some(attempt) = inner.attempts.get(&key) else { return };
        if attempt.entry.end.is_none() {
            return tracing::error!(%key, "acknowledged while it runs");
        }
        inner.attempts.remove(&key);
        inner.try_note(&Line::Ack(key));
        crash::point("runner.ack.noted");
        if inner.ledger.is_long()
            && let Err(error) = inner.rewrite()
        {
            tracing::warn!(%error, "the ledger cannot be rewritten");
        }
        self.changed.send_replace(());
    }

    /// Asks a running attempt to end, if `peer` is admitted.
    pub(super) fn kill(&self, peer: &Peer, key: Key) {
        let inner = self.lock();
        let attempt = inner.attempts.get(&key).filter(|_| inner.is_admitted(peer));
        if let Some(living) = attempt.and_then(|attempt| attempt.living.as_ref()) {
            living.cancellation.cancel(AskedBy::Cancelled);
        }
    }

    /// Whether all that still runs of this attempt may be ended: only if the table does not have it,
    /// and for the admitted receiver.
    pub(super) fn may_search(&self, peer: &Peer, key: Key) -> bool {
        let inner = self.lock();
        let here = inner.attempts.contains_key(&key);
        if here {
            tracing::error!(%key, "asked to search for an attempt that is in the list");
        }
        !here && inner.is_admitted(peer)
    }

    /// The output of an attempt so far, or all of it if the attempt has ended. `None` if there
    /// is no such attempt, or its runner is dead.
    pub(super) fn printed(&self, key: Key, stream: Stream) -> Option<Captured> {
        let inner = self.lock();
        let Attempt { entry, living } = inner.attempts.get(&key)?;
        let captured = match &entry.end {
            Some(end) => end.outputs()?[stream as usize].clone(),
            None => match &living.as_ref()?.child {
                Some(child) => child.outputs[stream as usize].now(),
                None => Captured::empty(),
            },
        };
        Some(captured).filter(|captured| captured.total.is_some())
    }

    /// Takes no Start any more, or takes them again.
    pub(super) fn set_draining(&self, draining: bool) {
        let mut inner = self.lock();
        inner.draining = draining;
        inner.tell(ToReceiver::Draining { draining });
        self.changed.send_replace(());
    }

    /// Asks every running attempt to end.
    pub(super) fn end_all(&self) {
        for living in self.lock().living() {
            living.cancellation.cancel(AskedBy::Stop);
        }
    }

    /// Notes that a connection has ended.
    pub(super) fn disconnect(&self, peer: &Peer) {
        let mut inner = self.lock();
        if inner.is_admitted(peer) {
            inner.admitted = None;
        }
        self.changed.send_replace(());
    }

    /// A receiver of notifications when attempts or connections change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Whether no attempt runs and none is unacknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().attempts.is_empty()
    }

    /// How many commands of this runner run.
    pub(super) fn running_count(&self) -> usize {
        self.lock().living().count()
    }

    /// The attempts that dead runners left running, each with its process if that is known.
    pub(super) fn orphaned(&self) -> Vec<(Key, Option<Process>)> {
        let inner = self.lock();
        let is_left = |one: &Attempt| one.living.is_none() && one.entry.end.is_none();
        let left = inner.attempts.iter().filter(|(_, attempt)| is_left(attempt));
        left.map(|(key, attempt)| (*key, attempt.entry.process)).collect()
    }
}

impl Inner {
    fn is_admitted(&self, peer: &Peer) -> bool {
        self.admitted.as_ref().is_some_and(|admitted| admitted.is(peer))
    }

    /// The running attempts of this runner.
    fn living(&self) -> impl Iterator<Item = &Living> {
        self.attempts.values().flat_map(|attempt| &attempt.living)
    }

    fn free(&self) -> u32 {
        u32::try_from(self.capacity.saturating_sub(self.attempts.len())).unwrap_or(u32::MAX)
    }

    fn tell(&mut self, message: ToReceiver) {
        self.queue(Outgoing::Message(message));
    }

    fn queue(&mut self, next: Outgoing) {
        // A receiver that does not read is cut, and gets the list when it connects again (R18).
        if let Some(peer) = &self.admitted
            && !peer.queue(next)
        {
            peer.cut();
            self.admitted = None;
        }
    }

    /// Writes a line without which the table is still right, and only the next runner knows less.
    fn try_note(&mut self, line: &Line) {
        if let Err(error) = self.ledger.note(line) {
            tracing::error!(%error, %line, "the ledger cannot be written");
        }
    }

    fn rewrite(&mut self) -> std::io::Result<()> {
        let incarnations = self.dead.iter().copied().chain([self.incarnation]);
        let mut lines: Vec<Line> = incarnations.map(Line::Runner).collect();
        lines.extend(self.bound.map(Line::Bound));
        for (&key, Attempt { entry, .. }) in &self.attempts {
            lines.push(Line::Start(key, entry.incarnation));
            lines.extend(entry.process.map(|process| Line::Process(key, process)));
            lines.extend(entry.end.as_ref().map(|end| Line::Exit(key, end.without_outputs())));
        }
        self.ledger.rewrite(lines)
    }
}
