//! What a table hands over to the program that this runner becomes, and how that program takes it.

use std::sync::Arc;

use super::{Attempt, Living, Table};
use crate::runner::ledger::LedgerEntry;
use crate::runner::message::Key;
use crate::runner::reexec::{self, Running};
use crate::runner::spawn::Child;
use crate::runner::{AskedBy, Cancellation, Captured, Ended, orphaned};

impl Table {
    /// Adds what only memory has. `None` while an attempt is being started or reaped, which is over soon and
    /// reported by [`Table::changes`].
    pub(in crate::runner) fn hand_over(&self, mut state: reexec::State) -> Option<reexec::State> {
        for (key, Attempt { entry, living }) in &self.lock().attempts {
            if let Some(Living { cancellation, child }) = living {
                let running = Running::new(child.as_ref()?, cancellation.reason())?;
                state.running.push((*key, running));
            }
            // The rest of an end is in the ledger.
            if let Some(outputs) = entry.end.as_ref().and_then(Ended::outputs) {
                state.settled.push((*key, outputs.map(Captured::clone)));
            }
        }
        Some(state)
    }

    /// Rewrites the ledger, with every line that a full disk has kept out of it: the new program knows no other
    /// end of an attempt, and begins by rewriting it too.
    pub(in crate::runner) fn write_down(&self) -> std::io::Result<()> {
        self.lock().rewrite()
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
        let seen = orphaned::process(child.pid);
        let living = Some(Living { cancellation: cancellation.clone(), child: Some(child) });
        let mut inner = self.lock();
        // A look that fails must not lose what the ledger knows of the process.
        let known = || inner.attempts.get(&key).and_then(|old| old.entry.process);
        let process = seen.or_else(known);
        let entry = LedgerEntry::new(inner.incarnation, process);
        inner.attempts.insert(key, Attempt { entry, living });
        cancellation
    }

    /// Takes over the outputs of an attempt that has ended.
    pub(in crate::runner) fn restore(&self, key: Key, [stdout, stderr]: [Captured; 2]) {
        if let Some(attempt) = self.lock().attempts.get_mut(&key)
            && let Some(Ended::Exited(exited)) = &mut attempt.entry.end
        {
            (exited.stdout, exited.stderr) = (stdout, stderr);
        }
    }
}
