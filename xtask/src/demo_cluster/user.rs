//! One simulated user: draws requests, sends them, and records the answers.
//!
//! A write of an expiring value is recorded as two: the put, and a delete of that very value at
//! some time near its expiry. A write of a pair is recorded as one write for each of its keys.

use std::time::Instant;

use workload::linearizable::{Answer, Ask, Record};

use super::dice::Dice;
use super::history::{Half, History};
use super::keys::{self, Class, ERA};
use super::memcached;
use super::resp::{Client, Reply, Told};

/// The tolerance of expiry: a value may end this much before or after the requested time, since
/// clocks are read once per loop.
const EARLY_NS: u64 = 50_000_000;
const LATE_NS: u64 = 200_000_000;

/// The addresses of the servers.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// RESP.
    pub resp: Vec<String>,
    /// memcached.
    pub memcached: Vec<String>,
}

/// See the module's page.
pub struct User {
    index: u64,
    dice: Dice,
    client: Client,
    memcached: Option<memcached::Client>,
    started: Instant,
    asked: i64,
    /// Its records.
    pub own: History,
}

impl User {
    /// The protocol: each third user uses memcached.
    pub fn new(index: u64, seed: u64, addresses: &Addresses, started: Instant) -> User {
        let dice = Dice::new(seed ^ index.wrapping_mul(0x9e37_79b9));
        let client = Client::new(&addresses.resp, index as usize % addresses.resp.len());
        let is_memcached = index % 3 == 2;
        let memcached = is_memcached.then(|| memcached::Client::new(&addresses.memcached));
        User { index, dice, client, memcached, started, asked: 0, own: History::default() }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sends one request; returns whether it was answered.
    pub fn turn(&mut self) -> bool {
        let era = (self.started.elapsed().as_millis() / ERA.as_millis()) as usize;
        // Keeps the sums of different sequences distinct.
        let number = (self.index as i64 + 1) * 1_000_000_000_000 + self.asked * 1000;
        self.asked += 1;
        let (class, any) = (self.dice.below(100), self.dice.below(1 << 32));
        if class < 5 {
            let key = any as usize % ((era + 1) * keys::KEYS_PER_ERA);
            return self.ask(key, Ask::Get);
        }
        if self.memcached.is_some() {
            let class = if class < 7 { Class::Large } else { Class::Plain };
            return self.memcached_turn(keys::key_of(era, class, any), number);
        }
        match class {
            5..8 => self.plain_turn(keys::key_of(era, Class::Large, any), number),
            8..20 => self.mortal_turn(keys::key_of(era, Class::Mortal, any), number),
            20..40 => self.pair_turn(keys::key_of(era, Class::Pair, any), number),
            _ => self.plain_turn(keys::key_of(era, Class::Plain, any), number),
        }
    }

    fn plain_turn(&mut self, key: usize, number: i64) -> bool {
        let can_grow = keys::class(key) == Class::Plain;
        match self.dice.below(100) {
            0..42 => self.ask(key, Ask::Get),
            42..70 => self.ask(key, Ask::Put(number)),
            70..90 if can_grow => self.ask(key, Ask::Increment(1)),
            _ => self.ask(key, Ask::Delete),
        }
    }

    /// Sends a request over RESP.
    pub fn ask(&mut self, key: usize, ask: Ask) -> bool {
        let (name, start_ns) = (keys::name(key), self.now_ns());
        let (kind, told) = match ask {
            Ask::Get => ("GET", self.client.ask(&["GET", &name])),
            Ask::Put(number) => ("SET", self.client.ask(&["SET", &name, &keys::text(key, number)])),
            Ask::Delete => ("DEL", self.client.ask(&["DEL", &name])),
            Ask::Increment(by) => ("INCRBY", self.client.ask(&["INCRBY", &name, &by.to_string()])),
        };
        let answer = match self.settle(kind, told) {
            None => return false,
            Some(None) => None,
            Some(Some(reply)) => self.fits(kind, key, answer(key, ask, &reply), &reply),
        };
        self.record(key, ask, answer, start_ns);
        answer.is_some()
    }

    /// `None`: nothing was changed. `Some(None)`: the outcome is unknown.
    fn settle(&mut self, kind: &'static str, told: Told) -> Option<Option<Reply>> {
        match told {
            Told::Reply(reply) => {
                self.own.count(kind, self.now_ns());
                Some(Some(reply))
            }
            Told::Refused(line) => {
                self.own.note(&line);
                None
            }
            Told::Unknown(line) => {
                self.own.note(&line);
                self.own.unknown += 1;
                Some(None)
            }
        }
    }

    /// Reports an answer that does not fit the kind of request.
    fn fits<T>(
        &mut self,
        kind: &str,
        key: usize,
        answer: Option<T>,
        told: &dyn std::fmt::Debug,
    ) -> Option<T> {
        if answer.is_none() {
            let told: String = format!("{told:?}").chars().take(200).collect();
            self.own.complaints.push(format!("{kind} {}: {told}", keys::name(key)));
        }
        answer
    }

    fn record(&mut self, key: usize, ask: Ask, answer: Option<Answer>, start_ns: u64) {
        let end_ns = if answer.is_some() { self.now_ns() } else { u64::MAX };
        self.own.records.push(Record { client: self.index, key, ask, answer, start_ns, end_ns });
    }

    fn mortal_turn(&mut self, key: usize, number: i64) -> bool {
        match self.dice.below(100) {
            0..50 => return self.ask(key, Ask::Get),
            50..65 => return self.ask(key, Ask::Delete),
            _ => {}
        }
        let life_ms = 100 + self.dice.below(1900);
        let (name, start_ns) = (keys::name(key), self.now_ns());
        let words = ["SET", &name, &number.to_string(), "PX", &life_ms.to_string()];
        let told = self.client.ask(&words);
        let answer = match self.settle("SET PX", told) {
            None => return false,
            Some(None) => None,
            Some(Some(reply)) => {
                let done = answer(key, Ask::Put(number), &reply);
                self.fits("SET PX", key, done, &reply)
            }
        };
        self.record(key, Ask::Put(number), answer, start_ns);
        let (begin_ns, life_ns) = (self.now_ns(), life_ms * 1_000_000);
        // Without a known write time the expiry is unknown.
        let gone = answer.is_some().then_some(Answer::Expired(number));
        let end_ns = if gone.is_some() { begin_ns + life_ns + LATE_NS } else { u64::MAX };
        let start_ns = (start_ns + life_ns).saturating_sub(EARLY_NS);
        let (client, ask) = (self.index, Ask::Delete);
        self.own.records.push(Record { client, key, ask, answer: gone, start_ns, end_ns });
        answer.is_some()
    }

    fn pair_turn(&mut self, key: usize, number: i64) -> bool {
        let (one, other, start_ns) = (keys::name(key), keys::name(key + 1), self.now_ns());
        let text = number.to_string();
        let begin: &[&str] = &["MULTI"];
        let (kind, ask, told) = match self.dice.below(100) {
            0..45 => ("MGET", Ask::Get, self.client.ask_all(&one, &[&["MGET", &one, &other]])),
            45..65 => {
                let words: &[&str] = &["MSET", &one, &text, &other, &text];
                ("MSET", Ask::Put(number), self.client.ask_all(&one, &[words]))
            }
            65..90 => {
                let (first, second) = (["INCRBY", &one, "1"], ["INCRBY", &other, "1"]);
                let all = [begin, &first, &second, &["EXEC"]];
                ("MULTI of INCRBY", Ask::Increment(1), self.client.ask_all(&one, &all))
            }
            _ => {
                let (first, second) = (["DEL", one.as_str()], ["DEL", other.as_str()]);
                let all = [begin, &first, &second, &["EXEC"]];
                ("MULTI of DEL", Ask::Delete, self.client.ask_all(&one, &all))
            }
        };
        let answers = match self.settle(kind, told) {
            None => return false,
            Some(None) => None,
            Some(Some(reply)) => self.fits(kind, key, pair_answer(key, ask, &reply), &reply),
        };
        for place in 0..2 {
            self.record(key + place, ask, answers.map(|both| both[place]), start_ns);
        }
        if let Some([Answer::Value(first), Answer::Value(second)]) = answers
            && first != second
        {
            let end_ns = self.now_ns();
            self.own.halves.push(Half { key, seen: [first, second], end_ns });
        }
        answers.is_some()
    }

    fn memcached_turn(&mut self, key: usize, number: i64) -> bool {
        let (name, at) = (keys::name(key), self.dice.below(64) as usize);
        let can_grow = keys::class(key) == Class::Plain;
        let start_ns = self.now_ns();
        let text = keys::text(key, number);
        let (kind, ask, request) = match self.dice.below(100) {
            0..15 => return self.read_several(key),
            15..40 => ("get", Ask::Get, format!("get {name}\r\n")),
            40..60 => ("set", Ask::Put(number), set("set", &name, &text, "")),
            60..80 if can_grow => ("incr", Ask::Increment(1), format!("incr {name} 1\r\n")),
            80..92 => return self.swap(key, &name, &text, number),
            _ => ("delete", Ask::Delete, format!("delete {name}\r\n")),
        };
        let Some(told) = self.ask_memcached(kind, at, &request) else { return false };
        let answer = told.and_then(|told| {
            let answer = memcached_answer(key, ask, &told);
            self.fits(kind, key, answer, &told)
        });
        self.record(key, ask, answer, start_ns);
        answer.is_some()
    }

    /// Gets this and the next keys of its class: each is a read of its own.
    fn read_several(&mut self, key: usize) -> bool {
        let near = (key..key + 4).filter(|near| keys::class(*near) == keys::class(key));
        let several: Vec<usize> = near.collect();
        let names: Vec<String> = several.iter().map(|key| keys::name(*key)).collect();
        let (at, start_ns) = (self.dice.below(64) as usize, self.now_ns());
        let Some(client) = &mut self.memcached else { return false };
        let told = client.ask_several(at, &names);
        let Some(Some(memcached::Told::Values(found))) = self.take(told, "get several") else {
            return false;
        };
        for (key, name) in several.iter().zip(&names) {
            let value = found.iter().find(|(found, _)| found == name);
            let value = value.map(|(_, bytes)| (bytes.clone(), String::new()));
            let told = memcached::Told::Value(value);
            let answer = memcached_answer(*key, Ask::Get, &told);
            let answer = self.fits("get several", *key, answer, &told);
            self.record(*key, Ask::Get, answer, start_ns);
        }
        true
    }

    /// gets and cas: a put that requires the value read before.
    fn swap(&mut self, key: usize, name: &str, text: &str, number: i64) -> bool {
        let (at, start_ns) = (self.dice.below(64) as usize, self.now_ns());
        let Some(told) = self.ask_memcached("gets", at, &format!("gets {name}\r\n")) else {
            return false;
        };
        let Some(memcached::Told::Value(found)) = told else { return false };
        let seen = memcached_answer(key, Ask::Get, &memcached::Told::Value(found.clone()));
        let seen = self.fits("gets", key, seen, &"gets");
        self.record(key, Ask::Get, seen, start_ns);
        let (Some(Answer::Value(Some(old))), Some((_, version))) = (seen, found) else {
            return seen.is_some();
        };
        let (at, start_ns) = (self.dice.below(64) as usize, self.now_ns());
        let request = set("cas", name, text, &format!(" {version}"));
        let Some(told) = self.ask_memcached("cas", at, &request) else { return false };
        let answer = match told {
            // Another client was faster: nothing was changed.
            Some(memcached::Told::Line(line)) if line == "EXISTS" || line == "NOT_FOUND" => {
                return true;
            }
            Some(memcached::Told::Line(line)) if line == "STORED" => Some(Answer::Swapped(old)),
            Some(told) => self.fits("cas", key, None, &told),
            None => None,
        };
        self.record(key, Ask::Put(number), answer, start_ns);
        answer.is_some()
    }

    /// As `settle`.
    fn ask_memcached(
        &mut self,
        kind: &'static str,
        at: usize,
        request: &str,
    ) -> Option<Option<memcached::Told>> {
        let told = self.memcached.as_mut()?.ask(at, request.as_bytes());
        self.take(told, kind)
    }

    /// Counts the answer; as `settle`.
    fn take(
        &mut self,
        told: memcached::Told,
        kind: &'static str,
    ) -> Option<Option<memcached::Told>> {
        match told {
            memcached::Told::Refused(line) => {
                self.own.note(&line);
                None
            }
            memcached::Told::Unknown(line) => {
                self.own.note(&line);
                self.own.unknown += 1;
                Some(None)
            }
            told => {
                self.own.count(kind, self.now_ns());
                Some(Some(told))
            }
        }
    }
}

fn set(word: &str, name: &str, text: &str, version: &str) -> String {
    format!("{word} {name} 0 0 {}{version}\r\n{text}\r\n", text.len())
}

fn answer(key: usize, ask: Ask, reply: &Reply) -> Option<Answer> {
    match (ask, reply) {
        (Ask::Get, Reply::Bulk(None)) => Some(Answer::Value(None)),
        (Ask::Get, Reply::Bulk(Some(bytes))) => {
            Some(Answer::Value(Some(keys::number(key, bytes)?)))
        }
        (Ask::Put(_), Reply::Simple(_)) => Some(Answer::Done),
        (Ask::Delete, Reply::Integer(count)) => Some(Answer::Deleted(*count == 1)),
        (Ask::Increment(_), Reply::Integer(sum)) => Some(Answer::Sum(*sum)),
        _ => None,
    }
}

fn pair_answer(key: usize, ask: Ask, reply: &Reply) -> Option<[Answer; 2]> {
    match reply {
        Reply::Simple(_) if matches!(ask, Ask::Put(_)) => Some([Answer::Done; 2]),
        Reply::Array(both) => match both.as_slice() {
            [one, other] => Some([answer(key, ask, one)?, answer(key, ask, other)?]),
            _ => None,
        },
        _ => None,
    }
}

fn memcached_answer(key: usize, ask: Ask, told: &memcached::Told) -> Option<Answer> {
    use memcached::Told;
    match (ask, told) {
        (Ask::Get, Told::Value(None)) => Some(Answer::Value(None)),
        (Ask::Get, Told::Value(Some((bytes, _)))) => {
            Some(Answer::Value(Some(keys::number(key, bytes)?)))
        }
        (Ask::Put(_), Told::Line(line)) if line == "STORED" => Some(Answer::Done),
        (Ask::Delete, Told::Line(line)) if line == "DELETED" => Some(Answer::Deleted(true)),
        (Ask::Delete, Told::Line(line)) if line == "NOT_FOUND" => Some(Answer::Deleted(false)),
        (Ask::Increment(_), Told::Line(line)) if line == "NOT_FOUND" => Some(Answer::NotThere),
        (Ask::Increment(_), Told::Line(line)) => Some(Answer::Sum(line.parse().ok()?)),
        _ => None,
    }
}
