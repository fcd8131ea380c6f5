//! The receiver's side of one runner: one task that owns the connection, and the state of each attempt that
//! this runner was, or will be, asked to start.
//!
//! [`runner_pool`](super::runner_pool) makes each [`RunnerClient`]. The dispatcher tracks attempts on it, connects
//! it once the attempts of earlier receivers are tracked, and acknowledges after the commit. Must stay true:
//!
//! - An attempt is tracked until its outcome is committed. So an ended attempt that the runner names, in
//!   its list or by its end, and that is not tracked, is committed: it is acknowledged (R9). No other
//!   attempt is.
//! - Proofs that an attempt never started: the runner refused it; a list made after the Start, by that runner or
//!   its successor, lacks it; the Start was never sent (R8).
//! - Its end is lost only if its runner and its children are proven gone: the machine has restarted, or a
//!   runner that can see them has searched for them (R6).
//! - A lost connection is read to its end before the next list is judged (R10).

mod answers;
mod ask;
mod client;
mod connection;
mod load;

pub use ask::CannotAsk;
pub(super) use client::{AttemptResult, NotStarted};
pub use client::{Capacity, PendingAttempt, Place, RunnerClient, RunnerStatus, Stray};
pub use load::{CannotLoad, RunnerLoad};
