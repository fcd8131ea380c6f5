//! A handler as the dispatcher runs it.

use crate::handler::Handler;
use crate::model::Name;
use crate::retry::Policy;
use crate::store::Rate;

/// A configured handler, and how its attempts are run.
#[derive(Debug, Clone)]
pub struct Worker {
    pub name: Name,
    pub handler: Handler,
    /// Decides a job's next state after an attempt.
    pub policy: Policy,
    /// How many attempts of it may run at once, at least 1.
    pub concurrency: usize,
    /// How many attempts of it may run at once on all nodes together.
    pub cluster_concurrency: Option<usize>,
    /// Whether its jobs run at this node.
    pub runs: bool,
    /// How fast its attempts may start.
    pub rate: Option<Rate>,
}
