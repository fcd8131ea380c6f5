//! The flow of the receiver: what starts in which order, and stops in the reverse.
//!
//! ```text
//! configuration ─▶ secrets ─▶ store (lock, recovery of the log) ─▶ dispatcher (recover, then claims)
//!               ─▶ admin socket ─▶ HTTP
//! ```
//!
//! HTTP and dispatcher never call each other; they meet in the store. The port opens last, so that
//! whoever is answered is answered by a receiver that can keep its promise.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::{Config, Environment};
use crate::control;
use crate::dispatcher::Dispatcher;
use crate::document::Problem;
use crate::http;
use crate::store::{OpenError, Store};

/// Why the receiver does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Secrets that cannot be read, all of them.
    #[error("the configuration is wrong")]
    Config(Vec<Problem>),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Attempts of an earlier receiver cannot be settled.
    #[error("failed to recover: {0}")]
    Recover(String),
    /// The port.
    #[error("failed to listen on {address}: {error}")]
    Listen {
        /// As configured.
        address: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The admin socket beside the store.
    #[error("failed to open the admin socket {path}: {error}")]
    Control {
        /// Where it should be.
        path: std::path::PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

/// A receiver that serves.
pub struct Serving {
    store: Store,
    dispatcher: Dispatcher,
    control: control::Listener,
    http: http::Server,
}

/// Starts everything; returns when deliveries are being answered.
///
/// # Errors
/// Whatever keeps a part from starting; the parts started before it are stopped by being dropped,
/// which no promise depends on.
pub async fn start(
    config: Config,
    environment: &Environment,
    clock: Clock,
) -> Result<Serving, Error> {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let parts = config.into_parts(environment).map_err(Error::Config)?;
    http::raise_file_limit();

    let listener = listen(&parts.listen)?;
    let (settings, opening) = (parts.store.clone(), clock.clone());
    let store = tokio::task::spawn_blocking(move || Store::open(&settings, opening))
        .await
        .map_err(|error| Error::Recover(error.to_string()))??;
    let limits = &parts.store.limits;
    let dispatcher = Dispatcher::start(store.clone(), parts.workers, limits.clone(), clock.clone())
        .await
        .map_err(|error| Error::Recover(error.to_string()))?;
    let path = control::socket_path(&parts.store.path);
    let control = control::listen(&path, store.clone())
        .map_err(|error| Error::Control { path, error })?;
    let http = http::Server::start(vec![listener], parts.sources, store.clone(), clock, limits.clone())
        .map_err(|error| Error::Listen { address: parts.listen.clone(), error })?;
    for address in http.addresses() {
        tracing::info!(%address, store = %parts.store.path.display(), "serving");
    }
    Ok(Serving { store, dispatcher, control, http })
}

/// Binds the port before the store is touched, so that a busy port changes nothing on disk.
/// Connections wait in the kernel's queue until the server accepts them.
fn listen(address: &str) -> Result<TcpListener, Error> {
    let failed = |error| Error::Listen { address: address.to_owned(), error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

impl Serving {
    /// Where deliveries are taken.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.http.addresses()
    }

    /// The store, for those in the same process.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Stops gracefully: requests in flight are answered, attempts in flight waited for and
    /// recorded, the store closed. `hurry` shortens each wait.
    pub async fn stop(self, hurry: Arc<Notify>) {
        self.http.stop(Arc::clone(&hurry)).await;
        self.dispatcher.stop(hurry).await;
        self.control.stop().await;
        self.store.close().await;
        tracing::info!("stopped");
    }
}
