//! Messages sent without a copy: how long their bytes stay, and when it does not pay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::pinned::COPIED_MAX;

/// Bytes that count how often they were released.
struct Counted {
    bytes: Box<[u8]>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: the bytes, which are on the heap, never change.
unsafe impl Pinned for Counted {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A later read sees wrong bytes.
        self.bytes.fill(0xee);
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 11 % 200) as u8).collect()
}

fn counted(len: usize, drops: &Arc<AtomicUsize>) -> Box<dyn Pinned> {
    let (bytes, drops) = (pattern(len).into_boxed_slice(), Arc::clone(drops));
    Box::new(Counted { bytes, drops })
}

fn open_with(zero_copy: ZeroCopy) -> Option<(Uring, Zone)> {
    let mut zone = ring(4096, 4);
    let config = UringConfig { zero_copy, frame_bytes_max: 60_000, ..UringConfig::default() };
    match Uring::new(&mut zone, config) {
        Ok(uring) => Some((uring, zone)),
        Err(unavailable) => {
            println!("skipped: {unavailable}");
            None
        }
    }
}

/// A lane and the other end of its connection.
fn stream(uring: &mut Uring) -> (Lane, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nonblocking(true).unwrap();
    (uring.add_stream(listener.accept().unwrap().0).unwrap(), client)
}

/// Flushes until so many bytes have arrived at the other end, and until no value is held any more.
fn read_all(uring: &mut Uring, client: &mut TcpStream, len: usize) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    for _ in 0..10_000_000 {
        uring.flush().unwrap();
        match client.read(&mut chunk) {
            Ok(count) => all.extend_from_slice(&chunk[..count]),
            Err(_) if all.len() == len && uring.unsettled() == 0 => return all,
            Err(_) => std::thread::yield_now(),
        }
    }
    panic!("{} of {len} bytes came, {} uses are left", all.len(), uring.unsettled());
}

const MIB: usize = 1 << 20;

#[test]
fn a_value_arrives_behind_its_head_and_is_let_go_of_once() {
    for zero_copy in [ZeroCopy::Never, ZeroCopy::AlwaysFrom { bytes: 1 }] {
        let Some((mut uring, _zone)) = open_with(zero_copy) else { return };
        let (lane, mut client) = stream(&mut uring);
        let drops = Arc::default();
        uring.queue(lane.into(), b"before ").unwrap();
        assert!(uring.queue_pinned(lane.into(), b"head ", counted(MIB, &drops)).is_ok());
        uring.queue(lane.into(), b" behind").unwrap();
        let want = [&b"before head "[..], &pattern(MIB), b" behind"].concat();
        assert!(read_all(&mut uring, &mut client, want.len()) == want, "{zero_copy:?}");
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        let counters = uring.zero_copy_counters();
        assert_eq!(counters.taken, if zero_copy == ZeroCopy::Never { 0 } else { 3 });
        assert_eq!(counters.let_go, counters.taken);
    }
}

#[test]
fn a_value_stays_as_long_as_it_has_not_left() {
    let Some((mut uring, _zone)) = open_with(ZeroCopy::From { bytes: MIB }) else { return };
    let (lane, mut client) = stream(&mut uring);
    let drops = Arc::default();
    // More than the sockets' buffers hold.
    assert!(uring.queue_pinned(lane.into(), b"", counted(64 * MIB, &drops)).is_ok());
    for _ in 0..1000 {
        uring.flush().unwrap();
    }
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    assert!(read_all(&mut uring, &mut client, 64 * MIB) == pattern(64 * MIB));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!(uring.zero_copy_counters().taken, 1);
}

#[test]
fn a_peer_for_which_the_kernel_copies_gets_plain_sends() {
    let Some((mut uring, _zone)) = open_with(ZeroCopy::From { bytes: 1000 }) else { return };
    let (lane, mut client) = stream(&mut uring);
    let drops = Arc::default();
    let rounds = usize::from(COPIED_MAX) + 3;
    for _ in 0..rounds {
        assert!(uring.queue_pinned(lane.into(), b"", counted(5000, &drops)).is_ok());
        assert!(read_all(&mut uring, &mut client, 5000) == pattern(5000));
    }
    assert_eq!(drops.load(Ordering::Relaxed), rounds);
    let tries = u64::from(COPIED_MAX);
    let want = ZeroCopyCounters { taken: tries, let_go: tries, copied: tries };
    assert_eq!(uring.zero_copy_counters(), want, "loopback always copies");
    assert_eq!(uring.take_notice(), Some(Notice::ZeroCopyOff { lane }));
    assert_eq!(uring.take_notice(), None);
}

#[test]
fn a_short_message_is_sent_plainly() {
    let Some((mut uring, _zone)) = open_with(ZeroCopy::From { bytes: 1000 }) else { return };
    let (lane, mut client) = stream(&mut uring);
    let drops = Arc::default();
    assert!(uring.queue_pinned(lane.into(), b"head", counted(995, &drops)).is_ok());
    read_all(&mut uring, &mut client, 999);
    assert_eq!(uring.zero_copy_counters(), ZeroCopyCounters::default());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_peer_that_dies_lets_go_of_what_was_on_its_way() {
    for zero_copy in [ZeroCopy::Never, ZeroCopy::AlwaysFrom { bytes: 1 }] {
        let Some((mut uring, _zone)) = open_with(zero_copy) else { return };
        let (lane, mut client) = stream(&mut uring);
        let drops = Arc::default();
        assert!(uring.queue_pinned(lane.into(), b"", counted(64 * MIB, &drops)).is_ok());
        uring.flush().unwrap();
        assert!(client.read(&mut [0; 100]).unwrap() > 0, "it has begun to arrive");
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(client);
        let mut tries_left = 10_000_000;
        while drops.load(Ordering::Relaxed) == 0 {
            uring.flush().unwrap();
            std::thread::yield_now();
            tries_left -= 1;
            assert!(tries_left > 0, "the value is held for ever");
        }
        assert_eq!((drops.load(Ordering::Relaxed), uring.unsettled()), (1, 0));
    }
}

#[test]
fn a_transport_that_goes_changes_nothing_that_may_still_leave() {
    let Some((mut uring, zone)) = open_with(ZeroCopy::AlwaysFrom { bytes: 1 }) else { return };
    let (lane, mut client) = stream(&mut uring);
    let drops = Arc::default();
    assert!(uring.queue_pinned(lane.into(), b"", counted(64 * MIB, &drops)).is_ok());
    uring.flush().unwrap();
    drop((uring, zone));
    assert!(drops.load(Ordering::Relaxed) <= 1);
    client.set_nonblocking(false).unwrap();
    let mut all = Vec::new();
    // Whether the connection ends normally or is reset, the received bytes are those sent.
    let _ = client.read_to_end(&mut all);
    assert!(!all.is_empty() && all[..] == pattern(64 * MIB)[..all.len()]);
}

#[test]
fn datagrams_leave_so_too_and_in_order() {
    let Some((mut uring, _zone)) = open_with(ZeroCopy::AlwaysFrom { bytes: 1000 }) else { return };
    let (ours, theirs) = pair();
    let lane = uring.add_datagrams(ours).unwrap();
    let drops = Arc::default();
    uring.queue(lane.into(), b"before").unwrap();
    assert!(uring.queue_pinned(lane.into(), b"head", counted(20_000, &drops)).is_ok());
    for value in 0..3 {
        uring.queue(lane.into(), &frame(value, 1500)).unwrap();
    }
    uring.flush().unwrap();
    let mut bytes = vec![0; 1 << 16];
    let mut next = || {
        let len = theirs.recv(&mut bytes).unwrap();
        bytes[..len].to_vec()
    };
    assert_eq!(next(), b"before");
    assert!(next() == [&b"head"[..], &pattern(20_000)].concat());
    for value in 0..3 {
        assert_eq!(next(), frame(value, 1500));
    }
    while uring.unsettled() > 0 {
        uring.flush().unwrap();
    }
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    assert_eq!(uring.zero_copy_counters().taken, 2, "the value, and the three as one");
}

#[test]
fn what_cannot_be_queued_comes_back() {
    let Some((mut uring, _zone)) = open_with(ZeroCopy::default()) else { return };
    let (ours, _theirs) = pair();
    let lane = uring.add_datagrams(ours).unwrap();
    let drops = Arc::default();
    let (error, _) = uring.queue_pinned(Lane(9).into(), b"", counted(10, &drops)).unwrap_err();
    assert_eq!(error, SendError::NoPeer);
    let (error, value) =
        uring.queue_pinned(lane.into(), b"head", counted(60_000, &drops)).unwrap_err();
    assert_eq!(error, SendError::TooLong { len_bytes: 60_004, max_bytes: 60_000 });
    assert_eq!(value.bytes().len(), 60_000);
    drop(value);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    // A lane that closes meanwhile drops its values.
    assert!(uring.queue_pinned(lane.into(), b"", counted(10, &drops)).is_ok());
    uring.close(lane).unwrap();
    uring.flush().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}
