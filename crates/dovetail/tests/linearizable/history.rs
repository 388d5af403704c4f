//! Records a history: several clients at once, on keys that change every round.
//!
//! ```text
//!  clients ── each takes the next pipeline's number: number / pipelines per round = round
//!     │ every pipeline: ticks, send, and for each reply a tick     (ticks of one global counter)
//!     │ now and then one dies with replies outstanding, and a new connection takes its place
//!     ▼
//!  records ──▶ check: is there one order per key that explains all answers?
//! ```
//!
//! Rounds keep a key's history short, because the checker's worst case grows exponentially. No
//! client waits at the end of a round: a late client uses the earlier round's keys alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::linearizable::check::{Record, Ticks};
use crate::linearizable::clients::{self, Client, native};
use crate::linearizable::load::{Asked, Dialect, Draw, Load, name};
use crate::linearizable::model::{Answer, Ask};
use crate::linearizable::mover;
use crate::linearizable::server::Server;

/// What every history's clients speak; the last two natively over UDP and in shared memory.
const CLIENTS: [Dialect; 6] =
    [Dialect::Resp, Dialect::Resp, Dialect::Text, Dialect::Text, Dialect::Native, Dialect::Native];

/// What all clients of a history share.
struct Shared<'a> {
    server: &'a Server,
    load: Load,
    ticks: Ticks,
    pipelines: AtomicUsize,
    connections: AtomicUsize,
}

impl Shared<'_> {
    /// The round of the next pipeline; `None` after the last.
    fn next_round(&self) -> Option<usize> {
        let number = self.pipelines.fetch_add(1, Ordering::Relaxed);
        Some(number / self.load.pipelines_per_round).filter(|round| *round < self.load.rounds)
    }

    /// No client goes on.
    fn give_up(&self) {
        self.pipelines
            .fetch_max(self.load.pipelines_per_round * self.load.rounds, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        let number = self.pipelines.load(Ordering::Relaxed);
        number >= self.load.pipelines_per_round * self.load.rounds
    }
}

/// Whether the server's threads change their roles meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    Stay,
    Move,
}

/// What was asked and answered.
pub struct Recorded {
    pub records: Vec<Record>,
    /// How often threads changed their roles.
    pub change_count: u64,
}

/// Runs a load; what was recorded, or what went wrong beside that.
pub fn record(
    server: &Server,
    load: Load,
    seed: u64,
    threads: Threads,
) -> Result<Recorded, String> {
    let shared = Shared {
        server,
        load,
        ticks: Ticks::default(),
        pipelines: AtomicUsize::new(0),
        connections: AtomicUsize::new(0),
    };
    let records = Mutex::new(Vec::new());
    let failures = Mutex::new(Vec::new());
    let change_count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        if threads == Threads::Move {
            let (shared, failures, change_count) = (&shared, &failures, &change_count);
            scope.spawn(move || match mover::run(server.resp, seed, || shared.is_over()) {
                Ok(count) => change_count.store(count, Ordering::Relaxed),
                Err(error) => {
                    failures.lock().unwrap().push(format!("the thread that moves threads: {error}"))
                }
            });
        }
        for (index, dialect) in CLIENTS.into_iter().enumerate() {
            let (shared, records, failures) = (&shared, &records, &failures);
            scope.spawn(move || {
                let mut runner = Runner::new(shared, seed, index, dialect);
                if let Err(error) = runner.run() {
                    failures.lock().unwrap().push(format!("client {index}, {dialect:?}: {error}"));
                    shared.give_up();
                }
                records.lock().unwrap().append(&mut runner.records);
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    let mut records = records.into_inner().unwrap();
    let last = last_reads(&shared).map_err(|error| format!("the last reads: {error}"))?;
    records.extend(last);
    Ok(Recorded { records, change_count: change_count.into_inner() })
}

/// One client, over all connections of its life.
struct Runner<'a> {
    shared: &'a Shared<'a>,
    index: usize,
    dialect: Dialect,
    draw: Draw,
    records: Vec<Record>,
}

impl<'a> Runner<'a> {
    fn new(shared: &'a Shared<'a>, seed: u64, index: usize, dialect: Dialect) -> Runner<'a> {
        let draw = Draw::new(seed, index as u64, shared.load, dialect);
        Runner { shared, index, dialect, draw, records: Vec::new() }
    }

    fn connect(&self) -> std::io::Result<(usize, Box<dyn Client>)> {
        let server = self.shared.server;
        let client = match self.dialect {
            Dialect::Resp => clients::resp(server.resp),
            Dialect::Text => clients::text(server.memcached),
            Dialect::Native => native::connect(&server.native[self.index % 2]),
        };
        Ok((self.shared.connections.fetch_add(1, Ordering::Relaxed), client?))
    }

    fn run(&mut self) -> std::io::Result<()> {
        let load = self.shared.load;
        let (mut connection, mut client) = self.connect()?;
        let (mut round_before, mut versions) = (usize::MAX, vec![None; load.keys]);
        while let Some(round) = self.shared.next_round() {
            if round != round_before {
                versions.fill(None);
                round_before = round;
            }
            let pipeline = self.draw.pipeline(round, &versions);
            let death = self.draw.death(pipeline.len());
            let reply_count = death.unwrap_or(pipeline.len());
            self.talk(connection, &mut *client, (&pipeline, reply_count), &mut versions)?;
            if death.is_some() {
                // It is never finished, so it is in no history.
                client.die(&self.draw.pipeline(round, &versions)[0]);
                (connection, client) = self.connect()?;
            }
        }
        Ok(())
    }

    /// One pipeline, of which the first `reply_count` replies are taken.
    fn talk(
        &mut self,
        connection: usize,
        client: &mut dyn Client,
        (pipeline, reply_count): (&[Asked], usize),
        versions: &mut [Option<u64>],
    ) -> std::io::Result<()> {
        let ticks = &self.shared.ticks;
        let mut records: Vec<Record> = pipeline
            .iter()
            .map(|asked| Record {
                connection,
                key: asked.key,
                ask: asked.ask,
                answer: None,
                start_tick: ticks.next(),
                end_tick: u64::MAX,
            })
            .collect();
        // Often nowhere, else anywhere: inside a request, a length, a line end.
        let cut = if self.draw.chance(2) { 0 } else { self.draw.below(1 << 20) };
        let done = client.talk(pipeline, reply_count, cut, &mut |index, answer| {
            if let Some(Answer::Versioned(Some((_, version)))) = answer {
                versions[pipeline[index].key % versions.len()] = Some(version);
            }
            if answer.is_some() {
                records[index].answer = answer;
                records[index].end_tick = ticks.next();
            }
        });
        self.records.append(&mut records);
        done
    }
}

/// What every key is in the end: what was lost after its last answer shows here alone.
fn last_reads(shared: &Shared<'_>) -> std::io::Result<Vec<Record>> {
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
    let mut client = clients::resp(shared.server.resp)?;
    let mut records = Vec::new();
    for key in 0..shared.load.keys * shared.load.rounds {
        let asked = Asked { key, name: name(key), ask: Ask::Get, bytes: Vec::new(), spelling: 2 };
        let start_tick = shared.ticks.next();
        let mut answer = None;
        client.talk(&[asked], 1, 0, &mut |_, found| answer = found)?;
        let end_tick = shared.ticks.next();
        records.push(Record { connection, key, ask: Ask::Get, answer, start_tick, end_tick });
    }
    Ok(records)
}
