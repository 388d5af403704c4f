//! Counters of memcached over UDP, besides those of its commands.

use super::Cell;
use super::totals::totals;

/// One worker's counters.
#[derive(Debug, Default)]
pub struct UdpCells {
    /// Datagrams that arrived, including dropped ones.
    pub datagrams_in: Cell,
    /// Datagrams of replies.
    pub datagrams_out: Cell,
    /// Datagrams that were dropped, by [`UdpDrop`].
    drops: [Cell; UdpDrop::ALL.len()],
    /// Replies that were longer than their request allows.
    pub too_long: Cell,
    /// Replies without room on their way out.
    pub lost_replies: Cell,
    /// Datagrams that the kernel dropped because no worker took them in time.
    pub kernel_drops: Cell,
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpDrop {
    /// No header, or nothing after it.
    Short,
    /// It begins like a reply.
    Reply,
    /// It is one of several that make up a request.
    Several,
    /// Clients have to log in, which is impossible by datagram.
    Auth,
    /// It comes from beyond loopback, while no password is set.
    Protected,
    /// There is no room for one more request.
    Busy,
}

impl UdpDrop {
    /// All, in the order of their counters.
    pub const ALL: [UdpDrop; 6] = [
        UdpDrop::Short,
        UdpDrop::Reply,
        UdpDrop::Several,
        UdpDrop::Auth,
        UdpDrop::Protected,
        UdpDrop::Busy,
    ];

    /// As in metric labels.
    pub fn name(self) -> &'static str {
        match self {
            UdpDrop::Short => "short",
            UdpDrop::Reply => "reply",
            UdpDrop::Several => "several",
            UdpDrop::Auth => "auth",
            UdpDrop::Protected => "protected",
            UdpDrop::Busy => "busy",
        }
    }
}

impl UdpCells {
    /// Counts a datagram that is dropped.
    pub fn drop_datagram(&self, reason: UdpDrop) {
        self.drops[reason as usize].add(1);
    }
}

totals! {
    /// The counters summed over the workers.
    pub struct UdpTotals of UdpCells;
    counters {
        /// Datagrams that arrived.
        datagrams_in = datagrams_in,
        /// Datagrams of replies.
        datagrams_out = datagrams_out,
        /// Replies that were longer than their request allows.
        too_long = too_long,
        /// Replies without room on their way out.
        lost_replies = lost_replies,
        /// Datagrams that the kernel dropped.
        kernel_drops = kernel_drops,
    }
    arrays {
        /// Datagrams that were dropped, in the order of [`UdpDrop::ALL`].
        drops = drops: UdpDrop::ALL.len(),
    }
    others {}
}
