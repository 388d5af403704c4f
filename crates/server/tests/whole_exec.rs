//! EXEC of every command that writes, in a store that is nearly full: all have run, or none.

use super::support::{Client, TestServer, command, config, pattern};
use server::{Config, DataConfig, Durability, Media, Mode};
use wire::resp::{Flags, Spec};

const KEYS: u64 = 40;
const VALUE_MAX_BYTES: u64 = 600_000;
/// All that a transaction queues is at most a quarter of the client buffers.
const QUEUED_VALUE_MAX_BYTES: u64 = 150_000;
const ROUNDS: u64 = 8;
/// A transaction of each round has so many commands.
const QUEUED: usize = 4;

/// Every command that writes entries, new expiries or deletes. `k`: any key. `n`: a key that may
/// hold a number. `v`: a value. `d`: a payload of DUMP.
const WRITES: [&str; 34] = [
    "set k v",
    "getex k EX 1000",
    "getdel k",
    "getset k v",
    "setnx k v",
    "setex k 1000 v",
    "psetex k 1000000 v",
    "mset k v k v",
    "msetnx k v k v",
    "msetex 2 k v k v",
    "incr n",
    "decr n",
    "incrby n 12345678901",
    "decrby n 12345678901",
    "incrbyfloat n 1e300",
    "append k v",
    "setrange k 300000 v",
    "setbit k 2400000 1",
    "bitop OR k k k",
    "bitfield k SET u8 #200000 1",
    "delex k",
    "delifeq k v",
    "restore k 0 d REPLACE",
    "del k k",
    "unlink k k",
    "expire k 1000",
    "pexpire k 1000000",
    "expireat k 9999999999",
    "pexpireat k 9999999999000",
    "persist k",
    "rename k k",
    "renamenx k k",
    "copy k k REPLACE",
    "set k v KEEPTTL",
];
/// Those that have no part in it: always errors, or not on keys.
const NOT_WRITES: [&str; 4] = ["move", "swapdb", "flushdb", "flushall"];
/// Those that only delete, which a full log of a data directory may refuse one by one.
const DELETES: [&str; 5] = ["getdel", "delex", "delifeq", "del", "unlink"];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    /// Short, long in a segment, and longer than one, about as often.
    fn value_len(&mut self, max_bytes: u64) -> usize {
        let bound = [300, 16_000, 60_000, max_bytes][self.below(4) as usize];
        (bound / 2 + self.below(bound / 2)) as usize
    }
}

struct Writer {
    client: Client,
    random: Random,
    bytes: Vec<u8>,
    dumped: Vec<u8>,
    /// Keys that no transaction touches: what is left besides them is all the room that there is.
    fillers: Vec<String>,
    filler_count: usize,
}

/// What EXEC answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// An array without `-OOM`.
    Whole,
    /// One `-OOM` in its place.
    Refused,
    /// An array with these many.
    InPart(usize),
}

impl Writer {
    fn words(&mut self, template: &str, value_max_bytes: u64) -> Vec<u8> {
        let words: Vec<Vec<u8>> = template
            .split(' ')
            .map(|word| match word {
                "k" => format!("k{}", self.random.below(KEYS)).into_bytes(),
                "n" => format!("n{}", self.random.below(KEYS)).into_bytes(),
                "v" => self.bytes[..self.random.value_len(value_max_bytes)].to_vec(),
                "d" => self.dumped.clone(),
                word => word.as_bytes().to_vec(),
            })
            .collect();
        command(&words.iter().map(|word| &word[..]).collect::<Vec<_>>())
    }

    /// The number of `-OOM` in the next reply, and whether it is an array.
    fn reply(&mut self) -> (usize, bool) {
        let line = self.client.line();
        let count = || line[1..].parse::<i64>().unwrap();
        match line.as_bytes()[0] {
            b'-' => (usize::from(line.starts_with("-OOM")), false),
            b'$' if count() >= 0 => {
                self.client.take(count() as usize + 2);
                (0, false)
            }
            b'*' => ((0..count()).map(|_| self.reply().0).sum(), true),
            _ => (0, false),
        }
    }

    fn is_refused(&mut self, command: Vec<u8>) -> bool {
        self.client.send(command);
        self.reply().0 > 0
    }

    /// Writes until a value of each length has been refused; then some fillers go.
    fn fill(&mut self) {
        for template in ["set k v", "set k v", "set n 99999"] {
            let set = self.words(template, VALUE_MAX_BYTES);
            self.is_refused(set);
        }
        for len_bytes in [VALUE_MAX_BYTES as usize, 50_000, 10_000] {
            loop {
                self.filler_count += 1;
                let filler = format!("f{}", self.filler_count);
                let set = command(&[b"SET", filler.as_bytes(), &self.bytes[..len_bytes]]);
                if self.is_refused(set) {
                    break;
                }
                self.fillers.push(filler);
            }
        }
        for _ in 0..self.random.below(6) {
            let at = self.random.below(self.fillers.len() as u64) as usize;
            let filler = self.fillers.swap_remove(at);
            self.is_refused(command(&[b"DEL", filler.as_bytes()]));
        }
    }

    fn exec(&mut self, templates: &[&str]) -> Answer {
        self.client.ask("MULTI\r\n", "+OK\r\n");
        for template in templates {
            let words = self.words(template, QUEUED_VALUE_MAX_BYTES);
            self.client.ask(words, "+QUEUED\r\n");
        }
        self.client.send("EXEC\r\n");
        match self.reply() {
            (0, true) => Answer::Whole,
            (1, false) => Answer::Refused,
            (count, true) => Answer::InPart(count),
            other => panic!("{templates:?}: {other:?}"),
        }
    }
}

/// Runs transactions of each command by itself and beside another.
fn check_whole(config: Config, skips: &[&str]) {
    let server = TestServer::with(config);
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"d", &pattern(200_000)]), "+OK\r\n");
    client.send("DUMP d\r\n");
    let dumped = client.bulk();
    client.ask("DEL d\r\n", ":1\r\n");
    let bytes = pattern(VALUE_MAX_BYTES as usize);
    let (fillers, filler_count) = (Vec::new(), 0);
    let mut writer = Writer { client, random: Random(7), bytes, dumped, fillers, filler_count };
    let (mut whole, mut refused, mut in_part) = (0, 0, Vec::new());
    for round in 0..ROUNDS {
        for (at, template) in WRITES.iter().enumerate() {
            let name = template.split(' ').next().unwrap();
            if skips.contains(&name) {
                continue;
            }
            let other = WRITES[(at + 1 + writer.random.below(33) as usize) % WRITES.len()];
            let is_mixed = round % 2 == 1 && !skips.iter().any(|skip| other.starts_with(skip));
            let mut templates = vec![*template; QUEUED];
            if is_mixed {
                templates[1] = other;
            }
            writer.fill();
            match writer.exec(&templates) {
                Answer::Whole => whole += 1,
                Answer::Refused => refused += 1,
                Answer::InPart(count) => in_part.push((templates, count)),
            }
        }
    }
    assert!(in_part.is_empty(), "{} in part, {whole} whole: {in_part:?}", in_part.len());
    assert!(whole > 50 && refused > 50, "{whole} whole, {refused} refused");
}

#[test]
fn every_command_that_writes_is_in_the_table() {
    let writes = Spec::all().iter().filter(|spec| spec.flags.contains(Flags::WRITE));
    for spec in writes.filter(|spec| !NOT_WRITES.contains(&spec.name)) {
        let is_there = WRITES.iter().any(|template| template.split(' ').next() == Some(spec.name));
        assert!(is_there, "{}", spec.name);
    }
}

#[test]
fn an_exec_in_a_nearly_full_store_runs_whole_or_not_at_all() {
    check_whole(Config { mode: Mode::Clean, memory_bytes: 64 << 20, ..config() }, &[]);
}

/// What each may write is estimated before: many to one key are no longer than that key's value
/// each.
#[test]
fn an_exec_of_many_small_changes_to_one_key_has_room() {
    let server = TestServer::with(Config { mode: Mode::Clean, memory_bytes: 64 << 20, ..config() });
    let mut client = server.resp();
    for (change, count) in [
        ("INCRBYFLOAT number 1.5", 600),
        ("SETBIT bits 999999 1", 200),
        ("SETRANGE text 9000 0123456789", 600),
        ("BITFIELD fields SET u32 90000 7", 600),
        ("APPEND log 0123456789", 2_000),
    ] {
        client.send("MULTI\r\n");
        client.send(format!("{change}\r\n").repeat(count));
        client.expect(format!("+OK\r\n{}", "+QUEUED\r\n".repeat(count)));
        client.send("EXEC\r\n");
        assert_eq!(client.line(), format!("*{count}"), "{change}");
        client.send("ECHO end\r\n");
        while client.line() != "end" {}
    }
}

/// Queues SETs of 50 kB until one is refused, or this many; returns how many were queued.
fn queue(client: &mut Client, count_max: usize) -> usize {
    client.ask("MULTI\r\n", "+OK\r\n");
    let set = command(&[b"SET", b"filler", &pattern(50_000)]);
    (0..count_max)
        .take_while(|_| {
            client.send(&set);
            client.line() == "+QUEUED"
        })
        .count()
}

/// Commands that make long values in memory of their own need it before the first has run.
#[test]
fn an_exec_without_memory_to_work_in_runs_nothing() {
    let server = TestServer::with(Config { mode: Mode::Clean, memory_bytes: 64 << 20, ..config() });
    let mut client = server.resp();
    client.ask(command(&[b"SET", b"long", &pattern(700_000)]), "+OK\r\n");
    let count = queue(&mut server.resp(), usize::MAX);
    let mut others = [server.resp(), server.resp()];
    for other in &mut others {
        assert_eq!(queue(other, count), count);
    }
    for change in [
        "BITFIELD long SET u8 #200000 1",
        "BITOP NOT other long",
        "COPY long other",
        "RENAME long other",
    ] {
        client.send(format!("MULTI\r\nINCR n\r\n{change}\r\n{change}\r\nEXEC\r\n"));
        client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n");
        client.expect_line_with("-ERR the values have no room");
        client.ask("GET n\r\n", "$-1\r\n");
    }
    drop(others);
    client.send("MULTI\r\nINCR n\r\nBITFIELD long SET u8 #200000 1\r\nEXEC\r\n");
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    let line = client.line();
    assert!(line == "*2" || line.starts_with("-ERR the values"), "{line}");
}

#[test]
fn an_exec_in_a_nearly_full_data_directory_runs_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataConfig {
        path: directory.path().to_path_buf(),
        durability: Durability::None,
        media: Media::File,
        recovers_damaged: false,
        checkpoint_every: None,
    };
    let config = Config { mode: Mode::Clean, memory_bytes: 64 << 20, data: Some(data), ..config() };
    check_whole(config, &DELETES);
}
