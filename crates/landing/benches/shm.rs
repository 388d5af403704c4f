//! The cost of a message through shared memory, without any work on it.
//!
//! ```text
//!  cargo bench -p landing --bench shm                  all cases
//!  cargo bench -p landing --bench shm -- echo-1        the cases whose name begins so
//! ```
//!
//! The client runs on core 1 and the server on core 0, each with a mapping of its own, as two
//! processes have. Messages have 64 bytes unless the case says otherwise.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use landing::shm::{
    Accepted, Acceptor, AcceptorConfig, Armed, ClientConfig, ClientEnd, Frame, ServerEnd,
};
use rustix::event::{PollFd, PollFlags};
use rustix::thread::CpuSet;

const CASE_TIME: Duration = Duration::from_millis(800);
const MESSAGE_BYTES: usize = 64;
const BURST_MAX: usize = 64;

/// How both sides wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Polling,
    Blocking,
}

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let case = |name: &str, run: &dyn Fn() -> String| {
        if name.starts_with(&wanted) {
            println!("{name:<18} {}", run());
        }
    };
    for len_bytes in [16, 64, 100, 256, 1024, 16 << 10, 60 << 10] {
        case(&format!("alone-{len_bytes}"), &|| alone(len_bytes));
    }
    for batch in [1, 8, 16, 32] {
        case(&format!("stream-{batch}"), &|| stream(batch));
    }
    for depth in [1, 8, 32] {
        case(&format!("echo-{depth}"), &|| echo(depth, Waiting::Polling));
    }
    for depth in [1, 32] {
        case(&format!("blocking-{depth}"), &|| echo(depth, Waiting::Blocking));
    }
}

fn landed(frame: Frame) {
    black_box(frame);
}

fn connect() -> (Acceptor, ServerEnd, ClientEnd) {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("dovetail-bench-{}.sock", std::process::id()));
    let acceptor = Acceptor::listen(&path, AcceptorConfig::default()).unwrap();
    let client = std::thread::spawn(move || connect_to(&path));
    // Blocks: the client may have to start on this very core.
    rustix::event::poll(&mut [PollFd::new(&acceptor, PollFlags::IN)], None).unwrap();
    let Accepted::Client(server) = acceptor.accept().unwrap() else { panic!("one was waiting") };
    (acceptor, server, client.join().unwrap())
}

fn connect_to(path: &Path) -> ClientEnd {
    let config = ClientConfig { spin_rounds: 0, ..ClientConfig::default() };
    ClientEnd::connect(path, config).unwrap()
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    // One core is enough to run it, but not to measure it.
    if rustix::thread::sched_setaffinity(None, &cores).is_err() {
        eprintln!("cannot pin to core {core}: these figures mean little");
    }
}

/// One thread writes and takes: the cost of the copies and indexes when no line changes cores.
fn alone(len_bytes: usize) -> String {
    pin(0);
    let (_acceptor, mut server, mut client) = connect();
    let message = vec![1; len_bytes];
    let mut arena = vec![0; 64 << 10];
    let mut count = 0_u32;
    let start = Instant::now();
    while start.elapsed() < CASE_TIME / 3 {
        for _ in 0..64 {
            assert!(client.write(&message).unwrap());
            client.publish();
            count += server.poll(&mut arena, 1, landed).unwrap() as u32;
            server.publish();
        }
    }
    format!("{:7.1} ns for both copies", start.elapsed().as_nanos() as f64 / f64::from(count))
}

/// One way: the client writes as fast as there is room, the server takes.
fn stream(batch: usize) -> String {
    let (_acceptor, mut server, mut client) = connect();
    let is_over = AtomicBool::new(false);
    let (count, elapsed) = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let message = [1; MESSAGE_BYTES];
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..batch {
                    while !client.write(&message).unwrap() {
                        client.publish();
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                }
                client.publish();
            }
        });
        pin(0);
        let mut arena = vec![0; 64 << 10];
        let mut count = 0_u64;
        let start = Instant::now();
        while start.elapsed() < CASE_TIME {
            for _ in 0..64 {
                count += server.poll(&mut arena, BURST_MAX, landed).unwrap() as u64;
                server.publish();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        (count, start.elapsed())
    });
    format!("{:7.1} M messages/s", count as f64 / elapsed.as_micros() as f64)
}

/// Round trips with so many messages outstanding.
fn echo(depth: usize, waiting: Waiting) -> String {
    let (_acceptor, mut server, mut client) = connect();
    let is_over = AtomicBool::new(false);
    let (mut laps_ns, busy_ns) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            pin(0);
            serve(&mut server, waiting, &is_over)
        });
        pin(1);
        let laps_ns = ask(&mut client, depth, waiting);
        is_over.store(true, Ordering::Relaxed);
        // Wakes a server that sleeps.
        client.write(&[0]).unwrap();
        client.publish();
        (laps_ns, serving.join().unwrap())
    });
    laps_ns.sort_unstable();
    let messages = laps_ns.len() * depth;
    let total_ns: u64 = laps_ns.iter().sum();
    format!(
        "{:7.0} ns median, {:7.0} ns p99, {:7.2} M messages/s, {:6.1} ns of server CPU each",
        laps_ns[laps_ns.len() / 2],
        laps_ns[laps_ns.len() * 99 / 100],
        messages as f64 * 1000.0 / total_ns as f64,
        busy_ns as f64 / messages as f64,
    )
}

/// Sends a batch and takes all replies, repeatedly; returns the duration of each lap.
fn ask(client: &mut ClientEnd, depth: usize, waiting: Waiting) -> Vec<u64> {
    let message = [1; MESSAGE_BYTES];
    let mut arena = vec![0; 64 << 10];
    let mut laps_ns = Vec::with_capacity(16 << 20);
    let start = Instant::now();
    let mut lap_start = start;
    while lap_start - start < CASE_TIME && laps_ns.len() < laps_ns.capacity() {
        for _ in 0..depth {
            assert!(client.write(&message).unwrap());
        }
        client.publish();
        let mut left = depth;
        while left > 0 {
            left -= client.poll(&mut arena, BURST_MAX, landed).unwrap();
            if left > 0 && waiting == Waiting::Blocking {
                client.wait(None).unwrap();
            }
        }
        let now = Instant::now();
        laps_ns.push((now - lap_start).as_nanos() as u64);
        lap_start = now;
    }
    laps_ns
}

/// Sends every message back; returns the run time of its thread.
fn serve(server: &mut ServerEnd, waiting: Waiting, is_over: &AtomicBool) -> u64 {
    let mut arena = vec![0; 64 << 10];
    let mut frames = Vec::with_capacity(BURST_MAX);
    let before_ns = thread_ns();
    while !is_over.load(Ordering::Relaxed) {
        frames.clear();
        server.poll(&mut arena, BURST_MAX, |frame| frames.push(frame)).unwrap();
        for frame in &frames {
            assert!(server.write(&arena[frame.offset..][..frame.len_bytes]).unwrap());
        }
        if !frames.is_empty() {
            server.publish();
        } else if waiting == Waiting::Blocking && server.arm(0).unwrap() == Armed::Sleep {
            let mut polled = [PollFd::new(&*server, PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
            server.hear().unwrap();
        }
    }
    thread_ns() - before_ns
}

/// The run time of this thread.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
