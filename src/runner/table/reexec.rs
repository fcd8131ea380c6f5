//! What a table hands over to the program that this runner becomes, and how that one takes it.

use super::{Attempt, Inner, Living, State, Table};
use crate::runner::message::{Key, ToReceiver};
use crate::runner::reexec::{self, Printing, Running};
use crate::runner::spawn::View;
use crate::runner::{AskedBy, Cancellation, Captured, Ended, Exited, orphaned};

impl Table {
    /// Adds what only memory has. Nothing where an attempt is being started or reaped now: that is
    /// over soon, and told by [`Table::changes`].
    pub(in crate::runner) fn hand_over(&self, mut state: reexec::State) -> Option<reexec::State> {
        for (key, attempt) in &self.lock().attempts {
            match &attempt.state {
                State::Running(Some(living)) => state.running.push((*key, living.hand_over()?)),
                State::Settled(ended) => {
                    // The ledger has the rest.
                    if let Ended::Exited(Exited { stdout, stderr, .. }) = &**ended {
                        state.settled.push((*key, [stdout.clone(), stderr.clone()]));
                    }
                }
                State::Running(None) => {}
            }
        }
        Some(state)
    }

    /// Writes the ledger anew, with whatever a full disk has kept out of it: the new program knows no
    /// other end of an attempt, and begins by writing it anew too.
    pub(in crate::runner) fn write_down(&self) -> std::io::Result<()> {
        self.lock().rewrite()
    }

    /// Takes Starts again: the runner stays what it is.
    pub(in crate::runner) fn undrain(&self) {
        let mut inner = self.lock();
        inner.draining = false;
        let slots = inner.free();
        inner.tell(ToReceiver::Free { slots, draining: false });
    }

    /// Takes a running attempt over. `cancelled`: why it is to end, if it is.
    pub(in crate::runner) fn resume(
        &self,
        key: Key,
        child: View,
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
        let attempt = attempts.entry(key).or_insert(fresh);
        attempt.state =
            State::Running(Some(Living { cancellation: cancellation.clone(), child: Some(child) }));
        cancellation
    }

    /// Takes over what an ended attempt printed.
    pub(in crate::runner) fn restore(&self, key: Key, [stdout, stderr]: [Captured; 2]) {
        if let Some(Attempt { state: State::Settled(ended), .. }) =
            self.lock().attempts.get_mut(&key)
            && let Ended::Exited(exited) = &mut **ended
        {
            (exited.stdout, exited.stderr) = (stdout, stderr);
        }
    }
}

impl Living {
    fn hand_over(&self) -> Option<Running> {
        let View { pid, pidfd, lifecycle, streams } = self.child.as_ref()?;
        let printing = |(pipe, shared): &(_, crate::runner::capture::Shared)| Printing {
            pipe: *pipe,
            most: shared.most(),
            kept: shared.now(),
        };
        Some(Running {
            pid: pid.as_raw_pid(),
            pidfd: *pidfd,
            progress: lifecycle.progress()?,
            cancelled: self.cancellation.reason(),
            streams: [printing(&streams[0]), printing(&streams[1])],
        })
    }
}
