//! The dispatcher: claims due jobs from the store, has their handlers run, and records the ends.
//!
//! `serve` starts it; it meets `http` in the store only. Must stay true:
//!
//! - Recovery is committed before the first job is claimed, and the attempts that a runner may have of an
//!   earlier receiver are awaited.
//! - A job is claimed only if a slot is free now, and for a command only if its runner has admitted this receiver
//!   and takes attempts: a job that is claimed and not begun at a power cut is `unknown`.
//! - A broken or slow handler or runner never delays another one: each has its own slots and its own pause, and
//!   one slot of the total is reserved for each idle handler.
//! - It sleeps until the store changes, an attempt ends, or a job is due. A tick makes up for a lost wake-up and
//!   a clock change.
//!
//! In a stop no more jobs are claimed. Commands go on under the runner, and the next receiver records their
//! ends. The stop waits for forwards; those without an answer at the end of the wait are `unknown`.

mod attempt;
mod backoff;
mod control;
mod flow;
mod retention;
mod slots;
mod start;
mod worker;

pub use control::{Dispatcher, Ended};
pub use worker::Worker;
