//! The links that carry frames: a UDP socket, or rings in shared memory. They decide nothing; the
//! engine does.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Instant;
use landing::shm::{Armed, ClientConfig, ClientEnd};
use landing::udp::{Udp, UdpConfig};
use landing::{Lane, SendError, Transport, Zone, ZoneSize};

use crate::config::Delivery;
use crate::engine::Engine;
use crate::error::ConnectError;

/// Bytes of the landing ring, and of the queue to the kernel.
const RING_BYTES: usize = 512 << 10;
/// Receive calls of one exchange.
const RECEIVES_MAX: usize = 16;
/// Frames taken from shared memory in one exchange.
const FRAMES_MAX: usize = 256;
/// The interval of checks for a server that has gone.
const RECONNECT_NS: u64 = 100_000_000;

pub(crate) enum Link {
    Udp(Box<UdpLink>),
    Shm(Box<ShmLink>),
}

pub(crate) struct UdpLink {
    udp: Udp,
    zone: Zone,
    /// Whether the host has reported that no socket listens, since the last check.
    is_refused: bool,
}

pub(crate) struct ShmLink {
    path: PathBuf,
    /// `None`: the server has gone.
    end: Option<ClientEnd>,
    frame_max_bytes: usize,
    out: Vec<u8>,
    reconnect_at_ns: u64,
}

impl UdpLink {
    pub fn connect(server: SocketAddr, frame_max_bytes: usize) -> io::Result<UdpLink> {
        let local = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let config = UdpConfig { frame_bytes_max: frame_max_bytes, ..UdpConfig::default() };
        let udp = Udp::connect(local, server, config)?;
        let buffer_bytes = udp.buffer_bytes_min().max(RING_BYTES / 4);
        let size = ZoneSize { buffer_bytes, buffer_count: 4, completions_max: 8192 };
        // A truncated frame fails its length check in the engine.
        let zone = Zone::ring(size, Box::new(|_| true))?;
        Ok(UdpLink { udp, zone, is_refused: false })
    }

    fn receive(&mut self, engine: &mut Engine, now: Instant) -> io::Result<usize> {
        if !engine.is_open() {
            // The receive call steps over it.
            let error = rustix::net::sockopt::socket_error(self.udp.as_fd());
            self.is_refused |= error == Ok(Err(rustix::io::Errno::CONNREFUSED));
        }
        let mut count = 0;
        for _ in 0..RECEIVES_MAX {
            let landed = self.udp.receive(&mut self.zone);
            if self.forgive(landed)? == 0 {
                break;
            }
            while let Some(completion) = self.zone.take() {
                engine.input(self.zone.bytes(&completion), now);
                count += 1;
            }
            self.zone.release_taken();
        }
        Ok(count)
    }

    fn send(&mut self, engine: &mut Engine, now: Instant) -> io::Result<()> {
        let frame_max_bytes = self.udp.frame_bytes_max();
        loop {
            match self.udp.reserve(Lane(0).into(), frame_max_bytes) {
                Ok(room) => match engine.output(now, room) {
                    Some(len_bytes) => self.udp.commit(len_bytes),
                    None => break,
                },
                Err(SendError::Full) => {
                    let left = self.udp.flush();
                    if self.forgive(left)? == 0 {
                        // The kernel takes no more now; the rest stays in its queues.
                        return Ok(());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        if self.udp.queued() > 0 {
            let left = self.udp.flush();
            self.forgive(left)?;
        }
        Ok(())
    }

    /// If the host reports that no socket listens, a server may listen again soon: retries go on.
    fn forgive(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.is_refused = true;
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }
}

impl ShmLink {
    pub fn connect(path: &Path) -> Result<ShmLink, ConnectError> {
        let end = connect_shm(path, Duration::from_secs(5))?;
        let frame_max_bytes = end.frame_len_max();
        Ok(ShmLink {
            path: path.to_owned(),
            end: Some(end),
            frame_max_bytes,
            out: vec![0; frame_max_bytes],
            reconnect_at_ns: 0,
        })
    }

    pub fn frame_max_bytes(&self) -> usize {
        self.frame_max_bytes
    }

    /// The server has gone, and with it the session.
    fn lose(&mut self, engine: &mut Engine, now: Instant) {
        self.end = None;
        self.reconnect_at_ns = now.ns;
        engine.restart();
    }

    fn reconnect(&mut self, now: Instant) -> bool {
        if self.end.is_none() && now.ns >= self.reconnect_at_ns {
            self.reconnect_at_ns = now.ns + RECONNECT_NS;
            let end = connect_shm(&self.path, Duration::from_millis(100)).ok();
            // Rings of another size would need other buffers.
            self.end = end.filter(|end| end.frame_len_max() == self.frame_max_bytes);
        }
        self.end.is_some()
    }

    fn receive(&mut self, engine: &mut Engine, now: Instant) -> usize {
        let Some(end) = &mut self.end else { return 0 };
        for count in 0..FRAMES_MAX {
            match end.receive() {
                Ok(Some(frame)) => engine.input(frame, now),
                Ok(None) => return count,
                Err(_) => {
                    self.lose(engine, now);
                    return count;
                }
            }
        }
        FRAMES_MAX
    }

    fn send(&mut self, engine: &mut Engine, now: Instant) {
        if !self.reconnect(now) {
            // Time passes nevertheless.
            engine.advance(now);
            return;
        }
        let Some(end) = &mut self.end else { return };
        loop {
            match end.has_room(self.frame_max_bytes) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return self.lose(engine, now),
            }
            let Some(len_bytes) = engine.output(now, &mut self.out) else { break };
            if end.write(&self.out[..len_bytes]).is_err() {
                return self.lose(engine, now);
            }
        }
        end.publish();
    }
}

fn connect_shm(path: &Path, connect_timeout: Duration) -> Result<ClientEnd, ConnectError> {
    let config = ClientConfig { connect_timeout, spin_rounds: 0 };
    ClientEnd::connect(path, config)
        .map_err(|source| ConnectError::Shm { path: path.to_owned(), source })
}

impl Link {
    pub fn delivery(&self) -> Delivery {
        match self {
            Link::Udp(_) => Delivery::Lossy,
            Link::Shm(_) => Delivery::Reliable,
        }
    }

    /// Passes all arrived frames to the engine; returns their number.
    #[inline]
    pub fn receive(&mut self, engine: &mut Engine, now: Instant) -> io::Result<usize> {
        match self {
            Link::Udp(link) => link.receive(engine, now),
            Link::Shm(link) => Ok(link.receive(engine, now)),
        }
    }

    /// Sends the engine's output, as far as there is room.
    #[inline]
    pub fn send(&mut self, engine: &mut Engine, now: Instant) -> io::Result<()> {
        match self {
            Link::Udp(link) => link.send(engine, now),
            Link::Shm(link) => {
                link.send(engine, now);
                Ok(())
            }
        }
    }

    /// Whether the host has reported that no socket listens, since the last call.
    pub fn take_refused(&mut self) -> bool {
        match self {
            Link::Udp(link) => std::mem::take(&mut link.is_refused),
            Link::Shm(_) => false,
        }
    }

    /// Says goodbye.
    pub fn end(&mut self, engine: &mut Engine) {
        let mut frame = [0; 64];
        let Some(len_bytes) = engine.farewell(&mut frame) else { return };
        match self {
            Link::Udp(link) => {
                let queued = link.udp.queue(Lane(0).into(), &frame[..len_bytes]);
                // A server that does not receive it forgets the session by itself.
                let _ = queued.map(|()| link.udp.flush());
            }
            // The server sees that the ring is closed.
            Link::Shm(_) => {}
        }
    }

    /// Makes sure that the next arrival wakes the thread that waits for the descriptor. Returns
    /// false if something has arrived already.
    pub fn may_sleep(&mut self, engine: &mut Engine, now: Instant) -> bool {
        match self {
            Link::Udp(link) => link.udp.may_sleep(),
            Link::Shm(link) => match link.end.as_mut().map(ClientEnd::arm) {
                Some(Ok(Armed::Sleep)) | None => true,
                Some(Ok(Armed::Work)) => false,
                Some(Err(_)) => {
                    link.lose(engine, now);
                    false
                }
            },
        }
    }

    /// After a sleep.
    pub fn wake(&mut self, engine: &mut Engine, now: Instant) {
        if let Link::Shm(link) = self
            && link.end.as_mut().is_some_and(|end| end.hear().is_err())
        {
            link.lose(engine, now);
        }
    }

    /// The time at which to poll even if nothing arrives, if the engine wants that at `wanted`:
    /// while there is no server in shared memory it can do nothing before the next check for one.
    pub fn timer(&self, wanted: Instant) -> Instant {
        match self {
            Link::Shm(link) if link.end.is_none() => {
                Instant { ns: wanted.ns.max(link.reconnect_at_ns) }
            }
            _ => wanted,
        }
    }

    /// The descriptor to wait for; `None` while there is no server.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Link::Udp(link) => Some(link.udp.as_fd()),
            Link::Shm(link) => link.end.as_ref().map(|end| end.as_fd()),
        }
    }
}
