//! The limit of file descriptors: raises the process's limit to the number that the connections
//! need, or lowers the number of connections to what the limit allows.

use crate::StartError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides connections: listeners, epolls, eventfds, the admin port, logs.
const RESERVED: u64 = 64;

/// With room for fewer connections, or for fewer than are wanted, a server does not start.
const LEAST_CONNECTIONS: usize = 16;

/// The number of connections that can be open at a time, at most `wanted`. Raises the soft limit if
/// needed.
pub fn connections_allowed(wanted: usize, worker_count: usize) -> Result<usize, StartError> {
    let reserved = RESERVED + 8 * worker_count as u64;
    let need = wanted as u64 + reserved;
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= need {
        return Ok(wanted);
    }
    let raised = need.min(limit.maximum.unwrap_or(u64::MAX));
    let wish = Rlimit { current: Some(raised), maximum: limit.maximum };
    let soft = if setrlimit(Resource::Nofile, wish).is_ok() { raised } else { soft };
    fitting(wanted, reserved, soft)
}

fn fitting(wanted: usize, reserved: u64, limit: u64) -> Result<usize, StartError> {
    let least_connections = wanted.min(LEAST_CONNECTIONS);
    let room = usize::try_from(limit.saturating_sub(reserved)).unwrap_or(usize::MAX);
    if room < least_connections {
        let least = reserved + least_connections as u64;
        return Err(StartError::TooFewDescriptors { limit, least });
    }
    Ok(wanted.min(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_lowered_to_what_the_limit_leaves() {
        assert!(matches!(fitting(10_000, 72, 1024), Ok(952)));
        assert!(matches!(fitting(100, 72, 1024), Ok(100)));
        assert!(matches!(fitting(10_000, 72, 88), Ok(16)));
    }

    #[test]
    fn a_limit_that_leaves_hardly_any_connection_is_refused() {
        let refused = |wanted, limit| fitting(wanted, 72, limit).unwrap_err().to_string();
        let least = |limit: u64, least: u64| {
            format!(
                "the limit of open files ({limit}) is too small: give at least {least} (ulimit -n)"
            )
        };
        assert_eq!(refused(10_000, 87), least(87, 88));
        assert_eq!(refused(10_000, 10), least(10, 88));
        assert_eq!(refused(3, 74), least(74, 75));
    }

    #[test]
    fn a_few_connections_are_always_allowed() {
        assert!(matches!(connections_allowed(10, 1), Ok(10)));
    }
}
