//! The recorded answers of four servers of Redis 7.0.15, and the answers of a node in the place of
//! one.
//!
//! ```text
//!  n1 :7302  master of 5461..10922       n2 :7301  master of 0..5460, the one asked most
//!  n3 :7303  master of 10923..16383      n4 :7304  replica of n2
//! ```
//!
//! Each file in `recorded/` holds one request and its answer per line. Ids are written as `<n1>`,
//! times as `<ms>`; the lines of CLUSTER NODES are sorted.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cluster::{Addresses, Configuration, NodeId, Shard, Slot, Term};
use config::Config;
use counters::Dialect;
use handlers::resp::cluster::{shard_node, shards, slots};
use policy::{Policies, WritePolicy};
use replication::cluster::announced::{self, Announced};
use replication::cluster::{Place, View};
use replication::replicate::ControlChannel;
use wire::resp::{Encoder, Protocol};

use crate::drive::Drive;

mod groups;

const THREADS: usize = 2;

fn node(name: u16) -> NodeId {
    NodeId { name, incarnation: 1 }
}

/// The configuration of the four recorded servers.
fn recorded_cluster() -> Configuration {
    let shard = |slots: (u16, u16), epoch, primary, backups: &[u16]| Shard {
        first: Slot(slots.0),
        last: Slot(slots.1),
        epoch,
        primary: node(primary),
        backups: backups.iter().map(|name| node(*name)).collect(),
        joining: None,
        filling_from: None,
        waiting: Vec::new(),
    };
    let addresses = |(name, port): (u16, u16)| {
        let peer = format!("127.0.0.1:{}", port + 10_000);
        let host = "127.0.0.1".to_owned();
        (node(name), Arc::new(Addresses { host, resp: port, peer, ..Addresses::default() }))
    };
    Configuration {
        term: Term(3),
        members: (1..=4).map(node).collect(),
        shards: vec![
            shard((0, 5460), 1, 2, &[4]),
            shard((5461, 10922), 2, 1, &[]),
            shard((10923, 16383), 3, 3, &[]),
        ],
        addresses: [(1, 7302), (2, 7301), (3, 7303), (4, 7304)]
            .into_iter()
            .map(addresses)
            .collect(),
    }
}

/// The view that the control thread would give to a node that serves the slots of which it is
/// primary.
fn view_of(own: u16) -> Arc<View> {
    let (view, configuration) = (View::new(node(own)), recorded_cluster());
    for shard in &configuration.shards {
        let place = if shard.primary == node(own) { Place::Here } else { Place::Elsewhere };
        for slot in shard.first.0..=shard.last.0 {
            view.set_place(Slot(slot), place);
        }
    }
    view.set_configuration(Arc::new(configuration));
    view.set_lease(u64::MAX);
    Arc::new(view)
}

/// A server and one client.
struct Bench {
    drive: Drive,
    client: TcpStream,
}

impl Bench {
    fn new(view: Option<Arc<View>>, index: store::IndexKind) -> Bench {
        Bench::of(view, None, index)
    }

    fn of(
        view: Option<Arc<View>>,
        channel: Option<ControlChannel>,
        index: store::IndexKind,
    ) -> Bench {
        let off =
            Config { resp: None, memcached: None, native: None, admin: None, ..Config::default() };
        let config = Config {
            threads: THREADS,
            policies: Policies::new(WritePolicy::Crew, "key-hash".parse().unwrap()),
            memory_bytes: 256 << 20,
            index,
            cluster: channel.is_some().then(groups::cluster),
            ..off
        };
        let mut drive = Drive::of_node(config, view, channel).unwrap();
        let client = Bench::connect(&mut drive, Dialect::Resp);
        Bench { drive, client }
    }

    fn connect(drive: &mut Drive, dialect: Dialect) -> TcpStream {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        drive.admit(0, door.accept().unwrap().0, dialect).unwrap();
        client
    }

    fn ask(&mut self, request: &str) -> String {
        self.client.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        (0..8).for_each(|_| self.turn());
        self.received().unwrap_or_default()
    }

    fn turn(&mut self) {
        (0..self.drive.worker_count()).for_each(|worker| self.drive.turn(worker).unwrap());
    }

    /// What has arrived; `None`: the connection is closed.
    fn received(&mut self) -> Option<String> {
        let mut bytes = vec![0; 1 << 16];
        let count = match self.client.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(String::new()),
            read => read.unwrap(),
        };
        (count > 0).then(|| String::from_utf8(bytes[..count].to_vec()).unwrap())
    }

    /// Nothing more arrives, and the connection is closed.
    #[track_caller]
    fn expect_closed(&mut self, why: &str) {
        for _ in 0..1_000 {
            self.turn();
            let Some(more) = self.received() else { return };
            assert_eq!(more, "", "{why}");
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the connection is open: {why}");
    }
}

/// The recorded lines: requests and their answers.
fn recorded(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.lines().map(|line| {
        let (request, reply) = line.split_once('\t').unwrap();
        (request, reply.replace("\\r\\n", "\r\n").replace("\\n", "\n"))
    })
}

#[track_caller]
fn check_replay(view: Option<Arc<View>>, text: &str) {
    let mut bench = Bench::new(view, store::IndexKind::Hash);
    for (number, (request, want)) in recorded(text).enumerate() {
        assert_eq!(bench.ask(request), want, "line {}: {request}", number + 1);
    }
}

#[test]
fn a_master_answers_as_redis_does() {
    check_replay(Some(view_of(2)), include_str!("recorded/master.txt"));
}

#[test]
fn a_replica_answers_as_redis_does() {
    check_replay(Some(view_of(4)), include_str!("recorded/replica.txt"));
}

#[test]
fn a_server_without_a_cluster_answers_as_redis_does() {
    check_replay(None, include_str!("recorded/standalone.txt"));
}

/// The text with ids and times as in the recording.
fn as_recorded(text: &str) -> String {
    (1..=4).fold(text.to_owned(), |text, name| {
        text.replace(&announced::node_id(node(name)), &format!("<n{name}>"))
    })
}

#[test]
fn shapes_are_those_of_redis() {
    let configuration = recorded_cluster();
    let announced = Announced::new(&configuration, node(2));
    let lines = |nodes: &mut dyn Iterator<Item = NodeId>| {
        let line = |node| as_recorded(&announced.node_line(node, 77));
        let mut lines: Vec<String> = nodes.map(line).collect();
        lines.sort();
        lines.join("\n").replace(" 0 77 ", " 0 <ms> ").replace(" - 0 0 ", " - 0 <ms> ")
    };
    for (request, want) in recorded(include_str!("recorded/shapes.txt")) {
        let (version, command) = request.split_once(" CLUSTER ").unwrap();
        let protocol = if version == "RESP3" { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut out = Vec::new();
        let encoder = &mut Encoder::new(&mut out, protocol);
        match command {
            "SLOTS" => slots(encoder, &announced),
            "SHARDS" => shards(encoder, &announced),
            "MYID" => encoder.bulk(announced::node_id(node(2)).as_bytes()),
            "NODES" => out = lines(&mut announced.members()).into_bytes(),
            "REPLICAS <n2>" => {
                let text = format!("*1\r\n{}\r\n", lines(&mut announced.replicas_of(node(2))));
                out = text.into_bytes();
            }
            other => panic!("{other}"),
        }
        assert_eq!(as_recorded(&String::from_utf8(out).unwrap()), want, "{request}");
    }
}

/// As Redis 7.0 answers with and without `tls-port`: CLUSTER SHARDS has both ports, all others have
/// the one of the client's kind.
#[test]
fn a_client_over_tls_is_told_ports_of_tls() {
    let mut configuration = recorded_cluster();
    for (name, resp, tls_resp) in [(1, 0, 7402), (2, 7301, 7401)] {
        let addresses = Arc::make_mut(configuration.addresses.get_mut(&node(name)).unwrap());
        (addresses.resp, addresses.tls_resp) = (resp, tls_resp);
    }
    let plain = Announced::new(&configuration, node(2));
    let sealed = plain.over(true);
    let ports = |announced: &Announced<'_>| {
        [1, 2, 3].map(|name| announced.resp_of(node(name)).map_or(0, |(_, port)| port))
    };
    assert_eq!((ports(&plain), ports(&sealed)), ([0, 7301, 7303], [7402, 7401, 0]));
    let firsts = |announced: &Announced<'_>| {
        announced.ranges().iter().map(|range| range.first.0).collect::<Vec<_>>()
    };
    assert_eq!((firsts(&plain), firsts(&sealed)), (vec![0, 10923], vec![0, 5461]));
    assert!(sealed.node_line(node(2), 0).contains(" 127.0.0.1:7401@17301 "));
    assert!(plain.node_line(node(2), 0).contains(" 127.0.0.1:7301@17301 "));
    for (name, want) in [
        (1, "$8\r\ntls-port\r\n:7402\r\n"),
        (2, "$4\r\nport\r\n:7301\r\n$8\r\ntls-port\r\n:7401\r\n"),
        (3, "$4\r\nport\r\n:7303\r\n"),
    ] {
        let mut out = Vec::new();
        shard_node(&mut Encoder::new(&mut out, Protocol::Resp3), &plain, node(name), "master");
        let text = String::from_utf8(out).unwrap();
        let count = 6 + want.matches("port").count();
        assert!(text.starts_with(&format!("%{count}\r\n")) && text.contains(want), "{text}");
    }
    // A client in clear text is not sent to a node that has TLS only.
    let view = view_of(2);
    view.set_configuration(Arc::new(configuration));
    let mut bench = Bench::new(Some(view), store::IndexKind::Hash);
    assert_eq!(bench.ask("GET hello"), "$-1\r\n");
    assert_eq!(bench.ask("GET k1"), "-MOVED 12706 127.0.0.1:7303\r\n");
    assert_eq!(bench.ask("GET c"), "-CLUSTERDOWN Hash slot not served\r\n", "only over TLS");
}

#[test]
fn what_changes_a_cluster_is_refused_by_name() {
    let mut bench = Bench::new(Some(view_of(2)), store::IndexKind::Hash);
    let want = "-ERR FLUSHALL in a transaction is not supported in a cluster\r\n";
    assert_eq!(bench.ask("MULTI"), "+OK\r\n");
    assert_eq!(bench.ask("FLUSHALL"), want);
    assert!(bench.ask("EXEC").starts_with("-EXECABORT"));
    let managed = "-ERR CLUSTER MEET is not for this server: the configuration manager assigns \
                   the slots\r\n";
    assert_eq!(bench.ask("CLUSTER MEET 127.0.0.1 7000"), managed);
    assert_eq!(
        bench.ask("COPY bar {bar}1 DB 1"),
        "-ERR Copying to another database is not allowed in cluster mode\r\n"
    );
}

#[test]
fn commands_on_several_keys_are_of_one_slot() {
    let mut bench = Bench::new(Some(view_of(2)), store::IndexKind::Hash);
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    for (request, want) in [
        ("BITOP AND bar {bar}1 hello", crossed),
        ("LCS bar hello", crossed),
        ("MSETEX 2 bar 1 hello 2", crossed),
        ("MSETEX 2 bar 1 {bar}1 hello EX 1000", ":1\r\n"),
        ("BITOP NOT {bar}2 bar", ":1\r\n"),
        ("LCS bar {bar}1 LEN", ":0\r\n"),
        ("SET bar x IFEQ 1", "+OK\r\n"),
        ("BITFIELD bar INCRBY u8 0 1", "*1\r\n:121\r\n"),
        ("DELEX bar IFEQ y", ":1\r\n"),
        ("MOVE bar 1", "-ERR MOVE is not allowed in cluster mode\r\n"),
        ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode\r\n"),
    ] {
        assert_eq!(bench.ask(request), want, "{request}");
    }
}

#[test]
fn a_transaction_and_what_it_watches_are_of_one_slot() {
    let mut bench = Bench::new(Some(view_of(2)), store::IndexKind::Hash);
    let crossed = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    for (request, want) in [
        ("WATCH hello", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET bar 1", "+QUEUED\r\n"),
        ("EXEC", crossed),
        ("WATCH {bar}1", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET bar 1", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("PING", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n+PONG\r\n"),
    ] {
        assert_eq!(bench.ask(request), want, "{request}");
    }
}

#[test]
fn a_slot_whose_primary_is_unknown_is_not_served() {
    let (view, down) = (view_of(2), "-CLUSTERDOWN Hash slot not served\r\n");
    let mut gone = recorded_cluster();
    gone.members.retain(|it| *it != node(3));
    gone.addresses.remove(&node(3));
    view.set_configuration(Arc::new(gone));
    let mut bench = Bench::new(Some(Arc::clone(&view)), store::IndexKind::Hash);
    assert_eq!(bench.ask("GET foo"), down, "Elsewhere, at an unknown server");
    view.set_place(Slot::of(b"foo"), Place::Nowhere);
    assert_eq!(bench.ask("GET foo"), down, "Nowhere");
    assert!(bench.ask("CLUSTER INFO").contains("cluster_slots_fail:5461\r\n"));
}

/// More keys than one turn looks at: other commands are answered in between.
#[test]
fn keys_of_a_slot_are_counted_in_slices() {
    for index in [store::IndexKind::Hash, store::IndexKind::Tree] {
        let mut bench = Bench::new(Some(view_of(2)), index);
        for number in 0..40_000 {
            let tag = ["bar", "hello"][number % 2];
            assert_eq!(bench.ask(&format!("SET {{{tag}}}{number} 1")), "+OK\r\n");
        }
        let slot = Slot::of(b"bar").0;
        let count = format!("CLUSTER COUNTKEYSINSLOT {slot}");
        assert_eq!(bench.ask(&count), ":20000\r\n");
        bench.client.write_all(format!("{count}\r\n").as_bytes()).unwrap();
        bench.drive.turn(0).unwrap();
        let early = bench.client.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(early, Err(ErrorKind::WouldBlock), "one turn is not enough");
        assert_eq!(bench.ask("PING"), ":20000\r\n+PONG\r\n");
        let many = bench.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 2000"));
        assert!(many.starts_with("*2000\r\n") && !many.contains("hello"));
        let some = bench.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
        assert!(some.starts_with("*10\r\n"), "{some}");
        assert_eq!(bench.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 0")), "*0\r\n");
    }
}

/// The store holds copies of other nodes' slots, which this node must not show.
#[test]
fn only_own_keys_are_shown() {
    for index in [store::IndexKind::Hash, store::IndexKind::Tree] {
        let view = view_of(2);
        let mut bench = Bench::new(Some(Arc::clone(&view)), index);
        let slots = [Slot::of(b"bar"), Slot::of(b"foo"), Slot::of(b"hello")];
        view.set_place(slots[1], Place::Here);
        for key in ["bar", "foo", "hello"] {
            assert_eq!(bench.ask(&format!("SET {key} 1")), "+OK\r\n");
        }
        view.set_place(slots[1], Place::Elsewhere);
        assert_eq!(bench.ask("DBSIZE"), ":2\r\n");
        assert!(!bench.ask("KEYS *").contains("foo"));
        assert!(!bench.ask("SCAN 0 COUNT 100").contains("foo"));
        for _ in 0..20 {
            assert!(!bench.ask("RANDOMKEY").contains("foo"));
        }
        assert_eq!(bench.ask("CLUSTER COUNTKEYSINSLOT 12182"), ":1\r\n", "a copy is one too");
        if index == store::IndexKind::Tree {
            let range = bench.ask("KV.RANGE - + LIMIT 2 KEYSONLY");
            assert_eq!(range, "*2\r\n$3\r\nbar\r\n$5\r\nhello\r\n", "LIMIT counts what is shown");
        }
        view.set_place(slots[0], Place::ThroughControl);
        assert_eq!(bench.ask("DBSIZE"), ":2\r\n", "still its own");
    }
}

/// A node that has lost its lease without noticing may be asked for keys that other nodes write by
/// now.
#[test]
fn reads_past_the_router_are_told_only_under_the_lease() {
    let in_transaction = "MULTI\r\nGET bar\r\nSTRLEN bar\r\nEXEC";
    for (reading, replies) in [
        ("MGET bar {bar}2", 1),
        ("EXISTS bar {bar}2", 1),
        ("MGET bar {bar}2\r\nEXISTS bar {bar}2\r\n\r\nPING", 3),
        (in_transaction, 4),
        // It watches on, so the connection is closed.
        ("WATCH bar\r\nGET bar", 1),
    ] {
        let view = view_of(2);
        let mut bench = Bench::new(Some(Arc::clone(&view)), store::IndexKind::Tree);
        assert_eq!(bench.ask("SET bar 1"), "+OK\r\n");
        assert_ne!(bench.ask(reading), "", "{reading}");
        view.set_lease(0);
        assert!(bench.ask("KV.RANGE - +").starts_with("-CLUSTERDOWN"));
        let told = ask_long(&mut bench, reading);
        let line =
            "-TRYAGAIN this node lost the slot or its lease while it read: send it again\r\n";
        assert_eq!(told, line.repeat(replies), "{reading}");
        view.set_lease(u64::MAX);
        if !reading.starts_with("WATCH") {
            assert_eq!(bench.ask("GET bar"), "$1\r\n1\r\n", "{reading}");
        }
    }
}

/// Every read that is told so keeps its connection: the number of replies is known.
#[test]
fn reads_of_memcached_without_the_lease_are_told_one_by_one() {
    let view = view_of(2);
    let (channel, _ends) = ControlChannel::new(THREADS).unwrap();
    let mut bench = Bench::of(Some(Arc::clone(&view)), Some(channel), store::IndexKind::Hash);
    bench.client = Bench::connect(&mut bench.drive, Dialect::Memcached);
    for (reading, replies) in [("get bar", 1), ("get bar\r\nmg bar v q\r\ngets bar {bar}2", 3)] {
        view.set_lease(0);
        let told = ask_long(&mut bench, reading);
        let line =
            "SERVER_ERROR this node lost the slot or its lease while it read: send it again\r\n";
        assert_eq!(told, line.repeat(replies), "{reading}");
        view.set_lease(u64::MAX);
        assert_eq!(bench.ask("get bar"), "END\r\n", "{reading}");
    }
}

/// Asks, and waits: plain reads are tried again for a while, in case that the node learns of new
/// places.
fn ask_long(bench: &mut Bench, request: &str) -> String {
    let mut told = bench.ask(request);
    for _ in 0..1_000 {
        if told.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            bench.turn();
            told = bench.received().unwrap_or_default();
        }
    }
    told
}

/// A command that MULTI only queues reads nothing.
#[test]
fn a_queued_read_needs_no_lease() {
    const TOLD: &str =
        "-TRYAGAIN this node lost the slot or its lease while it read: send it again\r\n";
    let view = view_of(2);
    let mut bench = Bench::new(Some(Arc::clone(&view)), store::IndexKind::Hash);
    assert_eq!(bench.ask("SET bar 1"), "+OK\r\n");
    for (lease_until, told) in [(u64::MAX, "*1\r\n$1\r\n1\r\n"), (0, TOLD)] {
        assert_eq!(bench.ask("MULTI"), "+OK\r\n");
        view.set_lease(0);
        assert_eq!(bench.ask("GET bar"), "+QUEUED\r\n");
        view.set_lease(lease_until);
        let reply = ask_long(&mut bench, "EXEC");
        assert_eq!(reply, told);
        view.set_lease(u64::MAX);
        assert_eq!(bench.ask("GET bar"), "$1\r\n1\r\n");
    }
}

/// An error in the place of the rest of a reply would be taken for the replies to what follows.
#[test]
fn the_rest_of_a_reply_in_parts_is_not_replaced_by_an_error() {
    let view = view_of(2);
    let mut bench = Bench::new(Some(Arc::clone(&view)), store::IndexKind::Hash);
    // Beside another client a long MGET stands back behind the first part of its reply.
    let mut other = Bench::connect(&mut bench.drive, Dialect::Resp);
    other.write_all(b"PING\r\n").unwrap();
    let many = format!("MGET{}\r\nEXISTS bar {{bar}}2\r\n", " bar".repeat(300));
    bench.client.write_all(many.as_bytes()).unwrap();
    let mut told = String::new();
    while told.is_empty() {
        bench.turn();
        told = bench.received().unwrap();
    }
    assert_eq!(told, "*300\r\n");
    view.set_lease(0);
    bench.expect_closed("MGET");
}

/// TRYAGAIN says that nothing was written.
#[test]
fn a_write_before_a_read_past_the_router_is_not_answered_as_if_it_had_not_happened() {
    for write in [
        "MSET bar 2 {bar}2 3",
        "MULTI\r\nCLIENT SETNAME me\r\nEXEC",
        "MULTI\r\nCLIENT SETNAME me\r\n\"\\x45XEC\"",
        "\"\\x4DULTI\"\r\n\"\\x43LIENT\" SETNAME me\r\n\"\\x45XEC\"",
    ] {
        let view = view_of(2);
        let mut bench = Bench::new(Some(Arc::clone(&view)), store::IndexKind::Hash);
        assert_eq!(bench.ask("SET bar 1"), "+OK\r\n");
        view.set_lease(0);
        assert_eq!(bench.ask(&format!("{write}\r\nMGET bar {{bar}}2")), "", "{write}");
        bench.expect_closed(write);
    }
}

#[test]
fn info_and_role_name_the_copies() {
    let mut bench = Bench::new(Some(view_of(2)), store::IndexKind::Hash);
    let replication = bench.ask("INFO replication");
    let line = "slave0:ip=127.0.0.1,port=7304,state=online,offset=0,lag=0\r\n";
    assert!(replication.contains(line), "{replication}");
    assert!(bench.ask("INFO cluster").contains("cluster_enabled:1\r\n"));
    assert!(bench.ask("INFO server").contains("redis_mode:cluster\r\n"));
    assert!(bench.ask("HELLO").contains("cluster"));
    let role =
        "*3\r\n$6\r\nmaster\r\n:0\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n7304\r\n$1\r\n0\r\n";
    assert_eq!(bench.ask("ROLE"), role);
    assert_eq!(bench.ask("WAIT 1 0"), ":1\r\n");
    assert_eq!(bench.ask("WAITAOF 0 1 0"), "*2\r\n:0\r\n:0\r\n");
    let refused =
        "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n";
    assert_eq!(bench.ask("WAITAOF 1 0 0"), refused);
    let mut bench = Bench::new(Some(view_of(4)), store::IndexKind::Hash);
    let role = "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:7301\r\n$9\r\nconnected\r\n:0\r\n";
    assert_eq!(bench.ask("ROLE"), role);
    assert!(bench.ask("INFO replication").contains("role:slave\r\nmaster_host:127.0.0.1\r\n"));
}

#[test]
fn a_node_that_has_not_joined_serves_nothing_and_says_so() {
    let mut bench = Bench::new(Some(Arc::new(View::new(node(2)))), store::IndexKind::Hash);
    assert_eq!(bench.ask("GET foo"), "-CLUSTERDOWN Hash slot not served\r\n");
    assert_eq!(bench.ask("CLUSTER SLOTS"), "*0\r\n");
    assert!(bench.ask("CLUSTER INFO").contains("cluster_state:fail\r\n"));
    assert!(bench.ask("CLUSTER NODES").contains("myself,master - 0 0 0 connected\n"));
    assert!(bench.ask("CLUSTER MYID").contains(&announced::node_id(node(2))));
}

#[test]
fn memcached_clients_are_told_the_members() {
    let view = view_of(2);
    let mut configuration = recorded_cluster();
    for (name, port) in [(1, 11211), (2, 11212)] {
        let addresses = Arc::make_mut(configuration.addresses.get_mut(&node(name)).unwrap());
        addresses.memcached = port;
    }
    view.set_configuration(Arc::new(configuration));
    let mut bench = Bench::new(Some(view), store::IndexKind::Hash);
    bench.client = Bench::connect(&mut bench.drive, Dialect::Memcached);
    let want = "CONFIG cluster 0 54\r\n3\n127.0.0.1|127.0.0.1|11211 127.0.0.1|127.0.0.1|11212\n\r\n\
                END\r\n";
    assert_eq!(bench.ask("config get cluster"), want);
    let mut bench = Bench::new(None, store::IndexKind::Hash);
    bench.client = Bench::connect(&mut bench.drive, Dialect::Memcached);
    let alone = bench.ask("config get cluster");
    let (head, rest) = alone.split_once("\r\n").unwrap();
    assert!(head.starts_with("CONFIG cluster 0 ") && rest.ends_with("\n\r\nEND\r\n"), "{alone}");
    assert!(rest.starts_with("1\n127.0.0.1|127.0.0.1|"), "itself: {alone}");
}
