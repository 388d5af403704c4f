//! A listener and its clients, all on one device.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use landing::{Lane, Sender, Transport, Zone, ZoneSize};
use landing_rdma::{Acknowledge, OpenError, Rdma, RdmaConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rig::{MESSAGE_BYTES_MAX, Rig, is_whole};

/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
const DEVICE: &str = "DOVETAIL_RDMA_DEVICE";

/// A client or a listener: a transport with its zone.
struct End {
    rdma: Rdma,
    zone: Zone,
}

impl End {
    fn open(buffer_count: usize) -> Result<End, OpenError> {
        End::open_with(buffer_count, MESSAGE_BYTES_MAX, 256)
    }

    fn open_with(
        buffer_count: usize,
        frame_bytes_max: usize,
        send_frames_max: usize,
    ) -> Result<End, OpenError> {
        let buffer_bytes = frame_bytes_max.max(4096);
        let size = ZoneSize { buffer_bytes, buffer_count, completions_max: 4096 };
        let mut zone = Zone::ring(size, Box::new(is_whole)).unwrap();
        let config = RdmaConfig {
            device: std::env::var(DEVICE).ok(),
            frame_bytes_max,
            acknowledge: Acknowledge::Batches,
            send_frames_max,
            ..RdmaConfig::default()
        };
        Ok(End { rdma: Rdma::new(&mut zone, config)?, zone })
    }

    /// Handles events other than messages. Returns whether the device has none left.
    fn is_quiet(&mut self) -> bool {
        self.rdma.receive(&mut self.zone).unwrap();
        self.rdma.may_sleep()
    }
}

/// The receiver. A device delivers at any time, so a round that finds nothing waits until all sent
/// messages have either arrived or cannot.
struct Server {
    rdma: Rdma,
    clients: Vec<End>,
}

impl Server {
    /// Whether all sent messages have been acknowledged.
    fn has_settled(&mut self) -> bool {
        for client in &mut self.clients {
            client.rdma.receive(&mut client.zone).unwrap();
        }
        self.clients.iter().all(|client| client.rdma.outstanding(Lane(0)) == 0)
    }

    fn wait(&mut self) {
        let is_quiet = self.clients.iter_mut().all(End::is_quiet) && self.rdma.may_sleep();
        if is_quiet {
            wait_for(self.clients.iter().map(|client| &client.rdma).chain([&self.rdma]));
        }
    }
}

fn wait_for<'a>(transports: impl Iterator<Item = &'a Rdma>) {
    let fds: Vec<_> = transports.map(Rdma::as_fd).collect();
    let mut polls: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert!(poll(&mut polls, Some(&patience)).unwrap() > 0, "nothing happens");
}

impl Transport for Server {
    fn receive(&mut self, zone: &mut Zone) -> std::io::Result<usize> {
        loop {
            let has_settled = self.has_settled();
            let starved = zone.counters().starved;
            let landed = self.rdma.receive(zone)?;
            // Messages that the device has no room for stay with the senders.
            if landed > 0 || has_settled || zone.counters().starved > starved {
                return Ok(landed);
            }
            self.wait();
        }
    }

    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], landing::SendError> {
        self.rdma.reserve(to, bytes_max)
    }

    fn commit(&mut self, len_bytes: usize) {
        self.rdma.commit(len_bytes);
    }

    fn flush(&mut self) -> std::io::Result<usize> {
        self.rdma.flush()
    }

    fn queued(&self) -> usize {
        self.rdma.queued()
    }

    fn frame_bytes_max(&self) -> usize {
        self.rdma.frame_bytes_max()
    }

    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.rdma.as_fd()
    }
}

/// Reliable connections on one shared queue.
pub struct Connected {
    server: Server,
    zone: Zone,
    address: SocketAddr,
    /// The sender of each lane: a new one gets a new lane.
    lane_of: Vec<usize>,
}

const BUFFER_COUNT: usize = 16;

impl Connected {
    /// A client connects; the listener's next lane belongs to it.
    fn connect(&mut self, index: usize) -> End {
        let mut client = End::open(2).unwrap();
        client.rdma.connect(self.address, PATIENCE).unwrap();
        while client.rdma.take_opened().is_none() {
            self.wait_with(&mut client);
        }
        self.lane_of.push(index);
        client
    }

    fn listen(&mut self, address: SocketAddr) {
        // The address belonged to the same process a moment ago.
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(64).unwrap();
        let listener = TcpListener::from(socket);
        self.address = listener.local_addr().unwrap();
        self.server.rdma.listen(listener).unwrap();
    }
}

impl Rig for Connected {
    fn open(sender_count: usize) -> Option<Connected> {
        if std::env::var_os(DEVICE).is_none() {
            println!("skipped: {DEVICE} names no device");
            return None;
        }
        let End { rdma, zone } = End::open(BUFFER_COUNT).unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server { rdma, clients: Vec::new() };
        let mut rig = Connected { server, zone, address: any_port, lane_of: Vec::new() };
        rig.listen(any_port);
        for index in 0..sender_count {
            let client = rig.connect(index);
            rig.server.clients.push(client);
        }
        Some(rig)
    }

    fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone) {
        (&mut self.server, &mut self.zone)
    }

    fn send(&mut self, index: usize, messages: &[Vec<u8>]) {
        let client = &mut self.server.clients[index].rdma;
        for message in messages {
            // Full if the receiver has no room: messages that cannot leave now are lost, by the
            // scenario.
            if client.queue(Lane(0).into(), message).is_err() {
                break;
            }
        }
        client.flush().unwrap();
    }

    fn index_of(&self, sender: Sender) -> usize {
        let Lane(lane) = sender.as_lane().expect("lanes only");
        self.lane_of[lane as usize]
    }

    fn replace_client(&mut self, index: usize) {
        self.server.clients[index] = self.connect(index);
    }

    fn restart(&mut self) {
        let address = self.address;
        let End { rdma, zone } = End::open(BUFFER_COUNT).unwrap();
        self.server.rdma = rdma;
        self.zone = zone;
        self.lane_of.clear();
        self.listen(address);
        for index in 0..self.server.clients.len() {
            self.replace_client(index);
        }
    }

    /// Sends through a client that was told that the receiver has more room than it has; its
    /// connection breaks on the first message that does not fit.
    fn send_raw(&mut self, index: usize, bytes: &[u8]) {
        let (mut stranger, _sockets) = self.connect_misled(index);
        stranger.rdma.queue(Lane(0).into(), bytes).unwrap();
        stranger.rdma.flush().unwrap();
        while stranger.rdma.outstanding(Lane(0)) > 0 {
            self.server.rdma.receive(&mut self.zone).unwrap();
            self.wait_with(&mut stranger);
        }
    }
}

/// The room that strangers believe the receiver has.
const BELIEVED_BYTES: u32 = 1 << 17;

impl Connected {
    /// A client and the listener, with a stranger between them that changes the greeting.
    fn connect_misled(&mut self, index: usize) -> (End, [TcpStream; 2]) {
        let between = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stranger = End::open_with(2, BELIEVED_BYTES as usize, 2).unwrap();
        stranger.rdma.connect(between.local_addr().unwrap(), PATIENCE).unwrap();
        let (mut to_stranger, _) = between.accept().unwrap();
        let mut to_server = TcpStream::connect(self.address).unwrap();
        let mut greeting = [0; 64];
        to_stranger.read_exact(&mut greeting).unwrap();
        to_server.write_all(&greeting).unwrap();
        to_server.set_nonblocking(true).unwrap();
        while let Err(error) = to_server.peek(&mut greeting) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            self.server.rdma.may_sleep();
        }
        to_server.set_nonblocking(false).unwrap();
        to_server.read_exact(&mut greeting).unwrap();
        greeting[20..24].copy_from_slice(&BELIEVED_BYTES.to_le_bytes());
        to_stranger.write_all(&greeting).unwrap();
        while stranger.rdma.take_opened().is_none() {
            self.wait_with(&mut stranger);
        }
        self.lane_of.push(index);
        (stranger, [to_stranger, to_server])
    }

    /// Drives the listener and a client.
    fn wait_with(&mut self, client: &mut End) {
        let is_quiet = client.is_quiet() && self.server.rdma.may_sleep();
        if is_quiet {
            wait_for([&client.rdma, &self.server.rdma].into_iter());
        }
    }
}
