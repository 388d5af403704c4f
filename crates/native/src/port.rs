//! A datagram port of a worker: a transport, the zone that it fills, and the overload rule.
//!
//! ```text
//!  kernel's queue ──receive──▶ zone ──▶ FrameHandler ──▶ send queue ──flush──▶ clients
//!   │▒▒▒▒▒▒▒▒▒│▒▒▒▒▒▒│                       └─▶ busy, while the queue is too long (K18)
//!   0        1/2    3/4
//! ```
//!
//! A queue that is more than three quarters full, or that overflowed, cannot be served in time:
//! after its round's share of work the worker answers frames of requests with "busy", unexecuted,
//! until half of the queue is left. So an accepted request waits for half a queue at most, the
//! others are refused at once, and the worker never runs out of work because of it.

use std::io;
use std::os::fd::BorrowedFd;

use counters::WorkerCounters;
use landing::udp::{KernelQueue, Udp};
use landing::uring::UringUdp;
use landing::{Completion, SendError, Sender, Transport, Zone, ZoneSize};
use runtime::core::Core;
use wire::native::{Frame, FrameError};

use super::frame_handler::{FrameHandler, Service};
use super::outgoing::Outlet;

/// Receives per round, at most, so that connections have their turn too. The poller is
/// level-triggered: it reports the rest again.
const BURSTS_MAX: usize = 8;

/// Receives of one round that are answered busy, at most.
const SHED_BURSTS_MAX: usize = 64;

/// A transport for datagrams from any sender.
pub trait Source: Transport {
    /// The length of the kernel's queue, as far as the transport reports it.
    fn kernel_queue(&self) -> io::Result<KernelQueue>;
}

impl Source for Udp {
    fn kernel_queue(&self) -> io::Result<KernelQueue> {
        Udp::kernel_queue(self)
    }
}

impl Source for UringUdp {
    fn kernel_queue(&self) -> io::Result<KernelQueue> {
        UringUdp::kernel_queue(self)
    }
}

#[cfg(feature = "xdp")]
impl Source for landing::xdp::Xdp {
    /// Its rings do not report how full they are; dropped datagrams count.
    fn kernel_queue(&self) -> io::Result<KernelQueue> {
        Ok(KernelQueue { dropped: self.kernel_drops()?, ..KernelQueue::default() })
    }
}

/// Whether the kernel's queue is too long, with hysteresis.
#[derive(Clone, Copy, Debug, Default)]
struct Pressure {
    dropped_before: u64,
    is_high: bool,
}

impl Pressure {
    /// Takes up the kernel's report; returns whether frames are to be answered busy.
    fn update(&mut self, queue: &KernelQueue) -> bool {
        let has_dropped =
            queue.dropped > std::mem::replace(&mut self.dropped_before, queue.dropped);
        let is_above = |quarters: u64| queue.used_bytes * 4 > queue.max_bytes * quarters;
        self.is_high = has_dropped || is_above(if self.is_high { 2 } else { 3 });
        self.is_high
    }
}

/// One worker's transport and the zone that its datagrams land in.
pub struct Port<T> {
    transport: T,
    zone: Zone,
    completions: Vec<Completion>,
    pressure: Pressure,
    /// Whether it is to be served in the next round, whatever the poller reports.
    is_due: bool,
}

/// A zone for datagrams of native clients.
pub fn zone() -> io::Result<Zone> {
    Zone::ring(ZoneSize::default(), Box::new(is_whole))
}

/// K20: a datagram that ends at a buffer's end is compared with the length that it states.
fn is_whole(bytes: &[u8]) -> bool {
    let cut = |error| matches!(error, FrameError::Truncated { .. } | FrameError::TooShort { .. });
    // Lengths are checked before the tag, so no key is needed.
    !Frame::parse(bytes, None).is_err_and(cut)
}

impl<T: Source> Port<T> {
    /// A port on a transport, and the zone that it fills.
    pub fn new(transport: T, zone: Zone) -> Port<T> {
        let completions = Vec::with_capacity(zone.size().completions_max);
        // Some transports start with their first receive.
        Port { transport, zone, completions, pressure: Pressure::default(), is_due: true }
    }

    /// Receives, executes and answers. Returns whether any datagram had arrived.
    pub fn serve(&mut self, frame_handler: &mut FrameHandler, service: &mut Service<'_>) -> bool {
        let mut burst_count = 0;
        while burst_count < BURSTS_MAX && self.receive() {
            burst_count += 1;
            let Port { zone, completions, transport, .. } = self;
            frame_handler.serve(service, arrivals(zone, completions), &mut PortOutlet(transport));
            self.zone.release_taken();
            self.flush(service.core);
        }
        if burst_count == BURSTS_MAX {
            self.shed(frame_handler, service);
        }
        self.is_due = !self.transport.may_sleep();
        burst_count > 0
    }

    /// Answers frames busy while the kernel's queue is too long.
    #[cold]
    pub fn shed(&mut self, frame_handler: &mut FrameHandler, service: &mut Service<'_>) {
        for _ in 0..SHED_BURSTS_MAX {
            let queue = self.transport.kernel_queue();
            let is_high = queue.is_ok_and(|queue| self.pressure.update(&queue));
            if !is_high || !self.receive() {
                return;
            }
            let Port { zone, completions, transport, .. } = self;
            frame_handler.shed(service, arrivals(zone, completions), &mut PortOutlet(transport));
            self.zone.release_taken();
            self.flush(service.core);
        }
    }

    /// Receives a burst; returns whether there was any datagram.
    fn receive(&mut self) -> bool {
        match self.transport.receive(&mut self.zone) {
            // No whole datagram: the next round looks again.
            Ok(0) => return false,
            Ok(1..) => {}
            Err(error) => {
                tracing::error!("the native socket failed: {error}");
                return false;
            }
        }
        self.completions.clear();
        while let Some(completion) = self.zone.take() {
            self.completions.push(completion);
        }
        true
    }

    /// Sends the queued frames, as far as the kernel takes them.
    pub fn flush(&mut self, core: &Core) {
        // Frames that the kernel does not take now leave with the next round's replies.
        if let Err(error) = self.transport.flush() {
            core.counters().native.lost_replies.add(1);
            tracing::debug!("native replies were not sent: {error}");
        }
        if let Some(notice) = self.transport.take_notice() {
            tracing::info!("native: {notice}");
        }
    }

    /// The queue for frames that leave.
    pub fn outlet(&mut self) -> impl Outlet {
        PortOutlet(&mut self.transport)
    }

    /// Before the worker sleeps: whether the next arrival will wake it.
    pub fn may_sleep(&mut self) -> bool {
        self.is_due = !self.transport.may_sleep();
        !self.is_due
    }

    /// Whether the next round has to poll this port, whatever the poller reports.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether replies wait for the kernel.
    pub fn has_unsent(&self) -> bool {
        self.transport.queued() > 0
    }

    /// For the worker's poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }

    /// The counters of its zone.
    pub fn landed(&self) -> landing::Counters {
        self.zone.counters()
    }

    /// Datagrams that the kernel dropped; 0 if it does not report them.
    pub fn kernel_drops(&self) -> u64 {
        self.transport.kernel_queue().map_or(0, |queue| queue.dropped)
    }

    /// The memory of the zone.
    pub fn zone_bytes(&self) -> u64 {
        let size = self.zone.size();
        (size.buffer_bytes * size.buffer_count) as u64
    }
}

/// The datagrams that have landed and were taken.
fn arrivals<'z>(
    zone: &'z Zone,
    completions: &'z [Completion],
) -> impl Iterator<Item = (Sender, &'z [u8])> {
    completions.iter().map(|completion| (completion.sender(), zone.bytes(completion)))
}

/// Queues frames at a transport; a frame for which it has no room is lost, and its client asks
/// again.
struct PortOutlet<'t, T>(&'t mut T);

impl<T: Transport> Outlet for PortOutlet<'_, T> {
    fn frame_max_bytes(&self) -> usize {
        self.0.frame_bytes_max() & !7
    }

    #[inline]
    fn send(&mut self, to: Sender, frame: &[u8], counters: &WorkerCounters) {
        if self.0.queue(to, frame) == Err(SendError::Full) {
            // It fails permanently only without a socket, which the next receive reports.
            let _ = self.0.flush();
            if self.0.queue(to, frame).is_err() {
                counters.native.lost_replies.add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_shed_from_three_quarters_of_the_queue_down_to_half_of_it() {
        let mut pressure = Pressure::default();
        let mut check = |used_bytes, dropped, want| {
            let queue = KernelQueue { used_bytes, max_bytes: 100, dropped };
            assert_eq!(pressure.update(&queue), want, "{used_bytes} bytes, {dropped} dropped");
        };
        check(75, 0, false);
        check(76, 0, true);
        check(51, 0, true);
        check(50, 0, false);
        check(75, 0, false);
        check(10, 1, true);
        check(10, 1, false);
    }
}
