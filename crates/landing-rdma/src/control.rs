//! Descriptors: the device's, and the TCP sockets that connections are set up over.
//!
//! A lane keeps its socket. A receiver's device never notices that a sender is gone, since it only
//! ever answers; but the kernel of a process that died hangs up the socket at once, and keepalive
//! detects a host that died.

use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use landing::Lane;
use rustix::event::Timespec;
use rustix::event::epoll;

use crate::handshake::GREETING_BYTES;

/// The maximum number of clients that have connected and not greeted; for a further one, the oldest
/// is closed.
const ARRIVALS_MAX: usize = 16;
const EVENTS_MAX: usize = 16;

const CHANNEL: u64 = 0;
const DEVICE: u64 = 1;
const LISTENER: u64 = 2;
const ARRIVAL: u64 = 16;
const LANE: u64 = 1 << 32;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A completion queue.
    Channel,
    /// The device.
    Device,
    /// A new client connects.
    Listener,
    /// A client that has not greeted.
    Arrival(usize),
    /// A lane's socket.
    Lane(Lane),
}

/// A greeting, as far as it has arrived.
pub struct Partial {
    bytes: [u8; GREETING_BYTES],
    len_bytes: usize,
}

impl Partial {
    const EMPTY: Partial = Partial { bytes: [0; GREETING_BYTES], len_bytes: 0 };

    /// Reads further bytes. Returns the greeting once it is complete; an error also if the peer
    /// hung up.
    fn read(&mut self, stream: &mut TcpStream) -> io::Result<Option<[u8; GREETING_BYTES]>> {
        while self.len_bytes < GREETING_BYTES {
            match stream.read(&mut self.bytes[self.len_bytes..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.len_bytes += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(self.bytes))
    }
}

/// The descriptors of a transport.
pub struct Control {
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    arrivals: [Option<(TcpStream, Partial)>; ARRIVALS_MAX],
    /// The next place to be used, which is also the oldest.
    next_arrival: usize,
    /// Outstanding greetings of servers.
    answers: Vec<(Lane, Partial)>,
}

impl Control {
    /// For a device: its completion channel, and its events.
    pub fn new(channel: BorrowedFd<'_>, events: BorrowedFd<'_>) -> io::Result<Control> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let arrivals = [const { None }; ARRIVALS_MAX];
        let answers = Vec::new();
        let control = Control { epoll, listener: None, arrivals, next_arrival: 0, answers };
        control.watch(channel, CHANNEL)?;
        control.watch(events, DEVICE)?;
        Ok(control)
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// The sources of pending events, without waiting: some of them at a time.
    pub fn poll(&mut self) -> io::Result<impl Iterator<Item = Heard> + use<>> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [nothing; EVENTS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = match epoll::wait(&self.epoll, &mut events, Some(&at_once)) {
            Err(rustix::io::Errno::INTR) => 0,
            result => result?,
        };
        Ok(events.into_iter().take(count).map(|event| match event.data.u64() {
            CHANNEL => Heard::Channel,
            DEVICE => Heard::Device,
            LISTENER => Heard::Listener,
            token if token >= LANE => Heard::Lane(Lane(token as u32)),
            token => Heard::Arrival((token - ARRIVAL) as usize),
        }))
    }

    /// Accepts clients from now on.
    pub fn listen(&mut self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.watch(listener.as_fd(), LISTENER)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Accepts one client.
    pub fn accept(&mut self) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        // A client that disconnected before it was served is no loss, and descriptors become free
        // again.
        let Ok((stream, _)) = listener.accept() else { return Ok(()) };
        stream.set_nonblocking(true)?;
        let place = self.next_arrival;
        self.next_arrival = (place + 1) % ARRIVALS_MAX;
        self.watch(stream.as_fd(), ARRIVAL + place as u64)?;
        self.arrivals[place] = Some((stream, Partial::EMPTY));
        Ok(())
    }

    /// Reads from a client: returns its socket and greeting, once that is complete.
    pub fn greeting(&mut self, place: usize) -> Option<(TcpStream, [u8; GREETING_BYTES])> {
        let (stream, partial) = self.arrivals.get_mut(place)?.as_mut()?;
        let result = partial.read(stream);
        let bytes = match result {
            Ok(None) => return None,
            Ok(Some(bytes)) => Some(bytes),
            Err(_) => None,
        };
        let (stream, _) = self.arrivals[place].take()?;
        // Closing removes it from the set; as a lane's socket it gets another token.
        let _ = epoll::delete(&self.epoll, &stream);
        Some((stream, bytes?))
    }

    /// Watches a lane's socket.
    pub fn add_lane(&mut self, lane: Lane, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2))
            .with_retries(3);
        socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
        self.watch(stream.as_fd(), LANE | u64::from(lane.0))
    }

    /// Reads from a lane's socket: the answer to our greeting, once it is complete. An error: the
    /// peer has disconnected, or violates the protocol.
    pub fn answer(
        &mut self,
        lane: Lane,
        stream: &mut TcpStream,
        is_opening: bool,
    ) -> io::Result<Option<[u8; GREETING_BYTES]>> {
        if !is_opening {
            let mut nothing = Partial::EMPTY;
            let result = nothing.read(stream)?;
            return match result {
                None => Ok(None),
                Some(_) => Err(ErrorKind::InvalidData.into()),
            };
        }
        let place = self.answers.iter().position(|(waiting, _)| *waiting == lane);
        let place = place.unwrap_or_else(|| {
            self.answers.push((lane, Partial::EMPTY));
            self.answers.len() - 1
        });
        let result = self.answers[place].1.read(stream);
        if !matches!(result, Ok(None)) {
            self.answers.swap_remove(place);
        }
        result
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
