//! Waits for sockets: epoll, level-triggered, blocking or spinning.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use crate::plan::Poll;

/// How long `auto` spins before it blocks: longer than a wake-up costs (about 17 us each way),
/// short enough to leave the core to a server that shares it.
const SPIN: Duration = Duration::from_micros(50);

const EVENTS_MAX: usize = 256;

pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    poll: Poll,
}

/// One connection that can go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) index: usize,
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
}

impl Poller {
    pub(crate) fn new(poll: Poll) -> std::io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll, events: Vec::with_capacity(EVENTS_MAX), poll })
    }

    pub(crate) fn add(&self, socket: &TcpStream, index: usize) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(index as u64);
        Ok(epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN)?)
    }

    /// Sets whether to wake up when the socket accepts bytes again.
    pub(crate) fn watch_writes(
        &self,
        socket: &TcpStream,
        index: usize,
        is_watched: bool,
    ) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(index as u64);
        let writes = if is_watched { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        Ok(epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN | writes)?)
    }

    /// Waits at most `timeout`; returns how many connections are ready.
    pub(crate) fn wait(&mut self, timeout: Duration) -> std::io::Result<usize> {
        let spin = match self.poll {
            Poll::Block => Duration::ZERO,
            Poll::Spin => timeout,
            Poll::Auto => SPIN.min(timeout),
        };
        if !spin.is_zero() {
            let start = Instant::now();
            loop {
                let count = self.wait_once(Duration::ZERO)?;
                if count > 0 || start.elapsed() >= spin {
                    if count > 0 || spin == timeout {
                        return Ok(count);
                    }
                    break;
                }
            }
        }
        self.wait_once(timeout.saturating_sub(spin))
    }

    fn wait_once(&mut self, timeout: Duration) -> std::io::Result<usize> {
        self.events.clear();
        if !timeout.is_zero() && !self.becomes_ready(timeout)? {
            return Ok(0);
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&at_once)) {
            Ok(count) => Ok(count),
            Err(Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits by a call that counts in nanoseconds: epoll's own, as the library calls it, counts in
    /// milliseconds, so that requests that are due would be sent up to one too late.
    fn becomes_ready(&self, timeout: Duration) -> std::io::Result<bool> {
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The `place`-th connection that the last wait found.
    pub(crate) fn ready(&self, place: usize) -> Ready {
        let event = self.events[place];
        let flags = event.flags;
        Ready {
            index: event.data.u64() as usize,
            can_read: flags.intersects(
                epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
            ),
            can_write: flags.contains(epoll::EventFlags::OUT),
        }
    }
}
