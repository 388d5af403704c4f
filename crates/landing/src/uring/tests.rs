//! Sockets on this machine into one zone.

use std::io::{Read, Write};
use std::net::TcpListener;

mod zero_copy;

use super::*;
use crate::{Completion, Spent, ZoneSize};

/// Frames begin with their length.
fn is_whole(message: &[u8]) -> bool {
    message.first_chunk().is_some_and(|len| usize::from(u16::from_le_bytes(*len)) == message.len())
}

fn frame(value: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![value; len];
    bytes[..2].copy_from_slice(&(len as u16).to_le_bytes());
    bytes
}

fn ring(buffer_bytes: usize, buffer_count: usize) -> Zone {
    let size = ZoneSize { buffer_bytes, buffer_count, completions_max: 256 };
    Zone::ring(size, Box::new(is_whole)).unwrap()
}

/// A transport on this zone, unless this kernel does not support it.
fn open(zone: &mut Zone) -> Option<Uring> {
    match Uring::new(zone, UringConfig::default()) {
        Ok(uring) => Some(uring),
        Err(unavailable) => {
            println!("skipped: {unavailable}");
            None
        }
    }
}

/// Both ends of a pair of connected UDP sockets.
fn pair() -> (UdpSocket, UdpSocket) {
    let [one, other] = std::array::from_fn(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

fn take(zone: &mut Zone) -> Vec<Completion> {
    std::iter::from_fn(|| zone.take()).collect()
}

/// Receives until no more arrives. Loopback delivers inside the send call.
fn receive_all(uring: &mut Uring, zone: &mut Zone) -> Vec<(Lane, Vec<u8>)> {
    let mut all = Vec::new();
    // A round may only arm or only starve: two empty ones mean that nothing is left.
    let mut empty_rounds = 0;
    while empty_rounds < 2 {
        let landed = uring.receive(zone).unwrap();
        empty_rounds = if landed == 0 { empty_rounds + 1 } else { 0 };
        for completion in take(zone) {
            let lane = completion.sender().as_lane().unwrap();
            all.push((lane, zone.bytes(&completion).to_vec()));
        }
        zone.release_taken();
    }
    all
}

#[test]
fn messages_of_all_sockets_land_back_to_back() {
    let mut zone = ring(4096, 4);
    let Some(mut uring) = open(&mut zone) else { return };
    let peers: Vec<_> = (0..4)
        .map(|_| {
            let (ours, theirs) = pair();
            uring.add_datagrams(ours).unwrap();
            theirs
        })
        .collect();
    assert_eq!(uring.receive(&mut zone).unwrap(), 0);
    for (value, peer) in peers.iter().enumerate() {
        peer.send(&frame(value as u8, 60)).unwrap();
    }
    assert_eq!(uring.receive(&mut zone).unwrap(), 4);
    let taken = take(&mut zone);
    let offsets: Vec<_> = taken.iter().map(Completion::offset_bytes).collect();
    assert_eq!(offsets, [0, 60, 120, 180]);
    for completion in taken {
        let Lane(lane) = completion.sender().as_lane().unwrap();
        assert_eq!(zone.bytes(&completion), frame(lane as u8, 60));
    }
}

#[test]
fn a_datagram_cut_at_a_buffers_end_is_dropped_and_lands_whole_when_sent_again() {
    let mut zone = ring(256, 4);
    let Some(mut uring) = open(&mut zone) else { return };
    let (ours, theirs) = pair();
    uring.add_datagrams(ours).unwrap();
    for value in 0..3 {
        theirs.send(&frame(value, 100)).unwrap();
    }
    let landed = receive_all(&mut uring, &mut zone);
    assert_eq!(landed.len(), 2, "the third was cut after 56 bytes");
    assert_eq!(zone.counters().truncated, 1);
    theirs.send(&frame(2, 100)).unwrap();
    assert_eq!(receive_all(&mut uring, &mut zone), [(Lane(0), frame(2, 100))]);
}

#[test]
fn a_full_zone_leaves_datagrams_with_the_kernel_until_there_is_room() {
    let mut zone = ring(256, 2);
    let Some(mut uring) = open(&mut zone) else { return };
    let (ours, theirs) = pair();
    uring.add_datagrams(ours).unwrap();
    for value in 0..8 {
        theirs.send(&frame(value, 128)).unwrap();
    }
    let mut landed = 0;
    for _ in 0..8 {
        landed += uring.receive(&mut zone).unwrap();
    }
    assert_eq!(landed, 4);
    assert!(zone.counters().starved > 0);
    assert!(!uring.may_sleep(), "a receive has to be armed again first");
    let first = take(&mut zone);
    assert_eq!(zone.bytes(&first[3]), frame(3, 128));
    zone.release_taken();
    let rest = receive_all(&mut uring, &mut zone);
    assert_eq!(rest, (4..8).map(|value| (Lane(0), frame(value, 128))).collect::<Vec<_>>());
}

#[test]
fn a_log_is_filled_segment_by_segment() {
    let size = ZoneSize { buffer_bytes: 4096, buffer_count: 2, completions_max: 64 };
    let mut zone = Zone::log(Region::memory(4 * 4096).unwrap(), size, Box::new(is_whole));
    let Some(mut uring) = open(&mut zone) else { return };
    let (ours, theirs) = pair();
    uring.add_datagrams(ours).unwrap();
    theirs.send(&frame(1, 1024)).unwrap();
    assert_eq!(receive_all(&mut uring, &mut zone), [], "nothing is posted");
    zone.post(8192).unwrap();
    zone.post(0).unwrap();
    for value in 2..6 {
        theirs.send(&frame(value, 1024)).unwrap();
    }
    let landed = receive_all(&mut uring, &mut zone);
    assert_eq!(landed.len(), 5);
    assert_eq!(zone.take_spent(), Some(Spent { offset_bytes: 8192, filled_bytes: 4096 }));
    zone.post(4096).unwrap();
    assert_eq!(zone.take_spent(), None);
}

#[test]
fn a_stream_arrives_in_pieces_and_replies_go_out_in_order() {
    let mut zone = ring(4096, 4);
    let Some(mut uring) = open(&mut zone) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let lane = uring.add_stream(listener.accept().unwrap().0).unwrap();
    let sent: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
    client.write_all(&sent).unwrap();
    let pieces = receive_all(&mut uring, &mut zone);
    assert_eq!(pieces.concat_bytes(), sent);
    for value in 0..200 {
        uring.queue(lane.into(), &[value; 50]).unwrap();
    }
    while uring.queued() > 0 {
        uring.flush().unwrap();
    }
    let mut replies = vec![0; 200 * 50];
    client.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(50).enumerate().all(|(at, chunk)| chunk == [at as u8; 50]));
    drop(client);
    assert_eq!(receive_all(&mut uring, &mut zone), []);
    assert_eq!(uring.take_closed(), Some(lane));
    assert_eq!(uring.queue(lane.into(), b"x"), Err(SendError::NoPeer));
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for Vec<(Lane, Vec<u8>)> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }
}

#[test]
fn replies_to_many_lanes_leave_in_one_submission() {
    let mut zone = ring(4096, 4);
    let Some(mut uring) = open(&mut zone) else { return };
    let peers: Vec<_> = (0..8)
        .map(|_| {
            let (ours, theirs) = pair();
            uring.add_datagrams(ours).unwrap();
            theirs
        })
        .collect();
    for lane in 0..8 {
        for value in 0..3 {
            uring.queue(Lane(lane).into(), &frame(value, 64)).unwrap();
        }
    }
    assert_eq!(uring.flush().unwrap(), 24);
    assert_eq!(uring.send_counters(), SendCounters { frames: 24, calls: 1, refused: 0 });
    let mut bytes = [0; 128];
    for peer in peers {
        for value in 0..3 {
            assert_eq!(peer.recv(&mut bytes).unwrap(), 64);
            assert_eq!(bytes[..64], frame(value, 64));
        }
    }
}

#[test]
fn what_has_arrived_lands_before_a_lane_is_closed() {
    let mut zone = ring(4096, 4);
    let Some(mut uring) = open(&mut zone) else { return };
    let (ours, theirs) = pair();
    let lane = uring.add_datagrams(ours).unwrap();
    uring.receive(&mut zone).unwrap();
    theirs.send(&frame(1, 64)).unwrap();
    uring.receive(&mut zone).unwrap();
    uring.close(lane).unwrap();
    theirs.send(&frame(2, 64)).unwrap();
    assert_eq!(receive_all(&mut uring, &mut zone), [(lane, frame(1, 64))]);
    assert_eq!(uring.take_closed(), Some(lane));
    assert_eq!(uring.take_closed(), None);
}

#[test]
fn a_transport_that_was_dropped_writes_no_more() {
    let mut zone = ring(4096, 4);
    let Some(mut uring) = open(&mut zone) else { return };
    let (ours, theirs) = pair();
    let ours_again = ours.try_clone().unwrap();
    uring.add_datagrams(ours).unwrap();
    uring.receive(&mut zone).unwrap();
    let memory = zone.region();
    drop((uring, zone));
    theirs.send(&frame(9, 64)).unwrap();
    // SAFETY: the transport, the only other writer, is gone.
    assert_eq!(unsafe { memory.bytes(0, 64) }, [0; 64]);
    let mut bytes = [0; 128];
    assert_eq!(ours_again.recv(&mut bytes).unwrap(), 64, "the socket's owner still hears");
}
