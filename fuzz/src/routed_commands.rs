//! Commands of several clients through a server that routes, whose workers take their rounds in any
//! order, against a plain map for each client.
//!
//! Each client has keys of its own, so that every reply is known from the order of its commands:
//! whatever workers send to one another, gather into windows, hand on or lend. One counter is
//! everybody's: each value of it is answered once, and each client sees it grow.

mod memcached;
mod model;
mod peer;
mod resp;

use std::collections::BTreeSet;
use std::net::TcpListener;

use server::{
    Cat, Compacts, Config, Dispatch, Drive, HotSetSize, HugePages, IndexKind, Pin, Policies,
    SizeThreshold, Tuning, Wanted, WritePolicy,
};

use peer::{Counter, Peer, Protocol};

const CLIENTS: usize = 4;
const THREADS: usize = 3;
/// Rounds of all workers in which every reply must have come.
const ROUNDS_MAX: usize = 20_000;

/// An input is `settings (2 bytes) | step ...`; a step is `what (1 byte) | client (1 byte) | more`.
/// Commands are gathered by their client until a step sends them.
pub fn routed_commands(data: &[u8]) {
    let mut bytes = Bytes(data);
    let Some(config) = config_of(&mut bytes) else { return };
    let drive = Drive::new(config).expect("every drawn setting is a legal one");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port on loopback");
    let mut world = World { drive, listener, peers: Vec::new(), counter: Counter::default() };
    for index in 0..CLIENTS {
        let peer = world.connect(index, 0);
        world.peers.push(peer);
    }
    while !bytes.0.is_empty() {
        world.step(&mut bytes);
    }
    world.finish();
}

/// What is left of the input; zeroes behind its end.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    pub fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.next()) % end
    }

    /// Now and then a number, short, long enough for a window, pinned, or borrowed from its buffer.
    pub fn value(&mut self) -> Vec<u8> {
        let (kind, fill) = (self.next(), self.next());
        let len = match kind {
            0..60 => return fill.to_string().into_bytes(),
            60..120 => usize::from(fill % 20),
            120..220 => 1000 + usize::from(fill),
            220..245 => 4096 + usize::from(fill),
            _ => (16 << 10) + usize::from(fill),
        };
        (0..len).map(|at| b'a' + (at % 23) as u8 + fill % 3).collect()
    }
}

/// `None`: the settings do not go together.
fn config_of(bytes: &mut Bytes<'_>) -> Option<Config> {
    let (policies, rest) = (bytes.next(), bytes.next());
    let (cr_threads, write_policy, dispatch) = match policies % 8 {
        _ if policies >= 0xe0 => (None, WritePolicy::Crcw, Dispatch::Steal),
        0 => (Some(1), WritePolicy::Crcw, Dispatch::Any),
        1 => (Some(2), WritePolicy::DCrew, Dispatch::Jbsq(1)),
        2 => (None, WritePolicy::Erew, Dispatch::KeyHash),
        3 => (None, WritePolicy::DCrew, Dispatch::Jbsq(1)),
        4 => (None, WritePolicy::Crew, Dispatch::RoundRobin),
        5 => (None, WritePolicy::DCrew, Dispatch::SizeAware),
        6 => (Some(1), WritePolicy::DCrew, Dispatch::RoundRobin),
        _ => (Some(1), WritePolicy::Erew, Dispatch::KeyHash),
    };
    Some(Config {
        resp: None,
        memcached: None,
        native: None,
        admin: None,
        memory_bytes: 64 << 20,
        max_item_size_bytes: 1 << 20,
        huge_pages: HugePages::Off,
        threads: THREADS,
        cr_threads,
        policies: Policies::new(write_policy, dispatch),
        index: if rest & 1 == 0 { IndexKind::Hash } else { IndexKind::Tree },
        compaction: rest & 2 == 0,
        compacts: if rest & 4 == 0 { Compacts::All } else { Compacts::Long },
        batch: [1, 4, 16, 32][usize::from(rest >> 3 & 3)],
        size_threshold: SizeThreshold::Static { bytes: 600 },
        hot_set: HotSetSize::Off,
        hash_seed: Some(u64::from(rest >> 5)),
        tuning: Tuning::Off,
        cat: Cat::Off,
        pin: Pin::Off,
        ..Config::default()
    })
}

struct World {
    drive: Drive,
    listener: TcpListener,
    peers: Vec<Peer>,
    counter: Counter,
}

impl World {
    /// A client, and its connection with some worker.
    fn connect(&mut self, index: usize, life: u32) -> Peer {
        let protocol = if index + 1 == CLIENTS { Protocol::Memcached } else { Protocol::Resp };
        let (peer, socket) = Peer::connect(&self.listener, protocol, index, life);
        let worker = (index + life as usize) % self.drive.worker_count();
        self.drive.admit(worker, socket, protocol.dialect()).expect("a socket like others");
        peer
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let (what, actor) = (bytes.next(), bytes.next());
        let index = usize::from(actor) % CLIENTS;
        match what {
            0..60 => self.turn(usize::from(actor)),
            60..80 => self.peers[index].send(),
            80..82 => {
                // With the requests that are on their way, whose outcome is never told.
                let life = self.peers[index].life + 1;
                self.peers[index] = self.connect(index, life);
            }
            82..85 => {
                let threads = 1 + usize::from(actor) % THREADS;
                let dispatchers = 1 + usize::from(actor >> 4) % threads;
                // Some settings fix which threads poll.
                let _ = self.drive.shared().change_roles(Wanted::by_hand(threads, dispatchers));
            }
            _ => {
                let peer = &mut self.peers[index];
                match peer.protocol {
                    Protocol::Resp => resp::command(peer, bytes),
                    Protocol::Memcached => memcached::command(peer, bytes),
                }
            }
        }
    }

    fn turn(&mut self, worker: usize) {
        self.drive.turn(worker % self.drive.worker_count()).expect("rounds ask for no favours");
        for peer in &mut self.peers {
            peer.receive(&mut self.counter);
        }
    }

    /// Everything is answered, and found by others.
    fn finish(&mut self) {
        self.drain();
        let models: Vec<_> = self.peers.iter().map(|peer| peer.model.clone()).collect();
        for (peer, model) in self.peers.iter_mut().zip(models.iter().cycle().skip(1)) {
            peer.expect_model(model);
        }
        self.drain();
        for worker in 0..self.drive.worker_count() {
            self.turn(worker);
        }
        self.drive.shared().store().validate();
    }

    fn drain(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.peers.iter_mut().for_each(Peer::send);
            if self.peers.iter().all(Peer::is_answered) {
                return;
            }
            (0..self.drive.worker_count()).for_each(|worker| self.turn(worker));
        }
        let missing: Vec<_> = self.peers.iter().map(Peer::missing).collect();
        panic!("replies are missing: {missing:?}");
    }
}

/// Values of the counter that were answered.
pub(crate) type Seen = BTreeSet<u64>;
