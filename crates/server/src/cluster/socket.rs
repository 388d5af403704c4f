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

/// The longest datagram that is sent.
pub(super) const DATAGRAM_BYTES_MAX: usize = landing::udp::DATAGRAM_BYTES_MAX;
/// Asked of the kernel for each direction: as much as it allows.
const KERNEL_BYTES: usize = 8 << 20;

/// A call that gave fewer datagrams has emptied the socket: each takes four messages, of which each
/// may be many datagrams.
pub(super) const FULL_COUNT: usize = 4;

/// See the module's page.
pub(super) struct Socket {
    udp: Udp,
    zone: Zone,
    counters: Counters,
}

/// What a socket has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that left.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Those that the socket did not take.
    pub lost: u64,
    /// Datagrams that came.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Those that are no peer's, or not for this incarnation of this node.
    pub refused: u64,
}

impl Counters {
    /// Both together.
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
        // Tags say whether a datagram is whole (U1 of cluster::datagram).
        let zone = Zone::ring(ZoneSize::default(), Box::new(|_| true))?;
        Ok(Socket { udp: Udp::from_socket(socket, config)?, zone, counters: Counters::default() })
    }

    /// To be polled.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }

    /// A datagram leaves with the next flush, or now if much waits.
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

    /// What was no peer's.
    pub fn count_refused(&mut self, count: u64) {
        self.counters.refused += count;
    }

    /// What waits leaves, as far as the kernel takes it; the rest with the next flush.
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

    /// Whether something waits for the kernel.
    pub fn has_unsent(&self) -> bool {
        self.udp.queued() > 0
    }

    /// What has come, one call's worth; how many datagrams.
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

    /// So far.
    pub fn counters(&self) -> Counters {
        Counters { lost: self.counters.lost + self.udp.send_counters().refused, ..self.counters }
    }
}
