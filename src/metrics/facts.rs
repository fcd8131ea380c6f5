//! What the page shows.

use crate::model::Timestamp;
use crate::store::{Gauges, Stalled, WriterGauges};
use crate::traffic::Traffic;

/// The state of the HTTP server.
#[derive(Debug, Clone, Copy)]
pub struct Front {
    /// Open connections.
    pub connections: u64,
    /// Bytes of bodies in use.
    pub body_bytes: u64,
    pub body_bound_bytes: u64,
    /// Whether deliveries are accepted.
    pub ready: bool,
}

/// A runner of a configured handler or a running attempt, and its connection.
#[derive(Debug, Clone)]
pub struct Runner {
    pub name: String,
    /// It has accepted this receiver.
    pub connected: bool,
    /// Attempts that run or whose end is not recorded yet.
    pub running: u64,
    /// Most attempts that it runs; 0 if it accepts none.
    pub room: u64,
}

#[derive(Debug, Clone)]
pub struct Facts {
    /// Wall clock.
    pub now: Timestamp,
    pub started_at: Timestamp,
    pub front: Front,
    pub traffic: Traffic,
    pub writer: WriterGauges,
    /// `None` while the store cannot be read.
    pub store: Option<Gauges>,
    /// What stands still.
    pub stalls: Vec<Stalled>,
    pub runners: Vec<Runner>,
    pub log_lines_lost: u64,
}
