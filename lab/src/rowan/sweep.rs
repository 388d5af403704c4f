//! The shared part of Figs 2 and 8: remote streams of 64 and 128 bytes, with and without local
//! writers.

use super::streams::{self, Outcome, Place, Sizes, Writer};
use crate::figure::{Axis, Chart, Options, Scale, Series, Style, Table};
use sim::parallel;

/// Rowan-KV §2.4.
pub(super) const DIMMS: usize = 3;
/// A round trip of one-sided verbs (§2.2).
pub(super) const ROUND_TRIP_NS: f64 = 2000.0;
const STREAMS: [usize; 9] = [1, 18, 36, 54, 72, 90, 108, 126, 144];
/// The most that the paper has.
pub(super) const STREAMS_MAX: usize = 144;
pub(super) const SIZES_BYTES: [u64; 2] = [64, 128];
/// Cores of the memory's own machine that write 128 bytes each (§2.4).
const LOCAL_WRITERS: usize = 18;
const LOCAL_BYTES: u64 = 128;
/// Between two writes of a local core, such that all of them get the 5.2 GB/s that the paper has
/// without remote writes.
const LOCAL_THINK_NS: f64 = 390.0;
const WRITES_DEFAULT: u64 = 300_000;

/// One point and what it gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub streams: usize,
    pub size_bytes: u64,
    pub local_writers: usize,
    pub outcome: Outcome,
}

/// All points; `place` says which log a remote stream writes.
pub(super) fn run_all(
    name: &'static str,
    options: &Options,
    place: fn(usize) -> Place,
) -> Vec<Run> {
    let mut points = Vec::new();
    for local_writers in [0, LOCAL_WRITERS] {
        for size_bytes in SIZES_BYTES {
            points.extend(STREAMS.map(|streams| (streams, size_bytes, local_writers)));
        }
    }
    let write_count = options.requests.unwrap_or(WRITES_DEFAULT);
    parallel::map(name, options.threads, &points, |(streams, size_bytes, local_writers)| {
        let remote = (0..*streams).map(|stream| Writer {
            place: place(stream),
            sizes: Sizes::Fixed(*size_bytes),
            round_trip_ns: ROUND_TRIP_NS,
            think_ns: 0.0,
        });
        let local = (0..*local_writers).map(|core| Writer {
            place: Place::Arrival(STREAMS_MAX + core),
            sizes: Sizes::Fixed(LOCAL_BYTES),
            round_trip_ns: 0.0,
            think_ns: LOCAL_THINK_NS,
        });
        let writers: Vec<Writer> = remote.chain(local).collect();
        let outcome = streams::run(&writers, DIMMS, write_count, options.seed);
        Run { streams: *streams, size_bytes: *size_bytes, local_writers: *local_writers, outcome }
    })
}

/// Of the runs with that many streams.
pub(super) fn find(runs: &[Run], streams: usize, size_bytes: u64, is_local: bool) -> Option<&Run> {
    runs.iter().find(|run| {
        (run.streams, run.size_bytes, run.local_writers > 0) == (streams, size_bytes, is_local)
    })
}

/// The worst amplification of any number of streams.
pub(super) fn worst(runs: &[Run], size_bytes: u64, is_local: bool) -> f64 {
    let alike = |run: &&Run| (run.size_bytes, run.local_writers > 0) == (size_bytes, is_local);
    runs.iter().filter(alike).map(|run| run.outcome.amplification).fold(0.0, f64::max)
}

pub(super) fn table(runs: &[Run]) -> Table {
    let columns = [
        "remote_streams",
        "write_bytes",
        "local_writers",
        "amplification",
        "request_gb_per_s",
        "remote_writes_m_per_s",
    ];
    let row = |run: &Run| {
        vec![
            run.streams.to_string(),
            run.size_bytes.to_string(),
            run.local_writers.to_string(),
            format!("{:.3}", run.outcome.amplification),
            format!("{:.2}", run.outcome.request_bytes_per_ns),
            format!("{:.1}", run.outcome.remote_per_us),
        ]
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: runs.iter().map(row).collect() }
}

/// A panel each without and with local writers; the paper's numbers as `(bytes, local, y)`.
pub(super) fn charts(runs: &[Run], paper: &[(u64, bool, f64)]) -> Vec<Chart> {
    let label = |size_bytes: u64| format!("{size_bytes} B");
    let panel = |is_local: bool| {
        let mut series = Vec::new();
        for size_bytes in SIZES_BYTES {
            let alike =
                |run: &&Run| (run.size_bytes, run.local_writers > 0) == (size_bytes, is_local);
            let point = |run: &Run| (run.streams as f64, run.outcome.amplification);
            let points = runs.iter().filter(alike).map(point).collect();
            series.push(Series { label: label(size_bytes), style: Style::Line, points });
        }
        for (size_bytes, _, y) in paper.iter().filter(|(_, local, _)| *local == is_local) {
            let points = vec![(STREAMS_MAX as f64, *y)];
            series.push(Series { label: label(*size_bytes), style: Style::Marks, points });
        }
        let title = if is_local { "with 18 local writers" } else { "remote writes alone" };
        let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
        Chart {
            title: title.to_owned(),
            x: axis("remote write streams"),
            y: axis("media bytes / request bytes"),
            series,
        }
    };
    vec![panel(false), panel(true)]
}
