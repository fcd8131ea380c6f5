//! The runtime of a command.

use crate::exit::{Exit, Failure};

/// Runs a future to its end on a runtime of its own. Its tasks share one thread: of a receiver those are the
/// dispatcher, the forwards and the links to runners, which are short and follow each other, so that a second
/// thread would mostly be woken to take over work that the first one already has. What may take long has threads of
/// its own, as the HTTP server and the admin API have.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Io, format!("failed to start the runtime: {error}")))?;
    Ok(runtime.block_on(future))
}
