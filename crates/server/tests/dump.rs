//! memcached's lists of keys: made in slices, a turn's work at a time, as the client reads them.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpStream, UdpSocket};

use commands::work::TURN_UNITS;
use server::{Config, Dispatch, IndexKind, Policies, UdpConfig, WritePolicy};

use crate::support::{Client, PATIENCE, TestServer, command, config, free_udp_port, read_some};
use crate::turns::{stat, store_keys};

/// Lists of so many keys take several turns.
const KEYS: usize = 40_000;

/// What a client may owe in these tests.
const OUTPUT_LIMIT_BYTES: u64 = 64 << 10;

/// Of one worker, so that all clients are served by it.
fn alone(index: IndexKind) -> Config {
    Config { threads: 1, index, output_limit_bytes: OUTPUT_LIMIT_BYTES, ..config() }
}

fn routed() -> Config {
    let policies = Policies::new(WritePolicy::Erew, Dispatch::KeyHash);
    let output_limit_bytes = OUTPUT_LIMIT_BYTES;
    Config { threads: 3, policies, output_limit_bytes, ..config() }
}

/// A client that reads lines.
struct Reader {
    client: Client,
    lines: BufReader<TcpStream>,
}

impl Reader {
    fn new(server: &TestServer) -> Reader {
        let client = server.memcached();
        let lines = BufReader::new(client.stream.try_clone().unwrap());
        Reader { client, lines }
    }

    /// Everything up to a line.
    fn until(&mut self, last: &str) -> String {
        let mut found = String::new();
        loop {
            let start = found.len();
            assert_ne!(self.lines.read_line(&mut found).unwrap(), 0, "no {last:?}");
            if &found[start..] == last {
                found.truncate(start);
                return found;
            }
        }
    }

    #[track_caller]
    fn expect(&mut self, want: &str) {
        let mut found = vec![0; want.len()];
        self.lines.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), want);
    }
}

/// The keys of a list's lines; each is listed once.
#[track_caller]
fn keys_of(lines: &str, before: &str) -> HashSet<String> {
    let key = |line: &str| {
        let rest = line.strip_prefix(before).unwrap_or_else(|| panic!("{line:?}"));
        rest.split([' ', '\r']).next().unwrap().replace("%3A", ":")
    };
    let keys: HashSet<String> = lines.split_terminator('\n').map(key).collect();
    assert_eq!(keys.len(), lines.split_terminator('\n').count());
    keys
}

/// Each list has every key, stands between its neighbours' replies, and takes many turns.
#[track_caller]
fn check_lists(config: Config) {
    let server = TestServer::with(config);
    let names: HashSet<String> = store_keys(&mut server.resp(), KEYS).into_iter().collect();
    let mut reader = Reader::new(&server);
    let lists = [
        ("lru_crawler metadump all\r\n", "key=", "END\r\n"),
        ("lru_crawler mgdump all\r\n", "mg ", "EN\r\n"),
        ("stats cachedump 1 0\r\n", "ITEM ", "END\r\n"),
    ];
    for (ask, before, last) in lists {
        reader.client.send(format!("get key:1\r\n{ask}get key:2\r\n{ask}mn\r\n"));
        reader.expect("VALUE key:1 0 1\r\nv\r\nEND\r\n");
        assert_eq!(keys_of(&reader.until(last), before), names);
        reader.expect("VALUE key:2 0 1\r\nv\r\nEND\r\n");
        assert_eq!(keys_of(&reader.until(last), before), names);
        reader.expect("MN\r\n");
    }
    let parts = "stats cachedump 1 30000\r\nstats cachedump 2 0\r\nstats cachedump 1 1\r\n";
    reader.client.send(parts);
    for count in [30_000, 0, 1] {
        assert_eq!(keys_of(&reader.until("END\r\n"), "ITEM ").len(), count);
    }
    let most = stat(&mut server.resp(), "dovetail_turn_work_units_max");
    // A slice fills the output: eight bytes of lines are a unit.
    assert!((OUTPUT_LIMIT_BYTES / 8..2 * TURN_UNITS).contains(&most), "{most}");
    // A client that sends nothing more gets the whole list, and then the end.
    reader.client.send("lru_crawler metadump all\r\n");
    reader.client.finish_sending();
    assert_eq!(keys_of(&reader.until("END\r\n"), "key="), names);
    assert_eq!(read_some(&mut reader.lines, &mut [0]).unwrap(), 0);
}

#[test]
fn lists_of_a_hash_index_are_whole_and_take_many_turns() {
    check_lists(alone(IndexKind::Hash));
}

#[test]
fn lists_of_an_ordered_index_are_whole_and_take_many_turns() {
    check_lists(alone(IndexKind::Tree));
}

#[test]
fn lists_of_a_server_that_routes_are_whole_and_take_many_turns() {
    check_lists(routed());
}

/// Twenty lists wait for a client that does not read: the buffers hold a part of one. The keys are
/// flushed, and every list ends. Another such client goes away.
#[track_caller]
fn check_unread(config: Config) {
    const LISTS: usize = 20;
    const MOST_BYTES: u64 = 8 << 20;
    let server = TestServer::with(config);
    let mut names = store_keys(&mut server.resp(), KEYS);
    let mut other = server.memcached();
    for number in 0..100 {
        let name = format!("{number}:{}", "k".repeat(60_000));
        server.resp().ask(command(&[b"SET", name.as_bytes(), b"v"]), "+OK\r\n");
        names.push(name);
    }
    let names: HashSet<String> = names.into_iter().collect();
    let budget = server.server().shared().buffer_budget();
    let (mut lister, mut leaver) = (Reader::new(&server), server.memcached());
    for client in [&mut lister.client, &mut leaver] {
        client.send(format!("{}version\r\n", "lru_crawler metadump all\r\n".repeat(LISTS)));
    }
    assert_eq!(keys_of(&lister.until("END\r\n"), "key="), names);
    for _ in 0..100 {
        other.ask("get key:1\r\n", "VALUE key:1 0 1\r\nv\r\nEND\r\n");
        assert!(budget.granted_bytes() <= MOST_BYTES, "{}", budget.granted_bytes());
    }
    drop(leaver);
    other.ask("flush_all\r\nget key:1\r\n", "OK\r\nEND\r\n");
    for at in 1..LISTS {
        let listed = keys_of(&lister.until("END\r\n"), "key=");
        assert!(listed.is_subset(&names), "list {at}");
        assert!(budget.granted_bytes() <= MOST_BYTES, "{}", budget.granted_bytes());
        assert!(at + 1 < LISTS || listed.is_empty(), "what is flushed is not listed");
    }
    lister.expect("VERSION ");
    let most = stat(&mut server.resp(), "dovetail_turn_work_units_max");
    assert!(most < 2 * TURN_UNITS, "{most}");
}

#[test]
fn lists_of_a_hash_index_wait_for_their_readers() {
    check_unread(alone(IndexKind::Hash));
}

#[test]
fn lists_of_an_ordered_index_wait_for_their_readers() {
    check_unread(alone(IndexKind::Tree));
}

#[test]
fn lists_of_a_server_that_routes_wait_for_their_readers() {
    check_unread(routed());
}

/// Asks by a datagram; the reply, put together.
fn ask_udp(socket: &UdpSocket, ask: &str) -> String {
    socket.send(&[b"\0\x01\0\0\0\x01\0\0", ask.as_bytes()].concat()).unwrap();
    let mut parts = BTreeMap::new();
    loop {
        let mut part = [0; 2048];
        let part_bytes = socket.recv(&mut part).unwrap();
        let number = |at: usize| u16::from_be_bytes([part[at], part[at + 1]]);
        assert!(parts.insert(number(2), part[8..part_bytes].to_vec()).is_none());
        if parts.len() == usize::from(number(4)) {
            return String::from_utf8(parts.into_values().flatten().collect()).unwrap();
        }
    }
}

#[track_caller]
fn check_datagrams(config: Config) {
    let udp = UdpConfig { port: free_udp_port(), reply_factor: 0 };
    let server = TestServer::with(Config { udp, ..config });
    let mut client = server.resp();
    // Keys with a blank have no line, so that a short list takes many turns.
    for first in (0..KEYS).step_by(1000) {
        let names: Vec<String> = (first..first + 1000).map(|at| format!("a key {at}")).collect();
        let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
        let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        client.ask(command(&words), "+OK\r\n");
    }
    // Their lines are more than a client may owe; a datagram's reply has a limit of its own.
    let names: HashSet<String> = store_keys(&mut client, 3200).into_iter().collect();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(("127.0.0.1", udp.port)).unwrap();
    let listed = ask_udp(&socket, "stats cachedump 1 0\r\n");
    assert!(listed.len() as u64 > OUTPUT_LIMIT_BYTES);
    assert_eq!(keys_of(listed.strip_suffix("END\r\n").unwrap(), "ITEM "), names);
    let refused = ask_udp(&socket, "lru_crawler metadump all\r\n");
    assert_eq!(refused, "SERVER_ERROR reply beyond udp-reply-factor: use TCP\r\n");
    let most = stat(&mut client, "dovetail_turn_work_units_max");
    assert!((TURN_UNITS / 2..2 * TURN_UNITS).contains(&most), "{most}");
}

#[test]
fn a_datagrams_list_is_whole_or_refused_and_takes_many_turns() {
    check_datagrams(alone(IndexKind::Hash));
}

#[test]
fn a_datagrams_list_of_an_ordered_index_is_whole_or_refused() {
    check_datagrams(alone(IndexKind::Tree));
}

#[test]
fn a_datagrams_list_of_a_server_that_routes_is_whole_or_refused() {
    check_datagrams(routed());
}
