//! The messages between two ends, one step at a time.

use super::*;
use crate::shm::layout::WORD_BYTES;

const FOR_FRAMES: Want = Want { frames: true, room_for: None };

fn ends() -> (Channel, Channel) {
    let ring = RingSize::new(4096).unwrap();
    let region = Arc::new(Region::on_heap(ring.region_bytes() / WORD_BYTES));
    let server = Channel::new(Arc::clone(&region), ring, Side::Server);
    (server, Channel::new(region, ring, Side::Client))
}

#[test]
fn frames_go_both_ways() {
    let (mut server, mut client) = ends();
    let mut into = [0; 8];
    assert_eq!(client.write(b"ping"), Ok(true));
    assert_eq!(server.take(&mut into), Ok(Taken::Empty), "not published yet");
    assert_eq!(client.publish(), Bell::Quiet);
    assert_eq!(server.take(&mut into), Ok(Taken::Frame { len_bytes: 4 }));
    assert_eq!(server.write(b"pong!"), Ok(true));
    assert_eq!(server.publish(), Bell::Quiet);
    assert_eq!(client.take(&mut into), Ok(Taken::Frame { len_bytes: 5 }));
    assert_eq!(&into[..5], b"pong!");
}

#[test]
fn only_a_side_that_sleeps_is_rung_and_only_once() {
    let (mut server, mut client) = ends();
    assert_eq!(server.arm(FOR_FRAMES), Ok(Armed::Sleep));
    assert_eq!(client.publish(), Bell::Quiet, "nothing is new");
    for want in [Bell::Ring, Bell::Quiet] {
        assert_eq!(client.write(b"ping"), Ok(true));
        assert_eq!(client.publish(), want);
    }
    assert_eq!(server.arm(FOR_FRAMES), Ok(Armed::Work));
}

#[test]
fn a_side_is_rung_for_what_it_sleeps_for() {
    let (mut server, mut client) = ends();
    let frame = [1; 1016];
    while server.write(&frame) == Ok(true) {}
    assert_eq!(server.publish(), Bell::Quiet);
    let for_room = Want { frames: false, room_for: Some(frame.len()) };
    assert_eq!(server.arm(for_room), Ok(Armed::Sleep));
    assert_eq!(client.write(b"ping"), Ok(true));
    assert_eq!(client.publish(), Bell::Quiet, "it does not want frames now");
    assert_eq!(client.take(&mut [0; 1016]), Ok(Taken::Frame { len_bytes: 1016 }));
    assert_eq!(client.publish(), Bell::Ring);
    assert_eq!(server.arm(for_room), Ok(Armed::Work));
}

#[test]
fn a_side_that_is_awake_again_is_not_rung() {
    let (mut server, mut client) = ends();
    assert_eq!(server.arm(FOR_FRAMES), Ok(Armed::Sleep));
    server.disarm();
    assert_eq!(client.write(b"ping"), Ok(true));
    assert_eq!(client.publish(), Bell::Quiet);
}
