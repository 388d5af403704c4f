//! Counters of memcached over UDP, besides those of its commands.

use super::{Cell, WorkerCounters};

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

/// The counters summed over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpTotals {
    /// Datagrams that arrived.
    pub datagrams_in: u64,
    /// Datagrams of replies.
    pub datagrams_out: u64,
    /// Datagrams that were dropped, in the order of [`UdpDrop::ALL`].
    pub drops: [u64; UdpDrop::ALL.len()],
    /// Replies that were longer than their request allows.
    pub too_long: u64,
    /// Replies without room on their way out.
    pub lost_replies: u64,
    /// Datagrams that the kernel dropped.
    pub kernel_drops: u64,
}

impl UdpTotals {
    /// Of all workers.
    pub(super) fn sum<'a>(workers: impl Iterator<Item = &'a WorkerCounters> + Clone) -> UdpTotals {
        let sum = |pick: fn(&UdpCells) -> &Cell| {
            workers.clone().map(|worker| pick(&worker.udp).get()).sum::<u64>()
        };
        UdpTotals {
            datagrams_in: sum(|udp| &udp.datagrams_in),
            datagrams_out: sum(|udp| &udp.datagrams_out),
            drops: std::array::from_fn(|reason| {
                workers.clone().map(|worker| worker.udp.drops[reason].get()).sum()
            }),
            too_long: sum(|udp| &udp.too_long),
            lost_replies: sum(|udp| &udp.lost_replies),
            kernel_drops: sum(|udp| &udp.kernel_drops),
        }
    }
}
