//! Native clients in shared memory, against a server in the same process.

use std::path::PathBuf;
use std::time::Duration;

use super::support::native::{Answer, answers_of, get, in_order, numbered, requests_frame, set};
use super::support::{PATIENCE, TestServer};
use landing::shm::{ClientConfig, ClientEnd, ConnectError, Gone, Woken};
use server::{Config, Poll, Server, Wanted};
use wire::native::{
    Frame, Header, Hello, Kind, Op, Reason, Refusal, Request, RequestId, SessionId, Status,
    SteeringId, Versions, Want, Welcome,
};

/// A path of its own for each test.
fn socket_path(test: &str) -> PathBuf {
    // The same tests run under other configurations at the same time.
    let module = module_path!().replace("::", "-");
    std::env::temp_dir().join(format!("dovetail-{}-{module}-{test}", std::process::id()))
}

fn config(test: &str) -> Config {
    Config { shm: Some(socket_path(test)), ..super::support::config() }
}

/// One client in shared memory.
struct Client {
    end: ClientEnd,
    session: SessionId,
    number: u32,
}

impl Client {
    fn connect(server: &TestServer) -> Client {
        let path = server.server().shared().config().shm.clone().unwrap();
        let end = ClientEnd::connect(&path, ClientConfig::default()).unwrap();
        let mut client = Client { end, session: SessionId(0), number: 0 };
        let hello = Hello {
            versions: Versions::OURS,
            frame_max_bytes: client.end.frame_len_max() as u32,
            cookie: None,
            nonce: 7,
            replaces: None,
        };
        let mut bytes = [0; 128];
        let len_bytes = hello.encode(1, None, &mut bytes).unwrap();
        client.write(&bytes[..len_bytes]);
        let answer = client.receive();
        let frame = Frame::parse(&answer, None).unwrap();
        let welcome = Welcome::parse(&frame).unwrap();
        assert_eq!(welcome.steering.worker_count(), 1);
        client.session = frame.header.session;
        client
    }

    fn write(&mut self, frame: &[u8]) {
        while !self.end.write(frame).unwrap() {
            self.end.publish();
            let woken = self.end.wait_for_room(frame.len(), Some(PATIENCE)).unwrap();
            assert_eq!(woken, Woken::Ready);
        }
        self.end.publish();
    }

    fn receive(&mut self) -> Vec<u8> {
        loop {
            if let Some(frame) = self.end.receive().unwrap() {
                return frame.to_vec();
            }
            assert_eq!(self.end.wait(Some(PATIENCE)).unwrap(), Woken::Ready);
        }
    }

    fn frame(&mut self, requests: &[Request<'_>]) -> Vec<u8> {
        self.number += 1;
        let header = Header {
            kind: Kind::Requests,
            steering: SteeringId::ANY,
            session: self.session,
            number: self.number,
            answered: 0,
        };
        requests_frame(header, None, requests)
    }

    fn ask(&mut self, requests: &[Request<'_>]) -> Vec<Answer> {
        let requests = numbered(requests);
        let frame = self.frame(&requests);
        self.write(&frame);
        let mut answers = Vec::new();
        while answers.len() < requests.len() {
            let (header, more) = answers_of(&self.receive(), None);
            assert_eq!((header.session, header.answered), (self.session, self.number));
            answers.extend(more);
        }
        in_order(&requests, answers)
    }
}

fn totals(server: &TestServer) -> counters::NativeTotals {
    server.server().shared().totals().native
}

fn wait_for(is_there: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_there() {
        assert!(std::time::Instant::now() < deadline, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn clients_in_shared_memory_share_keys_with_all_others() {
    for (test, poll) in [("block", Poll::Block), ("auto", Poll::Auto)] {
        let server = TestServer::with(Config { poll, ..config(test) });
        let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(&server)).collect();
        assert_eq!((totals(&server).shm_clients, totals(&server).sessions), (5, 5));
        clients[0].ask(&[set(b"k", b"value")]);
        for client in &mut clients {
            let answers = client.ask(&[get(b"k"), get(b"none")]);
            assert_eq!((&answers[0].value[..], answers[1].status), (&b"value"[..], Status::Miss));
        }
        server.resp().ask("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$5\r\nvalue\r\n");
        drop(clients);
        wait_for(|| totals(&server).shm_clients == 0 && totals(&server).sessions == 0);
    }
}

#[test]
fn a_thousand_round_trips_lose_nothing() {
    let server = TestServer::with(config("trips"));
    let mut client = Client::connect(&server);
    for index in 0..1000_u32 {
        let (key, value) = (index.to_le_bytes(), index.to_be_bytes());
        let answers = client.ask(&[set(&key, &value), get(&key)]);
        assert_eq!(answers[1].value, value);
    }
}

#[test]
fn a_client_that_does_not_read_is_held_back_and_loses_nothing() {
    let server = TestServer::with(config("slow"));
    let mut client = Client::connect(&server);
    client.ask(&[set(b"k", &[5; 10_000])]);
    // Replies of many rings' worth, none of them taken until all is asked for that fits.
    let gets = vec![get(b"k"); 100];
    let frame = client.frame(&gets);
    let mut sent = 0;
    while client.end.write(&frame).unwrap() {
        client.end.publish();
        sent += 1;
        if sent == 200 {
            break;
        }
    }
    client.end.publish();
    let (mut whole, mut cut) = (0, 0);
    while whole + cut < sent * 100 {
        for answer in answers_of(&client.receive(), None).1 {
            assert_eq!(answer.status, Status::Ok);
            assert!(answer.value.iter().all(|byte| *byte == 5));
            match answer.part {
                None => whole += 1,
                Some(_) => cut += 1,
            }
        }
    }
    assert!(whole > 0 && client.end.receive().unwrap().is_none());
    assert_eq!(client.ask(&[get(b"k")])[0].value.len(), 10_000);
}

/// Clients ask for more than half of what replies may hold, and read nothing; another one reads.
#[test]
fn replies_that_are_not_read_are_booked_until_their_clients_are_closed() {
    let server = TestServer::with(config("stuck"));
    let budget = std::sync::Arc::clone(server.server().shared().buffer_budget());
    let kind = budget::Kind::Replies;
    let mut reader = Client::connect(&server);
    reader.ask(&[set(b"k", &[5; 10_000])]);
    let mut others = [0; 4].map(|_| Client::connect(&server));
    let gets = vec![get(b"k"); 26];
    let deadline = std::time::Instant::now() + PATIENCE;
    while totals(&server).shm_clients == 5 {
        assert!(std::time::Instant::now() < deadline, "none is closed");
        for client in &mut others {
            loop {
                let frame = client.frame(&gets);
                if !client.end.write(&frame).is_ok_and(|is_written| is_written) {
                    break;
                }
            }
            client.end.publish();
        }
        assert_eq!(reader.ask(&[get(b"k")])[0].status, Status::Ok);
        assert!(budget.kind_bytes(kind) <= budget.kind_limit_bytes(kind));
    }
}

#[test]
fn large_values_need_no_parts_up_to_a_frame() {
    let server = TestServer::with(config("large"));
    let mut client = Client::connect(&server);
    server.resp().ask(crate::support::command(&[b"SET", b"k", &[9; 60_000]]), "+OK\r\n");
    let answer = client.ask(&[get(b"k")]).remove(0);
    assert_eq!((answer.value.len(), answer.part), (60_000, None));
    server.resp().ask(crate::support::command(&[b"SET", b"k", &[9; 70_000]]), "+OK\r\n");
    assert_eq!(client.ask(&[get(b"k")])[0].part.unwrap().total, 70_000);
}

#[test]
fn writes_take_effect_once() {
    let server = TestServer::with(config("once"));
    let mut client = Client::connect(&server);
    let op = Op::Incr { key: b"n", delta: 2 };
    let incr = Request { id: RequestId::Once(0), want: Want::PLAIN, op };
    assert_eq!(client.ask(&[incr])[0].number, Some(2));
    assert_eq!(client.ask(&[incr])[0].number, Some(2));
}

#[test]
fn another_clients_session_is_no_use() {
    let server = TestServer::with(config("thief"));
    let owner = Client::connect(&server);
    let mut thief = Client::connect(&server);
    thief.session = owner.session;
    let frame = thief.frame(&[get(b"k")]);
    thief.write(&frame);
    let answer = thief.receive();
    let refusal = Refusal::parse(&Frame::parse(&answer, None).unwrap()).unwrap();
    assert_eq!(refusal.reason, Reason::UnknownSession);
}

#[test]
fn clients_notice_that_the_server_stops() {
    let server = TestServer::with(config("stop"));
    let mut client = Client::connect(&server);
    client.ask(&[set(b"k", b"v")]);
    assert!(server.stop(PATIENCE));
    let ended = loop {
        match client.end.wait(Some(PATIENCE)) {
            Ok(Woken::Ready) => {}
            other => break other,
        }
    };
    assert!(ended.is_err(), "{ended:?}");
}

#[test]
fn more_clients_than_the_buffers_have_rings_for_are_refused() {
    // 64 MiB of memory have 8 MiB of buffers, and rings get a quarter of them.
    let server = TestServer::with(Config { memory_bytes: 64 << 20, ..config("many") });
    let path = server.server().shared().config().shm.clone().unwrap();
    let connect = || ClientEnd::connect(&path, ClientConfig::default());
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&server)).collect();
    clients.iter_mut().for_each(|client| drop(client.ask(&[get(b"k")])));
    assert!(matches!(connect(), Err(ConnectError::Refused(_))));
    drop(clients);
    wait_for(|| totals(&server).shm_clients == 0);
    connect().unwrap();
}

#[test]
fn clients_that_send_no_request_keep_out_no_other() {
    for threads in [1, 3] {
        let config = Config { memory_bytes: 64 << 20, threads, ..config("silent") };
        let server = TestServer::with(config);
        let path = server.server().shared().config().shm.clone().unwrap();
        let mut first = Client::connect(&server);
        first.ask(&[set(b"k", b"v")]);
        let mut silent: Vec<_> =
            (0..2).map(|_| ClientEnd::connect(&path, ClientConfig::default()).unwrap()).collect();
        let mut second = Client::connect(&server);
        second.ask(&[get(b"k")]);
        let oldest = &mut silent[0];
        assert!(matches!(oldest.wait(Some(PATIENCE)), Err(Gone::HungUp)));
        let mut third = Client::connect(&server);
        third.ask(&[get(b"k")]);
        assert!(matches!(
            ClientEnd::connect(&path, ClientConfig::default()),
            Err(ConnectError::Refused(_))
        ));
        first.ask(&[get(b"k")]);
    }
}

#[test]
fn a_path_that_cannot_be_is_said_at_the_start() {
    let shm = Some(PathBuf::from("/nowhere/at/all"));
    let error = Server::start(Config { shm, ..super::support::config() }).err().unwrap();
    assert!(error.to_string().starts_with("--shm /nowhere/at/all: "), "{error}");
}

#[test]
fn the_socket_has_the_mode_that_was_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    for shm_mode in [0o600, 0o660, 0o666] {
        let config = Config { shm_mode, ..config("mode") };
        let path = config.shm.clone().unwrap();
        let server = TestServer::with(config);
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, u32::from(shm_mode));
        assert_eq!(Client::connect(&server).ask(&[set(b"k", b"v")])[0].status, Status::Ok);
    }
}

#[test]
fn an_idle_server_with_a_client_in_shared_memory_sleeps() {
    let server = TestServer::with(Config { threads: 1, poll: Poll::Auto, ..config("idle") });
    let mut client = Client::connect(&server);
    client.ask(&[set(b"k", b"v")]);
    // It sleeps once nothing has come for 50 us; a bell then has to wake it.
    for _ in 0..3 {
        let ticks = || server.server().shared().totals().batches;
        let before = ticks();
        assert_eq!(client.end.wait(Some(Duration::from_millis(20))).unwrap(), Woken::TimedOut);
        assert_eq!(ticks(), before);
        assert_eq!(client.ask(&[get(b"k")])[0].value, b"v");
    }
}

#[test]
fn the_length_of_a_value_is_told_however_much_was_answered_before() {
    let server = TestServer::with(config("length"));
    let mut client = Client::connect(&server);
    client.ask(&[set(b"k", &[b'a'; 10_000])]);
    let length = Request { want: Want::NO_VALUE, ..get(b"k") };
    let mut asked = vec![get(b"k"); 30];
    asked.push(length);
    let last = client.ask(&asked).remove(30);
    assert_eq!((last.number, last.part, last.value.len()), (Some(10_000), None, 0));
}

/// Changes roles and waits until every thread has taken them up.
fn divide(server: &TestServer, (threads, dispatchers): (usize, usize)) {
    let shared = server.server().shared();
    shared.change_roles(Wanted::by_hand(threads, dispatchers)).unwrap();
    wait_for(|| shared.roles().are_settled());
}

/// U2: the threads that poll serve them, and the clients do not notice.
#[test]
fn clients_in_shared_memory_go_to_the_threads_that_poll() {
    let server =
        TestServer::with(Config { threads: 4, memory_bytes: 256 << 20, ..config("roles") });
    let mut clients: Vec<Client> = (0..12).map(|_| Client::connect(&server)).collect();
    for (threads, dispatchers) in [(4, 4), (4, 1), (4, 4), (2, 2), (3, 1), (4, 3), (1, 1), (4, 4)] {
        divide(&server, (threads, dispatchers));
        let before = totals(&server).worker_frames_in;
        for client in &mut clients {
            assert_eq!(client.ask(&[set(b"k", b"v"), get(b"k")])[1].value, b"v");
        }
        let after = totals(&server).worker_frames_in;
        let heard: Vec<bool> = after.iter().zip(&before).map(|(now, then)| now > then).collect();
        let want: Vec<bool> = (0..4).map(|thread| thread < dispatchers).collect();
        assert_eq!(heard, want, "{threads} threads, {dispatchers} of them poll");
    }
    assert_eq!(totals(&server).shm_clients, 12);
    drop(clients);
    wait_for(|| totals(&server).shm_clients == 0 && totals(&server).sessions == 0);
}

/// Replies that wait for room in their ring go along, and so do frames that no thread has read.
#[test]
fn a_client_that_does_not_read_loses_nothing_when_it_changes_threads() {
    let server = TestServer::with(Config { threads: 4, ..config("unsent") });
    let mut client = Client::connect(&server);
    client.ask(&[set(b"k", &[5; 10_000])]);
    let frame = client.frame(&vec![get(b"k"); 100]);
    let mut sent = 0;
    for dispatchers in [1, 2, 3, 1, 3, 2].into_iter().cycle().take(24) {
        divide(&server, (4, dispatchers));
        if client.end.write(&frame).unwrap() {
            client.end.publish();
            sent += 1;
        }
    }
    let mut answer_count = 0;
    while answer_count < sent * 100 {
        for answer in answers_of(&client.receive(), None).1 {
            assert_eq!(answer.status, Status::Ok);
            answer_count += 1;
        }
    }
    assert!(client.end.receive().unwrap().is_none());
}

#[test]
fn roles_change_all_the_time_and_clients_in_shared_memory_do_not_notice() {
    let server = TestServer::with(Config { threads: 4, ..config("changing") });
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let clients: Vec<Client> = (0..6).map(|_| Client::connect(&server)).collect();
    std::thread::scope(|scope| {
        let talks: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(index, mut client)| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let key = [b'k', index as u8];
                    for number in 0.. {
                        if is_over.load(std::sync::atomic::Ordering::Relaxed) && number > 100 {
                            return;
                        }
                        let op = Op::Incr { key: &key, delta: 1 };
                        let incr = Request { id: RequestId::Free(0), want: Want::PLAIN, op };
                        let answers = client.ask(&[incr]);
                        assert_eq!(answers[0].number, Some(i64::from(number) + 1));
                    }
                })
            })
            .collect();
        for dispatchers in [1, 4, 2, 3].into_iter().cycle().take(100) {
            divide(&server, (4, dispatchers));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        talks.into_iter().for_each(|talk| talk.join().unwrap());
    });
}
