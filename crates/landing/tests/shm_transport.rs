//! Clients in shared memory as lanes of one transport: replies, turns, sleep, and ends.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use landing::shm::{
    Acceptor, AcceptorConfig, ClientConfig, ClientEnd, Gone, RingSize, Shm, ShmConfig,
};
use landing::{Lane, SendError, Transport, Zone, ZoneSize};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::hostile;
use crate::shm_rig::accept;

/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
const RING_BYTES: u64 = 4096;
const FRAME_BYTES_MAX: usize = 1016;

/// A transport with its zone and its acceptor.
struct Server {
    acceptor: Acceptor,
    shm: Shm,
    zone: Zone,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

fn server() -> Server {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dovetail.sock");
    let ring = RingSize::new(RING_BYTES).unwrap();
    let acceptor_config = AcceptorConfig { ring, clients_max: 4, ..AcceptorConfig::default() };
    let size = ZoneSize { buffer_bytes: 2048, buffer_count: 4, completions_max: 64 };
    Server {
        acceptor: Acceptor::listen(&path, acceptor_config).unwrap(),
        shm: Shm::new(ShmConfig { ring, burst_max: 8, turn_max: 3 }).unwrap(),
        zone: Zone::ring(size, Box::new(|_| true)).unwrap(),
        path,
        _directory: directory,
    }
}

impl Server {
    fn connect<T: Send>(&mut self, connect: impl FnOnce(&PathBuf) -> T + Send) -> (Lane, T) {
        let (path, acceptor) = (&self.path, &self.acceptor);
        let (end, client) = std::thread::scope(|scope| {
            let client = scope.spawn(|| connect(path));
            (accept(acceptor), client.join().unwrap())
        });
        (self.shm.add(end).unwrap(), client)
    }

    fn client(&mut self) -> (Lane, ClientEnd) {
        self.connect(|path| ClientEnd::connect(path, ClientConfig::default()).unwrap())
    }

    /// One receive: the lane and the bytes of each message.
    fn receive(&mut self) -> Vec<(Lane, Vec<u8>)> {
        self.shm.receive(&mut self.zone).unwrap();
        let mut all = Vec::new();
        while let Some(completion) = self.zone.take() {
            let lane = completion.sender().as_lane().unwrap();
            all.push((lane, self.zone.bytes(&completion).to_vec()));
        }
        self.zone.release_taken();
        all
    }

    /// Receives until a lane is closed; returns the messages that landed meanwhile, and why it was
    /// closed.
    fn receive_until_closed(&mut self) -> (Vec<Vec<u8>>, Lane, Gone) {
        let mut landed = Vec::new();
        let began = Instant::now();
        // A process that another test starts holds the client's socket until it runs its program.
        while began.elapsed() < PATIENCE {
            landed.extend(self.receive().into_iter().map(|(_, bytes)| bytes));
            if let Some((lane, gone)) = self.shm.take_closed() {
                return (landed, lane, gone);
            }
            std::thread::yield_now();
        }
        panic!("no lane was closed");
    }

    fn is_rung(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let fd = self.shm.as_fd();
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)) == Ok(1)
    }
}

fn send(client: &mut ClientEnd, frames: &[&[u8]]) {
    for frame in frames {
        assert!(client.write(frame).unwrap());
    }
    client.publish();
}

#[test]
fn requests_land_by_lane_and_replies_go_back() {
    let mut server = server();
    let (first, mut one) = server.client();
    let (second, mut other) = server.client();
    assert_eq!(server.shm.client_count(), 2);
    assert_eq!(server.shm.peer(first).unwrap().process_id, std::process::id() as i32);
    send(&mut one, &[b"from one", b"again"]);
    send(&mut other, &[b"from other"]);
    let mut landed = server.receive();
    landed.sort_by_key(|(lane, _)| *lane);
    let want: [(Lane, &[u8]); 3] =
        [(first, b"from one"), (first, b"again"), (second, b"from other")];
    assert!(landed.iter().map(|(lane, bytes)| (*lane, &bytes[..])).eq(want));
    let room = server.shm.reserve(second.into(), 100).unwrap();
    room[..5].copy_from_slice(b"reply");
    server.shm.commit(5);
    server.shm.queue(first.into(), b"and another").unwrap();
    assert_eq!(server.shm.queued(), 2);
    assert_eq!(other.receive().unwrap(), None, "it is not published before the flush");
    assert_eq!(server.shm.flush().unwrap(), 2);
    assert_eq!(server.shm.queued(), 0);
    assert_eq!(one.receive().unwrap(), Some(&b"and another"[..]));
    assert_eq!(other.receive().unwrap(), Some(&b"reply"[..]));
}

#[test]
fn a_reply_that_has_no_room_is_refused_and_goes_when_the_client_has_read() {
    let mut server = server();
    let (lane, mut client) = server.client();
    let frame = [7; FRAME_BYTES_MAX];
    while server.shm.queue(lane.into(), &frame) == Ok(()) {}
    server.shm.flush().unwrap();
    assert_eq!(server.shm.reserve(lane.into(), FRAME_BYTES_MAX).err(), Some(SendError::Full));
    send(&mut client, &[b"request"]);
    assert_eq!(server.receive(), [], "T2: nothing is taken while a reply might not fit");
    assert_eq!(client.receive().unwrap(), Some(&frame[..]));
    client.publish();
    assert_eq!(server.receive(), [(lane, b"request".to_vec())]);
    assert_eq!(server.shm.queue(lane.into(), &frame), Ok(()));
    let too_long =
        SendError::TooLong { len_bytes: FRAME_BYTES_MAX + 1, max_bytes: FRAME_BYTES_MAX };
    assert_eq!(server.shm.queue(lane.into(), &[0; FRAME_BYTES_MAX + 1]), Err(too_long));
    assert_eq!(server.shm.queue(Lane(77).into(), b"x"), Err(SendError::NoPeer));
}

#[test]
fn a_client_that_sends_without_end_does_not_hold_up_the_others() {
    let mut server = server();
    let (busy_lane, mut busy) = server.client();
    let (quiet_lane, mut quiet) = server.client();
    send(&mut busy, &[&[1; 16][..]; 100]);
    send(&mut quiet, &[b"me too"]);
    let landed = server.receive();
    assert_eq!(landed.iter().filter(|(lane, _)| *lane == busy_lane).count(), 3);
    assert_eq!(landed.iter().filter(|(lane, _)| *lane == quiet_lane).count(), 1);
}

#[test]
fn a_frame_that_does_not_fit_lands_in_the_next_buffer() {
    let mut server = server();
    let (_, mut client) = server.client();
    // Two fit in a buffer, with 16 bytes left over.
    for round in 0..20_u8 {
        send(&mut client, &[&[round; FRAME_BYTES_MAX]]);
        let landed = server.receive();
        assert!(landed.iter().map(|(_, bytes)| &bytes[..]).eq([[round; FRAME_BYTES_MAX]]));
    }
    let counters = server.zone.counters();
    assert_eq!((counters.landed, counters.truncated), (20, 0));
    assert_eq!(counters.skipped_bytes, 9 * 16);
}

#[test]
fn a_sleeping_thread_is_rung_and_a_busy_one_is_not() {
    let mut server = server();
    let (_, mut client) = server.client();
    send(&mut client, &[b"one"]);
    assert!(!server.shm.may_sleep(), "something is there");
    assert_eq!(server.receive().len(), 1);
    assert!(server.shm.may_sleep());
    assert!(!server.is_rung());
    send(&mut client, &[b"two"]);
    assert!(server.is_rung());
    assert_eq!(server.receive().len(), 1);
    assert!(!server.is_rung(), "the bell was heard");
    send(&mut client, &[b"three"]);
    assert!(!server.is_rung(), "a receiver that is awake is not rung");
    assert_eq!(server.receive().len(), 1);
    assert!(server.shm.may_sleep());
    drop(client);
    assert!(server.is_rung(), "a hang-up wakes too");
    let (landed, _, gone) = server.receive_until_closed();
    assert!(landed.is_empty() && matches!(gone, Gone::HungUp));
}

#[test]
fn what_a_client_sent_before_it_went_lands_before_its_lane_is_closed() {
    let mut server = server();
    let (lane, mut client) = server.client();
    // More than one turn, with no room left for its replies.
    while server.shm.queue(lane.into(), &[9; FRAME_BYTES_MAX]) == Ok(()) {}
    for number in 0..10 {
        send(&mut client, &[&[number; 8]]);
    }
    drop(client);
    let (landed, closed, gone) = server.receive_until_closed();
    assert!(landed.iter().map(|bytes| &bytes[..]).eq((0..10).map(|number| [number; 8])));
    assert!(closed == lane && matches!(gone, Gone::HungUp));
    assert_eq!(server.shm.queue(lane.into(), b"x"), Err(SendError::NoPeer));
    assert_eq!(server.acceptor.client_count(), 0);
    let (next, _client) = server.client();
    assert_ne!(next, lane, "T4");
}

#[test]
fn a_client_that_writes_nonsense_is_parted_with_at_once_and_alone() {
    let mut server = server();
    let (lane, raw) = server.connect(|path| hostile::Raw::connect(path));
    let (honest_lane, mut honest) = server.client();
    raw.publish_frame(&[]);
    send(&mut honest, &[b"honest"]);
    assert_eq!(server.receive(), [(honest_lane, b"honest".to_vec())]);
    let (closed, gone) = server.shm.take_closed().unwrap();
    assert!(closed == lane && matches!(gone, Gone::Fault(_)), "{gone}");
    send(&mut honest, &[b"still here"]);
    assert_eq!(server.receive(), [(honest_lane, b"still here".to_vec())]);
}

#[test]
fn a_lane_that_is_closed_hangs_up_its_client() {
    let mut server = server();
    let (lane, mut client) = server.client();
    server.shm.close(lane);
    assert_eq!(server.shm.take_closed().map(|(closed, _)| closed), Some(lane));
    assert!(matches!(client.wait(Some(Duration::from_secs(60))), Err(Gone::HungUp)));
}

#[test]
fn a_client_that_starts_again_begins_with_empty_rings() {
    let mut server = server();
    let mut lanes = Vec::new();
    for round in 0..20_u8 {
        let (lane, mut client) = server.client();
        lanes.push(lane);
        // It dies with an unanswered request and an unread reply.
        send(&mut client, &[&[round; 100]]);
        assert_eq!(server.receive(), [(lane, vec![round; 100])]);
        server.shm.queue(lane.into(), &[round; 100]).unwrap();
        server.shm.flush().unwrap();
        drop(client);
        let (landed, closed, _) = server.receive_until_closed();
        assert!(landed.is_empty() && closed == lane);
        let (next, mut again) = server.client();
        lanes.push(next);
        assert_eq!(again.receive().unwrap(), None, "nothing of its former life");
        send(&mut again, &[b"hello again"]);
        assert_eq!(server.receive(), [(next, b"hello again".to_vec())]);
        drop(again);
        assert_eq!(server.receive_until_closed().1, next);
        assert_eq!(server.acceptor.client_count(), 0);
    }
    lanes.sort_unstable();
    lanes.dedup();
    assert_eq!(lanes.len(), 40, "each has a lane of its own");
}
