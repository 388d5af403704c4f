//! Tests of the links against the model server: real datagrams, real shared memory.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use base::Instant;
use landing::shm::{Accepted, Acceptor, AcceptorConfig, ServerEnd};

use crate::engine::tests::server::Server;
use crate::{
    Client, ClientError, Config, ConnectError, Connection, Expiry, Op, RequestError, Status,
    Target, Want, Written,
};

const NOW: Instant = Instant { ns: 1 };

/// A model server that answers until it is stopped.
fn serve_udp<'scope>(
    scope: &'scope Scope<'scope, '_>,
    socket: UdpSocket,
    stop: &Arc<AtomicBool>,
) -> ScopedJoinHandle<'scope, Server> {
    let stop = Arc::clone(stop);
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    scope.spawn(move || {
        let (mut server, mut buffer) = (Server::new(), vec![0; 65_536]);
        server.frame_max_bytes = 8192;
        while !stop.load(Ordering::Relaxed) {
            if let Ok((len_bytes, from)) = socket.recv_from(&mut buffer) {
                server.input(&buffer[..len_bytes], NOW);
                while let Some(answer) = server.out.pop_front() {
                    let _ = socket.send_to(&answer, from);
                }
            }
        }
        server
    })
}

/// What both links must be able to carry.
fn use_it(target: &str) {
    let mut client = Client::connect(target).unwrap();
    // Before anything was asked: there is no answer to wait for.
    let too_long = vec![b'k'; 1 << 16];
    assert!(matches!(client.mget(&[&too_long]), Err(ClientError::Submit(_))));
    client.ping().unwrap();
    assert_eq!(client.get(b"a").unwrap(), None);
    client.set(b"a", b"value").unwrap();
    assert_eq!(client.get(b"a").unwrap().as_deref(), Some(&b"value"[..]));
    let item = client.get_item(b"a").unwrap().unwrap();
    assert_eq!(client.cas(b"a", b"newer", item.version).unwrap(), Written::Stored);
    assert_eq!(client.cas(b"a", b"late", item.version).unwrap(), Written::Changed);
    assert_eq!(client.incr(b"n", 5).unwrap(), 5);
    assert_eq!(client.decr(b"n", 7).unwrap(), -2);
    assert_eq!(client.append(b"a", b"!").unwrap(), 6);
    assert!(client.delete(b"n").unwrap() && !client.delete(b"n").unwrap());
    let large: Vec<u8> = (0..500_000_u32).map(|at| (at / 3) as u8).collect();
    client.set(b"large", &large).unwrap();
    assert_eq!(client.get(b"large").unwrap(), Some(large));
    let keys: Vec<Vec<u8>> = (0..3000_u32).map(|key| key.to_le_bytes().to_vec()).collect();
    for key in keys.iter().step_by(100) {
        client.set(key, key).unwrap();
    }
    let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let values = client.mget(&asked).unwrap();
    for (place, value) in values.iter().enumerate() {
        assert_eq!(value.as_ref(), (place % 100 == 0).then_some(&keys[place]), "{place}");
    }
    assert!(matches!(client.touch(b"a", Expiry::Never), Err(ClientError::Refused(_))));
    assert_eq!(client.stats().frames_dropped, 0);
}

#[test]
fn of_several_addresses_the_first_that_listens_is_taken() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = socket.local_addr().unwrap();
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target: Target = "native://several:1".parse().unwrap();
    let open = |servers: &[SocketAddr]| {
        let timeout = Duration::from_secs(20);
        Connection::open_first(servers, &target, &Config::default(), timeout).map(|_| ())
    };
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        serve_udp(scope, socket, &stop);
        assert!(open(&[closed, server]).is_ok());
        let error = open(&[closed, closed]).unwrap_err().to_string();
        assert_eq!(error, "cannot connect to native://several:1: connection refused");
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_client_works_over_datagrams() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = format!("native://{}", socket.local_addr().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = serve_udp(scope, socket, &stop);
        use_it(&target);
        stop.store(true, Ordering::Relaxed);
        assert!(server.join().unwrap().executed_writes > 30);
    });
}

/// Serves one client after the other until it is stopped; or dies with the answers to a frame that
/// wrote this key.
fn serve_shm(path: &Path, stop: &AtomicBool, ready: &AtomicBool, deadly_key: &[u8]) {
    let acceptor = Acceptor::listen(path, AcceptorConfig::default()).unwrap();
    ready.store(true, Ordering::Relaxed);
    let (mut server, mut client) = (Server::new(), None::<ServerEnd>);
    (server.worker_count, server.is_reliable) = (1, true);
    let mut arena = vec![0; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        let Some(end) = &mut client else {
            if let Accepted::Client(end) = acceptor.accept().unwrap() {
                server.frame_max_bytes = end.frame_len_max() & !7;
                client = Some(end);
            }
            std::thread::yield_now();
            continue;
        };
        let mut frames = Vec::new();
        if end.poll(&mut arena, 16, |frame| frames.push(frame)).is_err() {
            client = None;
            continue;
        }
        for frame in &frames {
            server.input(&arena[frame.offset..frame.offset + frame.len_bytes], NOW);
        }
        if server.value(deadly_key).is_some() {
            return;
        }
        while let Some(answer) = server.out.front()
            && end.write(answer).unwrap_or(false)
        {
            server.out.pop_front();
        }
        end.publish();
        std::thread::yield_now();
    }
}

fn socket_path(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("dovetail-client-{}-{test}", std::process::id()))
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
}

#[test]
fn the_client_works_over_shared_memory() {
    let path = socket_path("use");
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| serve_shm(&path, &stop, &ready, b"none"));
        wait_for(&ready);
        let used = std::panic::catch_unwind(|| use_it(&format!("shm:{}", path.display())));
        stop.store(true, Ordering::Relaxed);
        used.unwrap();
    });
}

/// Ends the threads of a scope also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const INCR_N: Op<'_> = Op::Incr { key: b"n", delta: 1 };

/// A connection in shared memory whose server has executed a write and died before it answered;
/// the tokens of that write, and of a read that was not answered either.
fn bereft<'scope>(
    scope: &'scope Scope<'scope, '_>,
    path: &'scope Path,
    flags: &'scope [AtomicBool; 2],
) -> (crate::Connection, crate::Token, crate::Token) {
    let dying = scope.spawn(move || serve_shm(path, &flags[0], &flags[1], b"n"));
    wait_for(&flags[1]);
    let target: Target = format!("shm:{}", path.display()).parse().unwrap();
    let config = Config { timeout_ns: 60_000_000_000, ..Config::default() };
    let mut connection = crate::Connection::open(&target, config, Duration::from_secs(60)).unwrap();
    let write = connection.submit(&INCR_N, Want::PLAIN).unwrap();
    let read = connection.submit(&Op::Get { key: b"a", touch: None }, Want::PLAIN).unwrap();
    connection.poll().unwrap();
    dying.join().unwrap();
    (connection, write, read)
}

fn next_ended(connection: &mut crate::Connection) -> (crate::Token, Result<Status, RequestError>) {
    loop {
        if let Some(completion) = connection.next_completion() {
            return (completion.token, completion.result.map(|answer| answer.status));
        }
        connection.wait(None).unwrap();
    }
}

#[test]
fn a_server_in_shared_memory_that_starts_again_is_found_again() {
    let path = socket_path("restart");
    let flags = [const { AtomicBool::new(false) }; 2];
    let [stop, ready] = [const { AtomicBool::new(false) }; 2];
    std::thread::scope(|scope| {
        let (mut connection, write, read) = bereft(scope, &path, &flags);
        let _stop = Stop(&stop);
        scope.spawn(|| serve_shm(&path, &stop, &ready, b"none"));
        // The write may have happened, and is not sent again; the read is.
        assert_eq!(next_ended(&mut connection), (write, Err(RequestError::Unknown)));
        assert_eq!(next_ended(&mut connection), (read, Ok(Status::Miss)));
        connection.submit(&INCR_N, Want::PLAIN).unwrap();
        assert_eq!(next_ended(&mut connection).1, Ok(Status::Ok));
        assert_eq!(connection.stats().sessions, 2);
        assert!(connection.next_completion().is_none(), "each ended once");
    });
}

#[test]
fn a_client_whose_server_is_away_sleeps_until_it_looks_again() {
    let path = socket_path("away");
    let flags = [const { AtomicBool::new(false) }; 2];
    std::thread::scope(|scope| {
        let (mut connection, write, _) = bereft(scope, &path, &flags);
        assert_eq!(next_ended(&mut connection).0, write);
        // Looks for the server once, and then not for a while.
        connection.poll().unwrap();
        assert!(connection.as_fd().is_none() && connection.prepare_sleep());
        let timer = connection.next_timer().unwrap();
        assert!(timer > Duration::from_millis(20), "{timer:?}");
    });
}

#[test]
fn a_missing_server_is_reported_at_once() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target: Target = format!("native://{free}").parse().unwrap();
    let error = crate::Connection::open(&target, Config::default(), Duration::from_secs(5));
    assert!(matches!(error, Err(ConnectError::Refused { .. })), "{error:?}");
    let missing: Target = "shm:/nonexistent/dovetail".parse().unwrap();
    let error = crate::Connection::open(&missing, Config::default(), Duration::from_secs(5));
    assert!(matches!(error, Err(ConnectError::Shm { .. })), "{error:?}");
}

#[test]
fn a_pipeline_is_answered_whatever_its_depth() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target: Target = format!("native://{}", socket.local_addr().unwrap()).parse().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        serve_udp(scope, socket, &stop);
        let config = Config { outstanding_max: 4096, ..Config::default() };
        let mut connection =
            crate::Connection::open(&target, config, Duration::from_secs(5)).unwrap();
        for depth in [1, 32, 4096] {
            for _ in 0..depth {
                connection.submit(&Op::Get { key: b"a", touch: None }, Want::PLAIN).unwrap();
            }
            let mut answered = 0;
            while answered < depth {
                connection.wait(None).unwrap();
                while let Some(completion) = connection.next_completion() {
                    completion.result.unwrap();
                    answered += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
