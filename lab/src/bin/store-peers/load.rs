//! One window of load on one map: the load that `dovetail bench` puts on the store, one request at
//! a time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use workload::{Operation, Trace, values};

use crate::forms::{Form, Items, is_right};
use crate::maps::Map;

/// The result of one window.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Report {
    /// Operations over the CPU time of the threads that ran them.
    pub ops_per_cpu_second: f64,
    /// Operations a second, all threads together.
    pub ops_per_second: f64,
    /// CPU time over wall time of a thread.
    pub cpu_share: f64,
    /// In the window.
    pub operations: u64,
    /// Items that scans showed.
    pub scanned: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Values that differ from the one written under their key.
    pub mismatches: u64,
}

/// Operations between two checks of the clock.
const LOOK_UP_OPERATIONS: u32 = 4096;

/// One in this many of a scan's items is checked against its key, as in `dovetail bench`; of the
/// others every byte is read.
const SCAN_CHECK_EVERY: u64 = 16;

/// The parameters of a window.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// The operations.
    pub trace: &'a Trace,
    /// Keys that exist at the start.
    pub key_count: u64,
    /// The length.
    pub length: Duration,
    /// CPUs that threads are pinned to in turn; empty: not pinned.
    pub cpus: &'a [usize],
}

/// Stores every key.
pub fn populate<const VALUE: usize, K: Form, V: Form>(
    map: &mut impl Map<K, V>,
    items: impl Items,
    key_count: u64,
) {
    let mut value = [0; VALUE];
    for id in 0..key_count {
        values::fill(id, 0, &mut value);
        items.key(id, |key| map.put(key, &value));
    }
}

/// Runs one window with a thread for each of `maps`.
pub fn run<const VALUE: usize, K: Form, V: Form, M: Map<K, V>>(
    maps: &mut [M],
    items: impl Items,
    window: Window<'_>,
) -> Result<Report> {
    let (is_over, start) = (AtomicBool::new(false), Barrier::new(maps.len() + 1));
    let count = maps.len();
    let found: Vec<(Report, f64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = maps
            .iter_mut()
            .enumerate()
            .map(|(index, map)| {
                let (is_over, start) = (&is_over, &start);
                scope.spawn(move || {
                    pin(window.cpus, index)?;
                    let mut load = Load::<VALUE, _> { items, report: Report::default() };
                    start.wait();
                    let (wall, cpu) = (Instant::now(), thread_cpu());
                    load.run(map, window, (index, count), is_over);
                    let cpu = (thread_cpu() - cpu).as_secs_f64();
                    let wall = wall.elapsed().as_secs_f64();
                    load.report.ops_per_second = load.report.operations as f64 / wall;
                    load.report.cpu_share = cpu / wall;
                    Ok((load.report, cpu))
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(window.length);
        is_over.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().expect("a load panicked"));
        joined.collect::<Result<_>>()
    })?;
    Ok(sum(&found))
}

fn sum(found: &[(Report, f64)]) -> Report {
    let mut total = Report { cpu_share: f64::INFINITY, ..Report::default() };
    let mut cpu_seconds = 0.0;
    for (report, cpu) in found {
        total.ops_per_second += report.ops_per_second;
        total.operations += report.operations;
        total.scanned += report.scanned;
        total.misses += report.misses;
        total.mismatches += report.mismatches;
        total.cpu_share = total.cpu_share.min(report.cpu_share);
        cpu_seconds += cpu;
    }
    total.ops_per_cpu_second = total.operations as f64 / cpu_seconds.max(1e-9);
    total
}

/// Pins the calling thread to the CPU of its place, if any is named.
pub fn pin(cpus: &[usize], index: usize) -> Result<()> {
    let Some(place) = index.checked_rem(cpus.len()) else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpus[place]);
    Ok(sched_setaffinity(None, &set)?)
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Load<const VALUE: usize, I> {
    items: I,
    report: Report,
}

impl<const VALUE: usize, I: Items> Load<VALUE, I> {
    fn run<K: Form, V: Form>(
        &mut self,
        map: &mut impl Map<K, V>,
        window: Window<'_>,
        (lane, lane_count): (usize, usize),
        is_over: &AtomicBool,
    ) {
        let mut cursor = window.trace.cursor(lane, lane_count);
        let mut insert_id = window.key_count + lane as u64;
        let mut version = 1;
        let mut value = [0; VALUE];
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..LOOK_UP_OPERATIONS {
                match cursor.advance() {
                    Operation::Read(id) => self.read(map, id),
                    Operation::Update(id) => {
                        values::fill(id, version, &mut value);
                        self.items.key(id, |key| map.put(key, &value));
                    }
                    Operation::Scan { id, keys } => self.scan(map, id, keys as usize),
                    Operation::Insert => {
                        values::fill(insert_id, version, &mut value);
                        self.items.key(insert_id, |key| map.put(key, &value));
                        insert_id += lane_count as u64;
                    }
                    // No load here has these.
                    Operation::ReadLatest(_) | Operation::ReadModifyWrite(_) => {}
                }
            }
            version += 1;
            self.report.operations += u64::from(LOOK_UP_OPERATIONS);
        }
    }

    #[inline(always)]
    fn read<K: Form, V: Form>(&mut self, map: &mut impl Map<K, V>, id: u64) {
        let mismatches = &mut self.report.mismatches;
        let is_found = self.items.key(id, |key| {
            map.get(key, |value| {
                *mismatches += u64::from(!is_right::<VALUE>(id, value.bytes()));
            })
        });
        self.report.misses += u64::from(!is_found);
    }

    fn scan<K: Form, V: Form>(&mut self, map: &mut impl Map<K, V>, id: u64, count: usize) {
        let (items, mismatches) = (self.items, &mut self.report.mismatches);
        let mut place = 0_u64;
        let shown = items.key(id, |key| {
            map.scan(key, count, |key, value| {
                place += 1;
                if !place.is_multiple_of(SCAN_CHECK_EVERY) {
                    let sum = values::sum(key.bytes()).wrapping_add(values::sum(value.bytes()));
                    std::hint::black_box(sum);
                    return;
                }
                let is_own =
                    items.id_of(key.bytes()).is_some_and(|id| is_right::<VALUE>(id, value.bytes()));
                *mismatches += u64::from(!is_own);
            })
        });
        self.report.scanned += shown as u64;
        self.report.misses += u64::from(shown == 0);
    }
}

#[cfg(test)]
mod tests {
    use workload::{Draw, Mix, Popularity, Profile};

    use super::*;
    use crate::forms::{Binary, Inline};
    use crate::maps::{BTree, Dash};

    #[track_caller]
    fn check<M: Map<Box<[u8]>, Inline<8>>>(maps: &mut [M], draw: Draw) -> Report {
        populate::<8, _, _>(&mut maps[0], Binary::<8>, draw.key_count);
        let trace = Trace::draw(&draw, 10_000);
        let length = Duration::from_millis(1);
        let window = Window { trace: &trace, key_count: draw.key_count, length, cpus: &[] };
        let report = run::<8, _, _, _>(maps, Binary::<8>, window).unwrap();
        assert!(report.operations > 0 && report.ops_per_cpu_second > 0.0);
        assert_eq!((report.misses, report.mismatches), (0, 0));
        report
    }

    #[test]
    fn threads_read_what_they_write() {
        let map = Dash::new(1000);
        let popularity = Popularity::Uniform;
        let mix = Mix::reads_to_updates(1, 1);
        check(&mut [map.clone(), map], Draw { mix, popularity, key_count: 1000, seed: 1 });
    }

    #[test]
    fn scans_show_items_whose_values_are_right() {
        let profile: Profile = "ycsb-e".parse().unwrap();
        let report = check(&mut [BTree::new()], profile.draw(1000, 1));
        assert!(report.scanned > report.operations, "{report:?}");
    }
}
