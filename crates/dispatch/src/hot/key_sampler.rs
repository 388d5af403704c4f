//! The key sampler of a worker that executes the requests that it receives: now and then it reads
//! the bytes of a gathering again.
//!
//! ```text
//!  housekeeping, every 16 ms ─ is_due ─▶ behind the next gathering: 64 keys at most ─▶ manager
//! ```
//!
//! # Invariants
//! G1: sampling costs a request nothing, and costs a gathering that is not sampled one load.
//! G2: which gathering is sampled does not depend on its contents, and the start within it is
//!     random, so that keys are sampled as often as they are requested.
//!
//! # Limits
//! Commands of native clients and of memcached's binary protocol are not sampled. Of a gathering of
//! more than 64 keys only a part is seen, so it counts for less than it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::WorkerId;
use base::hash::{KeyHasher, mix};
use counters::Dialect;
use wire::Parsed;
use wire::resp::asked_command;
use wire::{memcached, resp};

use super::{HotKeys, HotTracker};

/// Time between two looks: 64 keys take some 10 us here and as much at the manager, so that looking
/// costs a thousandth at most.
const EVERY: Duration = Duration::from_millis(16);

/// Keys of one look, at most.
const KEYS_MAX: usize = 64;

/// A worker's side of the samples.
pub struct KeySampler {
    tracker: HotTracker,
    hasher: KeyHasher,
    looked_at: Instant,
    looks: u64,
}

impl KeySampler {
    /// A worker's side.
    pub fn new(
        keys: &Arc<HotKeys>,
        hasher: KeyHasher,
        worker: WorkerId,
        now: Instant,
    ) -> KeySampler {
        let tracker = HotTracker::new(keys, worker.index());
        KeySampler { tracker, hasher, looked_at: now, looks: u64::from(worker.0) }
    }

    /// Whether the next gathering is to be sampled.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.looked_at) >= EVERY;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// Samples a gathering: the bytes that each connection sent and the server took.
    pub fn look<'b>(&mut self, taken: &[(Dialect, &'b [u8])]) {
        if taken.is_empty() {
            return;
        }
        self.looks += 1;
        let start = mix(self.looks) as usize % taken.len(); // G2.
        let mut keys: Vec<&'b [u8]> = Vec::with_capacity(KEYS_MAX);
        let in_turn = taken[start..].iter().chain(&taken[..start]);
        for (protocol, bytes) in in_turn {
            if keys.len() >= KEYS_MAX {
                break;
            }
            match protocol {
                Dialect::Resp => keys_of_resp(bytes, &mut keys),
                Dialect::Memcached => keys_of_memcached(bytes, &mut keys),
            }
        }
        for key in keys {
            self.tracker.note_chosen(self.hasher.hash(key), key);
        }
    }
}

/// The keys of whole commands, until there are enough.
fn keys_of_resp<'b>(mut bytes: &'b [u8], keys: &mut Vec<&'b [u8]>) {
    let limits = resp::Limits::new(usize::MAX);
    while !bytes.is_empty() && keys.len() < KEYS_MAX {
        let parsed = resp::Parser::default().parse(bytes, &limits);
        let Parsed::Done { value, consumed_bytes } = parsed else { return };
        bytes = &bytes[consumed_bytes..];
        let spec = asked_command(value.iter()).filter(|spec| spec.keys.first > 0);
        if let Some(spec) = spec.filter(|spec| spec.accepts_count(value.len())) {
            let room = KEYS_MAX - keys.len();
            keys.extend(spec.keys.of(value.iter()).take(room));
        }
    }
}

/// The same of text and meta commands.
fn keys_of_memcached<'b>(mut bytes: &'b [u8], keys: &mut Vec<&'b [u8]>) {
    use memcached::Command;
    let limits = memcached::Limits::new(usize::MAX);
    while !bytes.is_empty() && keys.len() < KEYS_MAX {
        let mut parser = memcached::Parser::default();
        let parsed = memcached::next_command(&mut parser, bytes, &limits);
        let Parsed::Done { value, consumed_bytes } = parsed else { return };
        bytes = &bytes[consumed_bytes..];
        let room = KEYS_MAX - keys.len();
        match value {
            Ok(Command::Get(retrieve) | Command::GetAndTouch { retrieve, .. }) => {
                keys.extend(retrieve.keys.take(room));
            }
            Ok(Command::Store(store)) => keys.push(store.key),
            Ok(Command::Delete(delete)) => keys.push(delete.key),
            Ok(Command::Arithmetic(arithmetic)) => keys.push(arithmetic.key),
            Ok(Command::Touch(touch)) => keys.push(touch.key),
            Ok(_) => {}
            // A data block may follow that is no command.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_what_clients_sent() {
        let mut keys = Vec::new();
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\nmget b c\r\n*1\r\n$3\r\nGET\r\nset d 1\r\n";
        keys_of_resp(bytes, &mut keys);
        assert_eq!(keys, [b"a", b"b", b"c", b"d"]);
        keys.clear();
        keys_of_memcached(b"get a b\r\nset c 0 0 1\r\nx\r\nincr d 1\r\ndelete e\r\n", &mut keys);
        assert_eq!(keys, [b"a", b"b", b"c", b"d", b"e"]);
    }

    #[test]
    fn no_more_keys_are_taken_than_there_is_room_for() {
        let mut keys = Vec::new();
        let many = format!("mget {}\r\n", "k ".repeat(200));
        keys_of_resp(many.as_bytes(), &mut keys);
        assert_eq!(keys.len(), KEYS_MAX);
        keys.truncate(KEYS_MAX - 1);
        keys_of_memcached(b"get a b c\r\n", &mut keys);
        assert_eq!(keys.len(), KEYS_MAX);
    }
}
