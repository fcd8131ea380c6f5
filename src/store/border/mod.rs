//! The domain types that cross the border of a handle, and its errors. No row number and no connection is among them.

mod accept;
mod claim;
mod completion;
mod error;
mod keyed;
mod quarantine;
mod rows;
mod settings;

pub use crate::routing::{Delay, Group, NewJob};
pub use accept::{Accept, Accepted};
pub use claim::{Claim, Claimed, Claims, Rate, RunningAttempt};
pub use completion::{Completion, OutputExcerpt, Record, Usage};
pub use error::{Error, LEAST_CHARS, Newer, Refused};
pub use keyed::{Ask, Asked, KeyState};
pub use quarantine::{
    DiscardReason, FailedDelivery, NO_SUCH_SOURCE, Quarantine, QuarantineFilter,
    QuarantinedDelivery, QuarantinedRow, Reverifier, ReverifyCounts, ReverifyResult,
};
pub use rows::{
    AttemptRow, EventDetail, EventFilter, EventRow, FormerKey, JobDetail, JobFilter, JobRow,
    KeyRow, Page, PageCursor, PausedRow, RestoredRow, SameBodyEvent, SecretUse,
};
pub use settings::Settings;
