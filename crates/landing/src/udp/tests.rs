//! Two sockets on this machine.

use super::*;
use crate::{Completion, LengthCheck, ZoneSize};

const LOOPBACK: &str = "127.0.0.1:0";

fn anything() -> LengthCheck {
    Box::new(|_| true)
}

fn zone(buffer_bytes: usize) -> Zone {
    let size = ZoneSize { buffer_bytes, buffer_count: 4, completions_max: 1024 };
    Zone::ring(size, anything()).unwrap()
}

fn bind(address: &str, config: UdpConfig) -> (Udp, Sender) {
    let udp = Udp::bind(address.parse().unwrap(), config).unwrap();
    let sender = udp.local_address().unwrap().into();
    (udp, sender)
}

fn config(offload: Offload) -> UdpConfig {
    UdpConfig { offload, kernel_bytes: 1 << 20, ..UdpConfig::default() }
}

/// Everything that has arrived. Loopback delivers inside the send call, so no wait is needed.
fn receive_all(udp: &mut Udp, zone: &mut Zone) -> Vec<(Sender, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        udp.receive(zone).unwrap();
        let taken: Vec<Completion> = std::iter::from_fn(|| zone.take()).collect();
        if taken.is_empty() {
            return all;
        }
        all.extend(taken.iter().map(|c| (c.sender(), zone.bytes(c).to_vec())));
        zone.release_taken();
    }
}

fn frame(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (index * 7 + at) as u8).collect()
}

#[test]
fn frames_arrive_whole_and_in_order_however_they_are_sent() {
    for address in [LOOPBACK, "[::1]:0"] {
        for (sending, receiving) in [
            (Offload::Auto, Offload::Auto),
            (Offload::Auto, Offload::Off),
            (Offload::Off, Offload::Auto),
            (Offload::Off, Offload::Off),
        ] {
            let (mut from, from_sender) = bind(address, config(sending));
            let (mut to, to_sender) = bind(address, config(receiving));
            let mut zone = zone(1 << 17);
            let lens = [64, 64, 64, 40, 64, 8192, 8192, 1, 600, 600, 600, 600, 599];
            let sent: Vec<_> = (0..130).map(|i| frame(i, lens[i % lens.len()])).collect();
            for frame in &sent {
                from.queue(to_sender, frame).unwrap();
            }
            assert_eq!(from.flush().unwrap(), sent.len());
            assert_eq!(from.queued(), 0);
            let got = receive_all(&mut to, &mut zone);
            assert!(got.iter().all(|(sender, _)| *sender == from_sender));
            let got: Vec<_> = got.into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(got, sent, "{address} {sending:?} {receiving:?}");
        }
    }
}

#[test]
fn frames_to_one_peer_leave_in_one_message_and_arrive_in_one() {
    let (mut from, _) = bind(LOOPBACK, config(Offload::Auto));
    let (mut to, to_sender) = bind(LOOPBACK, config(Offload::Auto));
    for index in 0..64 {
        from.queue(to_sender, &frame(index, 64)).unwrap();
    }
    from.flush().unwrap();
    assert_eq!(from.send_counters(), SendCounters { frames: 64, calls: 1, refused: 0 });
    let mut zone = zone(1 << 17);
    assert_eq!(to.receive(&mut zone).unwrap(), 64);
    let offsets: Vec<_> = std::iter::from_fn(|| zone.take()).map(|c| c.offset_bytes()).collect();
    let back_to_back: Vec<_> = (0..64).map(|index| index * 64).collect();
    assert_eq!(offsets, back_to_back);
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    let (mut peer, peer_sender) = bind(LOOPBACK, config(Offload::Auto));
    let (mut stranger, _) = bind(LOOPBACK, config(Offload::Auto));
    let peer_address = peer.local_address().unwrap();
    let mut to =
        Udp::connect(LOOPBACK.parse().unwrap(), peer_address, config(Offload::Auto)).unwrap();
    let to_sender = to.local_address().unwrap().into();
    peer.queue(to_sender, b"from the peer").unwrap();
    peer.flush().unwrap();
    stranger.queue(to_sender, b"from a stranger").unwrap();
    stranger.flush().unwrap();
    let mut zone = zone(1 << 17);
    let want = vec![(Sender::from(Lane(0)), b"from the peer".to_vec())];
    assert_eq!(receive_all(&mut to, &mut zone), want);
    to.queue(Lane(0).into(), b"reply").unwrap();
    to.flush().unwrap();
    assert_eq!(receive_all(&mut peer, &mut zone), [(to_sender, b"reply".to_vec())]);
    assert_eq!(to.queue(Lane(1).into(), b"x"), Err(SendError::NoPeer));
    assert_eq!(to.queue(peer_sender, b"x"), Err(SendError::NoPeer));
    assert_eq!(peer.queue(Lane(0).into(), b"x"), Err(SendError::NoPeer));
}

#[test]
fn a_datagram_longer_than_a_frame_is_found_and_dropped() {
    let small = UdpConfig { frame_bytes_max: 512, ..config(Offload::Off) };
    let (mut to, to_sender) = bind(LOOPBACK, small);
    let (mut from, _) = bind(LOOPBACK, config(Offload::Off));
    for len in [512, 513, 100, 8000, 512] {
        from.queue(to_sender, &frame(0, len)).unwrap();
    }
    from.flush().unwrap();
    let mut zone = zone(1 << 12);
    let lens: Vec<_> = receive_all(&mut to, &mut zone).iter().map(|(_, b)| b.len()).collect();
    assert_eq!(lens, [512, 100, 512]);
    assert_eq!(zone.counters().truncated, 2);
    let too_long = SendError::TooLong { len_bytes: 513, max_bytes: 512 };
    assert_eq!(to.queue(to_sender, &frame(0, 513)), Err(too_long));
}

#[test]
fn a_full_zone_leaves_datagrams_with_the_kernel() {
    let (mut to, to_sender) =
        bind(LOOPBACK, UdpConfig { frame_bytes_max: 1024, ..config(Offload::Off) });
    let (mut from, _) = bind(LOOPBACK, config(Offload::Off));
    let mut zone = zone(1024);
    let sent: Vec<_> = (0..40).map(|index| frame(index, 600)).collect();
    for frame in &sent {
        from.queue(to_sender, frame).unwrap();
    }
    from.flush().unwrap();
    let mut landed = 0;
    for _ in 0..sent.len() {
        landed += to.receive(&mut zone).unwrap();
    }
    assert_eq!(landed, 4, "one in each buffer");
    assert!(zone.counters().starved > 0);
    let first: Vec<Completion> = std::iter::from_fn(|| zone.take()).collect();
    assert_eq!(zone.bytes(&first[3]), sent[3]);
    zone.release_taken();
    let rest = receive_all(&mut to, &mut zone);
    assert_eq!(rest.len(), 36);
    assert_eq!(to.kernel_drops().unwrap(), 0);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let tiny = UdpConfig { kernel_bytes: 1, ..config(Offload::Off) };
    let (mut to, to_sender) = bind(LOOPBACK, tiny);
    let (mut from, _) = bind(LOOPBACK, config(Offload::Off));
    for index in 0..100 {
        from.queue(to_sender, &frame(index, 1000)).unwrap();
    }
    from.flush().unwrap();
    let landed = receive_all(&mut to, &mut zone(1 << 17)).len() as u64;
    assert!(landed < 100);
    assert_eq!(to.kernel_drops().unwrap() + landed, 100);
}

#[test]
fn a_peer_that_cannot_be_reached_holds_up_no_other() {
    let (mut from, _) = bind(LOOPBACK, config(Offload::Auto));
    let (mut to, to_sender) = bind(LOOPBACK, config(Offload::Auto));
    let nowhere: SocketAddr = "[::1]:9".parse().unwrap();
    from.queue(nowhere.into(), b"lost").unwrap();
    from.queue(to_sender, b"arrives").unwrap();
    assert_eq!(from.flush().unwrap(), 2);
    assert_eq!(from.send_counters().refused, 1);
    assert_eq!(receive_all(&mut to, &mut zone(1 << 17)).len(), 1);
}

#[test]
fn a_full_send_queue_says_so_and_is_empty_after_a_flush() {
    let (mut from, _) = bind(LOOPBACK, UdpConfig { send_frames_max: 2, ..config(Offload::Auto) });
    let (_to, to_sender) = bind(LOOPBACK, config(Offload::Auto));
    from.queue(to_sender, b"one").unwrap();
    from.queue(to_sender, b"two").unwrap();
    assert_eq!(from.queue(to_sender, b"three"), Err(SendError::Full));
    assert_eq!(from.flush().unwrap(), 2);
    assert_eq!(from.queue(to_sender, b"three"), Ok(()));
}

#[test]
fn a_refused_segmentation_sends_singly_from_then_on() {
    let large = UdpConfig { frame_bytes_max: DATAGRAM_BYTES_MAX, ..config(Offload::Auto) };
    let (mut from, _) = bind(LOOPBACK, large);
    from.set_checksums_off();
    let (mut to, to_sender) = bind(LOOPBACK, large);
    from.queue(to_sender, &frame(0, 64)).unwrap();
    from.queue(to_sender, &frame(1, 64)).unwrap();
    assert_eq!(from.flush().unwrap(), 2);
    assert!(matches!(from.take_notice(), Some(Notice::SegmentationOff { .. })));
    assert_eq!(from.take_notice(), None);
    assert_eq!(receive_all(&mut to, &mut zone(1 << 17)).len(), 2);
}

#[test]
fn an_empty_datagram_is_nothing() {
    let (mut to, to_sender) = bind(LOOPBACK, config(Offload::Auto));
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    let address = to_sender.as_address().unwrap();
    socket.send_to(b"", address).unwrap();
    socket.send_to(b"something", address).unwrap();
    let mut zone = zone(1 << 17);
    assert_eq!(receive_all(&mut to, &mut zone).len(), 1);
    assert_eq!(zone.counters().landed, 1);
}

#[test]
fn a_zone_with_buffers_too_short_is_refused() {
    let (mut to, _) = bind(LOOPBACK, config(Offload::Auto));
    assert!(to.receive(&mut zone(4096)).is_err());
}

impl Udp {
    /// Segmentation needs checksums: without them the kernel refuses it (EIO or EINVAL).
    fn set_checksums_off(&self) {
        let on: libc::c_int = 1;
        // SAFETY: the option's value is a C int, which is read during the call.
        let code = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                4,
            )
        };
        assert_eq!(code, 0);
    }
}
