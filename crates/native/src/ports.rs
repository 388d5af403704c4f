//! All datagram ports of one worker, whatever their transports.

use std::os::fd::BorrowedFd;

use landing::udp::Udp;
use landing::uring::UringUdp;
use runtime::core::Core;

use super::forward::ForwardedBatch;
use super::frame_handler::{FrameHandler, Service};
use super::port::Port;

/// A port of some transport.
pub enum AnyPort {
    /// `recvmmsg` on a socket.
    Recvmmsg(Box<Port<Udp>>),
    /// io_uring on a socket.
    IoUring(Box<Port<UringUdp>>),
    /// AF_XDP on a device.
    #[cfg(feature = "xdp")]
    Xdp(Box<Port<landing::xdp::Xdp>>),
}

/// Calls the same method on a port of any transport; the choice is made once a round.
macro_rules! with_port {
    ($any:expr, $port:ident => $body:expr) => {
        match $any {
            AnyPort::Recvmmsg($port) => $body,
            AnyPort::IoUring($port) => $body,
            #[cfg(feature = "xdp")]
            AnyPort::Xdp($port) => $body,
        }
    };
}

impl AnyPort {
    /// The transport's name, as in the setting.
    pub fn name(&self) -> &'static str {
        match self {
            AnyPort::Recvmmsg(_) => "recvmmsg",
            AnyPort::IoUring(_) => "io-uring",
            #[cfg(feature = "xdp")]
            AnyPort::Xdp(_) => "xdp",
        }
    }
}

/// The ports of one worker.
pub struct Ports(Vec<AnyPort>);

impl Ports {
    /// Collects these ports.
    pub fn new(ports: Vec<AnyPort>) -> Ports {
        Ports(ports)
    }

    /// The descriptors for a poller, by position.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|any| with_port!(any, port => port.as_fd()))
    }

    /// Serves the datagrams that arrived at one port. Returns whether there were any.
    pub fn serve(
        &mut self,
        index: usize,
        frame_handler: &mut FrameHandler,
        service: &mut Service<'_>,
    ) -> bool {
        let Some(any) = self.0.get_mut(index) else { return false };
        let has_served = with_port!(any, port => port.serve(frame_handler, service));
        if has_served {
            self.publish_counts(service.core);
        }
        has_served
    }

    /// Answers frames at one port busy while the kernel's queue is too long.
    pub fn shed(
        &mut self,
        index: usize,
        frame_handler: &mut FrameHandler,
        service: &mut Service<'_>,
    ) {
        if let Some(any) = self.0.get_mut(index) {
            with_port!(any, port => port.shed(frame_handler, service));
        }
    }

    /// Queues the replies to what other workers have executed.
    pub fn send(&mut self, index: usize, batch: &ForwardedBatch, core: &Core) {
        let Some(any) = self.0.get_mut(index) else { return };
        with_port!(any, port => batch.send(&mut port.outlet(), core.counters()));
    }

    /// The next port that is due, whatever the poller reports.
    #[inline]
    pub fn next_due(&self, from: usize) -> Option<usize> {
        let is_due = |index: &usize| with_port!(&self.0[*index], port => port.is_due());
        (from..self.0.len()).find(is_due)
    }

    /// The number of ports.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Before the worker sleeps: whether all of them will wake it.
    pub fn may_sleep(&mut self) -> bool {
        self.0.iter_mut().all(|any| with_port!(any, port => port.may_sleep()))
    }

    /// Sends frames again for which the kernel had no room. Returns whether some are still unsent.
    #[inline]
    pub fn send_unsent(&mut self, core: &Core) -> bool {
        self.0.iter_mut().fold(false, |any_unsent, any| {
            with_port!(any, port => {
                if port.has_unsent() {
                    port.flush(core);
                }
                port.has_unsent() || any_unsent
            })
        })
    }

    /// The memory of their zones.
    pub fn zone_bytes(&self) -> u64 {
        self.0.iter().map(|any| with_port!(any, port => port.zone_bytes())).sum()
    }

    fn publish_counts(&self, core: &Core) {
        let (mut truncated, mut starved) = (0, 0);
        for any in &self.0 {
            let landed = with_port!(any, port => port.landed());
            truncated += landed.truncated;
            starved += landed.starved;
        }
        let native = &core.counters().native;
        native.truncated.set(truncated);
        native.starved.set(starved);
    }

    /// Publishes the ports' counters, now and then.
    pub fn keep_house(&self, core: &Core) {
        let drops = self.0.iter().map(|any| with_port!(any, port => port.kernel_drops())).sum();
        core.counters().native.kernel_drops.set(drops);
    }
}
