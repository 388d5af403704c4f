//! The limit of file descriptors: raises the process's limit to the number that the connections
//! need, or lowers the number of connections to what the limit allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides connections: listeners, epolls, eventfds, the admin port, logs.
const RESERVED: u64 = 64;

/// The number of connections that can be open at a time, at most `wanted`. Raises the soft limit if
/// needed.
pub fn connections_allowed(wanted: usize, worker_count: usize) -> usize {
    let reserved = RESERVED + 8 * worker_count as u64;
    let need = wanted as u64 + reserved;
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= need {
        return wanted;
    }
    let raised = need.min(limit.maximum.unwrap_or(u64::MAX));
    let wish = Rlimit { current: Some(raised), maximum: limit.maximum };
    let soft = if setrlimit(Resource::Nofile, wish).is_ok() { raised } else { soft };
    fitting(wanted, reserved, soft)
}

fn fitting(wanted: usize, reserved: u64, limit: u64) -> usize {
    let room = usize::try_from(limit.saturating_sub(reserved)).unwrap_or(usize::MAX);
    wanted.min(room.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_lowered_to_what_the_limit_leaves() {
        assert_eq!(fitting(10_000, 72, 1024), 952);
        assert_eq!(fitting(100, 72, 1024), 100);
        assert_eq!(fitting(100, 72, 10), 1);
    }

    #[test]
    fn a_few_connections_are_always_allowed() {
        assert_eq!(connections_allowed(10, 1), 10);
    }
}
