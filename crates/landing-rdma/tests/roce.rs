//! Both ends on one RDMA device, as `cargo xtask test-rdma` runs it over soft-RoCE.
//!
//! Without a device each test says so in one line and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use landing::{Lane, Transport, Zone, ZoneSize};
use landing_rdma::{OpenError, Rdma, RdmaConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn zone(buffer_bytes: usize, buffer_count: usize) -> Zone {
    let size = ZoneSize { buffer_bytes, buffer_count, completions_max: 1024 };
    Zone::ring(size, Box::new(|_| true)).unwrap()
}

/// A transport and its zone, as two threads or hosts would have one each.
struct End {
    rdma: Rdma,
    zone: Zone,
}

impl End {
    fn open(mut zone: Zone, config: RdmaConfig) -> Option<End> {
        match Rdma::new(&mut zone, config) {
            Ok(rdma) => Some(End { rdma, zone }),
            Err(error @ (OpenError::NotLoaded(_) | OpenError::NoDevice { .. })) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn listen(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.rdma.listen(listener).unwrap();
        address
    }

    /// What has landed now.
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

/// Lets both ends go on until something is so.
#[track_caller]
fn until<T>(ends: &mut [&mut End], mut is_so: impl FnMut(&mut [&mut End]) -> Option<T>) -> T {
    loop {
        if let Some(value) = is_so(ends) {
            return value;
        }
        if ends.iter_mut().all(|end| end.rdma.may_sleep()) {
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

/// What lands at the first of the ends until it is so many.
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
