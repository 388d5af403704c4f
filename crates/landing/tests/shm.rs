//! Shared memory within one process: paths, limits, back-pressure, hang-ups.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use landing::shm::{
    Accepted, Acceptor, AcceptorConfig, Armed, ClientConfig, ClientEnd, ConnectError, Gone,
    ListenError, Refusal, RingSize, ServerEnd, Woken,
};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("dovetail.sock")
    }
}

fn config() -> AcceptorConfig {
    let ring = RingSize::new(4096).unwrap();
    AcceptorConfig { ring, clients_max: 2, ..AcceptorConfig::default() }
}

/// The server speaks first, so the server must accept while a client connects.
fn connect(acceptor: &Acceptor, path: &Path) -> (Accepted, Result<ClientEnd, ConnectError>) {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| ClientEnd::connect(path, ClientConfig::default()));
        let accepted = loop {
            match acceptor.accept().unwrap() {
                Accepted::NoClient => std::thread::yield_now(),
                accepted => break accepted,
            }
        };
        (accepted, client.join().unwrap())
    })
}

fn pair(acceptor: &Acceptor, path: &Path) -> (ServerEnd, ClientEnd) {
    match connect(acceptor, path) {
        (Accepted::Client(server), Ok(client)) => (server, client),
        (_, client) => panic!("{:?}", client.err()),
    }
}

#[test]
fn a_socket_is_its_owners_alone_and_goes_with_the_server() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let mode = std::fs::metadata(place.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(acceptor);
    assert!(!place.path().exists());
}

#[test]
fn what_a_dead_server_left_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.path()).unwrap());
    // A child of another test has a copy of the listener between its fork and its exec.
    while UnixStream::connect(place.path()).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(place.path().exists());
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    pair(&acceptor, &place.path());
}

#[test]
fn a_server_that_answers_is_left_alone() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let second = Acceptor::listen(&place.path(), config());
    assert!(matches!(second.err(), Some(ListenError::InUse { .. })));
    // The client that asked has disconnected.
    assert!(!matches!(acceptor.accept().unwrap(), Accepted::Refused(_)));
    pair(&acceptor, &place.path());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = Place::new();
    std::fs::write(place.path(), "precious").unwrap();
    let listened = Acceptor::listen(&place.path(), config());
    assert!(matches!(listened.err(), Some(ListenError::NotASocket { .. })));
    assert_eq!(std::fs::read(place.path()).unwrap(), b"precious");
}

#[test]
fn another_servers_socket_of_the_same_name_is_not_removed() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    std::fs::remove_file(place.path()).unwrap();
    let _other = UnixListener::bind(place.path()).unwrap();
    drop(acceptor);
    assert!(place.path().exists());
}

#[test]
fn a_client_too_many_is_told_so_and_comes_in_when_one_has_gone() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let first = pair(&acceptor, &place.path());
    let _second = pair(&acceptor, &place.path());
    let (accepted, client) = connect(&acceptor, &place.path());
    assert!(matches!(accepted, Accepted::Refused(Refusal::TooManyClients)));
    assert!(matches!(client.err(), Some(ConnectError::Refused(Refusal::TooManyClients))));
    drop(first);
    assert_eq!(acceptor.client_count(), 1);
    pair(&acceptor, &place.path());
}

#[test]
fn clients_that_come_and_go_at_once_leave_nothing() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    for _ in 0..50 {
        drop(UnixStream::connect(place.path()).unwrap());
        match acceptor.accept().unwrap() {
            Accepted::Client(mut end) => {
                assert!(matches!(end.hear(), Err(Gone::HungUp)));
            }
            Accepted::Vanished => {}
            _ => panic!("there is room for it"),
        }
        assert_eq!(acceptor.client_count(), 0);
    }
}

#[test]
fn a_client_that_reads_no_reply_is_not_read_and_loses_nothing() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let (mut server, mut client) = pair(&acceptor, &place.path());
    let mut arena = vec![0; 4096];
    let mut written = 0_u64;
    let mut replied = 0_u64;
    // The client writes until nothing moves any more.
    loop {
        let mut moved = 0;
        while client.write(&[written.to_le_bytes(); 16].concat()).unwrap() {
            written += 1;
            moved += 1;
        }
        client.publish();
        let mut frames = Vec::new();
        moved += server.poll(&mut arena, 1, |frame| frames.push(frame)).unwrap();
        for frame in frames {
            assert!(server.write(&arena[frame.offset..][..frame.len_bytes]).unwrap());
            replied += 1;
        }
        server.publish();
        if moved == 0 {
            break;
        }
    }
    assert!(written > replied && replied > 0, "{written} {replied}");
    assert_eq!(server.arm(0).unwrap(), Armed::Sleep, "it waits for room alone");
    // The client reads, the server continues, and everything is answered in order.
    for want in 0..written {
        let reply = loop {
            if let Some(reply) = client.receive().unwrap() {
                break reply.to_vec();
            }
            let mut frames = Vec::new();
            server.poll(&mut arena, 1, |frame| frames.push(frame)).unwrap();
            for frame in frames {
                assert!(server.write(&arena[frame.offset..][..frame.len_bytes]).unwrap());
            }
            server.publish();
        };
        assert_eq!(reply, [want.to_le_bytes(); 16].concat());
    }
}

#[test]
fn a_batch_lands_back_to_back_at_multiples_of_eight() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let (mut server, mut client) = pair(&acceptor, &place.path());
    for frame in [&b"one"[..], b"and two!", b"and three"] {
        assert!(client.write(frame).unwrap());
    }
    client.publish();
    let mut arena = [0; 28];
    let mut frames = Vec::new();
    let landed = |frame: landing::shm::Frame| frames.push((frame.offset, frame.len_bytes));
    assert_eq!(server.poll(&mut arena, 32, landed).unwrap(), 3);
    assert_eq!(frames, [(0, 3), (8, 8), (16, 9)]);
    assert_eq!(&arena[..25], b"one\0\0\0\0\0and two!and three");
}

#[test]
fn an_arena_that_is_full_leaves_the_rest_in_the_ring() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let (mut server, mut client) = pair(&acceptor, &place.path());
    for _ in 0..3 {
        assert!(client.write(&[7; 16]).unwrap());
    }
    client.publish();
    let mut arena = [0; 40];
    assert_eq!(server.poll(&mut arena, 32, |_| ()).unwrap(), 2);
    assert_eq!(server.arm(0).unwrap(), Armed::Work);
    assert_eq!(server.poll(&mut arena, 32, |_| ()).unwrap(), 1);
    assert_eq!(server.arm(0).unwrap(), Armed::Sleep);
}

#[test]
fn a_client_notices_that_the_server_has_gone() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let (server, mut waiting) = pair(&acceptor, &place.path());
    drop(server);
    assert!(matches!(waiting.wait(None), Err(Gone::HungUp)));
    let (server, mut polling) = pair(&acceptor, &place.path());
    drop(server);
    let gone = std::iter::repeat_with(|| polling.receive().err()).take(1 << 16).flatten().next();
    assert!(matches!(gone, Some(Gone::HungUp)));
}

#[test]
fn a_wait_ends_with_its_time() {
    let place = Place::new();
    let acceptor = Acceptor::listen(&place.path(), config()).unwrap();
    let (_server, mut client) = pair(&acceptor, &place.path());
    assert_eq!(client.wait(Some(Duration::ZERO)).unwrap(), Woken::TimedOut);
}

#[test]
fn what_is_no_dovetail_socket_is_no_server() {
    let place = Place::new();
    let listener = UnixListener::bind(place.path()).unwrap();
    let error = std::thread::scope(|scope| {
        let client = scope.spawn(|| ClientEnd::connect(&place.path(), ClientConfig::default()));
        std::io::Write::write_all(&mut listener.accept().unwrap().0, &[b'x'; 32]).unwrap();
        client.join().unwrap().err()
    });
    assert!(matches!(error, Some(ConnectError::BadWelcome(_))), "{error:?}");
}
