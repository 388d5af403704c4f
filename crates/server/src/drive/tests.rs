//! Tests that need one particular order of the workers' rounds: wake-ups of thieves (T2), conflicts
//! at the write table, turns of costly commands.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use base::hash::KeyHasher;
use commands::work::TURN_UNITS;
use counters::ForwardingTotals;
use policy::{Dispatch, Policies, WritePolicy};
use sessions::clients::{Arrival, ClientsMax};
use sessions::end::End;

use super::*;

mod bulk;
mod cluster;
mod large_help;

const HASH_SEED: u64 = 7;

/// Workers and their clients.
struct Bench {
    drive: Drive,
    door: TcpListener,
}

impl Bench {
    fn new(threads: usize, cr_threads: Option<usize>, policies: &str) -> Bench {
        let (write_policy, dispatch) = policies.split_once(' ').unwrap();
        let (write_policy, dispatch): (WritePolicy, _) =
            (write_policy.parse().unwrap(), dispatch.parse().unwrap());
        Bench::of(Config {
            policies: Policies::new(write_policy, dispatch),
            ..Bench::config(threads, cr_threads)
        })
    }

    /// Settings without doors.
    fn config(threads: usize, cr_threads: Option<usize>) -> Config {
        let off =
            Config { resp: None, memcached: None, native: None, admin: None, ..Config::default() };
        Config {
            threads,
            cr_threads,
            compaction: false,
            memory_bytes: 256 << 20,
            hash_seed: Some(HASH_SEED),
            ..off
        }
    }

    fn of(config: Config) -> Bench {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        Bench { drive: Drive::new(config).unwrap(), door }
    }

    /// A connection that this worker polls.
    fn client(&mut self, worker: usize) -> TcpStream {
        self.client_of(worker, Dialect::Resp)
    }

    fn client_of(&mut self, worker: usize, dialect: Dialect) -> TcpStream {
        let client = TcpStream::connect(self.door.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_nonblocking(true).unwrap();
        self.drive.admit(worker, self.door.accept().unwrap().0, dialect).unwrap();
        client
    }

    fn turn(&mut self, worker: usize) {
        self.drive.turn(worker).unwrap();
    }

    /// Runs rounds of all workers until none has work left.
    fn settle(&mut self) {
        for _ in 0..8 {
            (0..self.drive.worker_count()).for_each(|worker| self.turn(worker));
        }
    }

    fn forwardings(&self) -> ForwardingTotals {
        self.drive.shared.totals().forwardings
    }

    /// Registers clients that no worker has.
    fn register(&self, protocol: Dialect, count: usize) {
        let any = End::Ip(self.door.local_addr().unwrap());
        for _ in 0..count {
            let arrival = Arrival {
                protocol,
                worker: WorkerId(1),
                peer: any.clone(),
                local: any.clone(),
                descriptor: 1,
                now: base::UnixMillis(1),
            };
            let max = ClientsMax { all: usize::MAX, per_address: 0 };
            self.drive.shared.clients().admit(arrival, max).unwrap();
        }
    }

    /// The largest cost of a turn.
    fn turn_units_max(&self) -> u64 {
        self.drive.shared.totals().turn_work_units_max
    }

    /// Keys that a worker owns.
    fn keys_of(&self, worker: usize) -> impl Iterator<Item = String> {
        let bits = self.drive.shared.store().partition_bits();
        let hasher = KeyHasher::new(HASH_SEED);
        let workers = self.drive.worker_count() as u32;
        let owner = move |key: &str| hasher.hash(key.as_bytes()).partition(bits).0 % workers;
        (0..).map(|key| format!("k{key}")).filter(move |key| owner(key) as usize == worker)
    }

    /// Acts as if these workers lay down to sleep now.
    fn lay_down(&self, workers: &[usize]) {
        for worker in workers {
            self.drive.shared.mailbox(*worker).0.waker.reset();
            self.drive.fabric.lay_down(*worker);
        }
    }

    /// Whether something ended the worker's sleep since.
    fn was_woken(&self, worker: usize) -> bool {
        self.drive.shared.mailbox(worker).0.waker.reset()
    }
}

/// All bytes that have arrived.
fn received(client: &mut TcpStream) -> String {
    let mut bytes = vec![0; 1 << 16];
    let count = match client.read(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        read => read.unwrap(),
    };
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

fn set(key: &str, value: &str) -> String {
    let (key_len, value_len) = (key.len(), value.len());
    format!("*3\r\n$3\r\nSET\r\n${key_len}\r\n{key}\r\n${value_len}\r\n{value}\r\n")
}

/// T2: sends these requests to worker 0 while thieves 1 and 2 sleep; checks how many of them are
/// woken.
#[track_caller]
fn check_woken(asks: &str, want: usize) {
    let mut bench = Bench::new(3, None, "crcw steal");
    let mut client = bench.client(0);
    bench.settle();
    bench.lay_down(&[1, 2]);
    client.write_all(asks.as_bytes()).unwrap();
    bench.turn(0);
    let woken = [1, 2].into_iter().filter(|worker| bench.was_woken(*worker)).count();
    assert_eq!(woken, want, "{:.60}", asks);
}

#[test]
fn a_thief_that_sleeps_is_woken_for_a_batch_that_is_left_behind() {
    check_woken(&"GET a\r\n".repeat(200), 0); // One key: one chain after another, in order.
    let gets = |count| (0..count).map(|key| format!("GET {key}\r\n")).collect::<String>();
    // It takes eight; a batch is 32. Each time a batch is left behind, another thief is woken.
    check_woken(&gets(8 + 31), 0);
    check_woken(&gets(8 + 32), 1);
    check_woken(&gets(200), 2);
}

#[test]
fn a_thief_that_sleeps_is_woken_for_what_waits_behind_something_long() {
    let long = "x".repeat(20 << 10);
    check_woken(&set("long", &long), 0);
    check_woken(&(set("long", &long) + "GET a\r\n"), 1);
    check_woken(&(set("short", "x") + "GET a\r\n"), 0);
}

/// Worker 0 offers requests to worker 1, which is awake; checks whether worker 2, which sleeps, is
/// woken.
#[track_caller]
fn check_offered(key_count: usize, is_at_length: bool, want: bool) {
    let mut bench = Bench::new(3, None, "crew steal");
    let mut client = bench.client(0);
    bench.settle();
    // Writes of keys that worker 1 owns.
    let keys = bench.keys_of(1);
    let asks: String = keys.take(key_count).map(|key| set(&key, "2")).collect();
    bench.lay_down(&[2]);
    bench.drive.fabric.set_at_length(1, is_at_length);
    client.write_all(asks.as_bytes()).unwrap();
    bench.turn(0);
    assert_eq!(bench.forwardings().sent, key_count as u64);
    assert_eq!(bench.was_woken(2), want, "{key_count} keys, {is_at_length}");
}

#[test]
fn a_sleeping_thief_is_woken_for_the_queue_of_a_busy_worker() {
    check_offered(1, false, false);
    check_offered(1, true, true);
    check_offered(31, false, false);
    check_offered(40, false, true);
}

/// Keys whose partitions fall into one set of the write table, each into a partition of its own.
fn keys_of_one_set(bench: &Bench, count: usize) -> Vec<String> {
    let bits = bench.drive.shared.store().partition_bits();
    let capacity = policy::WriteTable::capacity(2 * 4096);
    let set_count = (capacity / 8) as u32;
    let hasher = KeyHasher::new(HASH_SEED);
    let mut partitions = Vec::new();
    let keys = (0..).map(|key| format!("k{key}")).filter(|key| {
        let partition = hasher.hash(key.as_bytes()).partition(bits);
        let is_new = !partitions.contains(&partition) && partition.0.is_multiple_of(set_count);
        partitions.extend(is_new.then_some(partition));
        is_new
    });
    keys.take(count).collect()
}

/// P1: a write that found its set full, and then went to the worker that wrote its partition
/// meanwhile, is one conflict.
#[test]
fn a_write_that_waits_for_a_full_set_and_is_then_diverted_counts_one_conflict() {
    let mut bench = Bench::new(3, Some(1), "d-crew round-robin");
    let keys = keys_of_one_set(&bench, 9);
    let (mut filler, mut first, mut second) = (bench.client(0), bench.client(0), bench.client(0));
    bench.settle();
    // Eight writes that no worker executes yet fill the set.
    let fill: String = keys[..8].iter().map(|key| set(key, "1")).collect();
    filler.write_all(fill.as_bytes()).unwrap();
    bench.turn(0);
    assert_eq!((bench.forwardings().pins, bench.forwardings().pin_conflicts), (8, 0));
    // Two more, of one partition, wait.
    for client in [&mut first, &mut second] {
        client.write_all(set(&keys[8], "2").as_bytes()).unwrap();
        bench.turn(0);
    }
    assert_eq!((bench.forwardings().pins, bench.forwardings().pin_conflicts), (8, 2));
    // Then the first finds an entry, and the second is diverted to its worker.
    bench.settle();
    assert_eq!(received(&mut first) + &received(&mut second), "+OK\r\n+OK\r\n");
    assert_eq!(received(&mut filler), "+OK\r\n".repeat(8));
    assert_eq!(
        (bench.forwardings().pins, bench.forwardings().pin_conflicts),
        (10, 2),
        "one for each"
    );
}

/// Sends commands that are answered by OK.
fn store(bench: &mut Bench, client: &mut TcpStream, commands: &str) {
    let mut rest = commands.as_bytes();
    if commands.is_empty() {
        return;
    }
    let mut left = commands.matches("SET ").count() + commands.matches("\r\nSET\r\n").count();
    for _ in 0..1_000 {
        // As much as the sockets accept.
        while let Ok(count @ 1..) = client.write(rest) {
            rest = &rest[count..];
        }
        bench.settle();
        left -= received(client).matches('+').count();
        if left == 0 {
            return;
        }
    }
    panic!("{left} commands are not answered");
}

/// W4: clients with large requests all the time, and one with a small request in between.
#[track_caller]
fn check_turns_waited(dialect: Dialect, asks_for_much: &str, prepare: &str) {
    const CLIENTS: usize = 24;
    let mut bench = Bench::new(2, None, "crew key-hash");
    let mut small = bench.client(0);
    let mut slow: Vec<TcpStream> = (0..CLIENTS).map(|_| bench.client_of(0, dialect)).collect();
    store(&mut bench, &mut small, prepare);
    slow.iter_mut().for_each(|client| client.write_all(asks_for_much.as_bytes()).unwrap());
    let (mut turns_waited, mut turns_waited_max, mut answered) = (0, 0, 0);
    small.write_all(b"PING\r\n").unwrap();
    for _ in 0..100 {
        bench.turn(0);
        bench.turn(1);
        for client in &mut slow {
            // A large value arrives in parts.
            if received(client).ends_with('\n') {
                answered += 1;
                client.write_all(asks_for_much.as_bytes()).unwrap();
            }
        }
        turns_waited += 1;
        if !received(&mut small).is_empty() {
            turns_waited_max = turns_waited_max.max(turns_waited);
            turns_waited = 0;
            small.write_all(b"PING\r\n").unwrap();
        }
    }
    assert!(turns_waited.max(turns_waited_max) <= 2, "{turns_waited_max} of {asks_for_much}");
    // And those are served too.
    assert!(answered >= CLIENTS, "{answered} of {asks_for_much}");
}

#[test]
fn a_small_command_waits_for_one_turn_of_long_ones() {
    let large = set("large", &"x".repeat(2 << 20));
    check_turns_waited(Dialect::Resp, "BITCOUNT large\r\n", &large);
    check_turns_waited(Dialect::Resp, "DIGEST large\r\n", &large);
    check_turns_waited(Dialect::Resp, "EXPIRE large 100\r\n", &large);
    check_turns_waited(Dialect::Memcached, "touch large 100\r\n", &large);
    check_turns_waited(Dialect::Memcached, "append large 0 0 1\r\nx\r\n", &large);
    check_turns_waited(Dialect::Memcached, "mg large t T100\r\n", &large);
    check_turns_waited(Dialect::Memcached, "mg bGFyZ2U= b t T100\r\n", &large);
    let keys: String = (0..10_000).map(|number| format!("SET key:{number} v\r\n")).collect();
    check_turns_waited(Dialect::Resp, "KEYS nothing*\r\n", &keys);
    check_turns_waited(Dialect::Memcached, "lru_crawler metadump all\r\n", &keys);
}

/// W4: many clients send `much` at one moment, which none of them has sent before. Each is answered
/// by so many lines.
#[track_caller]
fn check_first_commands(dialect: Dialect, prepare: &str, much: &str, line_count: usize) {
    const CLIENTS: usize = 120;
    let mut bench = Bench::new(2, None, "crew key-hash");
    let (mut long, mut small) = (Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        long.push(bench.client_of(0, dialect));
        if number % 10 == 0 {
            small.push(bench.client(0));
        }
    }
    store(&mut bench, &mut small[0], prepare);
    long.iter_mut().for_each(|client| client.write_all(much.as_bytes()).unwrap());
    small.iter_mut().for_each(|client| client.write_all(b"PING\r\n").unwrap());
    let mut turns_waited = 0;
    while !small.is_empty() && turns_waited < 1_000 {
        bench.turn(0);
        bench.turn(1);
        turns_waited += 1;
        small.retain_mut(|client| received(client).is_empty());
    }
    let start = &much[..8];
    assert!(turns_waited <= 3, "{turns_waited} turns behind {start:?}");
    let mut line_counts = vec![0; CLIENTS];
    for _ in 0..6 * CLIENTS {
        bench.turn(0);
        bench.turn(1);
        for (client, count) in long.iter_mut().zip(&mut line_counts) {
            *count += received(client).matches("\r\n").count();
        }
    }
    assert_eq!(line_counts, vec![line_count; CLIENTS], "all are answered: {start:?}");
}

#[test]
fn a_small_command_does_not_wait_for_all_that_is_long_by_its_input() {
    check_first_commands(Dialect::Resp, "", &"PING\r\n".repeat(1_000), 1_000);
    check_first_commands(Dialect::Memcached, "", &"version\r\n".repeat(1_000), 1_000);
}

#[test]
fn a_small_command_does_not_wait_for_all_that_is_long_by_values() {
    let large = set("large", &"x".repeat(512 << 10));
    check_first_commands(Dialect::Resp, &large, "BITOP NOT o large\r\n", 1);
    let two = set("a", &"x".repeat(1_000)) + &set("b", &"y".repeat(1_000));
    check_first_commands(Dialect::Resp, &two, "LCS a b LEN\r\n", 1);
}

#[test]
fn a_small_command_does_not_wait_for_all_transactions_of_long_commands() {
    let keys: String = (0..10_000).map(|number| format!("SET key:{number} v\r\n")).collect();
    let of = |command: &str| format!("MULTI\r\n{command}\r\nEXEC\r\n");
    check_first_commands(Dialect::Resp, &keys, &of("KEYS nothing*"), 4);
    check_first_commands(Dialect::Resp, "", &of(&["EXISTS a b c d"; 200].join("\r\n")), 402);
    check_first_commands(Dialect::Resp, "", &of(&["DBSIZE"; 10].join("\r\n")), 22);
    let two = set("a", &"x".repeat(1_000)) + &set("b", &"y".repeat(1_000));
    check_first_commands(Dialect::Resp, &two, &of("LCS a b LEN"), 4);
}

/// Bytes that arrive until the workers have had that many turns.
fn received_in(bench: &mut Bench, client: &mut TcpStream, turns: usize) -> String {
    let mut reply = String::new();
    for _ in 0..turns {
        bench.turn(0);
        bench.turn(1);
        reply += &received(client);
    }
    reply
}

/// K28: a walk over all clients takes turns, and its reply is the same.
#[test]
fn clients_are_listed_and_closed_some_hundreds_a_turn() {
    const REGISTERED: usize = 4000;
    let mut bench = Bench::new(2, None, "crew key-hash");
    let mut client = bench.client(0);
    bench.settle();
    bench.register(Dialect::Resp, REGISTERED);
    client.write_all(b"CLIENT LIST\r\nPING\r\n").unwrap();
    assert_eq!(received_in(&mut bench, &mut client, 4), "", "it is gathered");
    let reply = received_in(&mut bench, &mut client, 40);
    let ids: Vec<&str> = reply.lines().filter_map(|line| line.strip_prefix("id=")).collect();
    let ids = ids.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap());
    assert_eq!(ids.collect::<Vec<usize>>(), (1..=REGISTERED + 1).collect::<Vec<_>>());
    assert!(reply.ends_with("\r\n+PONG\r\n"));

    client.write_all(b"CLIENT LIST ID 7 4001 7 100000\r\n").unwrap();
    let reply = received_in(&mut bench, &mut client, 4);
    let ids: Vec<&str> = reply.lines().filter_map(|line| line.strip_prefix("id=")).collect();
    let is_id = |(line, id): (&&str, &str)| line.starts_with(&format!("{id} "));
    assert!(ids.len() == 3 && ids.iter().zip(["7", "4001", "7"]).all(is_id), "{reply}");

    client.write_all(b"CLIENT KILL MAXAGE 1\r\nCLIENT KILL MAXAGE 1\r\n").unwrap();
    assert_eq!(received_in(&mut bench, &mut client, 3), "");
    let reply = received_in(&mut bench, &mut client, 40);
    assert_eq!(reply, format!(":{REGISTERED}\r\n:0\r\n"));
    let most = bench.turn_units_max();
    assert!((TURN_UNITS..=2 * TURN_UNITS).contains(&most), "{most}");
}

/// The same of memcached's list, which is sent in parts.
#[test]
fn connections_are_listed_some_hundreds_a_turn() {
    const REGISTERED: usize = 4000;
    let mut bench = Bench::new(2, None, "crew key-hash");
    let mut client = bench.client_of(0, Dialect::Memcached);
    bench.settle();
    bench.register(Dialect::Memcached, REGISTERED);
    bench.register(Dialect::Resp, 100);
    client.write_all(b"stats conns\r\nversion\r\n").unwrap();
    let reply = received_in(&mut bench, &mut client, 60);
    assert_eq!(reply.matches(":addr tcp:").count(), REGISTERED + 1);
    assert_eq!(reply.matches(":secs_since_last_cmd ").count(), REGISTERED + 1);
    assert!(reply.contains("\r\nEND\r\nVERSION "), "{}", &reply[reply.len() - 100..]);
    let most = bench.turn_units_max();
    assert!((TURN_UNITS..=2 * TURN_UNITS).contains(&most), "{most}");
}

/// F1 of core/flushing.rs.
#[test]
fn a_flush_takes_a_part_of_each_turn_and_is_told_when_all_is_gone() {
    const KEYS: usize = 20_000;
    let mut bench = Bench::new(2, None, "crew key-hash");
    let [mut small, mut first, mut second] = [0; 3].map(|worker| bench.client(worker));
    let mut memcached = bench.client_of(0, Dialect::Memcached);
    bench.settle();
    let sets: String = (0..KEYS).map(|key| set(&format!("key {key}"), "x")).collect();
    let (mut rest, mut stored) = (sets.as_bytes(), 0);
    while stored < KEYS {
        if let Ok(count) = small.write(rest) {
            rest = &rest[count..];
        }
        bench.settle();
        stored += received(&mut small).matches("OK").count();
    }
    // It has requested nothing yet.
    let mut small = bench.client(0);
    bench.settle();
    first.write_all(b"FLUSHALL\r\nDBSIZE\r\n").unwrap();
    bench.turn(0);
    assert_eq!(received(&mut first), "", "not yet");
    second.write_all(b"FLUSHALL\r\n").unwrap();
    memcached.write_all(b"flush_all\r\n").unwrap();
    let (mut rounds, mut pongs, mut told) = (0, 0, String::new());
    while told.is_empty() && rounds < 1000 {
        small.write_all(b"PING\r\n").unwrap();
        bench.turn(0);
        pongs += received(&mut small).matches("PONG").count();
        assert!(pongs >= rounds, "{pongs} of {rounds}");
        // Later requests wait for the next flush.
        told = received(&mut first);
        rounds += 1;
    }
    assert!((5..1000).contains(&rounds), "{rounds} rounds");
    assert_eq!(told + &received(&mut second) + &received(&mut memcached), "+OK\r\n");
    (0..1000).for_each(|_| bench.turn(0));
    assert_eq!(received(&mut first), ":0\r\n");
    assert_eq!(received(&mut second) + &received(&mut memcached), "+OK\r\nOK\r\n");
    assert!(bench.turn_units_max() < TURN_UNITS);
}

/// Requests are executed in their order where they arrive: many long ones would delay others.
#[test]
fn a_worker_has_one_long_command_of_its_connections_at_another() {
    let mut bench = Bench::new(2, None, "erew key-hash");
    let key = bench.keys_of(1).next().unwrap();
    let mut small = bench.client(0);
    let mut long: Vec<TcpStream> = (0..8).map(|_| bench.client(0)).collect();
    bench.settle();
    let large = set(&key, &"x".repeat(200_000));
    let mut rest = large.as_bytes();
    while !rest.is_empty() {
        if let Ok(count) = small.write(rest) {
            rest = &rest[count..];
        }
        bench.settle();
    }
    assert_eq!(received(&mut small), "+OK\r\n");
    for client in &mut long {
        client.write_all(format!("SETRANGE {key} 5 y\r\n").repeat(3).as_bytes()).unwrap();
    }
    let before = bench.forwardings();
    (0..8).for_each(|_| bench.turn(0));
    assert_eq!(bench.forwardings().sent - before.sent, 1);
    (0..64).for_each(|_| bench.settle());
    for client in &mut long {
        assert_eq!(received(client), ":200000\r\n".repeat(3));
    }
}

#[test]
fn a_worker_whose_clients_do_not_read_is_woken_where_others_lack_room() {
    let mut bench = Bench::new(2, None, "crew key-hash");
    let mut client = bench.client(0);
    bench.settle();
    // As if clients of the other worker did not read.
    let budget = bench.drive.shared.buffer_budget().clone();
    let mut ledger = budget::Ledger::new(budget.clone());
    ledger.force(budget::Kind::Small, budget.limit_bytes() + 1);
    bench.lay_down(&[1]);
    client.write_all(b"PING\r\n").unwrap();
    (0..4).for_each(|_| bench.turn(0));
    assert_eq!(received(&mut client), "", "no client is read");
    assert!(bench.was_woken(1));
    drop(ledger);
    bench.settle();
    assert_eq!(received(&mut client), "+PONG\r\n");
}
