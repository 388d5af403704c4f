//! A simulated network between one engine and the model server: delay, loss, duplicates,
//! reordering.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::Instant;

use super::server::Server;
use crate::engine::{Draw, Engine};

/// What the network does, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub lost: u64,
    pub repeated: u64,
    /// How much a datagram is delayed beyond the rest, at most.
    pub jitter_ns: u64,
}

const DELAY_NS: u64 = 20_000;

/// Arrival, a number that keeps the order of sending, whether to the server, bytes.
type Flight = (u64, u64, bool, Vec<u8>);

pub(crate) struct Network {
    pub engine: Engine,
    pub server: Server,
    pub weather: Weather,
    pub now: Instant,
    /// Nothing reaches the server, nothing comes back.
    pub is_cut: bool,
    draw: Draw,
    flying: BinaryHeap<Reverse<Flight>>,
    sent_count: u64,
}

impl Network {
    pub fn new(engine: Engine, weather: Weather, seed: u64) -> Network {
        Network {
            engine,
            server: Server::new(),
            weather,
            now: Instant { ns: 1 },
            is_cut: false,
            draw: Draw(seed),
            flying: BinaryHeap::new(),
            sent_count: 0,
        }
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        self.draw.next() % 1000 < thousandths
    }

    fn fly(&mut self, to_server: bool, bytes: &[u8]) {
        if self.is_cut || self.chance(self.weather.lost) {
            return;
        }
        let copies = if self.chance(self.weather.repeated) { 2 } else { 1 };
        for _ in 0..copies {
            let jitter_ns = self.draw.next() % (self.weather.jitter_ns + 1);
            self.sent_count += 1;
            let arrival_ns = self.now.ns + DELAY_NS + jitter_ns;
            let flight = (arrival_ns, self.sent_count, to_server, bytes.to_vec());
            self.flying.push(Reverse(flight));
        }
    }

    /// Loses all that is on its way.
    pub fn forget_flying(&mut self) {
        self.flying.clear();
    }

    /// Sends what the engine has to send now.
    pub fn flush(&mut self) {
        let mut buffer = vec![0; 65_536];
        let mut count = 0;
        while let Some(len_bytes) = self.engine.output(self.now, &mut buffer) {
            self.fly(true, &buffer[..len_bytes]);
            count += 1;
            assert!(count < 10_000, "output has an end");
        }
        self.engine.validate();
    }

    /// One event: an arrival or a timer. False: nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.flush();
        if !self.engine.done.is_empty() {
            return true;
        }
        let timer_ns = self.engine.next_timer().map(|at| at.ns);
        let arrival_ns = self.flying.peek().map(|Reverse(flight)| flight.0);
        let Some(next_ns) = timer_ns.into_iter().chain(arrival_ns).min() else { return false };
        if arrival_ns == Some(next_ns) {
            self.now.ns = self.now.ns.max(next_ns);
            if let Some(Reverse((_, _, to_server, bytes))) = self.flying.pop() {
                self.arrive(to_server, &bytes);
            }
        } else {
            // A timer in the past would be a loop that never ends.
            assert!(next_ns >= self.now.ns, "a timer {next_ns} is due before {}", self.now.ns);
            let was_ns = self.now.ns;
            self.now.ns = next_ns.max(was_ns + 1);
        }
        true
    }

    fn arrive(&mut self, to_server: bool, bytes: &[u8]) {
        if to_server {
            self.server.input(bytes, self.now);
            while let Some(answer) = self.server.out.pop_front() {
                self.fly(false, &answer);
            }
        } else {
            self.engine.input(bytes, self.now);
        }
    }

    /// Goes on until `count` requests have ended; their results in the order of ending.
    pub fn run_until<T>(
        &mut self,
        count: usize,
        mut take: impl FnMut(crate::Completion<'_>) -> T,
    ) -> Vec<T> {
        let mut ended = Vec::new();
        for _ in 0..2_000_000 {
            while let Some(completion) = self.engine.next_completion() {
                ended.push(take(completion));
            }
            if ended.len() >= count {
                return ended;
            }
            assert!(self.step(), "{} of {count} requests ended, then nothing", ended.len());
        }
        panic!("{} of {count} requests ended after 2,000,000 events", ended.len());
    }
}
