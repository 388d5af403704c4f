//! AF_XDP against the kernel's UDP over one veth pair: 64-byte messages one way, and round trips.
//!
//! `cargo bench -p landing --features xdp --bench xdp`, by root. Each case takes one or two
//! seconds.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

#[path = "../tests/xdp/namespaces.rs"]
#[allow(dead_code, reason = "shared with the tests, which use the rest")]
mod namespaces;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use landing::udp::{Offload, Udp, UdpConfig};
use landing::xdp::XdpConfig;
use landing::{Sender, Transport, Zone, ZoneSize};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::namespaces::{DEVICE, Hosts, Neighbours, SERVER_MAC, address, open_patiently};

const MESSAGE: [u8; 64] = [0; 64];
const CASE: Duration = Duration::from_secs(2);
const BURST: usize = 32;
/// Messages of one turn: fewer than the pair holds.
const TURN: usize = 128;

/// One side: a transport with its zone.
struct Side {
    transport: Box<dyn Transport + Send>,
    zone: Zone,
}

impl Side {
    fn new(transport: impl Transport + Send + 'static) -> Side {
        let zone = Zone::ring(ZoneSize::default(), Box::new(|_| true)).unwrap();
        Side { transport: Box::new(transport), zone }
    }

    /// Receives one burst; returns the sender of its last message.
    fn receive(&mut self) -> (u64, Option<Sender>) {
        let landed = self.transport.receive(&mut self.zone).unwrap();
        let last = std::iter::from_fn(|| self.zone.take()).last();
        self.zone.release_taken();
        (landed as u64, last.map(|completion| completion.sender()))
    }

    /// Queues up to that many messages, as far as there is room, and sends.
    fn send(&mut self, to: Sender, count: usize) -> u64 {
        let queued = (0..count).take_while(|_| self.transport.queue(to, &MESSAGE).is_ok()).count();
        self.transport.flush().unwrap();
        queued as u64
    }
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    // Best effort: a machine with one core measures too.
    let _ = sched_setaffinity(None, &cpus);
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs a step on a core of its own until told to stop; returns the sum of the steps' counts, and
/// CPU time.
fn spawn<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    cpu: usize,
    stop: &'scope AtomicBool,
    mut step: impl FnMut() -> u64 + Send + 'scope,
) -> ScopedJoinHandle<'scope, (u64, u64)> {
    scope.spawn(move || {
        pin(cpu);
        let (mut count, started) = (0, cpu_ns());
        while !stop.load(Ordering::Relaxed) {
            count += step();
        }
        (count, cpu_ns() - started)
    })
}

/// Both sides in turns on one thread, so that neither waits and nothing is lost: the cost of each.
fn turns(name: &str, server: &mut Side, client: &mut Side, to: Sender) {
    pin(1);
    let (mut landed, mut sent, mut server_ns, mut client_ns) = (0, 0, 0, 0);
    let end = Instant::now() + CASE / 2;
    while Instant::now() < end {
        let started = cpu_ns();
        sent += client.send(to, TURN);
        let between = cpu_ns();
        loop {
            let (count, _) = server.receive();
            landed += count;
            if count == 0 {
                break;
            }
        }
        client_ns += between - started;
        server_ns += cpu_ns() - between;
    }
    println!(
        "| {name} | {:.1} % landed | {} | {} |",
        landed as f64 / sent as f64 * 100.0,
        server_ns / landed.max(1),
        client_ns / sent.max(1)
    );
}

/// One way, as fast as it goes.
fn flood(name: &str, server: &mut Side, client: &mut Side, to: Sender) {
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let ((landed, _), (sent, _)) = std::thread::scope(|scope| {
        let receiving = spawn(scope, 1, &stop, || server.receive().0);
        let sending = spawn(scope, 0, &stop, || client.send(to, BURST));
        std::thread::sleep(CASE);
        stop.store(true, Ordering::Relaxed);
        (receiving.join().unwrap(), sending.join().unwrap())
    });
    let rate = landed as f64 / started.elapsed().as_secs_f64() / 1e6;
    let sent = sent as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("| {name} | {rate:.2} M/s of {sent:.2} sent | | |");
}

/// One message there and back, both sides polling.
fn round_trips(name: &str, server: &mut Side, client: &mut Side, to: Sender) {
    let stop = AtomicBool::new(false);
    let mut times_ns = Vec::with_capacity(1 << 20);
    std::thread::scope(|scope| {
        let echo = spawn(scope, 1, &stop, || match server.receive() {
            (landed, Some(from)) => server.send(from, landed as usize),
            _ => 0,
        });
        pin(0);
        let end = Instant::now() + CASE;
        while Instant::now() < end {
            let started = Instant::now();
            client.send(to, 1);
            // A lost message counts as lost, not as slow.
            while started.elapsed() < Duration::from_millis(50) {
                if client.receive().0 > 0 {
                    times_ns.push(started.elapsed().as_nanos() as u64);
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        echo.join().unwrap();
    });
    times_ns.sort_unstable();
    let at = |share: f64| times_ns[(times_ns.len() as f64 * share) as usize] as f64 / 1000.0;
    println!("| {name} | {:.1} us median, {:.1} us p90 | | |", at(0.5), at(0.9));
}

fn main() {
    let Some(hosts) = Hosts::open(1, Neighbours::Known) else { return };
    let ours: SocketAddr = "10.99.0.2:9999".parse().unwrap();
    println!("| case | result | server CPU, ns a message | client CPU, ns a message |");
    println!("|---|---|---|---|");
    {
        let config = UdpConfig { offload: Offload::Off, ..UdpConfig::default() };
        let server = hosts.on_server(|| Udp::bind(address("10.99.0.1"), config)).unwrap();
        let socket = hosts.client_socket(address("10.99.0.1"));
        let client = Udp::from_socket(socket, config).unwrap();
        let (mut server, mut client) = (Side::new(server), Side::new(client));
        let to = Sender::lane(landing::Lane(0));
        turns("kernel UDP, in turns", &mut server, &mut client, to);
        flood("kernel UDP, one way", &mut server, &mut client, to);
        while server.receive().0 > 0 {}
        round_trips("kernel UDP, round trip", &mut server, &mut client, to);
    }
    let server = hosts.open_xdp(&XdpConfig::new(DEVICE, address("10.99.0.1"))).remove(0);
    let mut config = XdpConfig::new(DEVICE, ours);
    config.next_hop = Some(SERVER_MAC);
    let client = open_patiently(|| hosts.on_client(|| landing::xdp::open(&config))).remove(0);
    let (mut server, mut client) = (Side::new(server), Side::new(client));
    let to = Sender::from(address("10.99.0.1"));
    turns("AF_XDP (copy), in turns", &mut server, &mut client, to);
    flood("AF_XDP (copy), one way", &mut server, &mut client, to);
    while server.receive().0 > 0 {}
    round_trips("AF_XDP (copy), round trip", &mut server, &mut client, to);
}
