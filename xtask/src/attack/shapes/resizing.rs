//! An attack on a server whose cap is raised and lowered again and again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{KNOWN, Shape};
use crate::attack::door::{Door, Stream};
use crate::attack::memory::{Memory, allowed_bytes, forget_peak, mib};
use crate::attack::script::{command, commands};
use crate::attack::target::Target;
use crate::conformance::reply::{Reply, Wire};

/// The cap is lowered this often, and more often in a long attack.
const SHRINKS_MIN: usize = 3;
/// What is added to the cap before each shrink.
const MORE_BYTES: u64 = 192 << 20;
/// The time in which clients fill a raised cap, and the time for which a lowered one must hold.
const HOLD: Duration = Duration::from_millis(700);
/// The time in which the heap returns free pages (decision 0101), and a little more.
const SETTLING: Duration = Duration::from_millis(1_200);
/// The time limit for a change of the cap, and for free pages to return.
const CHANGE_MAX: Duration = Duration::from_secs(15);
/// A client opens this many connections before it closes the first.
const CONNECTIONS_EACH: usize = 60;
/// The pause between two connections of a client.
const PAUSE: Duration = Duration::from_millis(2);

pub const SHAPES: &[Shape] = &[Shape::new(
    "resize",
    Door::Resp,
    "the cap goes up and down under writers and half-sent, queued and unread commands",
    resized,
)
.by(KNOWN)];

/// One kind of client: what each of its connections sends, a different text each time.
type Client = fn(u64) -> Vec<u8>;

/// Each leaves blocks of other lengths in the heap, for other lifetimes.
const CLIENTS: &[(Door, Client)] = &[
    (Door::Resp, |at| {
        let lengths = [5, 100, 2_000, 30_000];
        let lines = (at..at + 400).map(|key| {
            let value = "x".repeat(lengths[(key.wrapping_mul(31) % 4) as usize]);
            format!("SET resize:{} {value}", key.wrapping_mul(7_919) % 30_000)
        });
        commands(lines)
    }),
    (Door::Resp, |at| {
        let sent = "a".repeat((at.wrapping_mul(104_729) % 1_000_000) as usize);
        format!("*3\r\n$3\r\nSET\r\n$6\r\nresize\r\n$3000000\r\n{sent}").into_bytes()
    }),
    (Door::Resp, |at| {
        let sets = (0..20).map(|key| format!("SET resize:{} {}", at + key, "b".repeat(20_000)));
        commands(std::iter::once("MULTI".to_owned()).chain(sets))
    }),
    (Door::Resp, |at| {
        let gets = (at..at + 3_000).map(|key| format!("GET resize:{}", key % 30_000));
        let first = ["HELLO 3", "CLIENT TRACKING ON"].map(str::to_owned);
        commands(first.into_iter().chain(gets))
    }),
    (Door::Memcached, |_| [&b"set resize 0 0 900000\r\n"[..], &[b'c'; 500_000]].concat()),
];

/// Raises and lowers the cap under all clients; the resident memory follows each time.
fn resized(target: &Target) -> Result<u64> {
    let (is_over, refused) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for &(door, client) in CLIENTS {
            scope.spawn(move || connect_again(target, door, client, is_over, refused));
        }
        let mut shrinks = 0;
        let mut lower_again = || {
            while shrinks < SHRINKS_MIN || !target.is_over() {
                set_cap(target, target.cap_bytes + MORE_BYTES)?;
                std::thread::sleep(HOLD);
                set_cap(target, target.cap_bytes)?;
                shrinks += 1;
                stays_within(target).with_context(|| format!("after shrink {shrinks}"))?;
            }
            Ok(())
        };
        let outcome = lower_again();
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
    .map(|()| refused.load(Ordering::Relaxed))
}

/// Opens connections that send their part and read nothing, and closes the oldest.
fn connect_again(
    target: &Target,
    door: Door,
    client: Client,
    is_over: &AtomicBool,
    refused: &AtomicU64,
) {
    let mut streams: Vec<Box<dyn Stream>> = Vec::new();
    let mut at = 0;
    while !is_over.load(Ordering::Relaxed) {
        if streams.len() == CONNECTIONS_EACH {
            streams.drain(..CONNECTIONS_EACH / 3);
        }
        let stream = target.open(door).and_then(|mut stream| {
            // A full socket ends the text: the server does not read a client that does not.
            stream.set_nonblocking(true)?;
            let _ = stream.write(&client(at))?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => streams.push(stream),
            Err(_) => _ = refused.fetch_add(1, Ordering::Relaxed),
        }
        at += 401;
        std::thread::sleep(PAUSE);
    }
}

/// Changes the cap; a server that has not yet made room for a lower one is asked again.
fn set_cap(target: &Target, bytes: u64) -> Result<()> {
    let until = Instant::now() + CHANGE_MAX;
    loop {
        let mut wire: Wire = target.operator()?;
        let words = command(&format!("CONFIG SET maxmemory {bytes}"));
        wire.send(&words);
        let reply = wire.reply()?;
        if reply == Reply::One(b"+OK\r\n".to_vec()) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "CONFIG SET maxmemory {bytes}: {}", reply.shown());
        std::thread::sleep(PAUSE);
    }
}

/// Waits until resident memory is what the cap allows, and sees that it stays so under load.
fn stays_within(target: &Target) -> Result<()> {
    let peak_bytes = || {
        let memory = Memory::of(target.pid).context("the server has ended")?;
        anyhow::Ok(memory.peak_bytes)
    };
    let allowed = allowed_bytes(target.cap_bytes);
    let until = Instant::now() + CHANGE_MAX;
    loop {
        ensure!(forget_peak(target.pid), "the peak of the server's memory cannot be reset");
        let now = peak_bytes()?;
        if now <= allowed {
            break;
        }
        let late = "MiB are resident long after a shrink, and the cap allows";
        ensure!(Instant::now() < until, "{} {late} {}", mib(now), mib(allowed));
        std::thread::sleep(PAUSE);
    }
    // Pages that were freed within the last second may be resident beside the cap.
    std::thread::sleep(SETTLING);
    ensure!(forget_peak(target.pid), "the peak of the server's memory cannot be reset");
    std::thread::sleep(HOLD);
    let peak = peak_bytes()?;
    let above = "MiB were resident under a lowered cap, which allows";
    ensure!(peak <= allowed, "{} {above} {}", mib(peak), mib(allowed));
    Ok(())
}
