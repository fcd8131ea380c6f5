//! The words of the product as types, which every layer may use.
//!
//! Nothing here does I/O or knows how a value is stored or sent. A value of one of these types is valid
//! by construction; the text forms are the ones used in SQL, JSON, logs and help.

mod answer;
mod broken;
mod digest;
mod group;
mod headers;
pub mod host;
mod ids;
mod names;
mod repeats;
mod shell;
pub(crate) mod summed;
mod text;
mod time;
mod words;

pub use answer::Answer;
pub(crate) use answer::is_header_name;
pub use broken::Broken;
pub use digest::{Digest, is_same_secret};
pub use group::GroupKey;
pub use headers::{Blob, CONTENT_ENCODING, Facts, Headers, SENDER_ID};
pub use ids::{Incarnation, JobId, Runner};
pub use names::{
    BadEventId, EVENT_ID_MAX_BYTES, EVENT_TYPE_MAX_BYTES, EventId, EventType, INTERNAL_SOURCE,
    Name, RunnerName,
};
pub use repeats::Repeats;
pub use shell::{DEFAULT_CONFIG, config_option, shell_word};
pub use text::BadText;
pub use time::Timestamp;
pub use words::{
    AuditVerb, DeadReason, DropReason, GroupRule, HeldReason, NoticeType, OnRedelivery, OnUnknown,
    Outcome, ReplayGuard, Shape, State, UnknownWord, Via,
};
