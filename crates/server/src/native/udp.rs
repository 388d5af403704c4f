//! A worker's UDP socket: one of a group that shares the native port.
//!
//! ```text
//!  socket ──recvmmsg, GRO──▶ zone ──▶ desk ──▶ send queue ──sendmmsg, GSO──▶ socket
//! ```

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use landing::udp::{Udp, UdpConfig};
use landing::{Completion, SendError, Sender, Transport, Zone, ZoneSize};
use wire::native::{Frame, FrameError};

use super::desk::{Desk, Service};
use super::outgoing::Outlet;
use crate::StartError;
use crate::core::Core;
use crate::counters::WorkerCounters;
use crate::engine::Engine;

/// The longest datagram, to receive and to send.
const DATAGRAM_MAX_BYTES: usize = 16 << 10;

/// Receives of one round at most: connections have their turn too. Level-triggered: what is left
/// is reported again.
const BURSTS_MAX: usize = 8;

/// Opens the group, one socket for each worker.
pub fn open_group(
    address: SocketAddr,
    worker_count: usize,
) -> Result<(SocketAddr, Vec<UdpSocket>), StartError> {
    let setting = "native";
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address, setting },
        _ => StartError::Listen { address, setting, source },
    };
    // A group would let a second server of the same user take part of our datagrams without a
    // word: so the address is first bound alone, as for the other listeners.
    if address.port() != 0 {
        UdpSocket::bind(address).map_err(refused)?;
    }
    let count = u16::try_from(worker_count).unwrap_or(u16::MAX);
    let sockets = landing::steer::group(address, count).map_err(refused)?;
    let resolved = sockets.first().map_or(Ok(address), UdpSocket::local_addr).map_err(refused)?;
    Ok((resolved, sockets))
}

/// One worker's socket and the zone that its datagrams land in.
pub struct UdpPort {
    transport: Udp,
    zone: Zone,
    completions: Vec<Completion>,
}

impl UdpPort {
    /// A port on a socket of the group.
    pub fn new(socket: UdpSocket) -> io::Result<UdpPort> {
        let config = UdpConfig { frame_bytes_max: DATAGRAM_MAX_BYTES, ..UdpConfig::default() };
        let transport = Udp::from_socket(socket, config)?;
        let size = ZoneSize::default();
        let zone = Zone::ring(size, Box::new(is_whole))?;
        Ok(UdpPort { transport, zone, completions: Vec::with_capacity(size.completions_max) })
    }

    /// Receives, executes and answers. Says whether anything had arrived.
    pub fn serve<E: Engine>(&mut self, desk: &mut Desk, service: &mut Service<'_, E>) -> bool {
        let mut has_served = false;
        for _ in 0..BURSTS_MAX {
            match self.transport.receive(&mut self.zone) {
                Ok(1..) => {}
                // Nothing whole: the next round looks again.
                Ok(0) => break,
                Err(error) => {
                    tracing::error!("the native socket failed: {error}");
                    break;
                }
            }
            has_served = true;
            self.completions.clear();
            while let Some(completion) = self.zone.take() {
                self.completions.push(completion);
            }
            let zone = &self.zone;
            let arrivals = self
                .completions
                .iter()
                .map(|completion| (completion.sender(), zone.bytes(completion)));
            let mut outlet = UdpOutlet(&mut self.transport);
            desk.serve(service, arrivals, &mut outlet);
            self.zone.release_taken();
            self.flush(service.core);
        }
        if has_served {
            self.publish_counts(service.core);
        }
        has_served
    }

    /// Sends what is queued, as far as the kernel takes it.
    pub fn flush(&mut self, core: &Core) {
        // What the kernel does not take now leaves with the next round's replies.
        if let Err(error) = self.transport.flush() {
            core.counters().native.lost_replies.add(1);
            tracing::debug!("native replies were not sent: {error}");
        }
        if let Some(notice) = self.transport.take_notice() {
            tracing::info!("native: {notice}");
        }
    }

    fn publish_counts(&self, core: &Core) {
        let (landed, native) = (self.zone.counters(), &core.counters().native);
        native.truncated.set(landed.truncated);
        native.starved.set(landed.starved);
    }

    /// What is looked at now and then.
    pub fn keep_house(&self, core: &Core) {
        if let Ok(drops) = self.transport.kernel_drops() {
            core.counters().native.kernel_drops.set(drops);
        }
    }

    /// Whether replies wait for the kernel.
    pub fn has_unsent(&self) -> bool {
        self.transport.queued() > 0
    }

    /// To be watched by the worker's poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }

    /// The memory of the zone.
    pub fn zone_bytes(&self) -> u64 {
        let size = self.zone.size();
        (size.buffer_bytes * size.buffer_count) as u64
    }
}

/// K20: a datagram that ends at a buffer's end is held against the length that it states.
fn is_whole(bytes: &[u8]) -> bool {
    let cut = |error| matches!(error, FrameError::Truncated { .. } | FrameError::TooShort { .. });
    // Lengths are looked at before the tag, so that no key is needed.
    !Frame::parse(bytes, None).is_err_and(cut)
}

/// Queues frames at a socket; what it has no room for is lost, and its client asks again.
struct UdpOutlet<'t>(&'t mut Udp);

impl Outlet for UdpOutlet<'_> {
    fn frame_max_bytes(&self) -> usize {
        DATAGRAM_MAX_BYTES
    }

    #[inline]
    fn send(&mut self, to: Sender, frame: &[u8], counters: &WorkerCounters) {
        if self.0.queue(to, frame) == Err(SendError::Full) {
            // It fails for good only without a socket, which the next receive reports.
            let _ = self.0.flush();
            if self.0.queue(to, frame).is_err() {
                counters.native.lost_replies.add(1);
            }
        }
    }
}
