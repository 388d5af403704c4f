//! Writers in a closed loop: each issues a write, waits for the acknowledgement, thinks, and
//! repeats.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use workload::scramble::mix;

use super::dimm::{Dimm, LINE_BYTES, PIECE_BYTES};
use sim::engine::EventQueue;

/// Bytes of one DIMM before the next one's.
const INTERLEAVE_BYTES: u64 = 4096;
/// Pieces that wait for a DIMM before all behind them wait too. Fitted.
const WAITING_MAX: usize = 4;
/// Of the NIC, a message: 54.5 million a second (Rowan-KV §6.2).
pub(super) const MESSAGE_NS: f64 = 18.3;
/// The distance between logs.
pub(super) const LOG_BYTES: u64 = 1 << 32;

/// The destination of a writer's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind the last one of this log, in the order of arrival.
    Arrival(usize),
    /// Behind the last one of this log, in the order of issue: the sender chose the address.
    Issue(usize),
}

/// The lengths of entries.
#[derive(Clone, Debug)]
pub(super) enum Sizes {
    /// All alike.
    Fixed(u64),
    /// Drawn evenly from these.
    Drawn(Vec<u64>),
}

/// One writer.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub place: Place,
    pub sizes: Sizes,
    /// The round trip; 0: a core of the machine itself, which needs no NIC.
    pub round_trip_ns: f64,
    /// Mean of the time between an acknowledgement and the next write.
    pub think_ns: f64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Media bytes over request bytes.
    pub amplification: f64,
    pub request_bytes_per_ns: f64,
    /// Of writers with a round trip.
    pub remote_per_us: f64,
}

/// Three DIMMs, interleaved.
pub(super) struct Memory {
    dimms: Vec<Dimm>,
    /// The times at which the last pieces for each DIMM will be written.
    waiting: Vec<[f64; WAITING_MAX]>,
    issued_at_ns: f64,
}

impl Memory {
    pub fn new(dimm_count: usize) -> Memory {
        let dimms = (0..dimm_count).map(|_| Dimm::default()).collect();
        Memory { dimms, waiting: vec![[0.0; WAITING_MAX]; dimm_count], issued_at_ns: 0.0 }
    }

    /// Writes the bytes that arrive at `at_ns`; returns the time when all are persisted. Remote
    /// writes keep their order (PCIe), so a waiting one delays those behind it.
    pub fn write(&mut self, address: u64, len_bytes: u64, at_ns: f64, is_ordered: bool) -> f64 {
        let mut done_at_ns = at_ns;
        for offset in (0..len_bytes).step_by(PIECE_BYTES as usize) {
            let piece = address + offset;
            let dimm = (piece / INTERLEAVE_BYTES) as usize % self.dimms.len();
            let mut start_ns = at_ns;
            if is_ordered {
                let waiting = &self.waiting[dimm];
                self.issued_at_ns = self.issued_at_ns.max(at_ns).max(waiting[0]);
                start_ns = self.issued_at_ns;
            }
            let in_at_ns = self.dimms[dimm].write(piece, start_ns);
            self.waiting[dimm].rotate_left(1);
            self.waiting[dimm][WAITING_MAX - 1] = in_at_ns;
            done_at_ns = done_at_ns.max(in_at_ns);
        }
        done_at_ns
    }

    /// Asked for, and of the media.
    pub fn bytes(&self) -> (u64, u64) {
        self.dimms.iter().fold((0, 0), |(request, media), dimm| {
            (request + dimm.request_bytes, media + dimm.media_bytes)
        })
    }
}

enum Event {
    Issue { writer: usize },
    Arrive { writer: usize, address: u64, len_bytes: u64 },
}

/// Runs this many writes; the first third only fills the buffers.
pub(super) fn run(writers: &[Writer], dimm_count: usize, write_count: u64, seed: u64) -> Outcome {
    let mut random = SmallRng::seed_from_u64(mix(seed));
    let log_count = writers.iter().map(|writer| log_of(writer) + 1).max().unwrap_or(0);
    // Logs begin anywhere, as they would after a while.
    let mut ends: Vec<u64> = (0..log_count)
        .map(|log| {
            let line = random.random_range(0..LOG_BYTES / 2 / LINE_BYTES);
            log as u64 * LOG_BYTES + line * LINE_BYTES
        })
        .collect();
    let mut memory = Memory::new(dimm_count);
    let mut events = EventQueue::default();
    for writer in 0..writers.len() {
        events.push(random.random::<f64>() * 2000.0, Event::Issue { writer });
    }
    let (mut nic_free_at_ns, mut written, mut remote_count) = (0.0_f64, 0, 0);
    let mut since = (0.0, (0, 0));
    let mut now_ns = 0.0;
    while written < write_count {
        let Some((at_ns, event)) = events.pop() else { break };
        now_ns = at_ns;
        let (writer, address, len_bytes) = match event {
            Event::Issue { writer } => {
                let own = &writers[writer];
                let len_bytes = draw(&own.sizes, &mut random);
                let address = match own.place {
                    Place::Issue(log) => take(&mut ends[log], len_bytes),
                    Place::Arrival(_) => 0,
                };
                let way_ns = own.round_trip_ns / 2.0 * jitter(&mut random);
                events.push(now_ns + way_ns, Event::Arrive { writer, address, len_bytes });
                continue;
            }
            Event::Arrive { writer, address, len_bytes } => (writer, address, len_bytes),
        };
        let own = &writers[writer];
        let is_remote = own.round_trip_ns > 0.0;
        let address = match own.place {
            Place::Arrival(log) => take(&mut ends[log], len_bytes),
            Place::Issue(_) => address,
        };
        let mut start_ns = now_ns;
        if is_remote {
            nic_free_at_ns = nic_free_at_ns.max(now_ns) + MESSAGE_NS;
            start_ns = nic_free_at_ns;
        }
        let done_at_ns = memory.write(address, len_bytes, start_ns, is_remote);
        let back_ns = own.round_trip_ns / 2.0 * jitter(&mut random);
        let think_ns = own.think_ns * exponential(&mut random);
        events.push(done_at_ns + back_ns + think_ns, Event::Issue { writer });
        written += 1;
        if written == write_count / 3 {
            since = (now_ns, memory.bytes());
            remote_count = 0;
        }
        remote_count += u64::from(is_remote);
    }
    let (request, media) = memory.bytes();
    let (request, media) = (request - since.1.0, media - since.1.1);
    let window_ns = now_ns - since.0;
    Outcome {
        amplification: media as f64 / request as f64,
        request_bytes_per_ns: request as f64 / window_ns,
        remote_per_us: remote_count as f64 / window_ns * 1000.0,
    }
}

fn log_of(writer: &Writer) -> usize {
    match writer.place {
        Place::Arrival(log) | Place::Issue(log) => log,
    }
}

/// The end of a log before it grew.
pub(super) fn take(end: &mut u64, len_bytes: u64) -> u64 {
    let address = *end;
    *end += len_bytes.next_multiple_of(PIECE_BYTES);
    address
}

fn draw(sizes: &Sizes, random: &mut SmallRng) -> u64 {
    match sizes {
        Sizes::Fixed(bytes) => *bytes,
        Sizes::Drawn(of) => of[random.random_range(0..of.len())],
    }
}

/// Ways take between nine tenths and all of their time, and sometimes much longer.
pub(super) fn jitter(random: &mut SmallRng) -> f64 {
    0.9 + 0.15 * exponential(random)
}

pub(super) fn exponential(random: &mut SmallRng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}
