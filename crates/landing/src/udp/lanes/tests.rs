//! Sockets on this machine, each connected to one peer.

use super::*;
use crate::udp::Offload;
use crate::{Completion, ZoneSize};

fn pair() -> (UdpSocket, UdpSocket) {
    let [one, other] = std::array::from_fn(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

fn config(offload: Offload) -> UdpConfig {
    UdpConfig { frame_bytes_max: 512, offload, kernel_bytes: 1 << 18, ..UdpConfig::default() }
}

/// A transport with some peers, and a zone with room for so many messages.
fn lanes(peer_count: usize, slot_count: usize) -> (UdpLanes, Zone, Vec<UdpSocket>) {
    let mut lanes = UdpLanes::new(config(Offload::Off)).unwrap();
    let peers = (0..peer_count)
        .map(|index| {
            let (ours, theirs) = pair();
            assert_eq!(lanes.add_datagrams(ours).unwrap(), Lane(index as u32));
            theirs
        })
        .collect();
    let size = ZoneSize { buffer_bytes: 512 * slot_count, buffer_count: 2, completions_max: 256 };
    (lanes, Zone::ring(size, Box::new(|_| true)).unwrap(), peers)
}

fn take(zone: &mut Zone) -> Vec<(Lane, Vec<u8>)> {
    let taken: Vec<Completion> = std::iter::from_fn(|| zone.take()).collect();
    let read = |c: &Completion| (c.sender().as_lane().unwrap(), zone.bytes(c).to_vec());
    let all = taken.iter().map(read).collect();
    zone.release_taken();
    all
}

#[test]
fn one_receive_takes_from_all_sockets_that_have_something() {
    let (mut lanes, mut zone, peers) = lanes(8, 64);
    for (value, peer) in peers.iter().enumerate().step_by(2) {
        for _ in 0..3 {
            peer.send(&[value as u8; 100]).unwrap();
        }
    }
    assert_eq!(lanes.receive(&mut zone).unwrap(), 12);
    let mut landed = take(&mut zone);
    landed.sort();
    let want = [0_u8, 2, 4, 6].map(|value| vec![(Lane(value.into()), vec![value; 100]); 3]);
    assert_eq!(landed, want.concat());
    assert_eq!(lanes.receive(&mut zone).unwrap(), 0);
    let counters = lanes.receive_counters();
    assert_eq!(counters, ReceiveCounters { looks: 2, calls: 4, messages: 12 });
}

#[test]
fn a_zone_with_little_room_takes_from_each_socket_in_turn() {
    let (mut lanes, mut zone, peers) = lanes(4, 1);
    for (value, peer) in peers.iter().enumerate() {
        for _ in 0..4 {
            peer.send(&[value as u8; 512]).unwrap();
        }
    }
    let mut heard = [0; 4];
    for _ in 0..4 {
        lanes.receive(&mut zone).unwrap();
        for (Lane(lane), _) in take(&mut zone) {
            heard[lane as usize] += 1;
        }
    }
    assert!(heard.iter().all(|count| *count > 0), "{heard:?}");
    assert!(zone.counters().starved > 0);
}

#[test]
fn a_closed_lane_is_heard_no_more_and_gets_nothing() {
    let (mut lanes, mut zone, peers) = lanes(2, 8);
    peers[0].send(b"landed").unwrap();
    lanes.receive(&mut zone).unwrap();
    peers[0].send(b"too late").unwrap();
    lanes.queue(Lane(0).into(), b"to no peer").unwrap();
    lanes.queue(Lane(1).into(), b"to somebody").unwrap();
    lanes.close(Lane(0));
    lanes.close(Lane(0));
    assert_eq!(take(&mut zone), [(Lane(0), b"landed".to_vec())]);
    assert_eq!(lanes.receive(&mut zone).unwrap(), 0);
    assert_eq!((lanes.take_closed(), lanes.take_closed()), (Some(Lane(0)), None));
    assert_eq!(lanes.queue(Lane(0).into(), b"x"), Err(SendError::NoPeer));
    assert_eq!(lanes.flush().unwrap(), 2);
    assert_eq!(lanes.send_counters(), SendCounters { frames: 1, calls: 1, refused: 1 });
    let mut bytes = [0; 64];
    assert_eq!(peers[1].recv(&mut bytes).unwrap(), 11);
}

#[test]
fn replies_to_all_peers_leave_by_their_own_sockets_in_order() {
    let (mut lanes, _zone, peers) = lanes(3, 8);
    for round in 0..4_u8 {
        for lane in 0..3 {
            lanes.queue(Lane(lane).into(), &[round; 20]).unwrap();
        }
    }
    assert_eq!((lanes.flush().unwrap(), lanes.queued()), (12, 0));
    let mut bytes = [0; 64];
    for peer in &peers {
        for round in 0..4 {
            assert_eq!(peer.recv(&mut bytes).unwrap(), 20);
            assert_eq!(bytes[..20], [round; 20]);
        }
    }
}

#[test]
fn joined_datagrams_of_each_peer_come_apart_again() {
    let mut lanes = UdpLanes::new(config(Offload::Auto)).unwrap();
    let (ours, theirs) = pair();
    let lane = lanes.add_datagrams(ours).unwrap();
    let mut peer = crate::udp::Udp::from_socket(theirs, config(Offload::Auto)).unwrap();
    for value in 0..40 {
        peer.queue(Lane(0).into(), &[value; 64]).unwrap();
    }
    peer.flush().unwrap();
    let size = ZoneSize {
        buffer_bytes: lanes.buffer_bytes_min() * 2,
        buffer_count: 2,
        completions_max: 1024,
    };
    let mut zone = Zone::ring(size, Box::new(|_| true)).unwrap();
    while lanes.receive(&mut zone).unwrap() > 0 {}
    let want: Vec<_> = (0..40).map(|value| (lane, vec![value; 64])).collect();
    assert_eq!(take(&mut zone), want);
}

#[test]
fn a_socket_without_a_peer_is_refused() {
    let mut lanes = UdpLanes::new(config(Offload::Off)).unwrap();
    assert!(lanes.add_datagrams(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
}

#[test]
fn a_poller_is_woken_by_any_of_the_sockets() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (mut lanes, mut zone, peers) = lanes(3, 8);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_readable = |lanes: &UdpLanes| {
        poll(&mut [PollFd::from_borrowed_fd(lanes.as_fd(), PollFlags::IN)], Some(&now)) == Ok(1)
    };
    assert!(!is_readable(&lanes));
    peers[2].send(b"wake").unwrap();
    assert!(lanes.may_sleep() && is_readable(&lanes));
    lanes.receive(&mut zone).unwrap();
    assert!(!is_readable(&lanes));
}
