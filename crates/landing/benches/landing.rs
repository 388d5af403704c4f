//! Messages of 64 bytes from many senders into a log: one shared buffer against one for each.
//!
//! `cargo bench -p landing --bench landing [MESSAGES]`. CPU time is measured with both sides in
//! turns on one thread, so that neither waits; the rate with a core for each. The CPU time of both
//! sides counts: on loopback much of the receiver's kernel work is done in the sender's call (K21).

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landing::peers::{Peers, PeersConfig, WantedWay};
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
/// Messages on the way at once: fewer than the sockets' buffers hold.
const WINDOW: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// io_uring, one incremental ring for all.
    Shared,
    /// One unconnected socket, `recvmmsg` into the zone.
    Burst,
    /// The same with GRO; consecutive messages of a sender are joined.
    Joined,
    /// A connected socket for each sender, `recvmmsg` from each into one zone.
    Lanes,
    /// The same with GRO, one slot at a time, so that the log has few gaps.
    LanesJoined,
    /// A connected socket and an area for each sender, by epoll.
    Each,
}

/// The cost of a run: CPU time of each side, measured in turns so that neither waits; and the
/// elapsed time with each side on a core of its own.
#[derive(Clone, Copy, Default)]
struct Cost {
    receiver: Duration,
    sender: Duration,
    log_bytes: u64,
    wall: Duration,
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

/// A file in memory, if there is such a file system: no write-back disturbs.
fn file() -> io::Result<File> {
    tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile())
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

/// Takes landed messages, reads a byte of each, and posts spent segments again.
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

/// The receiving side, ready, and the addresses of each sender.
struct Setup {
    receiver: Box<dyn FnMut() -> io::Result<Done> + Send>,
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
        Kind::Lanes => lanes(sender_count, config(Offload::Off)),
        Kind::LanesJoined => {
            lanes(sender_count, UdpConfig { burst_max: 1, ..config(Offload::Auto) })
        }
        Kind::Each => each(sender_count),
    }
}

fn pairs(sender_count: usize, offload: Offload) -> io::Result<(Vec<UdpSocket>, Vec<Udp>)> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..sender_count {
        let (here, there) = (UdpSocket::bind(localhost())?, UdpSocket::bind(localhost())?);
        here.connect(there.local_addr()?)?;
        there.connect(here.local_addr()?)?;
        ours.push(here);
        theirs.push(Udp::from_socket(there, config(offload))?);
    }
    Ok((ours, theirs))
}

/// The counts of a receiver since it was made.
#[derive(Clone, Copy, Default)]
struct Done {
    /// Includes cut messages: they are not sent again here.
    messages: u64,
    /// Bytes of the log, including gaps.
    log_bytes: u64,
}

fn done(zone: &Zone) -> Done {
    let counters = zone.counters();
    let messages = counters.landed + counters.truncated;
    Done { messages, log_bytes: counters.landed_bytes + counters.skipped_bytes }
}

fn shared(sender_count: usize) -> io::Result<Setup> {
    let (ours, senders) = pairs(sender_count, Offload::Off)?;
    let mut zone = log(&file()?, SEGMENT_BYTES, SEGMENT_COUNT);
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

fn lanes(sender_count: usize, udp: UdpConfig) -> io::Result<Setup> {
    let (ours, senders) = pairs(sender_count, udp.offload)?;
    let mut zone = log(&file()?, SEGMENT_BYTES, SEGMENT_COUNT);
    let config = PeersConfig { way: WantedWay::Recvmmsg, udp, ..PeersConfig::default() };
    let mut peers = Peers::open(&mut zone, config)?;
    for socket in ours {
        peers.add_datagrams(socket)?;
    }
    let mut sum = 0;
    let receiver = Box::new(move || {
        peers.receive(&mut zone)?;
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
    let mut zone = log(&file()?, SEGMENT_BYTES, SEGMENT_COUNT);
    let mut sum = 0;
    let receiver = Box::new(move || {
        udp.receive(&mut zone)?;
        consume(&mut zone, &mut sum);
        Ok(done(&zone))
    });
    Ok(Setup { receiver, senders })
}

fn each(sender_count: usize) -> io::Result<Setup> {
    let (ours, senders) = pairs(sender_count, Offload::Off)?;
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut lanes = Vec::new();
    for (index, socket) in ours.into_iter().enumerate() {
        let udp = Udp::from_socket(socket, config(Offload::Off))?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poller, udp.as_fd(), data, epoll::EventFlags::IN)?;
        lanes.push((udp, log(&file()?, 256 << 10, 4)));
    }
    let (mut sum, mut total) = (0, Done::default());
    let receiver = Box::new(move || {
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::uninit() }; 256];
        let (events, _) = epoll::wait(&poller, &mut room, Some(&zero))?;
        for event in events {
            let (udp, zone) = &mut lanes[event.data.u64() as usize];
            let before = done(zone);
            udp.receive(zone)?;
            consume(zone, &mut sum);
            let after = done(zone);
            total.messages += after.messages - before.messages;
            total.log_bytes += after.log_bytes - before.log_bytes;
        }
        Ok(total)
    });
    Ok(Setup { receiver, senders })
}

/// Sends from all senders in turn, `group` messages at a time.
struct Sending {
    senders: Vec<Udp>,
    group: u64,
    turn: usize,
}

impl Sending {
    fn send(&mut self) -> io::Result<u64> {
        let sender_count = self.senders.len();
        let sender = &mut self.senders[self.turn % sender_count];
        for _ in 0..self.group {
            sender.queue(Lane(0).into(), &[1; MESSAGE_BYTES]).expect("an empty queue");
        }
        self.turn += 1;
        Ok(sender.flush()? as u64)
    }
}

/// One thread does both in turns: a window is sent, then received.
fn in_turns(setup: Setup, messages: u64, group: u64) -> io::Result<Cost> {
    let Setup { mut receiver, senders } = setup;
    let mut sending = Sending { senders, group, turn: 0 };
    let (mut cost, mut sent, mut done) = (Cost::default(), 0, Done::default());
    // Arms receives.
    receiver()?;
    while done.messages < messages {
        let start = thread_time();
        while sent < done.messages + WINDOW {
            sent += sending.send()?;
        }
        let middle = thread_time();
        while done.messages < sent {
            done = receiver()?;
        }
        cost.sender += middle - start;
        cost.receiver += thread_time() - middle;
    }
    cost.log_bytes = done.log_bytes;
    Ok(cost)
}

/// Two threads, each on a core; how long it takes.
fn side_by_side(setup: Setup, messages: u64, group: u64) -> io::Result<Duration> {
    let Setup { mut receiver, senders } = setup;
    let received = &AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || -> io::Result<()> {
            pin(1);
            let mut total = 0;
            while total < messages {
                total = receiver()?.messages;
                received.store(total, Ordering::Release);
            }
            Ok(())
        });
        let sending = scope.spawn(move || -> io::Result<()> {
            pin(0);
            let mut sending = Sending { senders, group, turn: 0 };
            let mut sent = 0;
            while sent < messages {
                if sent + group > received.load(Ordering::Acquire) + WINDOW {
                    std::thread::yield_now();
                    continue;
                }
                sent += sending.send()?;
            }
            Ok(())
        });
        receiving.join().expect("the receiver ran")?;
        sending.join().expect("the sender ran")
    })?;
    Ok(start.elapsed())
}

fn run(kind: Kind, sender_count: usize, messages: u64, group: u64) -> io::Result<Cost> {
    let cost = in_turns(setup(kind, sender_count)?, messages, group)?;
    let wall = side_by_side(setup(kind, sender_count)?, messages, group)?;
    Ok(Cost { wall, ..cost })
}

fn main() -> io::Result<()> {
    let messages = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(60_000);
    println!(
        "{messages} messages of {MESSAGE_BYTES} bytes into a file mapping, best of {ROUNDS} rounds"
    );
    println!("senders  group  transport  receive ns  send ns  log bytes  messages/s");
    for (sender_count, group) in [(4, 1), (64, 1), (144, 1), (4, 16), (144, 16)] {
        let kinds =
            [Kind::Shared, Kind::Burst, Kind::Joined, Kind::Lanes, Kind::LanesJoined, Kind::Each];
        let mut best = [None::<Cost>; 6];
        for _ in 0..ROUNDS {
            for (kind, best) in kinds.iter().zip(&mut best) {
                let cost = run(*kind, sender_count, messages, group)?;
                let best = best.get_or_insert(cost);
                best.receiver = best.receiver.min(cost.receiver);
                best.sender = best.sender.min(cost.sender);
                best.wall = best.wall.min(cost.wall);
            }
        }
        for (kind, cost) in kinds.iter().zip(best.into_iter().flatten()) {
            let each_ns = |time: Duration| time.as_nanos() as u64 / messages;
            let (receive, send) = (each_ns(cost.receiver), each_ns(cost.sender));
            let log_bytes = cost.log_bytes / messages;
            let rate = messages as f64 / cost.wall.as_secs_f64();
            print!("{sender_count:7}  {group:5}  {kind:<11?}  {receive:10}  ");
            println!("{send:7}  {log_bytes:9}  {rate:10.0}");
        }
    }
    Ok(())
}
