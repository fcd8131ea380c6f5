//! A receiver that serves.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::admin;
use crate::config::Config;
use crate::dispatcher::Dispatcher;
use crate::handler::runner_pool::RunnerPool;
use crate::http;
use crate::scrape;
use crate::store::Store;
use crate::systemd::Manager;

/// A receiver that serves.
pub struct Serving {
    pub(super) store: Store,
    pub(super) dispatcher: Dispatcher,
    pub(super) admin: admin::Listener,
    pub(super) http: http::Server,
    pub(super) metrics: Option<scrape::Listener>,
    pub(super) manager: Manager,
    /// Tells the manager how the receiver is.
    pub(super) tending: JoinSet<()>,
    /// The configuration in force, which a reload is compared with.
    pub(super) config: Config,
    /// Whether the default runner is the only one there can be.
    pub(super) one_runner: bool,
    pub(super) pool: RunnerPool,
    pub(super) receiver: admin::ReceiverState,
    /// How long a stop waits for forwards in flight.
    pub(super) wait: Duration,
}
