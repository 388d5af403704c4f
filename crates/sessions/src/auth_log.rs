//! ACL LOG: failed logins and refused commands, keys and channels, newest first.
//!
//! # Invariants
//! A1: at most [`LEN_MAX`] entries, with names cut, whatever clients send.
//! A2: no entry contains a password.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::UnixMillis;
use budget::{BufferBudget, Kind, Reservation};

/// The maximum number of entries, as Redis's `acllog-max-len`.
const LEN_MAX: usize = 128;

/// The kept length of a user's name, and of a key's.
const NAME_BYTES_MAX: usize = 128;

/// The same failure within this time shares one entry, as in Redis.
const MERGED_MS: u64 = 60_000;

/// The number of newest entries that a failure is compared with.
const COMPARED: usize = 10;

/// The right that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// To log in.
    Auth,
    /// To run a command.
    Command,
    /// To use a key.
    Key,
}

impl Reason {
    /// Its word in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
        }
    }
}

/// An attempt of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The right that was refused.
    pub reason: Reason,
    /// Between MULTI and EXEC.
    pub is_in_multi: bool,
    /// The command's name, or the key.
    pub object: Vec<u8>,
    /// The user's name.
    pub user: Vec<u8>,
}

/// Failed attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of attempts.
    pub count: u64,
    /// The attempt.
    pub attempt: Attempt,
    /// The time of the last one.
    pub at: UnixMillis,
    /// The line of CLIENT LIST of the client that tried last.
    pub client_info: String,
}

/// The kept length of the line of CLIENT LIST: names of clients may be long.
const CLIENT_BYTES_MAX: usize = 768;

/// The maximum memory of an entry.
const ENTRY_BYTES_MAX: usize = size_of::<Failure>() + 2 * NAME_BYTES_MAX + CLIENT_BYTES_MAX;

/// The log, as all threads see it.
#[derive(Debug)]
pub struct AuthLog {
    entries: Mutex<VecDeque<Failure>>,
    /// The memory of all entries (A1).
    _booked: Option<Reservation>,
}

impl AuthLog {
    /// An empty one, its memory booked.
    pub fn new(budget: &Arc<BufferBudget>) -> AuthLog {
        let all_bytes = (LEN_MAX * ENTRY_BYTES_MAX) as u64;
        let booked = Reservation::try_new(budget, Kind::Acl, all_bytes);
        debug_assert!(booked.is_some(), "the least client buffers have room for it");
        AuthLog { entries: Mutex::default(), _booked: booked }
    }

    /// Adds a failed attempt.
    pub fn add(&self, mut attempt: Attempt, client_info: &str, at: UnixMillis) {
        attempt.user.truncate(NAME_BYTES_MAX);
        attempt.object.truncate(NAME_BYTES_MAX);
        attempt.user.shrink_to_fit();
        attempt.object.shrink_to_fit();
        let client_info = client_info[..client_info.floor_char_boundary(CLIENT_BYTES_MAX)].into();
        let mut failure = Failure { count: 1, attempt, at, client_info };
        let mut entries = self.lock();
        let is_same = |entry: &Failure| {
            entry.attempt == failure.attempt && at.0.saturating_sub(entry.at.0) < MERGED_MS
        };
        if let Some(same) = entries.iter().take(COMPARED).position(is_same)
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

    /// Removes all entries.
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

    fn login(user: &[u8]) -> Attempt {
        let (object, user) = (b"AUTH".to_vec(), user.to_vec());
        Attempt { reason: Reason::Auth, is_in_multi: false, object, user }
    }

    #[test]
    fn a_user_that_goes_on_failing_has_one_entry_and_there_are_only_so_many() {
        let log = AuthLog::new(&Arc::new(BufferBudget::new(8 << 20)));
        log.add(login(b"a"), "id=1", UnixMillis(0));
        log.add(login(b"b"), "id=2", UnixMillis(10));
        log.add(login(b"a"), "id=3", UnixMillis(20));
        let shown: Vec<_> =
            log.newest(9).into_iter().map(|entry| (entry.attempt.user, entry.count)).collect();
        assert_eq!(shown, [(b"a".to_vec(), 2), (b"b".to_vec(), 1)]);
        log.add(login(b"a"), "id=3", UnixMillis(20 + MERGED_MS));
        assert_eq!(log.newest(9).len(), 3);
        (0..200_u32).for_each(|at| log.add(login(&at.to_be_bytes()), "", UnixMillis(1)));
        assert_eq!(log.newest(usize::MAX).len(), LEN_MAX);
        log.add(login(&[b'x'; 1000]), "", UnixMillis(1));
        assert_eq!(log.newest(1)[0].attempt.user.len(), NAME_BYTES_MAX);
    }

    #[test]
    fn what_differs_in_anything_has_an_entry_of_its_own() {
        let log = AuthLog::new(&Arc::new(BufferBudget::new(8 << 20)));
        let attempt = login(b"a");
        log.add(attempt.clone(), "", UnixMillis(0));
        log.add(Attempt { is_in_multi: true, ..attempt.clone() }, "", UnixMillis(0));
        log.add(Attempt { reason: Reason::Key, ..attempt.clone() }, "", UnixMillis(0));
        log.add(Attempt { object: b"k".to_vec(), ..attempt }, "", UnixMillis(0));
        assert!(log.newest(9).iter().all(|entry| entry.count == 1));
        assert_eq!(log.newest(9).len(), 4);
    }
}
