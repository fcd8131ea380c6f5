//! The HTTP server for deliveries: exactly one answer for each request. And [`Door`], which bounds the other listeners in
//! the same way.
//!
//! `serve` builds [`Sources`], starts a [`Server`] and stops it. What must stay true: a 2xx is sent only after
//! `store.accept` has returned, and a handler's answer only after it is committed; nothing unproven is parsed
//! here; [`budget`] counts every byte of a request in memory; a client never learns why a signature failed; and a
//! delivery that was read to its end is stored even if its client hangs up.

mod body;
mod budget;
mod cause;
pub(crate) mod chunks;
mod client;
mod connection;
mod delivery;
mod door;
mod eviction;
mod files;
pub(crate) mod head;
mod health;
mod keyed;
mod open;
mod problem;
mod rate;
mod receive;
mod refusal_log;
mod reply;
mod reverify;
mod server;
mod shared;
mod source;
mod unread;

pub use budget::largest_body_bytes;
pub use client::Proxies;
pub(crate) use connection::{Bounds, Connection, bound_answers};
pub(crate) use door::Door;
pub use files::raise_file_limit;
pub use server::Server;
pub(crate) use source::public_url;
pub use source::{RESERVED_PATHS, Reply, Source, Sources};
