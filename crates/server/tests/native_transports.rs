//! The native port behaves the same however its datagrams are received.

use crate::support::native::{Peer, config, get, set};
use crate::support::{PATIENCE, TestServer, pattern};
use server::{Config, NativeTransport};
use wire::native::{Op, Part, Reason, Request, RequestId, Set, Status, SteeringId, Want};

/// Runs a test on each transport. io_uring falls back, with a line, where the kernel has none.
fn on_each(test: impl Fn(Config)) {
    for native_transport in [NativeTransport::Recvmmsg, NativeTransport::IoUring] {
        test(Config { native_transport, ..config() });
    }
}

#[test]
fn many_frames_of_many_clients_are_answered() {
    on_each(|config| {
        let server = TestServer::with(config);
        let mut peers: Vec<Peer> = (0..8).map(|_| Peer::connect(&server)).collect();
        for round in 0..100_u32 {
            for (index, peer) in peers.iter_mut().enumerate() {
                // Some frames are lost at a buffer's end, so each is asked for again until it is
                // answered; all workers get some.
                peer.steering = SteeringId(round as u16 % 64);
                let (key, value) = (format!("{index}:{round}"), pattern(700));
                let answers = peer.ask_patiently(&[set(key.as_bytes(), &value)]);
                assert_eq!(answers[0].status, Status::Ok);
                let answers = peer.ask_patiently(&[get(key.as_bytes())]);
                assert!(answers[0].value == value);
            }
        }
        let native = server.server().shared().totals().native;
        assert!(native.requests >= 1600);
        assert!(native.zone_bytes >= 2 << 20, "a zone for each worker");
    });
}

#[test]
fn a_write_takes_effect_once_however_often_it_is_sent() {
    on_each(|config| {
        let server = TestServer::with(config);
        let mut peer = Peer::connect(&server);
        for number in 0..500 {
            let op = Op::Incr { key: b"n", delta: 1 };
            let incr = Request { id: RequestId::Once(number), want: Want::PLAIN, op };
            let answers = peer.ask_patiently(&[incr]);
            assert_eq!(answers[0].number, Some(i64::from(number) + 1));
            peer.floor = number;
        }
    });
}

#[test]
fn a_value_comes_in_parts() {
    on_each(|config| {
        let server = TestServer::with(config);
        let mut peer = Peer::connect(&server);
        let value = pattern(100_032);
        let mut last = Status::PartTaken;
        for (index, chunk) in value.chunks(1024).enumerate() {
            let part = Some(Part { offset: index as u32 * 1024, total: value.len() as u32 });
            let Op::Set(whole) = set(b"large", chunk).op else { unreachable!("a set is a set") };
            let op = Op::Set(Set { part, ..whole });
            let asked = Request { id: RequestId::Once(0), want: Want::PLAIN, op };
            last = peer.ask_patiently(&[asked])[0].status;
        }
        assert_eq!(last, Status::Ok);
        assert!(peer.pull(b"large") == value);
    });
}

#[test]
fn a_server_that_stops_gives_its_port_back() {
    on_each(|config| {
        let server = TestServer::with(config.clone());
        let mut peer = Peer::connect(&server);
        peer.ask_patiently(&[set(b"k", b"v")]);
        let native = server.server().native_addr();
        assert!(server.stop(PATIENCE));
        let again = start_patiently(&Config { native, ..config });
        peer.send(&[get(b"k")]);
        assert_eq!(peer.receive_refusal().reason, Reason::UnknownSession);
        drop(again);
    });
}

/// The kernel gives a ring's port back a moment after the ring is gone.
fn start_patiently(config: &Config) -> TestServer {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        match TestServer::try_with(config.clone()) {
            Ok(server) => return server,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}
