//! What a service manager gives to its services, and what it wants to hear from them.
//!
//! For `serve`, the runner's server and `cmd`. [`sockets`] takes over listening sockets that were opened
//! for this process (sd_listen_fds(3)); [`Manager`] tells the manager how the process is (sd_notify(3)).
//! Both are a few lines of a stable protocol: the crates for it read and change the environment
//! themselves, which is the business of the layers above. What must stay true: without a service
//! manager all of it is silent; nothing here keeps a process from its work for longer than a moment;
//! and what the manager says to this process reaches no child ([`VARIABLES`]).

mod manager;
pub mod sockets;

pub use manager::{Manager, NoManager, Stopping};

/// The variables by which a service manager speaks to one process. Whoever starts a child takes them
/// out of its environment: with them it would speak in this process's name, or believe that it was
/// given sockets.
pub const VARIABLES: [&str; 7] = [
    sockets::VARIABLES[0],
    sockets::VARIABLES[1],
    sockets::VARIABLES[2],
    sockets::VARIABLES[3],
    manager::ADDRESS,
    manager::WATCHDOG_MICROS,
    manager::WATCHDOG_PROCESS,
];

/// What this process's environment says, asked by the layers that may ask it.
pub type Variable<'e> = &'e dyn Fn(&str) -> Option<&'e std::ffi::OsStr>;
