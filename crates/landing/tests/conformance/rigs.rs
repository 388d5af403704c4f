//! A transport with its zone and some senders, for each kind of transport.

use std::net::{SocketAddr, UdpSocket};

use landing::peers::{Peers, PeersConfig, WantedWay, Way};
use landing::udp::{Offload, Udp, UdpConfig};
use landing::uring::UringUdp;
use landing::{Lane, Sender, Transport, Zone, ZoneSize};

use crate::rig::{MESSAGE_BYTES_MAX, Rig, is_whole};
pub use crate::shm_rig::Mapped;
#[cfg(feature = "xdp")]
pub use crate::xdp_rig::Bypassed;

fn zone(buffer_bytes: usize) -> Zone {
    let size = ZoneSize { buffer_bytes, buffer_count: 16, completions_max: 4096 };
    Zone::ring(size, Box::new(is_whole)).unwrap()
}

/// The kernel frees a ring's ports a moment after the ring is closed: retries until it does.
fn bind(address: SocketAddr) -> UdpSocket {
    let mut tries_left = 1_000_000;
    loop {
        match UdpSocket::bind(address) {
            Ok(socket) => return socket,
            Err(error) if tries_left == 0 => panic!("{address} stays in use: {error}"),
            Err(_) => std::thread::yield_now(),
        }
        tries_left -= 1;
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn config(offload: Offload) -> UdpConfig {
    UdpConfig { frame_bytes_max: MESSAGE_BYTES_MAX, offload, ..UdpConfig::default() }
}

fn client(socket: UdpSocket, peer: SocketAddr) -> Udp {
    socket.connect(peer).unwrap();
    Udp::from_socket(socket, config(Offload::Auto)).unwrap()
}

/// A sender's socket sends messages to its peer.
pub fn send(client: &mut Udp, messages: &[Vec<u8>]) {
    for message in messages {
        client.queue(Lane(0).into(), message).unwrap();
    }
    client.flush().unwrap();
}

fn send_raw(client: &Udp, to: SocketAddr, bytes: &[u8]) {
    // From the client's own address, since a connected receiver accepts no other.
    let from = client.local_address().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    match socket.bind(&from.into()) {
        Ok(()) => drop(socket.send_to(bytes, &to.into())),
        // The address belongs to the client alone: send through it, as far as possible.
        Err(_) => panic!("senders of these rigs share their addresses"),
    }
}

/// One unconnected socket that receives from every sender.
struct Unconnected {
    udp: Option<Udp>,
    zone: Zone,
    address: SocketAddr,
    clients: Vec<Udp>,
    offload: Offload,
    buffer_bytes: usize,
}

impl Unconnected {
    fn open(sender_count: usize, offload: Offload, buffer_bytes: usize) -> Unconnected {
        let udp = Udp::bind(any_port(), config(offload)).unwrap();
        let address = udp.local_address().unwrap();
        let clients = (0..sender_count).map(|_| client(shared_socket(), address)).collect();
        let zone = zone(buffer_bytes);
        Unconnected { udp: Some(udp), zone, address, clients, offload, buffer_bytes }
    }

    fn restart(&mut self) {
        self.udp = None;
        self.udp = Some(Udp::bind(self.address, config(self.offload)).unwrap());
        self.zone = zone(self.buffer_bytes);
    }
}

/// A socket whose address a raw sender may share.
fn shared_socket() -> UdpSocket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&any_port().into()).unwrap();
    socket.into()
}

macro_rules! unconnected {
    ($name:ident, $offload:expr, $buffer_bytes:expr, $doc:literal) => {
        #[doc = $doc]
        pub struct $name(Unconnected);

        impl Rig for $name {
            fn open(sender_count: usize) -> Option<Self> {
                Some($name(Unconnected::open(sender_count, $offload, $buffer_bytes)))
            }

            fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone) {
                (self.0.udp.as_mut().unwrap(), &mut self.0.zone)
            }

            fn send(&mut self, index: usize, messages: &[Vec<u8>]) {
                send(&mut self.0.clients[index], messages);
            }

            fn index_of(&self, sender: Sender) -> usize {
                let address = sender.as_address();
                let is_it = |client: &Udp| client.local_address().ok() == address;
                self.0.clients.iter().position(is_it).expect("a sender of the rig")
            }

            fn replace_client(&mut self, index: usize) {
                self.0.clients[index] = client(shared_socket(), self.0.address);
            }

            fn restart(&mut self) {
                self.0.restart();
            }

            fn send_raw(&mut self, index: usize, bytes: &[u8]) {
                send_raw(&self.0.clients[index], self.0.address, bytes);
            }
        }
    };
}

unconnected!(Single, Offload::Off, 4096, "`recvmmsg`, each datagram by itself.");
unconnected!(Joined, Offload::Auto, 1 << 17, "`recvmmsg` with GRO: many datagrams in a slot.");

/// A connected socket for each sender, all of them landing in one zone.
struct Connected {
    peers: Option<Peers>,
    zone: Zone,
    clients: Vec<Udp>,
    /// The sender of each lane: a new one gets a new lane.
    addresses: Vec<SocketAddr>,
    /// Which sender a lane is: a new one gets a new lane.
    lane_of: Vec<usize>,
    config: PeersConfig,
    buffer_bytes: usize,
}

impl Connected {
    fn open(sender_count: usize, config: PeersConfig, buffer_bytes: usize) -> Option<Connected> {
        let mut zone = zone(buffer_bytes);
        let peers = Peers::open(&mut zone, config).unwrap();
        if let Way::Fallback(unavailable) = peers.way() {
            println!("skipped: {unavailable}");
            return None;
        }
        let mut rig = Connected {
            peers: Some(peers),
            zone,
            clients: Vec::new(),
            addresses: vec![any_port(); sender_count],
            lane_of: Vec::new(),
            config,
            buffer_bytes,
        };
        for index in 0..sender_count {
            rig.add_client(index);
        }
        Some(rig)
    }

    /// Our end of a pair of connected sockets, added as a lane.
    fn add(&mut self, local: SocketAddr, peer: SocketAddr) -> SocketAddr {
        let socket = bind(local);
        let address = socket.local_addr().unwrap();
        socket.connect(peer).unwrap();
        self.peers.as_mut().unwrap().add_datagrams(socket).unwrap();
        address
    }

    fn add_client(&mut self, index: usize) {
        let theirs = shared_socket();
        let address = self.add(any_port(), theirs.local_addr().unwrap());
        self.addresses[index] = address;
        self.lane_of.push(index);
        let udp = client(theirs, address);
        if index < self.clients.len() {
            self.clients[index] = udp;
        } else {
            self.clients.push(udp);
        }
    }

    fn restart(&mut self) {
        self.peers = None;
        self.zone = zone(self.buffer_bytes);
        self.peers = Some(Peers::open(&mut self.zone, self.config).unwrap());
        self.lane_of.clear();
        for index in 0..self.clients.len() {
            let peer = self.clients[index].local_address().unwrap();
            self.add(self.addresses[index], peer);
            self.lane_of.push(index);
        }
    }
}

fn recvmmsg(offload: Offload) -> PeersConfig {
    PeersConfig { way: WantedWay::Recvmmsg, udp: config(offload), ..PeersConfig::default() }
}

macro_rules! connected {
    ($name:ident, $config:expr, $buffer_bytes:expr, $doc:literal) => {
        #[doc = $doc]
        pub struct $name(Connected);

        impl Rig for $name {
            fn open(sender_count: usize) -> Option<Self> {
                Connected::open(sender_count, $config, $buffer_bytes).map($name)
            }

            fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone) {
                (self.0.peers.as_mut().unwrap(), &mut self.0.zone)
            }

            fn send(&mut self, index: usize, messages: &[Vec<u8>]) {
                send(&mut self.0.clients[index], messages);
            }

            fn index_of(&self, sender: Sender) -> usize {
                let Lane(lane) = sender.as_lane().expect("lanes only");
                self.0.lane_of[lane as usize]
            }

            fn replace_client(&mut self, index: usize) {
                self.0.add_client(index);
            }

            fn restart(&mut self) {
                self.0.restart();
            }

            fn send_raw(&mut self, index: usize, bytes: &[u8]) {
                send_raw(&self.0.clients[index], self.0.addresses[index], bytes);
            }
        }
    };
}

connected!(Shared, PeersConfig::default(), 4096, "io_uring: one ring of buffers.");
connected!(Lanes, recvmmsg(Offload::Off), 4096, "`recvmmsg` from each socket.");
connected!(LanesJoined, recvmmsg(Offload::Auto), 1 << 17, "`recvmmsg` with GRO from each socket.");

const NAMED_BUFFER_BYTES: usize = 4096;

/// io_uring: one unconnected socket that receives from every sender.
pub struct Named {
    uring: Option<UringUdp>,
    zone: Zone,
    address: SocketAddr,
    clients: Vec<Udp>,
}

impl Named {
    /// Each datagram by itself, so that a cut one is a lost one.
    fn listen(zone: &mut Zone, address: SocketAddr) -> Option<UringUdp> {
        match UringUdp::new(zone, bind(address), config(Offload::Off)) {
            Ok(uring) => Some(uring),
            Err((_, unavailable)) => {
                println!("skipped: {unavailable}");
                None
            }
        }
    }
}

impl Rig for Named {
    fn open(sender_count: usize) -> Option<Named> {
        let mut zone = zone(NAMED_BUFFER_BYTES);
        let uring = Named::listen(&mut zone, any_port())?;
        let address = uring.local_address().unwrap();
        let clients = (0..sender_count).map(|_| client(shared_socket(), address)).collect();
        let mut rig = Named { uring: Some(uring), zone, address, clients };
        // Messages before the first receive wait as well, but would be one round late.
        rig.uring.as_mut().unwrap().receive(&mut rig.zone).unwrap();
        Some(rig)
    }

    fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone) {
        (self.uring.as_mut().unwrap(), &mut self.zone)
    }

    fn send(&mut self, index: usize, messages: &[Vec<u8>]) {
        send(&mut self.clients[index], messages);
    }

    fn index_of(&self, sender: Sender) -> usize {
        let is_it = |client: &Udp| client.local_address().ok() == sender.as_address();
        self.clients.iter().position(is_it).expect("a sender of the rig")
    }

    fn replace_client(&mut self, index: usize) {
        self.clients[index] = client(shared_socket(), self.address);
    }

    fn restart(&mut self) {
        self.uring = None;
        self.zone = zone(NAMED_BUFFER_BYTES);
        self.uring = Named::listen(&mut self.zone, self.address);
    }

    fn send_raw(&mut self, index: usize, bytes: &[u8]) {
        send_raw(&self.clients[index], self.address, bytes);
    }
}
