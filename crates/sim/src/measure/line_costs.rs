//! Measures the cost for two cores to share lines: one line back and forth, and an item of many
//! lines.
//!
//! ```text
//!  core 0: write the item ─▶ turn = 1 ─┐       ┌▶ time nothing: wait ─▶ write again ...
//!  core 1:      wait ◀─────────────────┘ read the item ─▶ turn = 0
//! ```
//!
//! The turn is one line that both cores write: half its round trip is one transfer. The item beside
//! it has 1 to `LINE_COUNT_MAX` lines. Each side times its own pass; the slope over the number of
//! lines is the cost of a further line when the core may overlap it with the previous one.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::SimError;
use crate::measure::cost_table::LineCosts;

/// Lines of the largest item that is passed: 16/512 has 10 with its bucket.
const LINE_COUNT_MAX: usize = 10;
const LINE_COUNT_FEW: usize = 2;
/// Round trips in one timed chunk.
const CHUNK_TRIPS: u64 = 200;
/// Chunks of each kind; about a second in all.
const CHUNK_COUNT: usize = 400;
/// Longest wait of a side: beyond it, its partner's core runs another program.
const PATIENCE: Duration = Duration::from_secs(5);

/// One cache line, and its neighbour, which the hardware fetches with it.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

#[derive(Default)]
struct Shared {
    /// Even: the writer's turn; odd: the reader's.
    turn: Line,
    item: [Line; LINE_COUNT_MAX],
}

/// Passes lines between the first two cores that this process may use; `None` when it has one.
pub fn measure() -> Result<Option<LineCosts>, SimError> {
    let failed = |error: rustix::io::Errno| SimError::BadParameter {
        what: format!("the cores that may be used are not known: {error}"),
    };
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let cores: Vec<usize> =
        (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).take(2).collect();
    let &[writer_core, reader_core] = cores.as_slice() else { return Ok(None) };
    let cores = (writer_core, reader_core);
    let passes = |line_count| pass(cores, line_count);
    let (none, few, many) = (passes(0), passes(LINE_COUNT_FEW), passes(LINE_COUNT_MAX));
    let Some(((none, few), many)) = none.zip(few).zip(many) else { return Ok(None) };
    let per_line = (LINE_COUNT_MAX - LINE_COUNT_FEW) as f64;
    let slope = |few: &[f64], many: &[f64]| {
        ((quantile(many, 0.5) - quantile(few, 0.5)) / per_line).max(0.1)
    };
    let trips = &none.trip_ns;
    Ok(Some(LineCosts {
        transfer_ns: tenths(quantile(trips, 0.5) / 2.0),
        read_next_line_ns: tenths(slope(&few.read_ns, &many.read_ns)),
        write_next_line_ns: tenths(slope(&few.write_ns, &many.write_ns)),
        transfer_spread_ns: (
            tenths(quantile(trips, 0.05) / 2.0),
            tenths(quantile(trips, 0.95) / 2.0),
        ),
    }))
}

/// Means over chunks, ascending, in nanoseconds.
struct Passes {
    /// A turn there and back.
    trip_ns: Vec<f64>,
    /// One pass of the reader over the item.
    read_ns: Vec<f64>,
    /// One pass of the writer over it.
    write_ns: Vec<f64>,
}

/// `None`: the two threads did not get to run side by side.
fn pass((writer_core, reader_core): (usize, usize), line_count: usize) -> Option<Passes> {
    let shared = Shared::default();
    let (written, read_ns) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_side(&shared, reader_core, line_count));
        let writer = scope.spawn(|| write_side(&shared, writer_core, line_count));
        (writer.join().ok().flatten(), reader.join().ok().flatten())
    });
    let (mut trip_ns, mut write_ns) = written?;
    let mut read_ns = read_ns?;
    for times in [&mut trip_ns, &mut write_ns, &mut read_ns] {
        times.sort_by(f64::total_cmp);
    }
    Some(Passes { trip_ns, read_ns, write_ns })
}

fn write_side(shared: &Shared, core: usize, line_count: usize) -> Option<(Vec<f64>, Vec<f64>)> {
    pin(core)?;
    let (mut trip_ns, mut write_ns) = (Vec::new(), Vec::new());
    let mut turn = 0;
    for _ in 0..CHUNK_COUNT {
        let chunk_started = Instant::now();
        let mut passing = Duration::ZERO;
        for _ in 0..CHUNK_TRIPS {
            if line_count > 0 {
                let started = Instant::now();
                for line in &shared.item[..line_count] {
                    line.0.store(turn, Ordering::Relaxed);
                }
                // Full barrier: the stores have left the store buffer when the clock is read.
                fence(Ordering::SeqCst);
                passing += started.elapsed();
            }
            // Release: pairs with the reader's acquire of its turn.
            shared.turn.0.store(turn + 1, Ordering::Release);
            turn += 2;
            wait_for(&shared.turn.0, turn)?;
        }
        trip_ns.push(chunk_started.elapsed().as_nanos() as f64 / CHUNK_TRIPS as f64);
        write_ns.push(passing.as_nanos() as f64 / CHUNK_TRIPS as f64);
    }
    Some((trip_ns, write_ns))
}

fn read_side(shared: &Shared, core: usize, line_count: usize) -> Option<Vec<f64>> {
    pin(core)?;
    let mut read_ns = Vec::new();
    let mut turn = 1;
    for _ in 0..CHUNK_COUNT {
        let mut passing = Duration::ZERO;
        for _ in 0..CHUNK_TRIPS {
            wait_for(&shared.turn.0, turn)?;
            if line_count > 0 {
                let started = Instant::now();
                let lines = &shared.item[..line_count];
                let sum: u64 = lines.iter().map(|line| line.0.load(Ordering::Relaxed)).sum();
                std::hint::black_box(sum);
                passing += started.elapsed();
            }
            // Release: the reads are over when the writer sees its turn (acquire in `wait_for`).
            shared.turn.0.store(turn + 1, Ordering::Release);
            turn += 2;
        }
        read_ns.push(passing.as_nanos() as f64 / CHUNK_TRIPS as f64);
    }
    Some(read_ns)
}

/// Spins until it is `turn`; `None` when the partner does not come.
fn wait_for(current: &AtomicU64, turn: u64) -> Option<()> {
    let mut spins = 0_u64;
    let mut started = None;
    // Acquire: pairs with the partner's release, so that its lines are seen as written.
    while current.load(Ordering::Acquire) != turn {
        spins += 1;
        if spins.is_multiple_of(1 << 20) {
            let started: &Instant = started.get_or_insert_with(Instant::now);
            if started.elapsed() > PATIENCE {
                return None;
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    Some(())
}

fn pin(core: usize) -> Option<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).ok()
}

/// Of ascending times.
fn quantile(times_ns: &[f64], share: f64) -> f64 {
    times_ns[((times_ns.len() - 1) as f64 * share) as usize]
}

fn tenths(time_ns: f64) -> f64 {
    (time_ns * 10.0).round() / 10.0
}
