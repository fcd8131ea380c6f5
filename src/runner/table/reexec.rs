//! What a table hands over to the program that this runner becomes, and how that program takes it.

use std::sync::Arc;

use super::{Attempt, Inner, Living, State, Table};
use crate::runner::message::{Key, ToReceiver};
use crate::runner::reexec::{self, Running};
use crate::runner::spawn::Child;
use crate::runner::{AskedBy, Cancellation, Captured, Ended, Exited, orphaned};

impl Table {
    /// Adds what only memory has. `None` while an attempt is being started or reaped, which is over soon and
    /// reported by [`Table::changes`].
    pub(in crate::runner) fn hand_over(&self, mut state: reexec::State) -> Option<reexec::State> {
        for (key, attempt) in &self.lock().attempts {
            match &attempt.state {
                State::Running(Some(Living { cancellation, child })) => {
                    let running = Running::new(child.as_ref()?, cancellation.reason())?;
                    state.running.push((*key, running));
                }
                State::Settled(ended) => {
                    // The rest is in the ledger.
                    if let Ended::Exited(Exited { stdout, stderr, .. }) = &**ended {
                        state.settled.push((*key, [stdout.clone(), stderr.clone()]));
                    }
                }
                State::Running(None) => {}
            }
        }
        Some(state)
    }

    /// Rewrites the ledger, with every line that a full disk has kept out of it: the new program knows no other
    /// end of an attempt, and begins by rewriting it too.
    pub(in crate::runner) fn write_down(&self) -> std::io::Result<()> {
        self.lock().rewrite()
    }

    /// Takes Starts again, because the program was not executed.
    pub(in crate::runner) fn undrain(&self) {
        let mut inner = self.lock();
        inner.draining = false;
        inner.tell(ToReceiver::Draining { draining: false });
    }

    /// Takes a running attempt over. `cancelled`: why it was asked to end, if it was.
    pub(in crate::runner) fn resume(
        &self,
        key: Key,
        child: Arc<Child>,
        cancelled: Option<AskedBy>,
    ) -> Cancellation {
        let cancellation = Cancellation::default();
        if let Some(reason) = cancelled {
            cancellation.cancel(reason);
        }
        let process = orphaned::process(child.pid);
        let mut inner = self.lock();
        let Inner { incarnation, attempts, .. } = &mut *inner;
        let fresh = Attempt { incarnation: *incarnation, process, state: State::Running(None) };
        let living = Living { cancellation: cancellation.clone(), child: Some(child) };
        attempts.entry(key).or_insert(fresh).state = State::Running(Some(living));
        cancellation
    }

    /// Takes over the outputs of an attempt that has ended.
    pub(in crate::runner) fn restore(&self, key: Key, [stdout, stderr]: [Captured; 2]) {
        if let Some(Attempt { state: State::Settled(ended), .. }) =
            self.lock().attempts.get_mut(&key)
            && let Ended::Exited(exited) = &mut **ended
        {
            (exited.stdout, exited.stderr) = (stdout, stderr);
        }
    }
}
