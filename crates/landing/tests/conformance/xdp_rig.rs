//! AF_XDP on one end of a veth pair, and kernel UDP senders on the other.

use std::net::SocketAddr;

use landing::udp::{Udp, UdpConfig};
use landing::xdp::{Xdp, XdpConfig};
use landing::{Sender, Transport, Zone, ZoneSize};

use crate::namespaces::{DEVICE, Hosts, Neighbours, address};
use crate::rig::{MESSAGE_BYTES_MAX, Rig, is_whole};
use crate::rigs::send;

/// One worker on one queue.
pub struct Bypassed {
    hosts: Hosts,
    xdp: Option<Xdp>,
    zone: Zone,
    clients: Vec<Udp>,
    /// The kernel's socket at the same address: receives the frames that the program passes on.
    _beside: Udp,
}

fn zone() -> Zone {
    let size = ZoneSize { buffer_bytes: 4096, buffer_count: 16, completions_max: 4096 };
    Zone::ring(size, Box::new(is_whole)).unwrap()
}

fn ours() -> SocketAddr {
    address("10.99.0.1")
}

fn config() -> XdpConfig {
    XdpConfig { frame_bytes_max: MESSAGE_BYTES_MAX, ..XdpConfig::new(DEVICE, ours()) }
}

fn client(hosts: &Hosts) -> Udp {
    let config = UdpConfig { frame_bytes_max: MESSAGE_BYTES_MAX, ..UdpConfig::default() };
    Udp::from_socket(hosts.client_socket(ours()), config).unwrap()
}

impl Rig for Bypassed {
    fn open(sender_count: usize) -> Option<Bypassed> {
        let hosts = Hosts::open(1, Neighbours::Known)?;
        let xdp = hosts.open_xdp(&config()).pop();
        let beside = hosts.on_server(|| Udp::bind(ours(), UdpConfig::default())).unwrap();
        let clients = (0..sender_count).map(|_| client(&hosts)).collect();
        Some(Bypassed { hosts, xdp, zone: zone(), clients, _beside: beside })
    }

    fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone) {
        (self.xdp.as_mut().unwrap(), &mut self.zone)
    }

    fn send(&mut self, index: usize, messages: &[Vec<u8>]) {
        send(&mut self.clients[index], messages);
    }

    fn index_of(&self, sender: Sender) -> usize {
        let address = sender.as_address();
        let is_it = |client: &Udp| client.local_address().ok() == address;
        self.clients.iter().position(is_it).expect("a sender of the rig")
    }

    fn replace_client(&mut self, index: usize) {
        self.clients[index] = client(&self.hosts);
    }

    fn restart(&mut self) {
        self.xdp = None;
        self.xdp = self.hosts.open_xdp(&config()).pop();
        self.zone = zone();
    }

    fn send_raw(&mut self, index: usize, bytes: &[u8]) {
        let from = self.clients[index].local_address().unwrap();
        self.hosts.on_client(|| {
            let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::DGRAM);
            let socket = socket2::Socket::new(domain, kind, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&from.into()).unwrap();
            drop(socket.send_to(bytes, &ours().into()));
        });
    }
}
