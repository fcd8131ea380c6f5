//! The states of the model: what is on disk, in each process, on the wire, and what really happened.

use super::rules::Faults;

/// The highest attempt number; a job that used them all up counts as settled ("below the bounds").
pub(crate) const ATTEMPTS: usize = 3;
/// The attempts that may fail before the job is given up (`max_attempts`).
pub(crate) const MAX_ATTEMPTS: usize = 2;
const INCARNATIONS: usize = 4;
const CONNECTIONS: usize = 4;
const QUEUE: usize = 4;

/// The state of the job. `waiting` is `ready` here: the clock may pass at any time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Job {
    #[default]
    Ready,
    Running,
    Held,
    Succeeded,
    Dead,
    Dropped,
}

/// How an attempt ended. `Failed` stands for every known end without success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    TimedOut,
    Unknown,
    NotStarted,
}

/// The committed state of the store.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) job: Job,
    /// The number of the last attempt claimed, 0 before the first.
    pub(crate) attempt: u8,
    /// The incarnation that the running attempt was claimed for, 0 for none.
    pub(crate) incarnation: u8,
    pub(crate) epoch: u8,
    pub(crate) outcomes: [Option<Outcome>; ATTEMPTS],
}

/// What a runner knows about an attempt, in its table and in its ledger. An acknowledged attempt is absent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    #[default]
    Absent,
    Started,
    Ended(Outcome),
}

/// An attempt in HelloOK: its entry, and whether it belongs to a dead incarnation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Listed {
    pub(crate) entry: Entry,
    pub(crate) of_dead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ToRunner {
    Hello,
    Start { attempt: u8, incarnation: u8 },
    Ack(u8),
    Kill(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ToReceiver {
    HelloOk,
    Exited(u8, Outcome),
    Refused(u8),
}

/// The unread messages in one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fifo<T>([Option<T>; QUEUE]);

impl<T: Copy> Default for Fifo<T> {
    fn default() -> Self {
        Self([None; QUEUE])
    }
}

impl<T: Copy> Fifo<T> {
    pub(crate) fn push(&mut self, message: T) {
        let free = self.0.iter_mut().find(|m| m.is_none()).expect("QUEUE is too small");
        *free = Some(message);
    }

    pub(crate) fn first(&self) -> Option<T> {
        self.0[0]
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.0[0].take();
        self.0.rotate_left(1);
        first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A Unix socket pair. The bytes of a dead sender stay readable; bytes sent to a closed end are lost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    /// The epoch of the receiver that opened it, which identifies the receiver; 0 for an unused slot.
    pub(crate) epoch: u8,
    /// The incarnation of the runner at the other end.
    pub(crate) incarnation: u8,
    pub(crate) receiver_open: bool,
    pub(crate) runner_open: bool,
    /// Whether the runner has answered its Hello.
    pub(crate) admitted: bool,
    /// Whether HelloOK said `draining`.
    pub(crate) draining: bool,
    pub(crate) to_runner: Fifo<ToRunner>,
    pub(crate) to_receiver: Fifo<ToReceiver>,
    /// The list of HelloOK, until recover has used it.
    pub(crate) list: [Listed; ATTEMPTS],
    /// The incarnations that HelloOK proves dead, a bit each.
    pub(crate) dead: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// No connection.
    #[default]
    Away,
    /// Hello is written.
    Greeting,
    /// HelloOK is read; recover is not committed yet.
    Listed,
    Serving,
}

/// The memory of a `hooklatch serve`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    /// The epoch that it committed when it started; 0 if there is no receiver.
    pub(crate) epoch: u8,
    pub(crate) phase: Phase,
    /// A claimed attempt whose Start is not written yet: (attempt, incarnation).
    pub(crate) claimed: Option<(u8, u8)>,
    /// An outcome that was read but is not committed yet.
    pub(crate) words: Option<(u8, Outcome)>,
}

/// A `hooklatch runner`; its table is its book in [`State::books`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Runner {
    /// 0 if there is no runner.
    pub(crate) incarnation: u8,
    /// The highest epoch it has seen.
    pub(crate) epoch: u8,
    pub(crate) draining: bool,
}

/// What really happened. No process can see it; the properties are checked against it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Truth {
    pub(crate) began: [bool; ATTEMPTS],
    pub(crate) ended: [Option<Outcome>; ATTEMPTS],
    /// The outcome cannot be known: the power was cut after the claim, or the runner was killed while the
    /// child ran.
    pub(crate) unknowable: [bool; ATTEMPTS],
    /// The operator has replayed the job since.
    pub(crate) replayed: [bool; ATTEMPTS],
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) receivers: [Receiver; 2],
    pub(crate) runners: [Runner; 2],
    pub(crate) connections: [Connection; CONNECTIONS],
    /// The incarnation whose child lives, for each attempt; 0 for none.
    pub(crate) children: [u8; ATTEMPTS],
    /// The table of each incarnation while it lives, and its ledger when it is dead.
    pub(crate) books: [[Entry; ATTEMPTS]; INCARNATIONS],
    /// The last incarnation that was started.
    pub(crate) incarnations: u8,
    /// The first incarnation of this boot.
    pub(crate) booted: u8,
    pub(crate) faults: Faults,
    pub(crate) truth: Truth,
}

/// The array index of an attempt, whose numbers begin with 1.
pub(crate) fn slot(attempt: u8) -> usize {
    usize::from(attempt) - 1
}

/// The numbers of all attempts.
pub(crate) fn attempts() -> std::ops::RangeInclusive<u8> {
    1..=ATTEMPTS as u8
}

impl State {
    pub(crate) fn runner(&self, incarnation: u8) -> Option<&Runner> {
        self.runners.iter().find(|r| r.incarnation != 0 && r.incarnation == incarnation)
    }

    pub(crate) fn book(&mut self, incarnation: u8) -> &mut [Entry; ATTEMPTS] {
        &mut self.books[usize::from(incarnation) - 1]
    }

    /// The incarnations of this boot whose runner is gone.
    pub(crate) fn dead(&self) -> impl Iterator<Item = u8> + '_ {
        (self.booted..=self.incarnations).filter(|i| self.runner(*i).is_none())
    }

    /// Whether a child of a dead runner still lives.
    pub(crate) fn leftovers(&self) -> bool {
        self.children.iter().any(|child| *child != 0 && self.runner(*child).is_none())
    }

    /// The index of the open connection of the receiver with this epoch.
    pub(crate) fn connection(&self, epoch: u8) -> Option<usize> {
        self.connections.iter().position(|c| c.epoch == epoch && c.receiver_open)
    }

    pub(crate) fn open(&mut self, epoch: u8, incarnation: u8) {
        let free = self.connections.iter_mut().find(|c| c.epoch == 0);
        let connection = free.expect("CONNECTIONS is too small");
        *connection = Connection {
            epoch,
            incarnation,
            receiver_open: true,
            runner_open: true,
            ..Connection::default()
        };
        connection.to_runner.push(ToRunner::Hello);
    }

    /// Writes to the runner; the message is lost if its end is closed.
    pub(crate) fn tell_runner(&mut self, connection: usize, message: ToRunner) {
        let connection = &mut self.connections[connection];
        if connection.runner_open {
            connection.to_runner.push(message);
        }
    }

    pub(crate) fn tell_receiver(&mut self, connection: usize, message: ToReceiver) {
        let connection = &mut self.connections[connection];
        if connection.receiver_open {
            connection.to_receiver.push(message);
        }
    }

    /// The receiver's end closes, deliberately or by its death; what it wrote stays readable.
    pub(crate) fn close_receiver_end(&mut self, connection: usize) {
        let connection = &mut self.connections[connection];
        connection.receiver_open = false;
        connection.to_receiver.clear();
        connection.list = Default::default();
        connection.dead = 0;
    }

    /// The runner's end closes; what it had not read is lost.
    pub(crate) fn close_runner_end(&mut self, connection: usize) {
        let connection = &mut self.connections[connection];
        connection.runner_open = false;
        connection.to_runner.clear();
    }

    pub(crate) fn close_runner_ends(&mut self, incarnation: u8) {
        for c in 0..CONNECTIONS {
            if self.connections[c].incarnation == incarnation {
                self.close_runner_end(c);
            }
        }
    }

    /// Removes what no process can see any more and sorts the rest, so that equivalent states are equal.
    pub(crate) fn tidy(&mut self) {
        for connection in &mut self.connections {
            let unread = connection.runner_open && !connection.to_runner.is_empty();
            if !connection.receiver_open && !unread {
                *connection = Connection::default();
            }
        }
        // Stable: two connections of one receiver keep their order.
        self.connections.sort_by_key(|c| (c.epoch == 0, c.epoch));
        self.receivers.sort_by_key(|r| (r.epoch == 0, r.epoch));
        self.runners.sort_by_key(|r| (r.incarnation == 0, r.incarnation));
    }
}
