//! The environment variables that a service manager sets for one process.

use std::ffi::OsStr;

/// Looks up an environment variable. The layers that may read the environment provide it.
pub type Variable<'e> = &'e dyn Fn(&str) -> Option<&'e OsStr>;

/// The number of inherited sockets (sd_listen_fds(3)).
pub(super) const SOCKETS_COUNT: &str = "LISTEN_FDS";

/// The id of the process that the sockets are for.
pub(super) const SOCKETS_PROCESS: &str = "LISTEN_PID";

/// The manager's socket address (sd_notify(3)).
pub(super) const ADDRESS: &str = "NOTIFY_SOCKET";

/// The watchdog period in microseconds (sd_watchdog_enabled(3)).
pub(super) const WATCHDOG_MICROS: &str = "WATCHDOG_USEC";

/// The id of the process that the watchdog period is for.
pub(super) const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// All variables about sockets.
pub const SOCKET_VARIABLES: [&str; 4] =
    [SOCKETS_COUNT, SOCKETS_PROCESS, "LISTEN_FDNAMES", "LISTEN_PIDFDID"];

/// All variables. Code that starts a child removes them from its environment: otherwise the child could
/// report a state for this process, or could treat other descriptors as its sockets.
pub const VARIABLES: [&str; 7] = [
    SOCKET_VARIABLES[0],
    SOCKET_VARIABLES[1],
    SOCKET_VARIABLES[2],
    SOCKET_VARIABLES[3],
    ADDRESS,
    WATCHDOG_MICROS,
    WATCHDOG_PROCESS,
];
