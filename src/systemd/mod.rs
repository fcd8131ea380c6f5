//! The two protocols between a service manager and its services.
//!
//! `serve`, the runner's server and `cmd` call it. [`sockets`] takes over the listening sockets that the
//! manager opened (sd_listen_fds(3)); [`Manager`] reports the process's state (sd_notify(3)). There is
//! no library for it here, because the existing crates read and change the environment, which only the
//! layers above may do. Must stay true: without a service manager every call does nothing; a call blocks
//! for seconds at most; the manager's variables do not reach a child process ([`VARIABLES`]).

mod manager;
pub mod sockets;

pub use manager::{Manager, NoManager, Stopping};

/// The variables that a service manager sets for one process. Code that starts a child removes them
/// from its environment: otherwise the child could report a state for this process, or could treat
/// other descriptors as its sockets.
pub const VARIABLES: [&str; 7] = [
    sockets::VARIABLES[0],
    sockets::VARIABLES[1],
    sockets::VARIABLES[2],
    sockets::VARIABLES[3],
    manager::ADDRESS,
    manager::WATCHDOG_MICROS,
    manager::WATCHDOG_PROCESS,
];

/// Looks up an environment variable. The layers that may read the environment provide it.
pub type Variable<'e> = &'e dyn Fn(&str) -> Option<&'e std::ffi::OsStr>;
