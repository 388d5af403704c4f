//! Sweeps: how the cost grows, and how long calls take while the store does maintenance.

use anyhow::Result;
use serde_json::Value;

use super::{Curve, Figure, Pause, Session, words};
use crate::comparisons::bench_report::number;

/// Bytes of memory a 8/8 item takes when the store has room to rewrite it.
const ITEM_ROOM_BYTES: u64 = 130;

/// The position of a point on the x axis.
#[derive(Clone, Copy)]
enum Place {
    Asked,
    /// Items over slots at the end of the run: the index grows by itself.
    IndexLoad,
}

fn index_load(report: &Value) -> Result<f64> {
    const SLOTS_PER_BYTE: f64 = 7.0 / 64.0;
    let slots = number(report, "/store/index_used_bytes")? * SLOTS_PER_BYTE;
    Ok(number(report, "/store/items")? / slots)
}

const READS: &str = "1:0";
const WRITES: &str = "0:1";

impl Session {
    pub(super) fn measure_sweeps(&mut self) -> Result<()> {
        let figures = [
            self.items_figure()?,
            self.index_load_figure()?,
            self.value_size_figure()?,
            self.memory_share_figure()?,
        ];
        self.found.figures.extend(figures);
        Ok(())
    }

    /// CPU time in ns an operation of each point, for reads and for writes.
    fn curve(
        &mut self,
        name: &'static str,
        points: &[(f64, Vec<String>)],
        ratio: &str,
        place: Place,
    ) -> Result<Curve> {
        let mut curve = Curve { name, points: Vec::new() };
        for (x, setting) in points {
            let mut options = words(&["--ratio", ratio]);
            options.extend(setting.iter().cloned());
            let what = format!("{name}, {}", setting.join(" "));
            if let Some(window) = self.ours(&what, 1, &options)? {
                let x = match place {
                    Place::Asked => *x,
                    Place::IndexLoad => index_load(&window.report)?,
                };
                curve.points.push((x, 1e3 / window.mops));
            }
        }
        curve.points.sort_by(|left, right| left.0.total_cmp(&right.0));
        Ok(curve)
    }

    fn reads_and_writes(
        &mut self,
        points: &[(f64, Vec<String>)],
        place: Place,
    ) -> Result<Vec<Curve>> {
        let reads = self.curve("GET", points, READS, place)?;
        Ok(vec![reads, self.curve("PUT", points, WRITES, place)?])
    }

    fn items_figure(&mut self) -> Result<Figure> {
        let counts: &[u64] = if self.args.quick {
            &[100_000, 1_000_000, 3_000_000]
        } else {
            &[1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000, 200_000_000]
        };
        let available_bytes = memory_available_bytes() / 10 * 6;
        let points: Vec<(f64, Vec<String>)> = counts
            .iter()
            .filter(|count| **count * ITEM_ROOM_BYTES <= available_bytes)
            .map(|count| {
                let keys = count.to_string();
                let setting = ["--keys", &keys, "--key-size", "8", "--value-size", "8"];
                (*count as f64, words(&setting))
            })
            .collect();
        if points.len() < counts.len() {
            let most = points.last().map_or(0.0, |(count, _)| *count / 1e6);
            self.found.skipped.push(format!("more than {most} M items: not enough free memory"));
        }
        Ok(Figure {
            name: "items",
            title: "CPU time and items, 8/8 uniform",
            x_title: "items",
            is_log_x: true,
            curves: self.reads_and_writes(&points, Place::Asked)?,
        })
    }

    fn index_load_figure(&mut self) -> Result<Figure> {
        let keys = self.args.keys;
        // Seven slots in a bucket of 64 bytes.
        let points: Vec<(f64, Vec<String>)> = [0.3, 0.5, 0.7, 0.8, 0.9]
            .iter()
            .map(|load| {
                let index_bytes = (keys as f64 / load / 7.0 * 64.0) as u64;
                let memory_bytes = keys * 100 + index_bytes + (256 << 20);
                let setting = [
                    ["--keys", &keys.to_string()],
                    ["--key-size", "8"],
                    ["--value-size", "8"],
                    ["--index-memory", &index_bytes.to_string()],
                    ["--memory", &memory_bytes.to_string()],
                ];
                (*load, words(&setting.concat()))
            })
            .collect();
        Ok(Figure {
            name: "index-load",
            title: "CPU time and load of the index, 8/8 uniform",
            x_title: "items over slots",
            is_log_x: false,
            curves: self.reads_and_writes(&points, Place::IndexLoad)?,
        })
    }

    fn value_size_figure(&mut self) -> Result<Figure> {
        let all: [u64; 9] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
        let step = if self.args.quick { 4 } else { 1 };
        let data_bytes: u64 = if self.args.quick { 64 << 20 } else { 512 << 20 };
        let points: Vec<(f64, Vec<String>)> = all
            .iter()
            .step_by(step)
            .map(|size| {
                let keys = (data_bytes / (size + 24)).min(self.args.keys).to_string();
                let size_text = size.to_string();
                let setting = ["--keys", &keys, "--key-size", "16", "--value-size", &size_text];
                (*size as f64, words(&setting))
            })
            .collect();
        Ok(Figure {
            name: "value-size",
            title: "CPU time and value size, 16-byte keys, uniform; every byte is checked",
            x_title: "bytes of value",
            is_log_x: true,
            curves: self.reads_and_writes(&points, Place::Asked)?,
        })
    }

    /// Rewrites while a part of the log is live: the cost of cleaning. Not with 8-byte values,
    /// which are replaced in place.
    fn memory_share_figure(&mut self) -> Result<Figure> {
        let keys = self.args.keys / 4;
        let shares: &[f64] =
            if self.args.quick { &[0.5, 0.85] } else { &[0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9] };
        let points: Vec<(f64, Vec<String>)> =
            shares.iter().map(|share| (*share * 100.0, full_store(keys, *share))).collect();
        Ok(Figure {
            name: "memory-share",
            title: "CPU time of a PUT and share of the log that is live, 16/64 uniform, store mode",
            x_title: "per cent of the log",
            is_log_x: false,
            curves: vec![self.curve("PUT", &points, WRITES, Place::Asked)?],
        })
    }

    pub(super) fn measure_pauses(&mut self) -> Result<()> {
        let grown = (self.args.keys * 5).to_string();
        let growing = words(&["--keys", &grown, "--key-size", "8", "--value-size", "8"]);
        let mut growing_small = growing.clone();
        growing_small.extend(words(&["--index-memory", "16MiB"]));
        self.pause("the index grows while items come in", &growing_small, "populate_calls")?;
        self.pause("items come in, the index has its size", &growing, "populate_calls")?;
        let mut cleaning = full_store(self.args.keys / 4, 0.85);
        cleaning.extend(words(&["--ratio", WRITES]));
        self.pause("cleaning, 85 % of the log live, rewrites", &cleaning, "calls")?;
        let keys = self.args.keys.to_string();
        let memory = (self.args.keys * 40 + (64 << 20)).to_string();
        let tiny = ["--keys", &keys, "--key-size", "8", "--value-size", "8", "--memory", &memory];
        let mut evicting = words(&tiny);
        evicting.extend(words(&["--ratio", "50:50", "--distribution", "zipf:0.99"]));
        self.pause("evicting, memory for about half of the items", &evicting, "calls")?;
        let memory = (self.args.keys * 200 + (1 << 30)).to_string();
        let mut expiring = words(&["--keys", &keys, "--key-size", "8", "--value-size", "8"]);
        expiring.extend(words(&["--ratio", WRITES, "--ttl", "1s", "--memory", &memory]));
        self.pause("expiry, every item lives 1 s, rewrites", &expiring, "calls")
    }

    fn pause(&mut self, what: &str, setting: &[String], calls: &str) -> Result<()> {
        let mut options = setting.to_vec();
        options.extend(words(&["--latency", "every"]));
        if let Some(window) = self.ours(what, 1, &options)? {
            let calls = window.report.pointer(&format!("/{calls}")).cloned().unwrap_or_default();
            number(&calls, "/execute_us/max")?;
            self.found.pauses.push(Pause { what: what.to_owned(), calls });
        }
        Ok(())
    }
}

/// A store in which `share` of the log is live once `keys` 16/64 items are in it.
fn full_store(keys: u64, share: f64) -> Vec<String> {
    const ENTRY_BYTES: u64 = 96;
    let index_bytes = keys * 26;
    let log_bytes = (keys * ENTRY_BYTES) as f64 / share;
    let memory_bytes = log_bytes as u64 + index_bytes;
    words(
        &[
            ["--keys", &keys.to_string()],
            ["--key-size", "16"],
            ["--value-size", "64"],
            ["--mode", "store"],
            ["--index-memory", &index_bytes.to_string()],
            ["--memory", &memory_bytes.to_string()],
        ]
        .concat(),
    )
}

fn memory_available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
