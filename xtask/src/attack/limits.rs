//! The number of connections this process may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files of a trial besides the attack's connections.
const OTHER_FILES: u64 = 100;
/// The most connections: a server takes 10,000 by default, and more prove nothing.
const CONNECTIONS_MAX: u64 = 9_900;

/// Raises the limit on open files as far as possible, for this process and the servers it starts.
/// Returns how many connections each of `at_once` trials may have.
pub fn raise(at_once: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the attack is smaller.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    share(getrlimit(Resource::Nofile).current, at_once)
}

fn share(files: Option<u64>, at_once: usize) -> usize {
    let each = files.unwrap_or(u64::MAX) / at_once.max(1) as u64;
    each.saturating_sub(OTHER_FILES).clamp(16, CONNECTIONS_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_share_the_files_that_there_are() {
        assert_eq!(share(Some(1_024), 1), 924);
        assert_eq!(share(Some(1_024), 2), 412);
        assert_eq!(share(Some(1_000_000), 2), 9_900);
        assert_eq!(share(None, 2), 9_900);
        assert_eq!(share(Some(50), 4), 16);
    }
}
