//! More than a worker can do (K18): what it takes is answered, the rest is told so, and nothing is
//! executed twice.

use std::collections::HashMap;
use std::time::Duration;

use crate::support::native::{Answer, Peer, config};
use crate::support::{PATIENCE, TestServer};
use server::{Config, NativeTransport};
use wire::native::{Frame, Kind, Op, Reason, Refusal, Request, RequestId, Status, Want};

const PEER_COUNT: usize = 16;
/// Of each client: less than the window of numbers that it may have under way.
const WRITES: u32 = 800;
const FRAME_WRITES: u32 = 400;
/// Copies of each frame at most: enough to fill any queue, or the test fails.
const COPIES_MAX: usize = 2000;
/// A client that hears nothing for so long asks again.
const QUIET_TIME: Duration = Duration::from_millis(20);

fn incr(sequence: u32) -> Request<'static> {
    let op = Op::Incr { key: b"n", delta: 1 };
    Request { id: RequestId::Once(sequence), want: Want::PLAIN, op }
}

/// A client, and what it knows of its writes.
struct Flooder {
    peer: Peer,
    /// The sum that each write was answered with.
    sums: HashMap<u32, i64>,
    refused_frames: u64,
}

impl Flooder {
    /// Sends all writes that were not answered.
    fn send_unanswered(&mut self) {
        let open: Vec<u32> =
            (0..WRITES).filter(|sequence| !self.sums.contains_key(sequence)).collect();
        for chunk in open.chunks(FRAME_WRITES as usize) {
            let requests: Vec<Request<'_>> = chunk.iter().copied().map(incr).collect();
            self.peer.send(&requests);
        }
    }

    /// Takes answers until none comes for a while.
    fn take_answers(&mut self) {
        let mut bytes = vec![0; 64 << 10];
        self.peer.socket.set_read_timeout(Some(QUIET_TIME)).unwrap();
        while !self.is_done()
            && let Ok(len_bytes) = self.peer.socket.recv(&mut bytes)
        {
            self.take(&bytes[..len_bytes]);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let frame = Frame::parse(bytes, None).unwrap();
        match frame.header.kind {
            Kind::Refusal => {
                assert_eq!(Refusal::parse(&frame).unwrap().reason, Reason::Busy);
                self.refused_frames += 1;
            }
            Kind::Replies => {
                let (_, answers) = crate::support::native::answers_of(bytes, None);
                answers.iter().for_each(|answer| self.take_answer(answer));
            }
            other => panic!("{other:?} answers no write"),
        }
    }

    fn take_answer(&mut self, answer: &Answer) {
        assert_eq!(answer.status, Status::Ok);
        let RequestId::Once(sequence) = answer.id else { panic!("{answer:?}") };
        let sum = answer.number.unwrap();
        let first = *self.sums.entry(sequence).or_insert(sum);
        assert_eq!(first, sum, "a copy gets the answer that the first one got");
    }

    fn is_done(&self) -> bool {
        self.sums.len() == WRITES as usize
    }
}

fn check(native_transport: NativeTransport) {
    let server = TestServer::with(Config {
        threads: 1,
        native_transport,
        // Longer than what a round takes, so that a worker that was held up finds too much.
        native_queue_bytes: 2 << 20,
        ..config()
    });
    let flooder =
        |_| Flooder { peer: Peer::connect(&server), sums: HashMap::new(), refused_frames: 0 };
    let mut flooders: Vec<Flooder> = (0..PEER_COUNT).map(flooder).collect();
    let native = || server.server().shared().totals().native;
    // Faster than one worker, until it says so.
    let mut copies_left = COPIES_MAX;
    while native().shed == 0 {
        assert!(copies_left > 0, "{:?}", native());
        copies_left -= 1;
        flooders.iter_mut().for_each(Flooder::send_unanswered);
    }
    // Answers were lost too, since no client took them: what is open is asked for until it is
    // known.
    let deadline = std::time::Instant::now() + PATIENCE;
    while !flooders.iter().all(Flooder::is_done) {
        for flooder in &mut flooders {
            flooder.take_answers();
            if !flooder.is_done() {
                flooder.send_unanswered();
            }
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", native());
        std::thread::yield_now();
    }
    let mut sums: Vec<i64> =
        flooders.iter().flat_map(|flooder| flooder.sums.values().copied()).collect();
    sums.sort_unstable();
    let total = i64::from(WRITES) * PEER_COUNT as i64;
    assert_eq!(sums, (1..=total).collect::<Vec<_>>(), "each write took effect once");
    server.memcached().ask("get n\r\n", format!("VALUE n 0 5\r\n{total}\r\nEND\r\n"));
    // Copies may still be coming in, so that only what cannot shrink is looked at.
    assert!(native().busy > 0, "{:?}", native());
}

#[test]
fn a_flood_is_shed_and_every_write_takes_effect_once() {
    check(NativeTransport::Recvmmsg);
}

#[test]
fn a_flood_by_io_uring_is_shed_too() {
    check(NativeTransport::IoUring);
}
