//! Two hosts on one machine: network namespaces joined by a veth pair, removed on drop.
//!
//! ```text
//!   namespace of the server                 namespace of the client
//!   dv0  10.99.0.1, fd99::1   ◀── veth ──▶   dv0  10.99.0.2, fd99::2
//! ```

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use landing::xdp::{Unavailable, Xdp, XdpConfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub const DEVICE: &str = "dv0";
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Whether hosts discover each other by ARP, or know each other from the start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Neighbours {
    Asked,
    Known,
}

/// Both hosts.
pub struct Hosts {
    server: String,
    client: String,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Hosts {
    /// `None`, with a line that says why, if this machine does not support it.
    pub fn open(queue_count: u32, neighbours: Neighbours) -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: AF_XDP is tested by root only");
            return None;
        }
        let base = format!("dvt{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { server: format!("{base}s"), client: format!("{base}c") };
        for name in [&hosts.server, &hosts.client] {
            if !ip(&["netns", "add", name], "") {
                println!("skipped: `ip netns add` does not work here (iproute2, namespaces?)");
                return None;
            }
        }
        let queues = format!("numrxqueues {queue_count} numtxqueues {queue_count}");
        let link = format!(
            "link add {DEVICE} {queues} address 02:00:00:00:00:01 type veth \
             peer name {DEVICE} {queues} address 02:00:00:00:00:02 netns {}\n",
            hosts.client
        );
        let addresses = |host: u8, peer: u8| {
            let mut lines = format!(
                "address add 10.99.0.{host}/24 dev {DEVICE}\n\
                 address add fd99::{host}/64 dev {DEVICE} nodad\n\
                 link set {DEVICE} up\n"
            );
            if neighbours == Neighbours::Known {
                for ip in [format!("10.99.0.{peer}"), format!("fd99::{peer}")] {
                    lines += &format!(
                        "neighbour replace {ip} lladdr 02:00:00:00:00:0{peer} dev {DEVICE} \
                         nud permanent\n"
                    );
                }
            }
            lines
        };
        let batch = ["-batch", "-"];
        assert!(ip(&[&["-n", &hosts.server], &batch[..]].concat(), &(link + &addresses(1, 2))));
        assert!(ip(&[&["-n", &hosts.client], &batch[..]].concat(), &addresses(2, 1)));
        Some(hosts)
    }

    /// Runs a closure on the server: sockets stay in the namespace where they were made.
    pub fn on_server<T>(&self, run: impl FnOnce() -> T) -> T {
        inside(&self.server, run)
    }

    pub fn on_client<T>(&self, run: impl FnOnce() -> T) -> T {
        inside(&self.client, run)
    }

    pub fn server_name(&self) -> &str {
        &self.server
    }

    /// The output of `ip` about the server's device.
    pub fn server_device(&self) -> String {
        let output = Command::new("ip").args(["-n", &self.server, "link", "show", DEVICE]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// A socket of the client's kernel that talks to that address of the server.
    pub fn client_socket(&self, to: SocketAddr) -> UdpSocket {
        let ip: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::new(10, 99, 0, 2).into(),
            SocketAddr::V6(_) => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2).into(),
        };
        let domain = socket2::Domain::for_address(to);
        let socket = self.on_client(|| {
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
            // Another may send from this port later. Set after `bind`: the kernel gives a free
            // port to two sockets that have it, and then one address comes from two flows.
            socket.set_reuse_address(true).unwrap();
            socket
        });
        socket.connect(&to.into()).unwrap();
        socket.into()
    }

    /// Opens transports on the server. A queue becomes free a moment after its user has closed it.
    pub fn open_xdp(&self, config: &XdpConfig) -> Vec<Xdp> {
        open_patiently(|| self.on_server(|| landing::xdp::open(config)))
    }
}

/// Retries until the kernel has freed a queue.
pub fn open_patiently(open: impl Fn() -> Result<Vec<Xdp>, Unavailable>) -> Vec<Xdp> {
    let mut tries_left = 100_000;
    loop {
        match open() {
            Ok(transports) => return transports,
            Err(error) if tries_left == 0 || !is_busy(&error) => panic!("{error}"),
            Err(_) => std::thread::yield_now(),
        }
        tries_left -= 1;
    }
}

fn is_busy(error: &Unavailable) -> bool {
    error.source.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            ip(&["netns", "delete", name], "");
        }
    }
}

/// The address of the server.
pub fn address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 7379)
}

fn inside<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let kind = Some(LinkNameSpaceType::Network);
    let home = File::open("/proc/thread-self/ns/net").unwrap();
    let there = File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(there.as_fd(), kind).unwrap();
    let result = run();
    move_into_link_name_space(home.as_fd(), kind).unwrap();
    result
}

/// Runs `ip` with an input; returns whether it succeeded.
fn ip(arguments: &[&str], input: &str) -> bool {
    let mut command = Command::new("ip");
    let Ok(mut child) = command.args(arguments).stdin(Stdio::piped()).spawn() else { return false };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait().unwrap().success()
}
