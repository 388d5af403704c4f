//! The page of the results: a table for each part, medians with minimum and maximum.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use super::runs::{Sample, Tail};
use super::{Args, PARTS, Part};
use crate::comparisons::conditions::{commit, date, machine, write_page};
use crate::comparisons::statistics::Spread;

/// One server at one share of its peak.
pub struct Row {
    part: Part,
    server: &'static str,
    share: f64,
    pub samples: Vec<Sample>,
}

impl Row {
    /// Without samples.
    pub fn new(part: Part, server: &'static str, share: f64) -> Row {
        Row { part, server, share, samples: Vec::new() }
    }

    pub fn is_of(&self, server: &str, share: f64) -> bool {
        self.server == server && self.share == share
    }

    fn spread(&self, field: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(field).collect())
    }
}

/// Writes `joined.md`.
pub fn write(root: &Path, args: &Args, rows: &[Row]) -> Result<()> {
    write_page(&root.join(&args.output), "joined.md", &page(root, args, rows)?)
}

fn page(root: &Path, args: &Args, rows: &[Row]) -> Result<String> {
    let mut out = String::from("# Overload and mixes of sizes, beside Redis and memcached\n");
    for (part, name) in PARTS {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.part == part).collect();
        if !rows.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\n## {name}\n\n{}\n\n{}", about(part), table(part, &rows));
        }
    }
    let _ = write!(
        out,
        "\n{}; commit {}; {}; servers on processor {}, the load generator on {}; medians of {} \
         windows of {} s (least to most), servers by turns, the others stopped; \
         `cargo run -p lab --release -- joined --seconds {} --repetitions {} --threads {}`.\n",
        machine(root)?,
        commit(root)?,
        date(root)?,
        args.server_cpus,
        args.client_cpus,
        args.repetitions,
        args.seconds,
        args.seconds,
        args.repetitions,
        args.threads,
    );
    Ok(out)
}

fn about(part: Part) -> &'static str {
    match part {
        Part::Overload => {
            "95 % GET, 64-byte values, Zipf 0.99, 32 connections of at most 8 requests, one thread \
             each. What falls due while all connections are full is dropped by the client, so the \
             latencies are of what the server was given. Goodput is what was answered, of the \
             server's own peak in a closed loop."
        }
        Part::Sizes => {
            "Minos's mix (0.125 % of requests for values up to 500 KB) at half of the first \
             server's peak, 64 connections of one request and 64 for the large values, open loop, \
             latency from when a request fell due. Behind it the same rate without the large \
             values. All threads of a server share one processor, which suits Redis's io-threads \
             badly: the row of one thread is the fair one."
        }
        Part::Large => {
            "64-byte values at half of the first server's peak, 64 connections of one request, \
             and on twenty others twenty values of 10 MB a second, read by a client of the lowest \
             priority; then the same without these. Of Redis the row of one thread is the fair \
             one here, too."
        }
    }
}

fn table(part: Part, rows: &[&Row]) -> String {
    let mut out = String::new();
    out.push_str(match part {
        Part::Overload => {
            "| server | offered, of the peak | peak, thousand/s | goodput, of the peak | p50, us | \
             p99, us |\n|---|---|---|---|---|---|\n"
        }
        Part::Sizes | Part::Large => {
            "| server | peak, thousand/s | p50, us | p99, us | without | p99.9, us | without | \
             p99 of large, us |\n|---|---|---|---|---|---|---|---|\n"
        }
    });
    for row in rows {
        let peak = row.spread(|sample| sample.peak_per_second / 1e3);
        let p50 = spread_text(row.spread(|sample| sample.p50_us), 0);
        let p99 = spread_text(row.spread(|sample| sample.p99_us), 0);
        let (server, peak) = (row.server, spread_text(peak, 0));
        let _ = match part {
            Part::Overload => {
                let goodput =
                    row.spread(|sample| sample.answered_per_second / sample.peak_per_second);
                let (offered, goodput) = (row.share * 100.0, spread_text(goodput, 2));
                writeln!(out, "| {server} | {offered:.0} % | {peak} | {goodput} | {p50} | {p99} |")
            }
            Part::Sizes | Part::Large => {
                let p999 = spread_text(row.spread(|sample| sample.p999_us), 0);
                let large = row.spread(|sample| sample.large_p99_us.unwrap_or(f64::NAN));
                let large = if large.median.is_nan() { "-".into() } else { spread_text(large, 0) };
                let without = |pick: fn(Tail) -> f64| {
                    row.spread(|sample| sample.without.map_or(f64::NAN, pick))
                };
                let p99_without = spread_text(without(|tail| tail.p99_us), 0);
                let p999_without = spread_text(without(|tail| tail.p999_us), 0);
                writeln!(
                    out,
                    "| {server} | {peak} | {p50} | {p99} | {p99_without} | {p999} | \
                     {p999_without} | {large} |"
                )
            }
        };
    }
    out
}

fn spread_text(spread: Spread, digits: usize) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_is_told_as_a_share_of_the_peak() {
        let sample = |answered_per_second| Sample {
            peak_per_second: 1000.0,
            offered_per_second: 2000.0,
            answered_per_second,
            dropped: 0.0,
            p50_us: 1.0,
            p99_us: 2.0,
            p999_us: 3.0,
            without: None,
            large_p99_us: None,
        };
        let mut row = Row::new(Part::Overload, "ours", 2.0);
        row.samples.extend([sample(900.0), sample(950.0), sample(1000.0)]);
        let text = table(Part::Overload, &[&row]);
        let want = "| ours | 200 % | 1 (1 to 1) | 0.95 (0.90 to 1.00) | 1 (1 to 1) | 2 (2 to 2) |";
        assert_eq!(text.lines().nth(2), Some(want));
    }
}
