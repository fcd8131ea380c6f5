//! The limit of open files: raised once at start, and never exceeded.
//!
//! At the usual soft limit of 1,024 a slow flood of connections shut out all clients without a log line. `serve`
//! raises the limit before it opens anything. `server` keeps the number of connections below it, so that the
//! store and the handlers always get a descriptor.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::OPERATOR_CONNECTIONS;

/// Descriptors reserved for everything but connections: the store with its readers, the workers, 64
/// concurrent attempts (`jobs_in_flight_count`) with four each, and the connections to the admin API.
const RESERVED: u64 = 512 + OPERATOR_CONNECTIONS as u64;

/// Fewest connections, however low the limit is.
const FEWEST: u64 = 16;

/// Raises the soft limit of open files to the hard one, and returns it (`None`: without limit).
pub fn raise_file_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(limit.maximum)
}

/// Most open connections, not counting those that wait: `wanted`, or as many as the limit of open files allows.
pub(super) fn connections(wanted: u64, waiting: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current;
    usize::try_from(allowed(wanted, files, waiting as u64)).unwrap_or(usize::MAX)
}

fn allowed(wanted: u64, files: Option<u64>, waiting: u64) -> u64 {
    let most = |files: u64| files.saturating_sub(RESERVED + waiting).max(FEWEST);
    files.map_or(wanted, |files| wanted.min(most(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_rest() {
        assert_eq!(allowed(8_000, None, 128), 8_000);
        assert_eq!(allowed(8_000, Some(1_048_576), 128), 8_000);
        assert_eq!(allowed(8_000, Some(1_024), 128), 128);
        assert_eq!(allowed(8_000, Some(100), 128), FEWEST);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() -> io::Result<()> {
        let hard = raise_file_limit()?;
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
        Ok(())
    }
}
