//! The store on PostgreSQL: connections, and transactions whose outcome is never guessed.
//!
//! Any number of nodes write to one database, and each of them can lose its connection at any moment. So every
//! transaction is a [`Flight`]: it ends as committed, as not committed, or as unknown, and only the first two
//! give the connection back.

mod accept;
mod accepted_file;
mod admin;
mod answer;
mod arrival;
mod batches;
mod claim;
mod claim_start;
mod columns;
mod complete;
mod connection;
mod exchange;
mod flight;
mod group;
mod handlers;
mod history;
mod intake;
mod jobs;
mod live;
mod new_event;
mod node_file;
mod notices;
mod operate;
mod params;
mod payload;
mod pooler;
mod prepared;
mod queue;
mod reader;
mod register;
mod remembered;
mod request;
mod schema;
mod secret_use;
mod server;
mod server_history;
mod settle;
mod stop;
pub(super) mod store;
mod target;
mod task;
mod wake;
mod writer;

pub use admin::handle::Admin;
pub use admin::history::HistoryStatus;
pub use admin::nodes::NodeWork;
pub use claim::{NodeAttempt, NodeClaims};
pub use complete::{AttemptEnd, EndResult};
pub use connection::Connection;
pub use exchange::Exchanged;
pub use flight::{Doubt, Flight, FlightOutcome, Param, Refusal, Session};
pub use handlers::PublishedHandler;
pub use intake::Intake;
pub use jobs::Jobs;
pub use node_file::{NodeFile, NodeFileError};
pub use notices::NodeNotices;
pub use operate::housekeeping::Housekeeping;
pub use operate::lost::LostNode;
pub use register::{Node, RegisterError, Registered, Registrar};
pub(in crate::store) use schema::check as check_schema;
pub use schema::migrate;
pub(super) use server::connect;
pub use server::{Finding, Severity, check};
pub use server_history::ServerHistory;
pub use store::ClusterNode;
pub use target::{AddressError, ConnectError, Target, check_address};
pub use writer::Writer;
