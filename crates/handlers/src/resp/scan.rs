//! Commands on the whole keyspace: SCAN, RANDOMKEY, DBSIZE, FLUSHALL.

use std::sync::Arc;

use base::UnixMillis;
use commands::work::Work;
use host::process::random_u64;
use replication::cluster::View;
use replication::cluster::is_own;
use replication::replicate::GroupAnswer;
use runtime::walks::Caller;
use store::{IndexKind, Item, Session};
use wire::resp::{Encoder, ErrorReply, Glob, PatternError, Protocol, ScanRequest, glob_prefix};

use crate::gather::Gather;

/// The number of items that DBSIZE visits between two quiescent points.
const COUNT_STEP: usize = 1024;

/// The maximum number of items that one SCAN visits, whatever COUNT says: those of a turn.
const SCAN_COUNT_MAX: u64 = 16_384;

/// Bytes of names after which one SCAN visits no further bucket, whatever COUNT says: a key has up
/// to 64 KiB.
const SCAN_NAMES_BYTES_MAX: usize = 128 << 10;

/// The maximum number of calls of the store that one SCAN makes while it meets too few items. Each
/// looks at a bounded part of the index, about a quarter of a millisecond; an almost empty server
/// may have a large index.
const SCAN_STEPS_MAX: usize = 8;

/// Above so many items, DBSIZE of a node with copies of other nodes' keys is an estimate.
const COUNTED_ITEMS_MAX: u64 = 1 << 18;
/// The number of items that the estimate samples.
const SAMPLED_ITEMS: u64 = 1 << 14;

/// The number of attempts of RANDOMKEY to find a key of this node's own.
const RANDOM_TRIES_MAX: usize = 256;

/// The error of a node of a cluster that does not know whether all items are gone.
const UNCERTAIN_FLUSH: ErrorReply<'static> =
    ErrorReply::Other("not all shards of this node are flushed: ask again");

/// Names that match, encoded.
struct Names {
    glob: Glob,
    cluster: Option<Arc<View>>,
    bytes: Vec<u8>,
    count: usize,
    /// Steps of the pattern since they were last taken.
    steps: u64,
}

impl Names {
    fn new(pattern: &[u8], cluster: Option<Arc<View>>) -> Result<Names, PatternError> {
        let glob = Glob::new(pattern)?;
        Ok(Names { glob, cluster, bytes: Vec::new(), count: 0, steps: 0 })
    }

    fn see(&mut self, item: &Item<'_>) {
        let key = item.key;
        if self.glob.matches(key, &mut self.steps) && is_own(self.cluster.as_deref(), item) {
            // Bulk strings are the same in both versions.
            Encoder::new(&mut self.bytes, Protocol::Resp2).bulk(key);
            self.count += 1;
        }
    }

    /// Whether one SCAN that has visited so many items goes no further.
    fn is_enough(&self, visited: usize) -> bool {
        self.bytes.len() >= SCAN_NAMES_BYTES_MAX || self.cost(visited).is_spent()
    }

    /// The cost of looking at so many items.
    fn cost(&self, visited: usize) -> Work {
        let mut cost = Work::visited(visited);
        cost += Work::steps(self.steps);
        cost
    }

    fn encode(&self, encoder: &mut Encoder<'_>) {
        encoder.array_header(self.count);
        encoder.out().extend_from_slice(&self.bytes);
    }
}

/// The number of items that are this node's own: counted, or estimated if there are very many.
fn own_items(session: &mut Session, now: UnixMillis, view: &View, item_count: u64) -> u64 {
    let mut own_count = 0;
    let mut see = |item: &Item<'_>| own_count += u64::from(is_own(Some(view), item));
    if item_count > COUNTED_ITEMS_MAX {
        for _ in 0..SAMPLED_ITEMS {
            session.random_item(now, random_u64(), u64::MAX, |item| see(item));
        }
        return (item_count as f64 * own_count as f64 / SAMPLED_ITEMS as f64) as u64;
    }
    let mut cursor = 0;
    loop {
        // The cursor of the previous step is known.
        cursor = session.scan(now, cursor, COUNT_STEP, |item| see(item)).unwrap_or(0);
        if cursor == 0 {
            return own_count;
        }
    }
}

/// SCAN. An ordered index is walked only where keys start like the pattern.
pub(super) fn scan<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, request: &ScanRequest<'a>) {
    let is_other_type = request.type_name.is_some_and(|name| !name.eq_ignore_ascii_case(b"string"));
    let pattern = request.pattern.unwrap_or(b"*");
    let mut names = match Names::new(pattern, gather.core.cluster.clone()) {
        Ok(names) => names,
        Err(error) => return gather.fail(caller, &ErrorReply::Other(error.text())),
    };
    let prefix = match gather.core.shared.config().index {
        IndexKind::Tree => glob_prefix(pattern),
        IndexKind::Hash => &[],
    };
    let count = request.count.clamp(1, SCAN_COUNT_MAX) as usize;
    let now = gather.core.now;
    let (mut next, mut visited, mut is_unknown) = (request.cursor, 0, false);
    with_session(gather, caller, |session| {
        for _ in 0..SCAN_STEPS_MAX {
            let step = session.scan_while(now, next, prefix, count - visited, |item| {
                visited += 1;
                if !is_other_type {
                    names.see(item);
                }
                !names.is_enough(visited)
            });
            is_unknown = step.is_err();
            next = step.unwrap_or(0);
            if next == 0 || visited >= count || names.is_enough(visited) {
                break;
            }
        }
    });
    gather.core.charge(names.cost(visited));
    if is_unknown {
        return gather.fail(caller, &ErrorReply::InvalidCursor);
    }
    gather.say(caller, |encoder| {
        encoder.array_header(2);
        encoder.bulk(itoa::Buffer::new().format(next).as_bytes());
        names.encode(encoder);
    });
}

/// RANDOMKEY.
pub(super) fn random_key(gather: &mut Gather<'_, '_>, caller: Caller) {
    let (mut name, now) = (None, gather.core.now);
    let cluster = gather.core.cluster.clone();
    let mut visited = 0;
    with_session(gather, caller, |session| {
        for _ in 0..RANDOM_TRIES_MAX {
            let drawn = session.random_item(now, random_u64(), u64::MAX, |item| {
                name = is_own(cluster.as_deref(), item).then(|| item.key.to_vec());
            });
            visited += drawn.visited;
            if name.is_some() || !drawn.is_found {
                break;
            }
        }
    });
    gather.core.charge(Work::buckets(visited));
    gather.say(caller, |encoder| match &name {
        Some(name) => encoder.bulk(name),
        None => encoder.null(),
    });
}

/// DBSIZE.
pub(super) fn database_size(gather: &mut Gather<'_, '_>, caller: Caller) {
    gather.settle(caller.slot);
    let mut item_count = gather.core.shared.store().stats().items;
    if let Some(view) = gather.core.cluster.clone() {
        let now = gather.core.now;
        with_session(gather, caller, |session| {
            item_count = own_items(session, now, &view, item_count)
        });
    }
    gather.say(caller, |encoder| {
        encoder.integer(i64::try_from(item_count).unwrap_or(i64::MAX));
    });
}

/// FLUSHALL and FLUSHDB; ASYNC takes effect at once too. In a cluster it flushes the shards
/// that this node serves, as in Redis Cluster.
pub(super) fn flush_all(gather: &mut Gather<'_, '_>, caller: Caller, is_one_step: bool) {
    gather.settle(caller.slot);
    gather.core.connections[caller.slot].has_written = true;
    match gather.engine.flush_shards(false) {
        None => {
            let is_done = match is_one_step {
                true => gather.engine.session().is_some_and(Session::flush),
                false => gather.flush_store(caller.slot),
            };
            if !is_done {
                return gather.fail(caller, &ErrorReply::LogFailed);
            }
        }
        Some(GroupAnswer::Good) => {}
        Some(GroupAnswer::TooFewCopies) => return gather.fail(caller, &ErrorReply::NoReplicas),
        Some(GroupAnswer::Bad) => return gather.fail(caller, &UNCERTAIN_FLUSH),
    }
    gather.say(caller, |encoder| encoder.ok());
}

/// Runs earlier commands first. Inside EXEC these commands run between the others, with no keys
/// locked, so that there always is a session.
pub(super) fn with_session(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    work: impl FnOnce(&mut Session),
) {
    gather.settle(caller.slot);
    let session = gather.engine.session();
    debug_assert!(session.is_some(), "commands on all keys never run under locks");
    if let Some(session) = session {
        work(session);
    }
}
