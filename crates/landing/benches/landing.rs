//! Messages of 64 bytes from many senders into a log: one shared buffer against one for each.
//!
//! `cargo bench -p landing --bench landing [MESSAGES]`. One thread sends for all, one receives, each on
//! a core of its own; what counts is the CPU time of both, since on loopback the receiver's share
//! of the kernel's work is done in the sender's call (K21).

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landing::udp::{Offload, Udp, UdpConfig};
use landing::uring::{Uring, UringConfig};
use landing::{Lane, Region, Transport, Zone, ZoneSize};
use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

const MESSAGE_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 4 << 20;
const SEGMENT_COUNT: usize = 8;
const ROUNDS: usize = 3;
/// Messages on the way at once: below what the sockets' buffers hold.
const WINDOW: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// io_uring, one incremental ring for all.
    Shared,
    /// One unconnected socket, `recvmmsg` into the zone.
    Burst,
    /// The same with GRO, the senders' messages joined as far as they are neighbours.
    Joined,
    /// A connected socket and an area for each sender, by epoll.
    Each,
}

/// What a run cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    messages: u64,
    wall: Duration,
    receiver: Duration,
    sender: Duration,
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // A machine with one core shares it.
    let _ = sched_setaffinity(None, &cores);
}

/// A log in a file mapping, all of it posted.
fn log(file: &File, segment_bytes: usize, segment_count: usize) -> Zone {
    file.set_len((segment_bytes * segment_count) as u64).expect("room for the log");
    let region = Region::file(file, segment_bytes * segment_count).expect("a mapping of the log");
    let size = ZoneSize {
        buffer_bytes: segment_bytes,
        buffer_count: segment_count,
        completions_max: 8192,
    };
    let mut zone = Zone::log(region, size, Box::new(|message| message.len() == MESSAGE_BYTES));
    for index in 0..segment_count {
        zone.post(index * segment_bytes).expect("a fresh segment");
    }
    zone
}

/// Takes what has landed, reads a byte of each, and posts spent segments again.
fn consume(zone: &mut Zone, sum: &mut u64) {
    while let Some(completion) = zone.take() {
        *sum += u64::from(zone.bytes(&completion)[0]);
    }
    zone.release_taken();
    while let Some(spent) = zone.take_spent() {
        zone.post(spent.offset_bytes).expect("it was just taken back");
    }
}

fn localhost() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The receiving side, ready; where each sender sends from and to.
struct Setup {
    receiver: Box<dyn FnMut() -> io::Result<u64> + Send>,
    senders: Vec<Udp>,
}

fn config(offload: Offload) -> UdpConfig {
    UdpConfig { frame_bytes_max: 2048, offload, burst_max: 64, ..UdpConfig::default() }
}

fn setup(kind: Kind, sender_count: usize) -> io::Result<Setup> {
    match kind {
        Kind::Shared => shared(sender_count),
        Kind::Burst => burst(sender_count, Offload::Off),
        Kind::Joined => burst(sender_count, Offload::Auto),
        Kind::Each => each(sender_count),
    }
}

fn pairs(sender_count: usize) -> io::Result<(Vec<UdpSocket>, Vec<Udp>)> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..sender_count {
        let (here, there) = (UdpSocket::bind(localhost())?, UdpSocket::bind(localhost())?);
        here.connect(there.local_addr()?)?;
        there.connect(here.local_addr()?)?;
        ours.push(here);
        theirs.push(Udp::from_socket(there, config(Offload::Off))?);
    }
    Ok((ours, theirs))
}

/// Messages that were dealt with: cut ones are not sent again here.
fn done(zone: &Zone) -> u64 {
    zone.counters().landed + zone.counters().truncated
}

fn shared(sender_count: usize) -> io::Result<Setup> {
    let (ours, senders) = pairs(sender_count)?;
    let mut zone = log(&tempfile::tempfile()?, SEGMENT_BYTES, SEGMENT_COUNT);
    let mut uring = Uring::new(&mut zone, UringConfig::default())
        .map_err(|e| io::Error::other(e.to_string()))?;
    for socket in ours {
        uring.add_datagrams(socket)?;
    }
    let mut sum = 0;
    let receiver = Box::new(move || {
        uring.receive(&mut zone)?;
        consume(&mut zone, &mut sum);
        Ok(done(&zone))
    });
    Ok(Setup { receiver, senders })
}

fn burst(sender_count: usize, offload: Offload) -> io::Result<Setup> {
    let mut udp = Udp::bind(localhost(), config(offload))?;
    let address = udp.local_address()?;
    let connect = |_| Udp::connect(localhost(), address, config(offload));
    let senders = (0..sender_count).map(connect).collect::<io::Result<Vec<_>>>()?;
    let mut zone = log(&tempfile::tempfile()?, SEGMENT_BYTES, SEGMENT_COUNT);
    let mut sum = 0;
    let receiver = Box::new(move || {
        udp.receive(&mut zone)?;
        consume(&mut zone, &mut sum);
        Ok(done(&zone))
    });
    Ok(Setup { receiver, senders })
}

fn each(sender_count: usize) -> io::Result<Setup> {
    let (ours, senders) = pairs(sender_count)?;
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut lanes = Vec::new();
    for (index, socket) in ours.into_iter().enumerate() {
        let udp = Udp::from_socket(socket, config(Offload::Off))?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poller, udp.as_fd(), data, epoll::EventFlags::IN)?;
        lanes.push((udp, log(&tempfile::tempfile()?, 256 << 10, 4)));
    }
    let (mut sum, mut total) = (0, 0);
    let receiver = Box::new(move || {
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::uninit() }; 256];
        let (events, _) = epoll::wait(&poller, &mut room, Some(&zero))?;
        for event in events {
            let (udp, zone) = &mut lanes[event.data.u64() as usize];
            total += udp.receive(zone)? as u64;
            consume(zone, &mut sum);
        }
        Ok(total)
    });
    Ok(Setup { receiver, senders })
}

/// Sends `messages` from all senders in turn, `group` at a time, and receives them.
fn run(kind: Kind, sender_count: usize, messages: u64, group: u64) -> io::Result<Cost> {
    let Setup { mut receiver, mut senders } = setup(kind, sender_count)?;
    let received = AtomicU64::new(0);
    let start = Instant::now();
    let (received, mut cost) = (&received, Cost { messages, ..Cost::default() });
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || -> io::Result<Duration> {
            pin(1);
            let before = thread_time();
            let mut total = 0;
            while total < messages {
                total = receiver()?;
                received.store(total, Ordering::Release);
            }
            Ok(thread_time() - before)
        });
        let sending = scope.spawn(move || -> io::Result<Duration> {
            pin(0);
            let before = thread_time();
            let (mut sent, mut turn) = (0, 0);
            while sent < messages {
                if sent + group > received.load(Ordering::Acquire) + WINDOW {
                    std::thread::yield_now();
                    continue;
                }
                let sender = &mut senders[turn % sender_count];
                for _ in 0..group {
                    sender.queue(Lane(0).into(), &[1; MESSAGE_BYTES]).expect("an empty queue");
                }
                sent += sender.flush()? as u64;
                turn += 1;
            }
            Ok(thread_time() - before)
        });
        cost.receiver = receiving.join().expect("the receiver ran")?;
        cost.sender = sending.join().expect("the sender ran")?;
        io::Result::Ok(())
    })?;
    cost.wall = start.elapsed();
    Ok(cost)
}

fn main() -> io::Result<()> {
    let messages = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(60_000);
    println!(
        "{messages} messages of {MESSAGE_BYTES} bytes into a file mapping, best of {ROUNDS} rounds"
    );
    println!("senders  group  transport  receiver ns  both ns  messages/s");
    for (sender_count, group) in [(4, 1), (64, 1), (144, 1), (4, 16), (144, 16)] {
        let kinds = [Kind::Shared, Kind::Burst, Kind::Joined, Kind::Each];
        let mut best = [None::<Cost>; 4];
        for _ in 0..ROUNDS {
            for (kind, best) in kinds.iter().zip(&mut best) {
                let cost = run(*kind, sender_count, messages, group)?;
                let is_better = best
                    .is_none_or(|best| cost.receiver + cost.sender < best.receiver + best.sender);
                if is_better {
                    *best = Some(cost);
                }
            }
        }
        for (kind, cost) in kinds.iter().zip(best.into_iter().flatten()) {
            let each_ns = |time: Duration| time.as_nanos() as u64 / cost.messages;
            let rate = cost.messages as f64 / cost.wall.as_secs_f64();
            let (receiver, both) = (each_ns(cost.receiver), each_ns(cost.receiver + cost.sender));
            println!(
                "{sender_count:7}  {group:5}  {kind:<9?}  {receiver:11}  {both:7}  {rate:10.0}"
            );
        }
    }
    Ok(())
}
