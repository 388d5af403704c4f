//! Measures how many random cache lines a second threads read: the upper limit for a table that
//! misses the cache at every line, and how much of it is left for each of two threads beside the
//! other's traffic.
//!
//! Reads are independent, so the core keeps as many in flight as it can; the addresses come from a
//! generator that needs no memory. Huge pages are used if the allocator asks for them
//! (`GLIBC_TUNABLES=glibc.malloc.hugetlb=1`).

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::load::{pin, thread_cpu};

/// One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// The result of one thread, or of all together.
#[derive(Clone, Copy, Serialize)]
struct Report {
    /// The mean over the threads.
    lines_per_cpu_second: f64,
    /// The share of the thread that got least of its core.
    cpu_share: f64,
}

/// Reads between two checks of the clock.
const BLOCK_READS: u32 = 1 << 16;

/// For each line of stdin, BYTES, THREADS and MILLISECONDS, one line of JSON.
pub fn serve(cpus: &[usize]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "ready")?;
    stdout.flush()?;
    let mut lines: Vec<Line> = Vec::new();
    for order in std::io::stdin().lock().lines() {
        let order = order?;
        let words: Vec<&str> = order.split_whitespace().collect();
        let [bytes, threads, milliseconds] = words[..] else { bail!("BYTES THREADS MILLISECONDS") };
        let count = bytes.parse::<usize>()? / size_of::<Line>();
        ensure!(count > 0, "an array of {bytes} bytes has no line");
        if lines.len() != count {
            lines = vec![Line([1; 8]); count];
        }
        let report = measure_all(&lines, cpus, threads.parse()?, milliseconds.parse()?)?;
        writeln!(stdout, "{}", serde_json::to_string(&report)?)?;
        stdout.flush()?;
    }
    Ok(())
}

/// All threads at once, each pinned to a CPU of the list.
fn measure_all(lines: &[Line], cpus: &[usize], threads: usize, ms: u64) -> Result<Report> {
    let one = |index| -> Result<Report> {
        pin(cpus, index)?;
        Ok(measure(lines, index as u64 + 1, ms))
    };
    let reports: Vec<Result<Report>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || one(index))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|report| report.expect("a measuring thread panicked")).collect()
    });
    let reports: Vec<Report> = reports.into_iter().collect::<Result<_>>()?;
    ensure!(!reports.is_empty(), "0 threads read no line");
    let sum: f64 = reports.iter().map(|report| report.lines_per_cpu_second).sum();
    Ok(Report {
        lines_per_cpu_second: sum / reports.len() as f64,
        cpu_share: reports.iter().map(|report| report.cpu_share).fold(1.0, f64::min),
    })
}

fn measure(lines: &[Line], seed: u64, milliseconds: u64) -> Report {
    let (wall, cpu) = (Instant::now(), thread_cpu());
    let (mut state, mut sum, mut count) = (seed << 32, 0_u64, 0_u64);
    while wall.elapsed().as_millis() < u128::from(milliseconds) {
        for _ in 0..BLOCK_READS {
            // A Weyl sequence, spread by one multiplication: no read waits for another.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let random = (state ^ (state >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let place = (u128::from(random) * lines.len() as u128) >> 64;
            sum = sum.wrapping_add(lines[place as usize].0[0]);
        }
        count += u64::from(BLOCK_READS);
    }
    black_box(sum);
    let cpu_seconds = (thread_cpu() - cpu).as_secs_f64();
    Report {
        lines_per_cpu_second: count as f64 / cpu_seconds,
        cpu_share: cpu_seconds / wall.elapsed().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted() {
        for threads in [1, 2] {
            let report = measure_all(&[Line([1; 8]); 64], &[], threads, 1).unwrap();
            assert!(report.lines_per_cpu_second > 1e6 && report.cpu_share > 0.0);
        }
        assert!(measure_all(&[Line([1; 8]); 64], &[], 0, 1).is_err());
    }
}
