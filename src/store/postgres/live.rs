//! The attempts that this process has claimed or taken over and whose ends it has not seen committed.
//!
//! The writer notes a claim when its commit is known, before it answers it. Only this process asks its runners to start
//! something. So what a later registration lists and this process does not know was claimed by a transaction whose
//! answer was lost, and has never started (N16).

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;

use uuid::Uuid;

use crate::model::{Name, RunnerName};
use crate::store::mutex::lock;

use super::claim::{AttemptKey, NodeAttempt, uuid};

#[derive(Default)]
pub(super) struct LiveAttempts(Mutex<State>);

#[derive(Default)]
struct State {
    attempts: HashMap<AttemptKey, Live>,
    /// Attempts that a runner lists and that run in no row: the database has lost their claims, or knows their ends.
    strays: HashSet<AttemptKey>,
    /// The runners that were asked when all had listed their attempts; none before that.
    listed: Option<BTreeSet<RunnerName>>,
    /// The runners that a roll call waits for. They may have attempts that the database has lost.
    asked: BTreeSet<RunnerName>,
    /// How many claims of this process were answered as committed.
    claims: u64,
    is_registered: bool,
    /// A registration was sent, and none has succeeded since.
    is_registering: bool,
}

struct Live {
    attempt: NodeAttempt,
    /// False if it is settled already, or has never started. It stays until its end is committed, so that no claim
    /// takes its job.
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
    /// A runner lists this attempt, which is not known. Until its end is committed, no claim takes its job.
    pub(super) fn stray(&self, key: AttemptKey) {
        lock(&self.0).strays.insert(key);
    }

    /// These runners are all that are needed, and each has listed its attempts. What one lists later is noted here.
    pub(super) fn listed(&self, runners: BTreeSet<RunnerName>) {
        lock(&self.0).listed = Some(runners);
    }

    /// A roll call waits for what these runners list.
    pub(super) fn ask(&self, runners: BTreeSet<RunnerName>) {
        lock(&self.0).asked = runners;
    }

    /// The runners that are to list their attempts for a roll call, beside those that are needed anyway; none if all have
    /// done so.
    pub(super) fn unlisted(&self) -> Option<BTreeSet<RunnerName>> {
        let state = lock(&self.0);
        (!state.has_all_lists()).then(|| state.asked.clone())
    }

    /// A registration is about to be sent: until one has succeeded, nothing begins.
    pub(super) fn registering(&self) {
        lock(&self.0).is_registering = true;
    }

    /// A registration has read this list. At the first one, this process takes over all of it. Later, a known attempt
    /// that the list lacks is settled, and may not begin; an unknown one has never started, and is returned: it is to
    /// be settled as such.
    pub(super) fn registered(&self, running: &[NodeAttempt]) -> Vec<NodeAttempt> {
        let state = &mut *lock(&self.0);
        let is_first = !std::mem::replace(&mut state.is_registered, true);
        state.is_registering = false;
        for live in state.attempts.values_mut() {
            live.may_begin &= running.iter().any(|listed| listed.is(&live.attempt));
        }
        let mut unknown = Vec::new();
        for listed in running {
            if state.attempts.get(&listed.key()).is_some_and(|live| live.attempt.is(listed)) {
                continue;
            }
            // If the database went back, an attempt of another claimant may have this number and still run: it stays,
            // and the listed one is settled without an entry.
            let live = Live { attempt: listed.clone(), may_begin: is_first, is_limited: true };
            state.attempts.entry(listed.key()).or_insert(live);
            unknown.extend((!is_first).then(|| listed.clone()));
        }
        unknown
    }

    /// A claim is committed, of a handler that the cluster limits or not. Returns its number, from 1.
    pub(super) fn claimed(&self, attempts: &[NodeAttempt], is_limited: bool) -> u64 {
        let mut state = lock(&self.0);
        for attempt in attempts {
            let live = Live { attempt: attempt.clone(), may_begin: true, is_limited };
            state.attempts.insert(attempt.key(), live);
        }
        state.claims += 1;
        state.claims
    }

    /// An end of this claimant is committed, also as a late one: its runner need not keep it. Returns whether
    /// that may make room for other nodes.
    pub(super) fn ended(&self, key: AttemptKey, claimant: Uuid) -> bool {
        let mut state = lock(&self.0);
        state.strays.remove(&key);
        match state.attempts.entry(key) {
            Entry::Occupied(own) if own.get().attempt.claimant == claimant => {
                own.remove().is_limited
            }
            _ => false,
        }
    }

    /// Whether the attempt may begin: it is known, no registration is under way, and none has lacked it.
    pub(super) fn may_begin(&self, key: AttemptKey) -> bool {
        let state = lock(&self.0);
        !state.is_registering && state.attempts.get(&key).is_some_and(|live| live.may_begin)
    }

    pub(super) fn claimant(&self, key: AttemptKey) -> Option<Uuid> {
        lock(&self.0).attempts.get(&key).map(|live| live.attempt.claimant)
    }

    pub(super) fn all(&self) -> Vec<NodeAttempt> {
        lock(&self.0).attempts.values().map(|live| live.attempt.clone()).collect()
    }

    /// What a runner may list, if this process knows all.
    pub(super) fn keys(&self) -> Option<Vec<AttemptKey>> {
        let state = lock(&self.0);
        state.has_all_lists().then(|| state.attempts.keys().chain(&state.strays).copied().collect())
    }

    /// The jobs of the handler's attempts and of all strays, and the attempts' groups, without those in `ending`: a claim
    /// takes none of them (N15, N39).
    pub(super) fn taken(
        &self,
        handler: &Name,
        ending: &HashSet<AttemptKey>,
    ) -> (Vec<Uuid>, Vec<String>) {
        let state = lock(&self.0);
        let strays = state.strays.iter().filter(|key| !ending.contains(key));
        let mut jobs: Vec<Uuid> = strays.map(|(job, _)| uuid(job)).collect();
        let mut groups = Vec::new();
        for (key, Live { attempt, .. }) in &state.attempts {
            if attempt.running.handler == *handler && !ending.contains(key) {
                jobs.push(uuid(&attempt.running.job));
                groups.extend(attempt.group.clone());
            }
        }
        (jobs, groups)
    }
}
