//! The scenarios, generic over the rig.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use landing::{Completion, board};

use crate::rig::{MESSAGE_BYTES_MAX, Rig, is_whole};

/// A message: its length, its number within its sender, and bytes that follow from both.
///
/// ```text
///  0       2             6
///  +-------+-------------+-------------
///  | len   | sequence    | filler ...
///  +-------+-------------+-------------
/// ```
fn message(sender: usize, sequence: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![filler(sender, sequence); len];
    bytes[..2].copy_from_slice(&(len as u16).to_le_bytes());
    bytes[2..6].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

fn filler(sender: usize, sequence: u32) -> u8 {
    (sender as u32 * 31).wrapping_add(sequence.wrapping_mul(7)) as u8
}

/// The sequence of an unchanged message; other bytes are not a sender's message.
fn read(sender: usize, bytes: &[u8]) -> Option<u32> {
    let sequence = u32::from_le_bytes(*bytes.get(2..)?.first_chunk()?);
    let is_intact = bytes[6..].iter().all(|byte| *byte == filler(sender, sequence));
    (is_whole(bytes) && is_intact).then_some(sequence)
}

/// Lengths that differ from message to message, so that ends of buffers occur anywhere.
fn len_of(sequence: u32) -> usize {
    8 + (sequence.wrapping_mul(2_654_435_761) >> 16) as usize % 300
}

/// Senders that resend unacknowledged messages, and a receiver that acknowledges in order.
struct Exchange<R> {
    rig: R,
    /// By sender: the next sequence to be accepted; all below have been.
    accepted: Vec<u32>,
    /// A stranger sends bytes that are no message: they may land, but are not accepted.
    has_stranger: bool,
}

impl<R: Rig> Exchange<R> {
    fn open(sender_count: usize) -> Option<Exchange<R>> {
        Some(Exchange {
            rig: R::open(sender_count)?,
            accepted: vec![0; sender_count],
            has_stranger: false,
        })
    }

    /// Sends some messages of a sender, from a sequence on.
    fn send(&mut self, sender: usize, sequences: std::ops::Range<u32>) {
        let messages: Vec<_> =
            sequences.map(|sequence| message(sender, sequence, len_of(sequence))).collect();
        self.rig.send(sender, &messages);
    }

    /// Receives until nothing arrives, and takes the landed messages. Two empty rounds mean that
    /// nothing is left: one may only have made room.
    fn receive(&mut self) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut empty_rounds = 0;
        let (transport, zone) = self.rig.receiver();
        while empty_rounds < 2 {
            let landed = transport.receive(zone).unwrap();
            empty_rounds = if landed == 0 { empty_rounds + 1 } else { 0 };
            all.extend(std::iter::from_fn(|| zone.take()));
        }
        all
    }

    /// The sender, and its sequence.
    fn read(&mut self, completion: &Completion) -> (usize, u32) {
        let sender = self.rig.index_of(completion.sender());
        let (_, zone) = self.rig.receiver();
        let bytes = zone.bytes(completion);
        (sender, read(sender, bytes).expect("a completion is a message as it was sent"))
    }

    /// Accepts landed messages, in each sender's order, and gives them back.
    fn accept(&mut self) {
        for completion in self.receive() {
            if self.has_stranger && self.rig.index_of(completion.sender()) == 0 {
                continue;
            }
            let (sender, sequence) = self.read(&completion);
            let expected = &mut self.accepted[sender];
            *expected += u32::from(sequence == *expected);
        }
        self.rig.receiver().1.release_taken();
    }

    /// Sends `window` messages of each sender at a time until `goal` of each are accepted.
    fn run(&mut self, senders: &[usize], goal: u32, window: u32) {
        let mut rounds_left = 4 * goal;
        while senders.iter().any(|sender| self.accepted[*sender] < goal) {
            for &sender in senders {
                let first = self.accepted[sender];
                self.send(sender, first..goal.min(first + window));
            }
            self.accept();
            rounds_left -= 1;
            assert!(rounds_left > 0, "each round accepts something");
        }
    }
}

pub fn order_within_a_sender<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(4) else { return };
    let mut last = [None; 4];
    let mut landed = 0;
    for round in 0..100_u32 {
        for sender in 0..4 {
            exchange.send(sender, round * 5..round * 5 + 5);
        }
        for completion in exchange.receive() {
            let (sender, sequence) = exchange.read(&completion);
            assert!(last[sender] < Some(sequence), "sender {sender} at {sequence}");
            last[sender] = Some(sequence);
            landed += 1;
        }
        exchange.rig.receiver().1.release_taken();
    }
    let lost = exchange.rig.receiver().1.counters().truncated;
    assert_eq!(landed + lost, 2000, "what did not land was cut");
}

pub fn no_loss_after_retry<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(4) else { return };
    exchange.run(&[0, 1, 2, 3], 1500, 8);
}

pub fn no_overlap<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(3) else { return };
    let mut held: VecDeque<(Completion, (usize, u32))> = VecDeque::new();
    for round in 0..200_u32 {
        for sender in 0..3 {
            exchange.send(sender, round * 2..round * 2 + 2);
        }
        for completion in exchange.receive() {
            let contents = exchange.read(&completion);
            held.push_back((completion, contents));
        }
        let mut ranges: Vec<_> = held
            .iter()
            .map(|(c, _)| (c.offset_bytes(), c.offset_bytes() + c.len_bytes()))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:?}");
        // All held messages are unchanged, whatever landed since.
        for (completion, contents) in &held {
            assert_eq!(exchange.read(completion), *contents);
        }
        while held.len() > 12 {
            let (oldest, _) = held.pop_front().unwrap();
            exchange.rig.receiver().1.release(oldest.number() + 1);
        }
    }
}

pub fn truncation_is_found_and_retried<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(1) else { return };
    let buffer_bytes = exchange.rig.receiver().1.size().buffer_bytes;
    // Longer than a third of a small buffer, so that most buffers end within a message.
    let goal = (8 * buffer_bytes / MESSAGE_BYTES_MAX) as u32;
    let (mut sequence, mut sends) = (0, 0);
    while sequence < goal {
        let sent = message(0, sequence, MESSAGE_BYTES_MAX - 60);
        exchange.rig.send(0, &[sent]);
        sends += 1;
        let landed = exchange.receive();
        for completion in &landed {
            assert_eq!(exchange.read(completion), (0, sequence));
        }
        exchange.rig.receiver().1.release_taken();
        sequence += landed.len() as u32;
        assert!(sends <= 2 * goal + 2, "a message that was cut fits into the next buffer");
    }
    let truncated = exchange.rig.receiver().1.counters().truncated;
    assert_eq!(u64::from(sends), u64::from(goal) + truncated, "what did not land was counted");
}

pub fn readers_change_under_load<R: Rig>() {
    const MESSAGES: usize = 3000;
    let Some(mut exchange) = Exchange::<R>::open(2) else { return };
    let (mut poster, readers) = board(exchange.rig.receiver().1, 3, 1);
    let (goal, taken) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
    let (goal, taken) = (&goal, &taken);
    let mut numbers = std::thread::scope(|scope| {
        let threads: Vec<_> = readers
            .into_iter()
            .map(|reader| scope.spawn(move || drain(reader, goal, taken)))
            .collect();
        let (mut landed, mut round, mut changes) = (0, 0_u32, 0);
        let _stop = Stop(goal);
        while landed < MESSAGES {
            assert!(!threads.iter().any(|thread| thread.is_finished()), "a reader failed");
            for sender in 0..2 {
                exchange.send(sender, round * 4..round * 4 + 4);
            }
            let (transport, zone) = exchange.rig.receiver();
            transport.receive(zone).unwrap();
            landed += poster.pass_on(zone);
            let reader_count = [3, 1, 2][changes % 3];
            changes += usize::from(poster.change_readers(reader_count).is_ok());
            round += 1;
            std::thread::yield_now();
        }
        // Readers reach a change only while they run, so at least a few have happened.
        goal.store(landed, Ordering::SeqCst);
        let all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(changes > 3, "{changes} changes");
        assert!(all.iter().all(|numbers| numbers.is_sorted()));
        all.concat()
    });
    numbers.sort_unstable();
    let want: Vec<_> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, want, "each message has one reader");
}

/// Lets the readers end if the test fails.
struct Stop<'a>(&'a AtomicUsize);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// One reader's thread: takes, checks and gives back until all messages have been taken.
fn drain(mut reader: landing::Reader, goal: &AtomicUsize, taken: &AtomicUsize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while taken.load(Ordering::SeqCst) < goal.load(Ordering::SeqCst) {
        while let Some(completion) = reader.take() {
            assert!(is_whole(reader.bytes(&completion)), "its bytes are still there");
            numbers.push(completion.number());
            taken.fetch_add(1, Ordering::SeqCst);
        }
        reader.release_taken();
        std::thread::yield_now();
    }
    numbers
}

pub fn sender_crash<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(3) else { return };
    exchange.run(&[0, 1, 2], 100, 8);
    // Some of its messages are on the way when it dies.
    exchange.send(1, 100..105);
    exchange.accept();
    exchange.run(&[0, 2], 200, 8);
    exchange.rig.replace_client(1);
    exchange.run(&[0, 1, 2], 300, 8);
}

pub fn receiver_restart<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(3) else { return };
    exchange.run(&[0, 1, 2], 100, 8);
    // Landed and unread messages, and those sent while there is no receiver, are sent again.
    exchange.send(0, 100..110);
    exchange.receive();
    exchange.send(1, 100..110);
    exchange.rig.restart();
    exchange.run(&[0, 1, 2], 200, 8);
}

pub fn overflow_is_back_pressure<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(1) else { return };
    let mut held = Vec::new();
    let mut sequence = 0;
    // Nothing is given back, until no more lands.
    while exchange.rig.receiver().1.counters().starved == 0 {
        exchange.send(0, sequence..sequence + 8);
        sequence += 8;
        held.extend(exchange.receive());
    }
    let before: Vec<_> = held.iter().map(|completion| exchange.read(completion)).collect();
    exchange.send(0, sequence..sequence + 8);
    assert!(exchange.receive().is_empty(), "a full zone receives nothing");
    let after: Vec<_> = held.iter().map(|completion| exchange.read(completion)).collect();
    assert_eq!(before, after, "nothing was overwritten");
    exchange.rig.receiver().1.release_taken();
    let late = exchange.receive();
    assert!(!late.is_empty(), "what waited with the kernel lands once there is room");
    assert!(exchange.read(&late[0]) > before[before.len() - 1]);
}

pub fn hostile_lengths<R: Rig>() {
    let Some(mut exchange) = Exchange::<R>::open(2) else { return };
    exchange.has_stranger = true;
    let claims_more = |len: usize| {
        let mut bytes = vec![0xff; len];
        bytes[..2].copy_from_slice(&u16::MAX.to_le_bytes());
        bytes
    };
    for round in 0..20 {
        for len in [0, 1, 2, 5, 63, 1023, 1024, 1025, 4095, 4096, 4097, 9000, 65_507] {
            exchange.rig.send_raw(0, &claims_more(len.max(2))[..len]);
        }
        // Whatever happened to those, nothing is outside its buffer, and others are served.
        for completion in exchange.receive() {
            let (_, zone) = exchange.rig.receiver();
            let buffer_bytes = zone.size().buffer_bytes;
            let start = completion.offset_bytes() % buffer_bytes;
            assert!(start + completion.len_bytes() <= buffer_bytes);
            assert_eq!(zone.bytes(&completion).len(), completion.len_bytes());
        }
        exchange.rig.receiver().1.release_taken();
        exchange.run(&[1], 10 * (round + 1), 4);
    }
}
