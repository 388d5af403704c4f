//! ACL LOG: who failed to log in, newest first.
//!
//! # Invariants
//! A1: as many entries as [`LEN_MAX`], with names cut, whatever clients send. A2: no password is
//! in it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::UnixMillis;

/// Entries that are kept, as `acllog-max-len` of Redis.
const LEN_MAX: usize = 128;

/// Bytes that are kept of a user's name.
const NAME_BYTES_MAX: usize = 128;

/// The same user that fails again within this time has one entry, as in Redis.
const MERGED_MS: u64 = 60_000;

/// Failed attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How many.
    pub count: u64,
    /// As whom.
    pub user: Vec<u8>,
    /// When the last one was.
    pub at: UnixMillis,
    /// The line of CLIENT LIST of whoever tried last.
    pub client_info: String,
}

/// The log, as all threads see it.
#[derive(Debug, Default)]
pub struct AuthLog {
    entries: Mutex<VecDeque<Failure>>,
}

impl AuthLog {
    /// An attempt failed.
    pub fn add(&self, user: &[u8], client_info: &str, at: UnixMillis) {
        let user = user.get(..NAME_BYTES_MAX).unwrap_or(user);
        let client_info = client_info.to_owned();
        let mut entries = self.lock();
        let is_same =
            |entry: &Failure| entry.user == user && at.0.saturating_sub(entry.at.0) < MERGED_MS;
        let mut failure = Failure { count: 1, user: user.to_vec(), at, client_info };
        if let Some(same) = entries.iter().position(is_same)
            && let Some(before) = entries.remove(same)
        {
            failure.count = before.count + 1;
        }
        entries.push_front(failure);
        entries.truncate(LEN_MAX);
    }

    /// The newest entries, newest first.
    pub fn newest(&self, count: usize) -> Vec<Failure> {
        self.lock().iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Failure>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_goes_on_failing_has_one_entry_and_there_are_only_so_many() {
        let log = AuthLog::default();
        log.add(b"a", "id=1", UnixMillis(0));
        log.add(b"b", "id=2", UnixMillis(10));
        log.add(b"a", "id=3", UnixMillis(20));
        let shown: Vec<_> =
            log.newest(9).into_iter().map(|entry| (entry.user, entry.count)).collect();
        assert_eq!(shown, [(b"a".to_vec(), 2), (b"b".to_vec(), 1)]);
        log.add(b"a", "id=3", UnixMillis(20 + MERGED_MS));
        assert_eq!(log.newest(9).len(), 3);
        (0..200_u32).for_each(|at| log.add(&at.to_be_bytes(), "", UnixMillis(1)));
        assert_eq!(log.newest(usize::MAX).len(), LEN_MAX);
        log.add(&[b'x'; 1000], "", UnixMillis(1));
        assert_eq!(log.newest(1)[0].user.len(), NAME_BYTES_MAX);
    }
}
