//! The store on PostgreSQL: connections, and transactions whose outcome is never guessed.
//!
//! Any number of nodes write to one database, and each of them can lose its connection at any moment. So every
//! transaction is a [`Flight`]: it ends as committed, as not committed, or as unknown, and only the first two
//! give the connection back.

mod accept;
mod admin;
mod claim;
mod complete;
mod connection;
mod exchange;
mod flight;
mod group;
mod handlers;
mod lost;
mod node_file;
mod nodes;
mod payload;
mod queue;
mod register;
mod schema;
mod server;
mod target;
mod writer;

pub use admin::handle::Admin;
pub use claim::{NodeAttempt, NodeClaim, NodeClaims};
pub use complete::{AttemptEnd, EndResult};
pub use connection::Connection;
pub use exchange::Exchanged;
pub use flight::{Doubt, Flight, FlightOutcome, Param, Refusal, Session};
pub use handlers::PublishedHandler;
pub use lost::{LostError, LostNode, declare_lost};
pub use node_file::{NodeFile, NodeFileError};
pub use nodes::{NodeRow, NodeWork, nodes, work_of};
pub use register::{Node, RegisterError, Registered, Registrar};
pub use schema::migrate;
pub use server::{Finding, Severity, check};
pub use target::{AddressError, ConnectError, Target, check_address};
pub use writer::Writer;
