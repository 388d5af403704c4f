//! The exchange of a memcached request that came by datagram, as plain data.

use landing::Sender;
use wire::memcached::binary::Head;
use wire::memcached::datagram::{self, HEADER_BYTES};

/// The maximum length of a reply, whatever the setting allows: a large item of memcached's default
/// size.
pub const REPLY_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// A request that came by datagram and waits for its reply.
#[derive(Debug)]
pub struct Exchange {
    /// Where the reply goes.
    pub to: Sender,
    /// The number that its datagrams carry.
    pub request_id: u16,
    /// The maximum length of its reply (I1).
    pub answer_bytes_max: usize,
    /// The head of a binary request, for an error.
    pub head: Option<Head>,
}

impl Exchange {
    /// Its sender.
    pub fn to(&self) -> Sender {
        self.to
    }

    /// Whether a reply of that length may be sent (I1).
    pub fn allows(&self, reply_bytes: usize) -> bool {
        let headers_bytes = datagram::count_of(reply_bytes) * HEADER_BYTES;
        reply_bytes <= REPLY_BYTES_MAX && reply_bytes + headers_bytes <= self.answer_bytes_max
    }
}
