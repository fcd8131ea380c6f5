//! The runtime of a command.

use crate::exit::Failure;

/// Runs a future to its end on a new runtime with one thread. In a receiver this thread runs the dispatcher, the
/// forwards and the runner clients, whose tasks are short and follow each other: a second thread would mostly wake
/// up to take work from the first. The HTTP server and the admin API have separate threads.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failure::io("start the runtime"))?;
    Ok(runtime.block_on(future))
}
