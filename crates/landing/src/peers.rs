//! Connected sockets of many peers (K19), received from by the best mechanism of this kernel.
//!
//! io_uring's shared ring of buffers fills a log densely, and costs the receiver no more calls for
//! more peers. On kernels without it, `recvmmsg` does the same for one more call and one more gap
//! per socket (decision 0024). The code that opens a [`Peers`] logs [`Peers::way`] once.

use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;

use crate::udp::{SendCounters, UdpConfig, UdpLanes};
use crate::uring::{Unavailable, Uring, UringConfig};
use crate::{Lane, Notice, SendError, Sender, Transport, Zone};

/// The requested receive mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedWay {
    /// io_uring if the kernel supports it.
    #[default]
    Auto,
    /// `recvmmsg`, whatever the kernel supports.
    Recvmmsg,
}

/// How sockets of peers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// The requested mechanism.
    pub way: WantedWay,
    /// The configuration for io_uring.
    pub uring: UringConfig,
    /// The configuration for `recvmmsg`.
    pub udp: UdpConfig,
}

impl Default for PeersConfig {
    /// With `recvmmsg` each call gets one slot: the next begins directly after the filled bytes, so
    /// a log has no gaps, at no cost (docs/results/landing.md).
    fn default() -> PeersConfig {
        let udp = UdpConfig { burst_max: 1, ..UdpConfig::default() };
        PeersConfig { way: WantedWay::Auto, uring: UringConfig::default(), udp }
    }
}

/// The mechanism in use; its text is a line for the log.
#[derive(Debug)]
pub enum Way {
    /// io_uring.
    Uring,
    /// `recvmmsg`, as requested.
    Recvmmsg,
    /// `recvmmsg`, because this kernel has no incremental ring of buffers.
    Fallback(Unavailable),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Uring => f.write_str("receiving from peers by io_uring, one ring for all"),
            Way::Recvmmsg => f.write_str("receiving from peers by recvmmsg"),
            Way::Fallback(unavailable) => unavailable.fmt(f),
        }
    }
}

enum Transporter {
    Uring(Box<Uring>),
    Lanes(Box<UdpLanes>),
}

/// Sockets that are connected to one peer each and share a zone.
pub struct Peers {
    transporter: Transporter,
    way: Way,
}

impl Peers {
    /// A transport that fills this zone, without sockets yet.
    pub fn open(zone: &mut Zone, config: PeersConfig) -> io::Result<Peers> {
        let lanes = || UdpLanes::new(config.udp).map(|lanes| Transporter::Lanes(Box::new(lanes)));
        let (transporter, way) = match config.way {
            WantedWay::Recvmmsg => (lanes()?, Way::Recvmmsg),
            WantedWay::Auto => match Uring::new(zone, config.uring) {
                Ok(uring) => (Transporter::Uring(Box::new(uring)), Way::Uring),
                Err(unavailable) => (lanes()?, Way::Fallback(unavailable)),
            },
        };
        Ok(Peers { transporter, way })
    }

    /// The mechanism in use.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Receives from a UDP socket that is connected to one peer.
    pub fn add_datagrams(&mut self, socket: UdpSocket) -> io::Result<Lane> {
        match &mut self.transporter {
            Transporter::Uring(uring) => uring.add_datagrams(socket),
            Transporter::Lanes(lanes) => lanes.add_datagrams(socket),
        }
    }

    /// Stops receiving from a lane. Everything received from it has landed when `take_closed` names
    /// it; with `recvmmsg`, bytes still in its socket are dropped (K22).
    pub fn close(&mut self, lane: Lane) -> io::Result<()> {
        match &mut self.transporter {
            Transporter::Uring(uring) => uring.close(lane),
            Transporter::Lanes(lanes) => {
                lanes.close(lane);
                Ok(())
            }
        }
    }

    /// A closed lane. Its position is not given to another.
    pub fn take_closed(&mut self) -> Option<Lane> {
        match &mut self.transporter {
            Transporter::Uring(uring) => uring.take_closed(),
            Transporter::Lanes(lanes) => lanes.take_closed(),
        }
    }

    /// The counts of sent messages.
    pub fn send_counters(&self) -> SendCounters {
        match &self.transporter {
            Transporter::Uring(uring) => uring.send_counters(),
            Transporter::Lanes(lanes) => lanes.send_counters(),
        }
    }

    fn transport(&mut self) -> &mut dyn Transport {
        match &mut self.transporter {
            Transporter::Uring(uring) => &mut **uring,
            Transporter::Lanes(lanes) => &mut **lanes,
        }
    }

    fn transport_ref(&self) -> &dyn Transport {
        match &self.transporter {
            Transporter::Uring(uring) => &**uring,
            Transporter::Lanes(lanes) => &**lanes,
        }
    }
}

impl Transport for Peers {
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize> {
        self.transport().receive(zone)
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError> {
        self.transport().reserve(to, bytes_max)
    }

    fn commit(&mut self, len_bytes: usize) {
        self.transport().commit(len_bytes);
    }

    fn flush(&mut self) -> io::Result<usize> {
        self.transport().flush()
    }

    fn queued(&self) -> usize {
        self.transport_ref().queued()
    }

    fn frame_bytes_max(&self) -> usize {
        self.transport_ref().frame_bytes_max()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport_ref().as_fd()
    }

    fn may_sleep(&mut self) -> bool {
        self.transport().may_sleep()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.transport().take_notice()
    }
}
