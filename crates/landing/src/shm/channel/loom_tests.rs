//! Every interleaving of two ends of a small region: frames are whole and in order, and neither end
//! sleeps for ever.
//!
//! The last tests remove, one after another, every ordering and fence that has a name
//! (shm/weaken.rs) and expect that a model fails. W2 and A2 prevent a load from seeing a later
//! store; loom runs loads in order and never tries that. The tests still notice it, as a race: each
//! word of a ring has a shadow that is read and written with it, and loom requires that these reads
//! and writes be ordered. The second look (D3) and the exchange's answer (P4) were removed by hand:
//! a test failed each time.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::{Armed, Bell, Channel, Side, Want};
use crate::shm::layout::{RING_BYTES_MIN, RingSize, WORD_BYTES};
use crate::shm::region::Region;
use crate::shm::ring::Taken;
use crate::shm::weaken::{Place, Weakened};

const FOR_FRAMES: Want = Want { frames: true, room_for: None };
const FOR_ROOM: Want = Want { frames: false, room_for: Some(8) };

/// A doorbell: loom reports a wait for one that is never rung as a deadlock.
struct Doorbell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

/// One end and the two bells.
struct End {
    channel: Channel,
    own_bell: Arc<Doorbell>,
    peer_bell: Arc<Doorbell>,
}

fn ends() -> (End, End) {
    let ring = RingSize::new(RING_BYTES_MIN as u64).unwrap();
    let region = Arc::new(Region::on_heap(ring.region_bytes() / WORD_BYTES));
    let bells =
        [(); 2].map(|()| Arc::new(Doorbell { is_rung: Mutex::new(false), rung: Condvar::new() }));
    let end = |side, own: usize| End {
        channel: Channel::new(Arc::clone(&region), ring, side),
        own_bell: Arc::clone(&bells[own]),
        peer_bell: Arc::clone(&bells[1 - own]),
    };
    (end(Side::Server, 0), end(Side::Client, 1))
}

impl End {
    fn publish(&mut self) {
        if self.channel.publish() == Bell::Ring {
            self.peer_bell.ring();
        }
    }

    fn sleep(&mut self, want: Want) {
        self.publish();
        if self.channel.arm(want).unwrap() == Armed::Sleep {
            self.own_bell.wait();
            self.channel.disarm();
        }
    }

    fn write(&mut self, number: u64) {
        while !self.channel.write(&number.to_ne_bytes()).unwrap() {
            self.sleep(FOR_ROOM);
        }
        self.publish();
    }

    fn take(&mut self) -> u64 {
        let mut frame = [0; 8];
        loop {
            match self.channel.take(&mut frame).unwrap() {
                Taken::Frame { len_bytes } => {
                    assert_eq!(len_bytes, 8);
                    return u64::from_ne_bytes(frame);
                }
                Taken::Empty => self.sleep(FOR_FRAMES),
                Taken::TooShort => panic!("the frame has 8 bytes"),
            }
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn a_reader_that_sleeps_is_woken_for_each_frame() {
    check(3, frames_for_a_sleeper);
}

fn frames_for_a_sleeper() {
    let (mut server, mut client) = ends();
    let writer = thread::spawn(move || (1..=2).for_each(|number| client.write(number)));
    assert_eq!([server.take(), server.take()], [1, 2]);
    writer.join().unwrap();
}

#[test]
fn a_writer_that_sleeps_for_room_is_woken_and_the_ring_wraps() {
    check(3, frames_round_the_ring);
}

fn frames_round_the_ring() {
    let (mut server, mut client) = ends();
    let writer = thread::spawn(move || (1..=4).for_each(|number| client.write(number)));
    for number in 1..=4 {
        assert_eq!(server.take(), number);
    }
    server.publish();
    writer.join().unwrap();
}

#[test]
fn a_round_trip_with_both_sides_asleep_ends() {
    check(3, || {
        let (mut server, mut client) = ends();
        let serving = thread::spawn(move || {
            let number = server.take();
            server.write(number + 1);
        });
        client.write(1);
        assert_eq!(client.take(), 2);
        serving.join().unwrap();
    });
}

#[test]
fn a_side_that_goes_to_sleep_for_another_reason_is_woken_for_that() {
    check(3, || {
        let (mut server, mut client) = ends();
        for number in [1, 2] {
            assert!(server.channel.write(&u64::to_ne_bytes(number)).unwrap());
        }
        server.publish();
        let other = thread::spawn(move || {
            assert_eq!(client.take(), 1);
            client.publish();
            client.write(3);
        });
        // Asleep for room, woken by another event, and asleep for frames.
        if server.channel.arm(FOR_ROOM).unwrap() == Armed::Sleep {
            server.channel.disarm();
        }
        assert_eq!(server.take(), 3);
        other.join().unwrap();
    });
}

/// Without this place's ordering some interleaving fails.
fn check_missed(place: Place, model: fn()) {
    let _weakened = Weakened::at(place);
    check(3, model);
}

#[test]
#[should_panic]
fn without_the_release_of_frames_a_reader_takes_what_is_not_whole() {
    check_missed(Place::W1, frames_for_a_sleeper);
}

#[test]
#[should_panic]
fn without_the_acquire_of_frames_a_reader_takes_what_is_not_whole() {
    check_missed(Place::A1, frames_for_a_sleeper);
}

#[test]
#[should_panic(expected = "ausality violation")]
fn without_the_release_of_room_a_word_is_reused_before_it_was_read() {
    check_missed(Place::W2, frames_round_the_ring);
}

#[test]
#[should_panic(expected = "ausality violation")]
fn without_the_acquire_of_room_a_word_is_reused_before_it_was_read() {
    check_missed(Place::A2, frames_round_the_ring);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_publishers_fence_a_sleeper_sleeps_on() {
    check_missed(Place::P2, frames_for_a_sleeper);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_sleepers_fence_it_sleeps_on() {
    check_missed(Place::D2, frames_for_a_sleeper);
}
