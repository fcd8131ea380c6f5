//! Tables: what several verbs read and write in a transaction that a verb has begun.

pub(crate) mod answer;
pub(crate) mod audit;
pub(crate) mod codec;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod notice;
pub(crate) mod pace;
pub(crate) mod paused;
pub(crate) mod payload;
pub(crate) mod repeat;
pub(crate) mod replay_index;
pub(crate) mod restored;
pub(crate) mod secret_use;
