//! A UDP socket of peers: many datagrams per system call, in both directions.
//!
//! ```text
//!  queue ─▶ frames that wait ─▶ flush: sendmmsg, equal ones to one peer joined (GSO)
//!  receive: recvmmsg into a zone, joined ones cut (GRO) ─▶ each datagram, its sender
//! ```
//!
//! # Limits
//! A datagram that the socket does not take is lost, as on any network; its sender sends it again.

use std::io;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;

use landing::udp::{Udp, UdpConfig};
use landing::{Sender, Transport, Zone, ZoneSize};

/// The longest datagram to send.
pub const DATAGRAM_BYTES_MAX: usize = landing::udp::DATAGRAM_BYTES_MAX;
/// Kernel buffer requested for each direction; the kernel grants what it allows.
const KERNEL_BYTES: usize = 8 << 20;

/// A call that returned fewer datagrams has emptied the socket: each takes four messages, of which
/// each may be many datagrams.
pub const FULL_COUNT: usize = 4;

/// See the module's page.
pub struct Socket {
    udp: Udp,
    zone: Zone,
    counters: Counters,
}

/// A socket's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that left.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that the socket did not take.
    pub lost: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams that came from no peer, or were not for this incarnation of this node.
    pub refused: u64,
}

impl Counters {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Counters) -> Counters {
        Counters {
            sent: self.sent + other.sent,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            lost: self.lost + other.lost,
            received: self.received + other.received,
            received_bytes: self.received_bytes + other.received_bytes,
            refused: self.refused + other.refused,
        }
    }
}

impl Socket {
    /// Over a socket that is bound.
    ///
    /// # Errors
    /// The system gives no memory for the zone.
    pub fn new(socket: UdpSocket) -> io::Result<Socket> {
        let config = UdpConfig {
            frame_bytes_max: DATAGRAM_BYTES_MAX,
            kernel_bytes: KERNEL_BYTES,
            ..UdpConfig::default()
        };
        // Tags show whether a datagram is whole (U1 of cluster::datagram).
        let zone = Zone::ring(ZoneSize::default(), Box::new(|_| true))?;
        Ok(Socket { udp: Udp::from_socket(socket, config)?, zone, counters: Counters::default() })
    }

    /// The descriptor for a poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }

    /// Queues a datagram; it leaves with the next flush, or now if many wait.
    pub fn queue(&mut self, to: Sender, bytes: &[u8]) {
        let mut queued = self.udp.queue(to, bytes);
        if queued.is_err() {
            self.flush();
            queued = self.udp.queue(to, bytes);
        }
        match queued {
            Ok(()) => {
                self.counters.sent += 1;
                self.counters.sent_bytes += bytes.len() as u64;
            }
            Err(_) => self.counters.lost += 1,
        }
    }

    /// Counts a message as lost because its receiver's address is unknown.
    pub fn count_lost(&mut self) {
        self.counters.lost += 1;
    }

    /// Counts datagrams that came from no peer.
    pub fn count_refused(&mut self, count: u64) {
        self.counters.refused += count;
    }

    /// Sends the waiting datagrams, as far as the kernel takes them; the rest leaves with the next
    /// flush.
    pub fn flush(&mut self) {
        if self.udp.queued() == 0 {
            return;
        }
        if let Err(error) = self.udp.flush() {
            tracing::debug!("datagrams of replication were not sent: {error}");
        }
        if let Some(notice) = self.udp.take_notice() {
            tracing::info!("replication: {notice}");
        }
    }

    /// Whether datagrams wait for the kernel.
    pub fn has_unsent(&self) -> bool {
        self.udp.queued() > 0
    }

    /// Receives one call's worth of datagrams; returns their number.
    pub fn receive(&mut self, mut take: impl FnMut(Sender, &[u8])) -> usize {
        match self.udp.receive(&mut self.zone) {
            Ok(0) => return 0,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!("datagrams of replication were not received: {error}");
                return 0;
            }
        }
        let mut count = 0;
        while let Some(completion) = self.zone.take() {
            count += 1;
            let bytes = self.zone.bytes(&completion);
            self.counters.received_bytes += bytes.len() as u64;
            take(completion.sender(), bytes);
        }
        self.zone.release_taken();
        self.counters.received += count;
        count as usize
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        Counters { lost: self.counters.lost + self.udp.send_counters().refused, ..self.counters }
    }
}
