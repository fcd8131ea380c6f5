//! The attempts that this process has claimed or taken over and whose ends it has not seen committed.
//!
//! The writer notes a claim when its commit is known, before it answers it. Only this process asks its runners to start
//! something. So what a later registration lists and this process does not know was claimed by a transaction whose
//! answer was lost, and has never started (N16).
//!
//! A *stray* is an attempt that a runner lists and this process does not know: the database was put back to a state
//! before its claim, or has settled it. After the database was put back, each node answers a *roll call* (N40): it
//! stores which attempts its runners list, and until all nodes have done so, no job of a group is claimed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;

use uuid::Uuid;

use crate::model::{Name, RunnerName};
use crate::store::mutex::lock;

use super::claim::{AttemptKey, NodeAttempt, Taken};

#[derive(Default)]
pub(super) struct LiveAttempts(Mutex<State>);

#[derive(Default)]
struct State {
    attempts: HashMap<AttemptKey, TrackedAttempt>,
    strays: HashSet<AttemptKey>,
    /// All runners that were needed when each of them had listed its attempts; none before that.
    listed: Option<BTreeSet<RunnerName>>,
    /// The runners that a roll call waits for, as of the last registration.
    asked: BTreeSet<RunnerName>,
    /// How many claims of this process were answered as committed.
    claims: u64,
    is_registered: bool,
    /// A registration was sent, and none has succeeded since.
    is_registering: bool,
}

struct TrackedAttempt {
    attempt: NodeAttempt,
    /// False if it is settled already, or is to be settled as never started. Either way it is tracked until its end is
    /// committed, so that no claim takes its job.
    may_begin: bool,
    /// Its end may make room for other nodes: the cluster limits its handler, or it is not known whether it does.
    is_limited: bool,
}

impl State {
    fn has_all_lists(&self) -> bool {
        self.listed.as_ref().is_some_and(|listed| self.asked.is_subset(listed))
    }
}

impl LiveAttempts {
    /// Until the end of the stray is committed, no claim takes its job.
    pub(super) fn note_stray(&self, key: AttemptKey) {
        lock(&self.0).strays.insert(key);
    }

    /// These runners are all that are needed, and each has listed its attempts: strays among them are noted before.
    pub(super) fn set_listed_runners(&self, runners: BTreeSet<RunnerName>) {
        lock(&self.0).listed = Some(runners);
    }

    /// A roll call waits for what these runners list.
    pub(super) fn set_asked_runners(&self, runners: BTreeSet<RunnerName>) {
        lock(&self.0).asked = runners;
    }

    /// Returns the runners that a roll call asks for a list, in addition to those that are needed anyway; `None` if all
    /// of them have listed their attempts.
    pub(super) fn unlisted(&self) -> Option<BTreeSet<RunnerName>> {
        let state = lock(&self.0);
        (!state.has_all_lists()).then(|| state.asked.clone())
    }

    /// A registration is about to be sent: until one has succeeded, nothing begins.
    pub(super) fn begin_registration(&self) {
        lock(&self.0).is_registering = true;
    }

    /// A registration has read these running attempts. At the first one, this process takes over all of them. Later, a
    /// known attempt that is not among them is settled, and may not begin; an unknown one has never started, and is
    /// returned: it is to be settled as such.
    pub(super) fn finish_registration(&self, running: &[NodeAttempt]) -> Vec<NodeAttempt> {
        let state = &mut *lock(&self.0);
        let is_first = !std::mem::replace(&mut state.is_registered, true);
        state.is_registering = false;
        for tracked in state.attempts.values_mut() {
            tracked.may_begin &= running.iter().any(|read| read.is(&tracked.attempt));
        }
        let mut unknown = Vec::new();
        for read in running {
            if state.attempts.get(&read.key()).is_some_and(|tracked| tracked.attempt.is(read)) {
                continue;
            }
            // After the database was put back, an attempt of another claimant may have this number and still run: that
            // one stays tracked, and the one that was read is settled.
            let tracked =
                TrackedAttempt { attempt: read.clone(), may_begin: is_first, is_limited: true };
            state.attempts.entry(read.key()).or_insert(tracked);
            unknown.push(read.clone());
        }
        if is_first { Vec::new() } else { unknown }
    }

    /// A claim is committed, of a handler that the cluster limits or not. Returns its number, from 1.
    pub(super) fn add_claim(&self, attempts: &[NodeAttempt], is_limited: bool) -> u64 {
        let mut state = lock(&self.0);
        for attempt in attempts {
            let tracked = TrackedAttempt { attempt: attempt.clone(), may_begin: true, is_limited };
            state.attempts.insert(attempt.key(), tracked);
        }
        state.claims += 1;
        state.claims
    }

    /// An end of this claimant is committed, also as a late one: its runner need not keep it. Returns whether
    /// that may make room for other nodes.
    pub(super) fn remove_ended(&self, key: AttemptKey, claimant: Uuid) -> bool {
        let mut state = lock(&self.0);
        state.strays.remove(&key);
        if state.attempts.get(&key).is_some_and(|own| own.attempt.claimant == claimant) {
            return state.attempts.remove(&key).is_some_and(|own| own.is_limited);
        }
        false
    }

    /// Whether the attempt may begin: it is known, no registration is under way, and none has lacked it.
    pub(super) fn may_begin(&self, key: AttemptKey) -> bool {
        let state = lock(&self.0);
        !state.is_registering && state.attempts.get(&key).is_some_and(|own| own.may_begin)
    }

    pub(super) fn claimant(&self, key: AttemptKey) -> Option<Uuid> {
        lock(&self.0).attempts.get(&key).map(|own| own.attempt.claimant)
    }

    pub(super) fn all(&self) -> Vec<NodeAttempt> {
        lock(&self.0).attempts.values().map(|own| own.attempt.clone()).collect()
    }

    /// What a runner may list, if this process knows all.
    pub(super) fn keys(&self) -> Option<Vec<AttemptKey>> {
        let state = lock(&self.0);
        state.has_all_lists().then(|| state.attempts.keys().chain(&state.strays).copied().collect())
    }

    /// The jobs of the handler's attempts and of all strays, and the attempts' groups, without those in `ending`.
    pub(super) fn taken(&self, handler: &Name, ending: &HashSet<AttemptKey>) -> Taken {
        let state = lock(&self.0);
        let strays = state.strays.iter().filter(|key| !ending.contains(key));
        let mut taken = Taken { jobs: strays.map(|(job, _)| *job).collect(), groups: Vec::new() };
        for (key, TrackedAttempt { attempt, .. }) in &state.attempts {
            if attempt.running.handler == *handler && !ending.contains(key) {
                taken.jobs.push(attempt.running.job);
                taken.groups.extend(attempt.group.clone());
            }
        }
        taken
    }
}
