//! AF_XDP between two network namespaces: which frames are steered where, which pass to the stack,
//! and what remains afterwards.
//!
//! Root and iproute2 are needed; without them each test says so in one line and passes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use landing::xdp::{Mode, Xdp, XdpConfig};
use landing::{Notice, SendError, Sender, Transport, Zone, ZoneSize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::namespaces::{DEVICE, Hosts, Neighbours, SERVER_MAC, address, open_patiently};

const V4: &str = "10.99.0.1";
const V6: &str = "fd99::1";
/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "DOVETAIL_XDP_NAMESPACE";

fn config(ip: &str, worker_count: u16, queue_count: u32) -> XdpConfig {
    XdpConfig { worker_count, queue_count, ..XdpConfig::new(DEVICE, address(ip)) }
}

fn zone() -> Zone {
    let size = ZoneSize { buffer_bytes: 1 << 16, buffer_count: 4, completions_max: 4096 };
    Zone::ring(size, Box::new(|_| true)).unwrap()
}

/// A datagram for a partition, which it repeats after the field.
fn datagram(partition: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..6].copy_from_slice(&partition.to_le_bytes());
    bytes[8..10].copy_from_slice(&partition.to_le_bytes());
    bytes
}

/// Workers with their zones.
struct Workers(Vec<(Xdp, Zone)>);

impl Workers {
    fn open(hosts: &Hosts, config: &XdpConfig) -> Workers {
        Workers(hosts.open_xdp(config).into_iter().map(|xdp| (xdp, zone())).collect())
    }

    /// Waits for that many messages in all; returns those of each worker.
    fn receive(&mut self, count: usize) -> Vec<Vec<(Sender, Vec<u8>)>> {
        let mut all = vec![Vec::new(); self.0.len()];
        while all.iter().map(Vec::len).sum::<usize>() < count {
            wait_readable(self.0.iter().map(|(xdp, _)| xdp));
            for ((xdp, zone), got) in self.0.iter_mut().zip(&mut all) {
                xdp.receive(zone).unwrap();
                while let Some(completion) = zone.take() {
                    got.push((completion.sender(), zone.bytes(&completion).to_vec()));
                }
                zone.release_taken();
            }
        }
        all
    }
}

fn wait_readable<'a>(transports: impl Iterator<Item = &'a Xdp>) {
    let fds = transports.map(|xdp| xdp.as_fd()).collect::<Vec<_>>();
    let mut polls: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert!(poll(&mut polls, Some(&patience)).unwrap() > 0, "nothing arrives");
}

/// Sends datagrams for many partitions from many ports, and checks which worker got which.
#[track_caller]
fn check_steering(ip: &str, worker_count: u16, queue_count: u32) {
    let Some(hosts) = Hosts::open(queue_count, Neighbours::Known) else { return };
    let mut workers = Workers::open(&hosts, &config(ip, worker_count, queue_count));
    // Ports, and so flows, differ, so that all queues are used.
    let clients: Vec<_> = (0..16).map(|_| hosts.client_socket(address(ip))).collect();
    let partitions: Vec<u16> = (0..4000_u16).map(|index| index.wrapping_mul(37) % 65_535).collect();
    let mut got = vec![0; usize::from(worker_count)];
    for burst in partitions.chunks(200) {
        for (index, partition) in burst.iter().enumerate() {
            clients[index % 16].send(&datagram(*partition)).unwrap();
        }
        for (worker, messages) in workers.receive(burst.len()).into_iter().enumerate() {
            got[worker] += messages.len();
            for (_, bytes) in messages {
                let partition = u16::from_le_bytes([bytes[8], bytes[9]]);
                assert_eq!(usize::from(partition % worker_count), worker, "{partition}");
                assert_eq!(bytes, datagram(partition));
            }
        }
    }
    let want = |worker| partitions.iter().filter(|p| *p % worker_count == worker).count();
    assert_eq!(got, (0..worker_count).map(want).collect::<Vec<_>>());
    assert_eq!(workers.0.iter().map(|(xdp, _)| xdp.refused()).sum::<u64>(), 0);
}

#[test]
fn each_partition_goes_to_its_worker_alone_from_any_queue() {
    check_steering(V4, 1, 1);
    check_steering(V4, 4, 1);
    check_steering(V4, 3, 2);
    check_steering(V4, 2, 2);
    check_steering(V6, 4, 1);
    check_steering(V6, 3, 2);
}

#[test]
fn any_partition_goes_to_the_queues_own_worker_or_to_a_random_one() {
    // One queue and four workers: random. Two and two: each flow has one worker.
    for queue_count in [1, 2] {
        let Some(hosts) = Hosts::open(queue_count, Neighbours::Known) else { return };
        let worker_count = if queue_count == 1 { 4 } else { 2 };
        let mut workers = Workers::open(&hosts, &config(V4, worker_count, queue_count));
        let clients: Vec<_> = (0..32).map(|_| hosts.client_socket(address(V4))).collect();
        for client in &clients {
            for _ in 0..10 {
                client.send(&datagram(u16::MAX)).unwrap();
            }
        }
        let got = workers.receive(320);
        assert!(got.iter().all(|messages| !messages.is_empty()), "32 flows meet all workers");
        if queue_count == 2 {
            for client in &clients {
                let from = Some(client.local_addr().unwrap());
                let heard = |messages: &&Vec<(Sender, Vec<u8>)>| {
                    messages.iter().any(|(sender, _)| sender.as_address() == from)
                };
                assert_eq!(got.iter().filter(heard).count(), 1);
            }
        }
    }
}

/// Threads change roles: other workers receive later datagrams, and arrived ones are not lost.
#[test]
fn the_steered_worker_changes_while_datagrams_come() {
    for queue_count in [1, 2] {
        let Some(hosts) = Hosts::open(queue_count, Neighbours::Known) else { return };
        let mut workers = Workers::open(&hosts, &config(V4, 4, queue_count));
        let helm = workers.0[0].0.helm();
        let clients: Vec<_> = (0..8).map(|_| hosts.client_socket(address(V4))).collect();
        let send_all = || {
            for partition in 0..64_u16 {
                clients[usize::from(partition) % 8].send(&datagram(partition)).unwrap();
            }
        };
        for owner_count in [1_u16, 3, 2, 4, 1] {
            send_all(); // By the owners of before: no worker has looked yet.
            helm.steer(owner_count).unwrap();
            assert_eq!(workers.receive(64).iter().map(Vec::len).sum::<usize>(), 64);
            send_all();
            for (worker, messages) in (0..).zip(workers.receive(64)) {
                for (_, bytes) in messages {
                    let partition = u16::from_le_bytes([bytes[8], bytes[9]]);
                    assert_eq!(partition % owner_count, worker, "{owner_count} owners");
                }
            }
        }
    }
}

#[test]
fn datagrams_too_short_for_a_partition_go_to_worker_0() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut workers = Workers::open(&hosts, &config(V4, 4, 1));
    let client = hosts.client_socket(address(V4));
    for len in 1..6 {
        client.send(&[0xff; 6][..len]).unwrap();
    }
    assert_eq!(workers.receive(5)[0].len(), 5);
}

#[test]
fn replies_reach_the_kernel_of_the_asking_client() {
    for ip in [V4, V6] {
        let Some(hosts) = Hosts::open(1, Neighbours::Asked) else { return };
        let mut workers = Workers::open(&hosts, &config(ip, 2, 1));
        let clients: Vec<_> = (0..3).map(|_| hosts.client_socket(address(ip))).collect();
        for round in 0..500_u16 {
            for client in &clients {
                client.send(&datagram(round)).unwrap();
            }
            let worker = usize::from(round % 2);
            let got = workers.receive(3).remove(worker);
            let xdp = &mut workers.0[worker].0;
            for (sender, bytes) in got {
                // Lengths differ, so that checksums end at odd bytes too.
                let reply = [&bytes[..], &vec![round as u8; usize::from(round)][..]].concat();
                xdp.queue(sender, &reply).unwrap();
            }
            while xdp.queued() > 0 {
                xdp.flush().unwrap();
            }
            for client in &clients {
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut bytes = [0; 2048];
                let len = client.recv(&mut bytes).unwrap();
                assert_eq!(len, 16 + usize::from(round));
                assert_eq!(bytes[..16], datagram(round));
                assert!(bytes[16..len].iter().all(|byte| *byte == round as u8));
            }
        }
    }
}

#[test]
fn a_peer_that_was_never_heard_needs_a_next_hop() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut server = Workers::open(&hosts, &config(V4, 1, 1));
    let to = Sender::from(address(V4));
    let ours: SocketAddr = "10.99.0.2:9".parse().unwrap();
    let mut config = XdpConfig::new(DEVICE, ours);
    let open = |config: &XdpConfig| {
        open_patiently(|| hosts.on_client(|| landing::xdp::open(config))).remove(0)
    };
    assert_eq!(open(&config).queue(to, b"somebody?"), Err(SendError::NoPeer));
    config.next_hop = Some(SERVER_MAC);
    let mut client = open(&config);
    client.queue(to, b"somebody?").unwrap();
    client.flush().unwrap();
    let got = server.receive(1).remove(0);
    assert_eq!((got[0].0.as_address(), &got[0].1[..]), (Some(ours), &b"somebody?"[..]));
}

#[test]
fn all_else_passes_to_the_stack() {
    let Some(hosts) = Hosts::open(1, Neighbours::Asked) else { return };
    let mut workers = Workers::open(&hosts, &config(V4, 1, 1));
    // TCP, and ARP before it.
    let listener = hosts.on_server(|| TcpListener::bind(address(V4))).unwrap();
    let mut stream = hosts.on_client(|| TcpStream::connect(address(V4))).unwrap();
    stream.write_all(b"over the stack").unwrap();
    let mut bytes = [0; 14];
    listener.accept().unwrap().0.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"over the stack");
    // UDP: another port; our port in fragments.
    let other = SocketAddr::new(address(V4).ip(), 7380);
    for (to, len) in [(other, 16), (address(V4), 3000)] {
        let stack = hosts.on_server(|| UdpSocket::bind(to)).unwrap();
        hosts.client_socket(to).send(&vec![7; len]).unwrap();
        stack.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stack.recv(&mut [0; 4096]).unwrap(), len);
    }
    assert_eq!(ping(&hosts), 0, "an echo reply");
    // Our own datagrams still arrive.
    hosts.client_socket(address(V4)).send(&datagram(1)).unwrap();
    assert_eq!(workers.receive(1)[0][0].1, datagram(1));
}

/// Sends an echo request, and returns the type of the reply.
fn ping(hosts: &Hosts) -> u8 {
    let icmp = socket2::Protocol::ICMPV4;
    let socket = hosts
        .on_client(|| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(icmp)))
        .unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Type 8, its checksum, identifier 0x4456.
    let request = [8, 0, 0xb3, 0xa9, 0x44, 0x56, 0, 0];
    socket.send_to(&request, &address(V4).into()).unwrap();
    let mut socket = socket;
    loop {
        let mut packet = [0; 128];
        let len = socket.read(&mut packet).unwrap();
        if packet[24..26.min(len)] == request[4..6] {
            return packet[20];
        }
    }
}

#[test]
fn a_wrong_checksum_is_refused() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut workers = Workers::open(&hosts, &config(V4, 1, 1));
    // UDP headers of our own making, below the kernel's: 1 is no checksum of these bytes.
    let udp = socket2::Protocol::UDP;
    let raw = hosts
        .on_client(|| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(udp)))
        .unwrap();
    let mut segment = [0; 24];
    segment[..8].copy_from_slice(&[0, 9, 0x1c, 0xd3, 0, 24, 0, 1]);
    raw.send_to(&segment, &address(V4).into()).unwrap();
    hosts.client_socket(address(V4)).send(&datagram(1)).unwrap();
    assert_eq!(workers.receive(1)[0].len(), 1);
    assert_eq!(workers.0[0].0.refused(), 1);
}

#[test]
fn veth_copies_and_says_so_once() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut config = config(V4, 2, 1);
    config.mode = Mode::ZeroCopy;
    assert!(hosts.on_server(|| landing::xdp::open(&config)).is_err(), "veth has no zero-copy");
    for (mode, want) in [(Mode::Auto, Some(Notice::CopyMode)), (Mode::Copy, None)] {
        config.mode = mode;
        let mut transports = hosts.open_xdp(&config);
        assert_eq!(transports[0].take_notice(), want);
        assert_eq!(transports[0].take_notice(), None);
        assert_eq!(transports[1].take_notice(), None);
    }
}

#[test]
fn a_worker_that_does_not_receive_holds_up_no_other() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut config = config(V4, 2, 1);
    config.ring_len = 64;
    let mut workers = Workers::open(&hosts, &config);
    let client = hosts.client_socket(address(V4));
    for _ in 0..1000 {
        client.send(&datagram(1)).unwrap();
    }
    let mut silent = workers.0.pop().unwrap();
    for _ in 0..1000 {
        client.send(&datagram(0)).unwrap();
        assert_eq!(workers.receive(1)[0].len(), 1);
    }
    assert_eq!(silent.0.kernel_drops().unwrap(), 1000 - 64);
    let landed = silent.0.receive(&mut silent.1).unwrap();
    assert_eq!(landed, 64, "what its ring held is still there");
}

#[test]
fn the_program_leaves_with_the_last_transport() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut transports = hosts.open_xdp(&config(V4, 2, 1));
    transports.pop();
    assert!(hosts.server_device().contains("xdp"));
    assert!(hosts.on_server(|| landing::xdp::open(&config(V4, 1, 1))).is_err(), "it is taken");
    transports.pop();
    // A program that another test starts at this moment holds its descriptor until its `exec`.
    let deadline = Instant::now() + PATIENCE;
    while hosts.server_device().contains("xdp") {
        assert!(Instant::now() < deadline, "the program stays");
    }
    let stack = hosts.on_server(|| UdpSocket::bind(address(V4))).unwrap();
    hosts.client_socket(address(V4)).send(&datagram(1)).unwrap();
    stack.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stack.recv(&mut [0; 64]).unwrap(), 16);
}

#[test]
fn a_killed_process_gives_its_queue_back() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let mut child = hosts.on_server(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["xdp::the_other_process", "--exact", "--nocapture"])
            .env(NAMESPACE, hosts.server_name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("open")), "it has the queue");
    assert!(hosts.server_device().contains("xdp"));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut workers = Workers::open(&hosts, &config(V4, 1, 1));
    hosts.client_socket(address(V4)).send(&datagram(1)).unwrap();
    assert_eq!(workers.receive(1)[0][0].1, datagram(1));
}

/// Not a test of its own: started by `a_killed_process_gives_its_queue_back`.
#[test]
fn the_other_process() {
    if std::env::var_os(NAMESPACE).is_none() {
        return;
    }
    let transports = landing::xdp::open(&config(V4, 1, 1)).unwrap();
    println!("open");
    // Until the parent kills it, or has ended itself.
    wait_readable(transports.iter());
}
