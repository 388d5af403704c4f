//! Feeds a connection's input to its protocol.

use counters::Dialect;
use handlers::gather::{Fed, Gather};
use handlers::memcached::feed_memcached;
use handlers::resp::feed_resp;

/// Takes as many commands from the front of `input` as may run now.
#[inline]
pub(super) fn feed<'a>(gather: &mut Gather<'_, 'a>, slot: usize, input: &'a [u8]) -> Fed {
    match gather.core.connections[slot].client.protocol {
        Dialect::Resp => feed_resp(gather, slot, input),
        Dialect::Memcached => feed_memcached(gather, slot, input),
    }
}
