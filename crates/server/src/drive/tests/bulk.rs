//! Long replies and long commands: how much of them moves in a turn, and what others see of it
//! (K16; worker/bulk.rs).

use commands::output::CALL_BYTES_MAX;

use super::*;

/// What moves in a turn beside cheap commands.
const QUANTUM_BYTES: u64 = 64 << 10;

/// K16: a body of 4 MiB arrives in slices, and other clients of that worker do not wait for it.
#[test]
fn a_large_body_is_read_in_slices_and_others_are_answered_in_between() {
    const SLICE_BYTES: u64 = 64 << 10;
    const BODY_BYTES: usize = 4 << 20;
    for policies in ["crew size-aware", "crew key-hash"] {
        let mut bench = Bench::new(2, None, policies);
        let (mut large, mut small) = (bench.client(0), bench.client(0));
        bench.settle();
        let body = set("large", &"x".repeat(BODY_BYTES));
        let (mut rest, mut reply, mut round_count) = (body.as_bytes(), String::new(), 0);
        while reply.is_empty() && round_count < 1000 {
            // As much as the sockets accept, which is more than a slice.
            while let Ok(count @ 1..) = large.write(rest) {
                rest = &rest[count..];
            }
            let ask = "PING\r\n";
            small.write_all(ask.as_bytes()).unwrap();
            let before = bench.drive.shared.totals().net_input_bytes;
            bench.turn(0);
            let read_bytes = bench.drive.shared.totals().net_input_bytes - before;
            assert!(read_bytes <= SLICE_BYTES + ask.len() as u64, "{read_bytes} in one round");
            assert_eq!(received(&mut small), "+PONG\r\n", "in the same round");
            bench.turn(1);
            reply = received(&mut large);
            round_count += 1;
        }
        assert_eq!(reply, "+OK\r\n", "{policies} after {round_count} rounds");
        assert!(round_count >= BODY_BYTES / SLICE_BYTES as usize, "{round_count} rounds");
    }
}

/// Clients that store large values beside one with small requests.
struct Bodies {
    bench: Bench,
    small: TcpStream,
    large: Vec<TcpStream>,
    asks: Vec<Vec<u8>>,
    replies: Vec<String>,
    /// Turns that the small client has been waiting, and the most that it has waited.
    turns_waited: usize,
    turns_waited_max: usize,
}

impl Bodies {
    /// Each stores a key of its own, which the worker that it is connected to owns: a worker that
    /// serves other workers' requests does not poll its sockets in every turn.
    fn new(dialect: Dialect, count: usize, ask: impl Fn(&str) -> String) -> Bodies {
        let mut bench = Bench::new(2, None, "crew key-hash");
        let small = bench.client(0);
        let large = (0..count).map(|_| bench.client_of(0, dialect)).collect();
        let asks: Vec<_> = bench.keys_of(0).take(count).map(|key| ask(&key).into()).collect();
        bench.settle();
        let replies = vec![String::new(); asks.len()];
        Bodies { bench, small, large, asks, replies, turns_waited: 0, turns_waited_max: 0 }
    }

    /// Sends what the sockets accept, except that many bytes of each, and runs a turn; returns what
    /// was read in it.
    fn turn(&mut self, kept_bytes: usize) -> u64 {
        for (client, ask) in self.large.iter_mut().zip(&mut self.asks) {
            let end = ask.len().saturating_sub(kept_bytes);
            if let Ok(count) = client.write(&ask[..end]) {
                ask.drain(..count);
            }
        }
        if self.turns_waited == 0 {
            self.small.write_all(b"PING\r\n").unwrap();
        }
        let before = self.bench.drive.shared.totals().net_input_bytes;
        self.bench.turn(0);
        let read_bytes = self.bench.drive.shared.totals().net_input_bytes - before;
        self.turns_waited += 1;
        self.turns_waited_max = self.turns_waited_max.max(self.turns_waited);
        if !received(&mut self.small).is_empty() {
            self.turns_waited = 0;
        }
        self.bench.turn(1);
        for (client, reply) in self.large.iter_mut().zip(&mut self.replies) {
            *reply += &received(client);
        }
        read_bytes
    }
}

/// W1, W4.
#[track_caller]
fn check_bodies(dialect: Dialect, head: impl Fn(&str) -> String, done: &str) {
    const BODY_BYTES: usize = 1 << 20;
    const CLIENTS: usize = 12;
    let ask = |key: &str| head(key) + &"x".repeat(BODY_BYTES) + "\r\n";
    let mut bodies = Bodies::new(dialect, CLIENTS, ask);
    for _ in 0..300 {
        bodies.turn(1);
    }
    assert!(bodies.asks.iter().all(|rest| rest.len() == 1), "the sockets take no more");
    // All become complete in the same turn.
    for _ in 0..40 {
        bodies.turn(0);
    }
    assert!(bodies.replies.iter().all(|reply| reply == done), "{:?}", bodies.replies);
    assert!(bodies.turns_waited_max <= 2, "{} turns of {}", bodies.turns_waited_max, head("k"));
    let (most, body_units) = (bodies.bench.turn_units_max(), BODY_BYTES as u64 / 64);
    // A turn stores one of them.
    assert!(most >= body_units, "nothing was counted");
    assert!(most <= 3 * body_units, "{most} of {}", head("k"));
}

#[test]
fn large_values_of_many_clients_are_stored_over_many_turns() {
    let resp = |verb: &'static str| {
        move |key: &str| {
            let (verb_len, key_len) = (verb.len(), key.len());
            format!("*3\r\n${verb_len}\r\n{verb}\r\n${key_len}\r\n{key}\r\n$1048576\r\n")
        }
    };
    check_bodies(Dialect::Resp, resp("SET"), "+OK\r\n");
    check_bodies(Dialect::Resp, resp("GETSET"), "$-1\r\n");
    check_bodies(Dialect::Memcached, |key| format!("set {key} 0 0 1048576\r\n"), "STORED\r\n");
    check_bodies(Dialect::Memcached, |key| format!("ms {key} 1048576\r\n"), "HD\r\n");
}

/// B2 and B4.
#[test]
fn a_turn_reads_a_quantum_of_large_values_and_each_gets_as_much() {
    const BODY_BYTES: usize = 400 << 10;
    const CLIENTS: usize = 40;
    // PING, and the bytes read before the lengths of the commands are known.
    const OTHER_BYTES: u64 = 6 + CLIENTS as u64 * (32 << 10);
    let ask = |key: &str| set(key, &"x".repeat(BODY_BYTES));
    let mut bodies = Bodies::new(Dialect::Resp, CLIENTS, ask);
    let (mut read_bytes_max, mut last_turn_of_first) = (0, 0);
    for turn in 0..500 {
        let read_bytes = bodies.turn(0);
        let other_bytes = if turn < 3 { OTHER_BYTES } else { 6 };
        assert!(read_bytes <= QUANTUM_BYTES + other_bytes, "{read_bytes} in turn {turn}");
        read_bytes_max = read_bytes_max.max(read_bytes);
        if bodies.replies.iter().all(String::is_empty) {
            last_turn_of_first = turn;
        }
    }
    assert!(bodies.replies.iter().all(|reply| reply == "+OK\r\n"), "{:?}", bodies.replies);
    assert!(read_bytes_max >= CALL_BYTES_MAX as u64);
    assert!(
        last_turn_of_first > 180,
        "{last_turn_of_first}: the first one did not wait for others"
    );
    assert_eq!(bodies.turns_waited_max, 1);
}

/// A client that reads a large value.
struct Reader {
    client: TcpStream,
    got_bytes: usize,
}

impl Reader {
    fn read(&mut self) {
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = self.client.read(&mut bytes) {
            self.got_bytes += count;
        }
    }
}

/// The same of replies, of which nothing is counted before.
#[track_caller]
fn check_readers(policies: &str, reader_count: usize) {
    const VALUE_BYTES: usize = 2 << 20;
    const REPLY_BYTES: usize = "$2097152\r\n\r\n".len() + VALUE_BYTES;
    let mut bench = Bench::new(2, None, policies);
    let key = bench.keys_of(0).next().unwrap();
    let mut small = bench.client(0);
    store(&mut bench, &mut small, &set(&key, &"x".repeat(VALUE_BYTES)));
    let client = |bench: &mut Bench| Reader { client: bench.client(0), got_bytes: 0 };
    let mut readers: Vec<Reader> = (0..reader_count).map(|_| client(&mut bench)).collect();
    bench.settle();
    for reader in &mut readers {
        reader.client.write_all(format!("GET {key}\r\n").as_bytes()).unwrap();
    }
    let stored = bench.drive.shared.totals();
    let (mut turn, mut sent_bytes_max) = (0, 0);
    while readers.iter().any(|reader| reader.got_bytes < REPLY_BYTES) && turn < 1_000 {
        small.write_all(b"PING\r\n").unwrap();
        let before = bench.drive.shared.totals().net_output_bytes;
        bench.turn(0);
        let sent_bytes = bench.drive.shared.totals().net_output_bytes - before;
        assert!(sent_bytes <= QUANTUM_BYTES + 7, "{sent_bytes} in turn {turn}, {policies}");
        sent_bytes_max = sent_bytes_max.max(sent_bytes);
        assert_eq!(received(&mut small), "+PONG\r\n", "in the same turn");
        readers.iter_mut().for_each(Reader::read);
        let got = readers.iter().map(|reader| reader.got_bytes);
        let ahead_bytes = got.clone().max().unwrap() - got.min().unwrap();
        assert!(ahead_bytes as u64 <= 2 * QUANTUM_BYTES, "{ahead_bytes} in turn {turn}");
        turn += 1;
    }
    assert!(readers.iter().all(|reader| reader.got_bytes == REPLY_BYTES), "{policies}");
    assert!(sent_bytes_max >= CALL_BYTES_MAX as u64);
    let waits = bench.drive.shared.totals().since(&stored).bulk_by_bytes;
    let count: u64 = waits.iter().sum();
    assert!(count as usize >= REPLY_BYTES * reader_count / CALL_BYTES_MAX - 2, "{waits:?}");
    assert_eq!(waits[2..].iter().sum::<u64>(), 0, "a PING waited for more: {waits:?}");
    // Nothing is left behind.
    small.write_all(format!("GET {key}\r\n").as_bytes()).unwrap();
    let mut last = Reader { client: small, got_bytes: 0 };
    for _ in 0..100 {
        bench.turn(0);
        last.read();
    }
    assert_eq!(last.got_bytes, REPLY_BYTES);
}

#[test]
fn a_turn_sends_a_quantum_of_large_values_and_each_reader_gets_as_much() {
    check_readers("crew key-hash", 1);
    check_readers("crew key-hash", 7);
}

/// A client that asks for a large value and sends one at the same time, and reads late.
#[test]
fn a_connection_sends_and_receives_long_ones_at_once() {
    const VALUE_BYTES: usize = 6 << 20;
    let mut bench = Bench::new(2, None, "crew key-hash");
    let key = bench.keys_of(0).next().unwrap();
    let mut client = bench.client(0);
    let value = "x".repeat(VALUE_BYTES);
    store(&mut bench, &mut client, &set(&key, &value));
    let asks = [format!("GET {key}\r\n"), set(&key, &value), format!("GET {key}\r\n")].concat();
    let want_bytes = 2 * (format!("${VALUE_BYTES}\r\n\r\n").len() + VALUE_BYTES) + 5;
    let (mut rest, mut reader) = (asks.as_bytes(), Reader { client, got_bytes: 0 });
    for turn in 0..4_000 {
        while let Ok(count @ 1..) = reader.client.write(rest) {
            rest = &rest[count..];
        }
        bench.turn(0);
        if turn > 200 {
            reader.read();
        }
    }
    assert_eq!((rest.len(), reader.got_bytes), (0, want_bytes));
}
