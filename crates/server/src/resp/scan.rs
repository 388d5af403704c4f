//! Commands on the whole keyspace: KEYS, SCAN, RANDOMKEY, DBSIZE, FLUSHALL.

use store::Session;
use wire::resp::{Encoder, ErrorReply, Protocol, ScanRequest, glob_matches};

use super::Caller;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::shared::random_u64;

/// Items that KEYS visits between two quiescent points.
const KEYS_STEP: usize = 1024;

/// Most items that one SCAN visits, whatever COUNT says.
const SCAN_COUNT_MAX: u64 = 100_000;

/// Calls of the store that one SCAN makes while it meets too few items. Each looks at a bounded
/// part of the index, about a quarter of a millisecond; an almost empty server has a large index.
const SCAN_STEPS_MAX: usize = 8;

/// KEYS may take this part of the client buffers.
const KEYS_BUFFER_PART: u64 = 4;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// KEYS.
    pub(super) fn keys(&mut self, caller: Caller, pattern: &'a [u8]) {
        let bytes_max = self.core.shared.buffer_budget().limit_bytes() / KEYS_BUFFER_PART;
        let (mut names, mut name_count, mut is_too_long) = (Vec::new(), 0, false);
        let now = self.core.now;
        self.with_session(caller, |session| {
            let mut cursor = 0;
            loop {
                let next = session.scan(now, cursor, KEYS_STEP, |item| {
                    if glob_matches(pattern, item.key) {
                        Encoder::new(&mut names, Protocol::Resp2).bulk(item.key);
                        name_count += 1;
                    }
                });
                // A cursor that was given a moment ago is known.
                cursor = next.unwrap_or(0);
                is_too_long = names.len() as u64 > bytes_max;
                if cursor == 0 || is_too_long {
                    break;
                }
            }
        });
        if is_too_long {
            let text = "too many keys for the client buffers: use SCAN instead of KEYS";
            return self.fail(caller, &ErrorReply::Other(text));
        }
        self.say(caller, |encoder| {
            encoder.array_header(name_count);
            encoder.out().extend_from_slice(&names);
        });
    }

    /// SCAN.
    pub(super) fn scan(&mut self, caller: Caller, request: &ScanRequest<'a>) {
        let is_other_type =
            request.type_name.is_some_and(|name| !name.eq_ignore_ascii_case(b"string"));
        let matches = |key: &[u8]| {
            !is_other_type && request.pattern.is_none_or(|pattern| glob_matches(pattern, key))
        };
        let (mut names, mut name_count, mut next) = (Vec::new(), 0, 0);
        let count = request.count.clamp(1, SCAN_COUNT_MAX) as usize;
        let now = self.core.now;
        let (mut visited, mut is_unknown) = (0, false);
        self.with_session(caller, |session| {
            next = request.cursor;
            for _ in 0..SCAN_STEPS_MAX {
                let step = session.scan(now, next, count - visited, |item| {
                    visited += 1;
                    if matches(item.key) {
                        Encoder::new(&mut names, Protocol::Resp2).bulk(item.key);
                        name_count += 1;
                    }
                });
                is_unknown = step.is_err();
                next = step.unwrap_or(0);
                if next == 0 || visited >= count {
                    break;
                }
            }
        });
        if is_unknown {
            return self.fail(caller, &ErrorReply::InvalidCursor);
        }
        self.say(caller, |encoder| {
            encoder.array_header(2);
            encoder.bulk(itoa::Buffer::new().format(next).as_bytes());
            encoder.array_header(name_count);
            encoder.out().extend_from_slice(&names);
        });
    }

    /// RANDOMKEY.
    pub(super) fn random_key(&mut self, caller: Caller) {
        let (mut name, now) = (None, self.core.now);
        self.with_session(caller, |session| {
            session.random_item(now, random_u64(), |item| name = Some(item.key.to_vec()));
        });
        self.say(caller, |encoder| match &name {
            Some(name) => encoder.bulk(name),
            None => encoder.null(),
        });
    }

    /// DBSIZE.
    pub(super) fn database_size(&mut self, caller: Caller) {
        self.settle(caller.slot);
        let item_count = self.core.shared.store_stats().items;
        self.say(caller, |encoder| {
            encoder.integer(i64::try_from(item_count).unwrap_or(i64::MAX));
        });
    }

    /// FLUSHALL and FLUSHDB; ASYNC takes effect at once too.
    pub(super) fn flush_all(&mut self, caller: Caller) {
        self.with_session(caller, Session::flush);
        self.say(caller, |encoder| encoder.ok());
    }

    /// What was asked before comes first. Inside EXEC these commands run between the others, with
    /// no keys locked, so that there always is a session.
    fn with_session(&mut self, caller: Caller, work: impl FnOnce(&mut Session)) {
        self.settle(caller.slot);
        let session = self.engine.session();
        debug_assert!(session.is_some(), "commands on all keys never run under locks");
        if let Some(session) = session {
            work(session);
        }
    }
}
