//! Feeds a connection's input to its protocol.

use counters::Dialect;
use handlers::gather::{Fed, Gather};
use runtime::engine::Engine;

/// Takes as many commands from the front of `input` as may run now.
#[inline]
pub(super) fn feed<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    slot: usize,
    input: &'a [u8],
) -> Fed {
    match gather.core.connections[slot].client.protocol {
        Dialect::Resp => gather.feed_resp(slot, input),
        Dialect::Memcached => gather.feed_memcached(slot, input),
    }
}
