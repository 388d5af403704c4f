//! DEL, UNLINK, EXISTS and TOUCH of very many keys: some thousands of keys per turn (K28).
//!
//! Such a command is not atomic, with few keys or with many: each key is a request of its own.

use commands::reply::Shape;
use commands::reply::Tally;
use commands::rmw::Rmw;
use runtime::walks::Caller;
use runtime::walks::CountWalk;
use runtime::walks::{Slice, Source};
use store::request::Op;
use wire::resp::Keys;

use crate::gather::Gather;
use crate::resp::keys::refuse_long_keys;
use crate::resp::slices::begin_slices;

/// The number of keys that one slice looks up: half of a turn's work.
pub(super) const KEYS_PER_SLICE: usize = 8192;

/// One request per key, one sum.
pub(super) fn count_keys<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    keys: Keys<'a>,
    deletes: bool,
) {
    if refuse_long_keys(gather, caller, keys) {
        return;
    }
    // Under the locks of EXEC, and where reads are remembered, it runs in one step.
    let is_sliced =
        keys.len() > KEYS_PER_SLICE && !gather.core.is_tracked && gather.engine.session().is_some();
    if is_sliced {
        let keys = keys.arguments().0.place_in(gather.raw);
        let walk = CountWalk { keys, deletes, tally: Tally::default() };
        return begin_slices(gather, caller, Source::Count(walk));
    }
    let mut left = keys.len();
    for key in keys {
        left -= 1;
        gather.single(caller, key, op_of(deletes), Shape::Count { is_last: left == 0 });
    }
}

/// Counts the next keys; the last slice also replies.
pub(super) fn count_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut CountWalk,
    command: &[u8],
) -> Slice {
    if gather.routes() {
        let is_alone = gather.enter(caller.slot, false);
        debug_assert!(is_alone, "a command on several keys waits for those before it");
    }
    gather.flush();
    gather.core.tally = walk.tally;
    let mut keys = walk.keys.walk(command);
    let mut apart = gather.apart();
    for _ in 0..KEYS_PER_SLICE {
        let Some(key) = keys.next() else { break };
        let is_last = keys.len() == 0;
        apart.single(caller, key, op_of(walk.deletes), Shape::Count { is_last });
    }
    apart.flush();
    drop(apart);
    walk.tally = std::mem::take(&mut gather.core.tally);
    walk.keys = keys.place_in(command);
    if keys.len() == 0 { Slice::Last } else { Slice::More }
}

fn op_of<'k>(deletes: bool) -> Op<'k, Rmw<'k>> {
    if deletes { Op::Delete } else { Op::Get }
}
