//! The links with the model server behind them: real datagrams, real shared memory.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use base::Instant;
use landing::shm::{Accepted, Acceptor, AcceptorConfig, ServerEnd};

use crate::engine::tests::server::Server;
use crate::{Client, ClientError, Config, ConnectError, Expiry, Op, Target, Want, Written};

const NOW: Instant = Instant { ns: 1 };

/// A model server that answers until it is told to stop.
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

fn serve_shm(path: &Path, stop: &AtomicBool, ready: &AtomicBool) {
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
        while let Some(answer) = server.out.front()
            && end.write(answer).unwrap_or(false)
        {
            server.out.pop_front();
        }
        end.publish();
        std::thread::yield_now();
    }
}

#[test]
fn the_client_works_over_shared_memory() {
    let path = std::env::temp_dir().join(format!("dovetail-client-{}", std::process::id()));
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| serve_shm(&path, &stop, &ready));
        while !ready.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let used = std::panic::catch_unwind(|| use_it(&format!("shm:{}", path.display())));
        stop.store(true, Ordering::Relaxed);
        used.unwrap();
    });
}

#[test]
fn nobody_there_is_said_at_once() {
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
