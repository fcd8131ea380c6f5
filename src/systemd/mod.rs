//! The two protocols between a service manager and its services.
//!
//! `serve`, the runner's server and `cmd` call it. [`sockets`] takes over the listening sockets that the
//! manager opened (sd_listen_fds(3)); [`Manager`] reports the process's state (sd_notify(3)). There is
//! no library for it here, because the existing crates read and change the environment, which only the
//! layers above may do. Must stay true: without a service manager every call does nothing; a call blocks
//! for seconds at most; the manager's variables do not reach a child process ([`VARIABLES`]).

mod manager;
pub mod sockets;
mod variables;

pub use manager::{Manager, NoManager, Stopping};
pub use variables::{SOCKET_VARIABLES, VARIABLES, Variable};
