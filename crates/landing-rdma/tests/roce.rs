//! Both ends on one RDMA device, as `cargo xtask test-rdma` runs it over soft-RoCE.
//!
//! DOVETAIL_RDMA_DEVICE names the device; without it, each test says so in one line and passes.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use landing::{Lane, Region, SendError, Spent, Transport, Zone, ZoneSize};
use landing_rdma::{Acknowledge, OpenError, Rdma, RdmaConfig, Refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn zone(buffer_bytes: usize, buffer_count: usize) -> Zone {
    let size = ZoneSize { buffer_bytes, buffer_count, completions_max: 1024 };
    Zone::ring(size, Box::new(|_| true)).unwrap()
}

/// A transport and its zone; each of two threads or hosts would have one.
struct End {
    rdma: Rdma,
    zone: Zone,
}

impl End {
    fn open(mut zone: Zone, config: RdmaConfig) -> Option<End> {
        let Ok(device) = std::env::var("DOVETAIL_RDMA_DEVICE") else {
            println!("skipped: DOVETAIL_RDMA_DEVICE names no device");
            return None;
        };
        let rdma = Rdma::new(&mut zone, RdmaConfig { device: Some(device), ..config }).unwrap();
        Some(End { rdma, zone })
    }

    fn listen(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.rdma.listen(listener).unwrap();
        address
    }

    /// The messages that have landed now.
    fn receive(&mut self) -> Vec<(Lane, usize, Vec<u8>)> {
        self.rdma.receive(&mut self.zone).unwrap();
        let zone = &mut self.zone;
        let mut all = Vec::new();
        while let Some(completion) = zone.take() {
            let lane = completion.sender().as_lane().unwrap();
            all.push((lane, completion.offset_bytes(), zone.bytes(&completion).to_vec()));
        }
        all
    }

    fn send(&mut self, lane: Lane, message: &[u8]) {
        self.rdma.queue(lane.into(), message).unwrap();
    }
}

/// Drives both ends until a condition holds.
#[track_caller]
fn until<T>(ends: &mut [&mut End], mut is_so: impl FnMut(&mut [&mut End]) -> Option<T>) -> T {
    loop {
        if let Some(value) = is_so(ends) {
            return value;
        }
        // All ends are asked: that also drives them.
        let mut is_quiet = true;
        for end in ends.iter_mut() {
            is_quiet &= end.rdma.may_sleep();
        }
        if is_quiet {
            let fds: Vec<_> = ends.iter().map(|end| end.rdma.as_fd()).collect();
            let mut polls: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            assert!(poll(&mut polls, Some(&patience)).unwrap() > 0, "nothing happens");
        }
    }
}

/// A listener, and that many clients, each with its lane 0 open.
fn connected(
    server_zone: Zone,
    server: RdmaConfig,
    client: &RdmaConfig,
    count: usize,
) -> Option<(End, Vec<End>)> {
    let mut server = End::open(server_zone, server)?;
    let address = server.listen();
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = End::open(zone(4096, 2), client.clone())?;
        let lane = client.rdma.connect(address, PATIENCE).unwrap();
        until(&mut [&mut server, &mut client], |ends| ends[1].rdma.take_opened());
        assert_eq!(lane, Lane(0));
        clients.push(client);
    }
    Some((server, clients))
}

/// Lands messages at the first of the ends until there are so many.
fn land(ends: &mut [&mut End], count: usize) -> Vec<(Lane, usize, Vec<u8>)> {
    let mut all = Vec::new();
    until(ends, |ends| {
        all.extend(ends[0].receive());
        for end in &mut ends[1..] {
            end.receive();
        }
        (all.len() >= count).then_some(())
    });
    all
}

#[test]
fn a_host_without_the_device_says_so() {
    let device = Some("no-such-device".to_owned());
    let error = Rdma::new(&mut zone(4096, 2), RdmaConfig { device, ..RdmaConfig::default() });
    match error.err() {
        Some(OpenError::NoDevice { seen }) => assert!(!seen.contains(&"no-such-device".to_owned())),
        Some(OpenError::NotLoaded(error)) => assert!(error.to_string().contains("libibverbs")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_of_all_connections_land_in_one_zone_in_address_order() {
    let config = RdmaConfig { frame_bytes_max: 256, ..RdmaConfig::default() };
    let opened = connected(zone(4096, 4), config.clone(), &config, 2);
    let Some((mut server, mut clients)) = opened else { return };
    let mut offsets = Vec::new();
    for round in 0..4_u8 {
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(Lane(0), &[round * 2 + index as u8; 100]);
            client.rdma.flush().unwrap();
            let mut landed = land(&mut [&mut server], 1);
            let (lane, offset_bytes, message) = landed.remove(0);
            assert_eq!(lane, Lane(index as u32));
            assert_eq!(message, [round * 2 + index as u8; 100]);
            offsets.push(offset_bytes);
        }
    }
    assert_eq!(offsets, (0..8).map(|slot| slot * 256).collect::<Vec<_>>());
}

#[test]
fn replies_go_back_over_the_same_connection() {
    let config = RdmaConfig::default();
    let opened = connected(zone(4096, 4), config.clone(), &config, 2);
    let Some((mut server, mut clients)) = opened else { return };
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(Lane(0), &[index as u8; 10]);
        client.rdma.flush().unwrap();
        let (lane, _, message) = land(&mut [&mut server, client], 1).remove(0);
        server.send(lane, &[&message[..], b"!"].concat());
        server.rdma.flush().unwrap();
        let (_, _, reply) = land(&mut [client, &mut server], 1).remove(0);
        assert_eq!(reply, [&[index as u8; 10][..], b"!"].concat());
    }
    assert_eq!(server.rdma.queue(Lane(9).into(), b"nothing"), Err(SendError::NoPeer));
    let too_long = SendError::TooLong { len_bytes: 1025, max_bytes: 1024 };
    assert_eq!(server.rdma.queue(Lane(0).into(), &[0; 1025]), Err(too_long));
}

#[test]
fn messages_of_many_packets_land_whole() {
    let config = RdmaConfig { frame_bytes_max: 16_000, ..RdmaConfig::default() };
    let opened = connected_wide(zone(1 << 16, 2), &config);
    let Some((mut server, mut client)) = opened else { return };
    let lens = [1, 1023, 1024, 1025, 5000, 16_000];
    for len in lens {
        let message: Vec<u8> = (0..len).map(|at| (at / 3) as u8).collect();
        client.send(Lane(0), &message);
        client.rdma.flush().unwrap();
        assert_eq!(land(&mut [&mut server, &mut client], 1)[0].2, message);
        server.zone.release_taken();
    }
}

fn connected_wide(server_zone: Zone, config: &RdmaConfig) -> Option<(End, End)> {
    let mut server = End::open(server_zone, config.clone())?;
    let mut client = End::open(zone(1 << 16, 1), config.clone())?;
    client.rdma.connect(server.listen(), PATIENCE).unwrap();
    until(&mut [&mut server, &mut client], |ends| ends[1].rdma.take_opened());
    Some((server, client))
}

/// Sends batches, waits for their end, and returns the client's counts.
fn send_batches(acknowledge: Acknowledge, batches: &[usize]) -> Option<landing_rdma::Counters> {
    let server = RdmaConfig { frame_bytes_max: 64, ..RdmaConfig::default() };
    let client = RdmaConfig { acknowledge, lane_frames_max: 64, lanes_max: 1, ..server.clone() };
    let (mut server, mut clients) = connected(zone(1 << 16, 1), server, &client, 1)?;
    let client = &mut clients[0];
    let mut sent = 0;
    for count in batches {
        for _ in 0..*count {
            client.send(Lane(0), b"message");
        }
        assert_eq!(client.rdma.flush().unwrap(), *count);
        sent += count;
        assert_eq!(land(&mut [&mut server, client], *count).len(), *count);
        if acknowledge != Acknowledge::Lazily {
            until(&mut [&mut server, client], |ends| {
                (ends[1].rdma.outstanding(Lane(0)) == 0).then_some(())
            });
            assert_eq!(client.rdma.acknowledged(Lane(0)), sent as u64);
        }
    }
    Some(client.rdma.counters())
}

#[test]
fn a_batch_is_one_doorbell_and_one_acknowledgement() {
    let Some(counters) = send_batches(Acknowledge::Batches, &[1, 20, 3]) else { return };
    assert_eq!((counters.frames, counters.doorbells, counters.signalled), (24, 3, 3));
    assert_eq!(counters.reads, 0);
}

#[test]
fn a_read_follows_each_batch_that_is_to_persist() {
    let Some(counters) = send_batches(Acknowledge::Persistent, &[1, 20, 3]) else { return };
    assert_eq!((counters.frames, counters.doorbells, counters.reads), (24, 3, 3));
    assert_eq!(counters.signalled, 0, "the READ completes, and the messages before it");
}

#[test]
fn replies_are_acknowledged_now_and_then() {
    // Every sixteenth requests one, and there are buffers for 64: without completions the last
    // batches would not leave.
    let Some(counters) = send_batches(Acknowledge::Lazily, &[40; 5]) else { return };
    assert_eq!((counters.frames, counters.signalled), (200, 200 / 16));
}

#[test]
fn a_full_zone_keeps_messages_with_the_sender() {
    let config = RdmaConfig { frame_bytes_max: 1024, ..RdmaConfig::default() };
    let client = RdmaConfig { lane_frames_max: 8, ..config.clone() };
    let opened = connected(zone(2048, 2), config, &client, 1);
    let Some((mut server, mut clients)) = opened else { return };
    let client = &mut clients[0];
    let mut sent = 0;
    let mut values = Vec::new();
    // Until both are full: the slots here, and the client's maximum under way.
    while client.rdma.queue(Lane(0).into(), &[sent; 9]).is_ok() {
        sent += 1;
        client.rdma.flush().unwrap();
        if values.len() < 4 {
            values.push(land(&mut [&mut server, client], 1)[0].2[0]);
        }
    }
    assert!(sent >= 4 + 6, "{sent}");
    assert_eq!(client.rdma.queue(Lane(0).into(), b"more"), Err(SendError::Full));
    assert_eq!(server.receive(), []);
    assert!(server.zone.counters().starved > 0);
    while values.len() < usize::from(sent) {
        server.zone.release_taken();
        values.extend(land(&mut [&mut server, client], 1).iter().map(|landed| landed.2[0]));
    }
    assert!(values.into_iter().eq(0..sent), "in order, none lost");
}

#[test]
fn a_log_is_filled_segment_by_segment_and_runs_low_audibly() {
    let size = ZoneSize { buffer_bytes: 1024, buffer_count: 2, completions_max: 64 };
    let log = Zone::log(Region::memory(4 * 1024).unwrap(), size, Box::new(|_| true));
    let config = RdmaConfig { frame_bytes_max: 256, ..RdmaConfig::default() };
    let Some((mut server, mut clients)) = connected(log, config.clone(), &config, 1) else {
        return;
    };
    server.zone.post(2048).unwrap();
    server.zone.post(0).unwrap();
    server.receive();
    for value in 0..7_u8 {
        clients[0].send(Lane(0), &[value; 200]);
    }
    clients[0].rdma.flush().unwrap();
    let offsets: Vec<_> = land(&mut [&mut server, &mut clients[0]], 7)
        .into_iter()
        .map(|(_, offset_bytes, _)| offset_bytes)
        .collect();
    assert_eq!(offsets, [2048, 2304, 2560, 2816, 0, 256, 512]);
    assert_eq!(server.zone.take_spent(), None, "its messages are still read");
    server.zone.release_taken();
    let spent = Spent { offset_bytes: 2048, filled_bytes: 1024 };
    assert_eq!(server.zone.take_spent(), Some(spent));
    assert_eq!(server.zone.take_spent(), None, "one slot of it is with the device");
    until(&mut [&mut server, &mut clients[0]], |ends| {
        ends[0].receive();
        (ends[0].rdma.counters().low_water > 0).then_some(())
    });
}

#[test]
fn a_peer_that_goes_is_noticed_on_both_sides() {
    let config = RdmaConfig::default();
    let opened = connected(zone(4096, 4), config.clone(), &config, 3);
    let Some((mut server, mut clients)) = opened else { return };
    clients[1].send(Lane(0), b"the last");
    clients[1].rdma.flush().unwrap();
    assert_eq!(land(&mut [&mut server], 1)[0].2, b"the last");
    clients.remove(1);
    let gone = until(&mut [&mut server], |ends| {
        ends[0].receive();
        ends[0].rdma.take_closed()
    });
    assert_eq!(gone, Lane(1));
    assert_eq!(server.rdma.queue(Lane(1).into(), b"late"), Err(SendError::NoPeer));
    // Others are served as before.
    clients[1].send(Lane(0), b"still here");
    clients[1].rdma.flush().unwrap();
    assert_eq!(land(&mut [&mut server], 1)[0].0, Lane(2));
    drop(server);
    for client in &mut clients {
        let gone = until(&mut [client], |ends| {
            ends[0].receive();
            ends[0].rdma.take_closed()
        });
        assert_eq!(gone, Lane(0));
    }
}

#[test]
fn senders_that_die_with_messages_under_way_leave_no_slot_behind() {
    // A thousand packets each.
    const BYTES: usize = 1_000_000;
    let config = RdmaConfig { frame_bytes_max: BYTES, send_frames_max: 4, ..RdmaConfig::default() };
    let Some(mut server) = End::open(zone(BYTES, 4), config.clone()) else { return };
    let address = server.listen();
    let open = |server: &mut End| {
        let mut client = End::open(zone(BYTES, 1), config.clone()).unwrap();
        client.rdma.connect(address, PATIENCE).unwrap();
        until(&mut [server, &mut client], |ends| ends[1].rdma.take_opened());
        client
    };
    for messages in 1..5 {
        let mut client = open(&mut server);
        for _ in 0..messages {
            client.send(Lane(0), &[1; BYTES]);
        }
        client.rdma.flush().unwrap();
        drop(client);
        until(&mut [&mut server], |ends| {
            ends[0].receive();
            ends[0].zone.release_taken();
            ends[0].rdma.take_closed()
        });
    }
    assert_eq!(server.rdma.counters().stopped, 4);
    // Each slot is used again, twice.
    let mut client = open(&mut server);
    for value in 0..8 {
        client.send(Lane(0), &[value; BYTES]);
        client.rdma.flush().unwrap();
        let landed = land(&mut [&mut server, &mut client], 1);
        assert!(landed[0].2.iter().all(|byte| *byte == value));
        server.zone.release_taken();
    }
}

#[test]
fn a_lane_can_be_closed_and_another_opened() {
    let config = RdmaConfig::default();
    let opened = connected(zone(4096, 4), config.clone(), &config, 1);
    let Some((mut server, mut clients)) = opened else { return };
    let address = server.listen();
    server.rdma.close(Lane(0));
    until(&mut [&mut server, &mut clients[0]], |ends| {
        ends.iter_mut().for_each(|end| drop(end.receive()));
        ends[1].rdma.take_closed()
    });
    let lane = clients[0].rdma.connect(address, PATIENCE).unwrap();
    assert_eq!(lane, Lane(1), "positions are not given twice");
    until(&mut [&mut server, &mut clients[0]], |ends| ends[1].rdma.take_opened());
    clients[0].send(lane, b"again");
    clients[0].rdma.flush().unwrap();
    assert_eq!(land(&mut [&mut server], 1)[0].2, b"again");
}

#[test]
fn a_listener_refuses_in_words() {
    let config = RdmaConfig { lanes_max: 1, ..RdmaConfig::default() };
    let opened = connected(zone(4096, 4), config.clone(), &config, 1);
    let Some((mut server, _clients)) = opened else { return };
    let Some(mut second) = End::open(zone(4096, 1), config) else { return };
    let lane = second.rdma.connect(server.listen(), PATIENCE).unwrap();
    let refusal = until(&mut [&mut server, &mut second], |ends| ends[1].rdma.take_refusal());
    assert_eq!(refusal, (lane, Refusal::TooMany));
}

#[test]
fn strangers_at_the_listener_hold_up_no_peer() {
    let config = RdmaConfig::default();
    let Some(mut server) = End::open(zone(4096, 4), config.clone()) else { return };
    let address = server.listen();
    let mut strangers: Vec<_> =
        (0..40).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    for (index, stranger) in strangers.iter_mut().enumerate() {
        // Silent, cut short, or nonsense.
        let nonsense = [index as u8; 64];
        let _ = std::io::Write::write_all(stranger, &nonsense[..[0, 10, 64][index % 3]]);
    }
    let Some(mut client) = End::open(zone(4096, 1), config) else { return };
    client.rdma.connect(address, PATIENCE).unwrap();
    until(&mut [&mut server, &mut client], |ends| ends[1].rdma.take_opened());
    client.send(Lane(0), b"hello");
    client.rdma.flush().unwrap();
    assert_eq!(land(&mut [&mut server], 1)[0].2, b"hello");
}
