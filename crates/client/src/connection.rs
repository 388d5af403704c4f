//! The polling API: submit requests, move datagrams, take completions. One thread at a time.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant as Clock};

use base::Instant;
use landing::udp::DATAGRAM_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec};
use wire::native::{Op, Want};

use crate::config::Config;
use crate::engine::{Completion, Engine, Token};
use crate::error::{ConnectError, SubmitError};
use crate::link::{Link, ShmLink, UdpLink};
use crate::stats::Stats;
use crate::target::{Target, frame_bytes_to, resolve};

/// The least length that the server takes as a client's longest frame.
const FRAME_MIN_BYTES: usize = 256;

/// How long [`Connection::wait`] spins before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Not at all.
    Sleep,
    /// For this time: a little longer than falling asleep and being woken takes.
    SpinThenSleep(Duration),
    /// Always: a core for the shortest round trips.
    Spin,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::SpinThenSleep(Duration::from_micros(50))
    }
}

/// A connection to one server, with any number of requests outstanding.
///
/// [`submit`](Connection::submit) requests, [`poll`](Connection::poll) to send them and to receive
/// datagrams, then take completions until there are none. Requests submitted before one poll share
/// datagrams.
pub struct Connection {
    engine: Engine,
    link: Link,
    start: Clock,
    waiting: Waiting,
}

impl Connection {
    /// Begins a connection; requests may be submitted at once, and are sent when it is open. If a
    /// name has several addresses, the first is used.
    pub fn begin(target: &Target, config: Config) -> Result<Connection, ConnectError> {
        match target {
            Target::Udp(address) => Connection::begin_at(resolve(address)?[0], target, config),
            Target::Shm(path) => {
                let link = ShmLink::connect(path)?;
                let fitting_bytes = link.frame_max_bytes() & !7;
                Ok(Connection::over(Link::Shm(Box::new(link)), fitting_bytes, config))
            }
        }
    }

    fn begin_at(
        server: SocketAddr,
        target: &Target,
        config: Config,
    ) -> Result<Connection, ConnectError> {
        let fitting_bytes = config.frame_max_bytes.unwrap_or(frame_bytes_to(server));
        let fitting_bytes = fitting_bytes.clamp(FRAME_MIN_BYTES, DATAGRAM_BYTES_MAX) & !7;
        let link = UdpLink::connect(server, fitting_bytes)
            .map_err(|source| ConnectError::System { target: target.to_string(), source })?;
        Ok(Connection::over(Link::Udp(Box::new(link)), fitting_bytes, config))
    }

    fn over(link: Link, fitting_bytes: usize, config: Config) -> Connection {
        // Keys of the standard library's hash maps: drawn from the system.
        let seed = RandomState::new().hash_one(std::process::id());
        let engine = Engine::new(config, link.delivery(), fitting_bytes, seed);
        Connection { engine, link, start: Clock::now(), waiting: Waiting::default() }
    }

    /// Begins a connection and waits until it is open. If a name has several addresses, the first
    /// with a listening server is used.
    pub fn open(
        target: &Target,
        config: Config,
        timeout: Duration,
    ) -> Result<Connection, ConnectError> {
        match target {
            Target::Udp(address) => {
                Connection::open_first(&resolve(address)?, target, &config, timeout)
            }
            Target::Shm(_) => Connection::begin(target, config)?.opened(target, timeout),
        }
    }

    fn open_first(
        servers: &[SocketAddr],
        target: &Target,
        config: &Config,
        timeout: Duration,
    ) -> Result<Connection, ConnectError> {
        let mut refused = ConnectError::Refused { target: target.to_string() };
        for server in servers {
            // `localhost` is often ::1 first, and a server on 127.0.0.1 alone.
            match Connection::begin_at(*server, target, config.clone())?.opened(target, timeout) {
                Err(error @ ConnectError::Refused { .. }) => refused = error,
                other => return other,
            }
        }
        Err(refused)
    }

    fn opened(mut self, target: &Target, timeout: Duration) -> Result<Connection, ConnectError> {
        let deadline = Clock::now() + timeout;
        let failed = |source| ConnectError::System { target: target.to_string(), source };
        loop {
            self.poll().map_err(failed)?;
            if self.engine.is_open() {
                return Ok(self);
            }
            let name = || target.to_string();
            if let Some(reason) = self.engine.failure() {
                return Err(ConnectError::NoSession { target: name(), reason });
            }
            if self.link.take_refused() {
                return Err(ConnectError::Refused { target: name() });
            }
            let left = deadline.saturating_duration_since(Clock::now());
            if left.is_zero() {
                return Err(ConnectError::TimedOut { target: name() });
            }
            self.wait(Some(left)).map_err(failed)?;
        }
    }

    /// Sets how [`wait`](Connection::wait) waits.
    pub fn set_waiting(&mut self, waiting: Waiting) {
        self.waiting = waiting;
    }

    fn now(&self) -> Instant {
        Instant { ns: self.start.elapsed().as_nanos() as u64 + 1 }
    }

    /// Submits a request; the next [`poll`](Connection::poll) or wait sends it.
    #[inline]
    pub fn submit(&mut self, op: &Op<'_>, want: Want) -> Result<Token, SubmitError> {
        self.engine.submit(op, want)
    }

    /// Sends queued frames and receives datagrams, without waiting; returns the number of frames
    /// received.
    pub fn poll(&mut self) -> io::Result<usize> {
        let now = self.now();
        self.link.send(&mut self.engine, now)?;
        let count = self.link.receive(&mut self.engine, now)?;
        if count > 0 {
            // Answers make room in the window, and may queue more to send.
            self.link.send(&mut self.engine, now)?;
        }
        Ok(count)
    }

    /// Polls, waits until a datagram arrives, a timer of the protocol is due, or the time is over,
    /// and polls again.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.poll()? > 0 || self.engine.has_completion() {
            return Ok(());
        }
        let begun = Clock::now();
        let spin = match self.waiting {
            Waiting::Sleep => Duration::ZERO,
            Waiting::SpinThenSleep(spin) => spin,
            Waiting::Spin => Duration::MAX,
        };
        loop {
            let passed = begun.elapsed();
            if timeout.is_some_and(|timeout| passed >= timeout) {
                return Ok(());
            }
            if passed >= spin {
                break;
            }
            if self.poll()? > 0 || self.engine.has_completion() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.sleep(timeout.map(|timeout| timeout.saturating_sub(begun.elapsed())))?;
        self.poll().map(|_| ())
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.prepare_sleep() {
            return Ok(());
        }
        let left = self.next_timer().into_iter().chain(timeout).min();
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let polled = match self.link.as_fd() {
            Some(fd) => rustix::event::poll(
                &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
                left.as_ref(),
            ),
            None => rustix::event::poll(&mut [], left.as_ref()),
        };
        self.end_sleep();
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The completion of the next ended request.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion<'_>> {
        self.engine.next_completion()
    }

    /// Whether there is a completion to take.
    pub fn has_completion(&self) -> bool {
        self.engine.has_completion()
    }

    /// Submitted requests whose completions are not taken yet.
    pub fn outstanding_count(&self) -> usize {
        self.engine.outstanding_count()
    }

    /// Whether the server has granted a session.
    pub fn is_open(&self) -> bool {
        self.engine.is_open()
    }

    /// The counters so far.
    pub fn stats(&self) -> &Stats {
        self.engine.stats()
    }
}

/// For an event loop of one's own.
impl Connection {
    /// Readable when [`poll`](Connection::poll) may find something; `None` while a server in shared
    /// memory is away.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_fd()
    }

    /// Call this before waiting for the descriptor. If it returns false, poll again instead.
    pub fn prepare_sleep(&mut self) -> bool {
        let now = self.now();
        self.link.may_sleep(&mut self.engine, now)
    }

    /// Call this after waiting for the descriptor.
    pub fn end_sleep(&mut self) {
        let now = self.now();
        self.link.wake(&mut self.engine, now);
    }

    /// The time after which to poll even if nothing arrives.
    pub fn next_timer(&self) -> Option<Duration> {
        let at = self.link.timer(self.engine.next_timer()?);
        Some(Duration::from_nanos(at.ns.saturating_sub(self.now().ns)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.end(&mut self.engine);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").field("is_open", &self.is_open()).finish()
    }
}

#[cfg(test)]
mod tests;
