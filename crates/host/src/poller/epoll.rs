//! The Linux poller: one epoll instance per worker, and an eventfd by which other threads wake it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::{Interest, Poller, READY_MAX, Ready};

/// A worker's epoll.
pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Epoll {
    /// An epoll without sockets.
    pub fn new() -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Epoll { epoll, events: Vec::with_capacity(READY_MAX) })
    }

    /// Waits by a system call that counts in milliseconds if the timeout does, else by one that
    /// counts in nanoseconds.
    fn wait_once(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.map(timespec);
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()).map(drop)
    }
}

impl Poller for Epoll {
    fn add(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, socket, data, flags(interest))?)
    }

    fn modify(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, socket, data, flags(interest))?)
    }

    fn remove(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, socket)?)
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        match self.wait_once(timeout) {
            // Linux before 5.11.
            Err(Errno::NOSYS) => self.wait_once(timeout.map(up_to_millis)),
            waited => waited,
        }
        .or_else(|error| if error == Errno::INTR { Ok(()) } else { Err(error) })?;
        ready.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Ready {
                token: event.data.u64(),
                read: broken || flags.contains(EventFlags::IN),
                write: broken || flags.contains(EventFlags::OUT),
                broken,
            }
        }));
        Ok(())
    }
}

/// Rounded up, and at most what the older system call can count.
fn up_to_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
    Duration::from_millis(millis as u64)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        // A wait of more than i64::MAX seconds is without end either way.
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn flags(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, interest.read);
    flags.set(EventFlags::OUT, interest.write);
    flags
}

/// Wakes a worker that may be asleep. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that no poller uses yet.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the descriptor readable until [`Waker::reset`].
    pub fn wake(&self) {
        // It fails only when the counter is full, and then the worker is awake already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Takes back a pending wake-up; whether there was one.
    pub fn reset(&self) -> bool {
        rustix::io::read(&*self.0, &mut [0_u8; 8]).is_ok()
    }

    /// Waits at most `timeout` until a wake-up is pending, or this socket is readable.
    pub fn wait_beside(&self, socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        match poll(&mut [readable(self.as_fd()), readable(socket)], Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor for the worker's poller.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_for_older_kernels_are_whole_milliseconds_and_no_shorter() {
        let rounded = |duration: Duration| up_to_millis(duration).as_millis();
        assert_eq!(rounded(Duration::ZERO), 0);
        assert_eq!(rounded(Duration::from_nanos(1)), 1);
        assert_eq!(rounded(Duration::from_millis(3)), 3);
        assert_eq!(rounded(Duration::from_micros(3_001)), 4);
        assert_eq!(rounded(Duration::MAX), i32::MAX as u128);
    }

    #[test]
    fn a_wake_up_is_seen_until_it_is_reset() {
        let mut poller = Epoll::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(waker.as_fd(), 7, Interest::READ).unwrap();
        let mut ready = Vec::new();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
        waker.wake();
        waker.wake();
        poller.wait(&mut ready, None).unwrap();
        assert_eq!((ready.len(), ready[0].token, ready[0].read), (1, 7, true));
        waker.reset();
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
    }
}
