//! The output of `lab cold-start`.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use super::Args;
use super::server::{Reading, Start};
use crate::comparisons::conditions::{commit, date, machine, write_page};
use crate::comparisons::statistics::Spread;

/// All starts of one case.
pub struct Row {
    name: &'static str,
    starts: Vec<(Start, Reading)>,
}

impl Row {
    pub fn new(name: &'static str) -> Row {
        Row { name, starts: Vec::new() }
    }

    pub fn push(&mut self, start: Start, reading: Reading) {
        self.starts.push((start, reading));
    }

    /// The last start in a line.
    pub fn last(&self) -> String {
        let Some((start, reading)) = self.starts.last() else { return String::new() };
        format!(
            "{:.2} s ({:.2} s recovery, {:.2} s of CPU), {} entries, {} by checkpoint; reading \
             {:.2} s ({:.2} s of CPU)",
            start.seconds,
            start.recovery_seconds,
            start.cpu_seconds,
            start.entries,
            start.from_checkpoint,
            reading.seconds,
            reading.cpu_seconds,
        )
    }

    fn spread(&self, value: impl Fn(&Start, &Reading) -> f64) -> Spread {
        Spread::of(self.starts.iter().map(|(start, reading)| value(start, reading)).collect())
    }
}

/// Writes `cold-start.md`.
pub fn write(root: &Path, args: &Args, rows: &[Row]) -> Result<()> {
    let mut out = String::from("# Cold start\n\n");
    out.push_str(&table(rows));
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "\nMedians of {} starts (least to most), cases by turns. `start` is from the fork to the \
         first PONG, CPU of all threads. `reading` is what it takes one thread to read as many \
         bytes of the same file once, a MiB at a time. Cold: the log's pages were dropped from the \
         page cache. Torn: `kill -9` under {} ms of writes. {} items of 16-byte keys and {}-byte \
         values, flags {}. {}; commit {}; {}; \
         `cargo run -p lab --release -- cold-start --entries {} --repetitions {}`.\n",
        args.repetitions,
        args.writes,
        args.entries,
        args.value_size,
        args.flags,
        machine(root)?,
        commit(root)?,
        date(root)?,
        args.entries,
        args.repetitions,
    );
    write_page(&root.join(&args.output), "cold-start.md", &out)
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| left, file's pages | start, s | its CPU, s | million entries a second | reading, s | \
         its CPU, s | start to reading | CPU to CPU |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let seconds = row.spread(|start, _| start.seconds);
        let cpu = row.spread(|start, _| start.cpu_seconds);
        let rate = row.spread(|start, _| start.entries as f64 / start.seconds / 1e6);
        let reading = row.spread(|_, reading| reading.seconds);
        let reading_cpu = row.spread(|_, reading| reading.cpu_seconds);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.1} | {:.1} |",
            row.name,
            text(seconds),
            text(cpu),
            text(rate),
            text(reading),
            text(reading_cpu),
            seconds.median / reading.median,
            cpu.median / reading_cpu.median,
        );
    }
    out
}

fn text(Spread { median, min, max }: Spread) -> String {
    format!("{median:.2} ({min:.2} to {max:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_far_a_start_is_from_reading() {
        let mut row = Row::new("clean");
        let start =
            Start { seconds: 2.0, cpu_seconds: 3.0, entries: 4_000_000, ..Start::default() };
        row.push(start, Reading { seconds: 1.0, cpu_seconds: 0.5 });
        let line = table(&[row]);
        assert!(line.ends_with("| 2.0 | 6.0 |\n"), "{line}");
        assert!(line.contains("| 2.00 (2.00 to 2.00) |"), "{line}");
    }
}
