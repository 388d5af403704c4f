//! The output of `lab store`: a page, the samples as JSON, and the figures.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use base::format_grouped;
use serde_json::{Value, json};

use super::ablations::BASE;
use super::rates::LINES;
use super::table::{
    HASH_LOADS, Load, SCAN_ROW, SCAN_TARGET_RATIO, TREE_LOADS, TWO_THREADS_TARGET_RATIO,
};
use super::{Args, Cell, Found, chart};
use crate::comparisons::conditions::{commit, date, machine};
use crate::comparisons::statistics::Spread;

/// Writes all results below `--output`.
pub fn write(root: &Path, args: &Args, found: &Found) -> Result<()> {
    let folder = root.join(&args.output);
    std::fs::create_dir_all(&folder)?;
    for figure in &found.figures {
        let path = folder.join(format!("store-{}.svg", figure.name));
        chart::draw(figure, &path).with_context(|| format!("cannot draw {}", figure.name))?;
    }
    let head = Head {
        date: date(root)?,
        commit: commit(root)?,
        machine: machine(root)?,
        command: command(args),
    };
    std::fs::write(folder.join("store.json"), format!("{:#}\n", samples(&head, found)))?;
    std::fs::write(folder.join("store.md"), page(&head, args, found))?;
    println!("wrote {}", folder.join("store.md").display());
    Ok(())
}

/// The conditions of the run.
struct Head {
    date: String,
    commit: String,
    machine: String,
    command: String,
}

fn command(args: &Args) -> String {
    let quick = if args.quick { " --quick" } else { "" };
    format!(
        "cargo run -p lab --release -- store --keys {} --milliseconds {} --repetitions {} \
         --share-min {}{}",
        args.keys, args.milliseconds, args.repetitions, args.share_min, quick
    )
}

fn cell<'a>(cells: &'a [Cell], row: &str, subject: &str, threads: usize) -> Option<&'a Cell> {
    cells
        .iter()
        .find(|cell| cell.row == row && cell.subject == subject && cell.thread_count == threads)
}

fn median(cell: Option<&Cell>) -> f64 {
    Spread::of(cell.map(|cell| cell.mops.clone()).unwrap_or_default()).median
}

/// The peer with the highest median, of those whose name ends in `form`.
fn best_peer<'a>(found: &'a Found, row: &str, form: &str) -> Option<&'a Cell> {
    let peers = found.cells.iter().filter(|cell| {
        cell.is_peer && cell.row == row && cell.thread_count == 1 && cell.subject.ends_with(form)
    });
    peers.max_by(|left, right| median(Some(left)).total_cmp(&median(Some(right))))
}

fn page(head: &Head, args: &Args, found: &Found) -> String {
    let mut out = format!(
        "# The store in process\n\n{} items unless said, {}, commit {}, {}.\n\n    {}\n\n\
         Million operations a second of CPU time (medians; least to most in brackets). Windows of \
         {} ms, {} repetitions, interleaved, threads pinned; {} windows in which a thread got less \
         than {:.0} % of its core were thrown away and repeated. Memory is touched before the \
         clock starts. Every value that is read is checked, every byte of it, by ours and peers \
         alike. Keys, values and traces are the same.\n",
        format_grouped(args.keys),
        head.date,
        head.commit,
        head.machine,
        head.command,
        args.milliseconds,
        args.repetitions,
        found.thrown_away_count,
        args.share_min * 100.0,
    );
    out.push_str(&targets(found));
    out.push_str(&limits(found));
    out.push_str(&all_cells(found));
    out.push_str(&ablations(found));
    out.push_str(&figures(found));
    out.push_str(&pauses(found));
    if !found.skipped.is_empty() {
        out.push_str("\n## Not measured\n\n");
        for skipped in &found.skipped {
            let _ = writeln!(out, "- {skipped}");
        }
    }
    out
}

fn loads() -> impl Iterator<Item = Load> {
    HASH_LOADS.into_iter().chain(TREE_LOADS)
}

fn targets(found: &Found) -> String {
    let mut out = String::from(
        "\n## Targets\n\nOne thread; the better of batch 32 and 64. The best peer that owns keys \
         and values of any length, as the store does, and the best with inline items of a fixed \
         length, which the compiler knows.\n\n\
         | load | ours | target | best peer, owned | best peer, inline | to owned, to inline | \
         two threads to one |\n|---|---|---|---|---|---|---|\n",
    );
    for load in loads() {
        let own = |batch: u32, threads| {
            median(cell(&found.cells, load.name, &format!("dovetail, batch {batch}"), threads))
        };
        let ours = own(32, 1).max(own(64, 1));
        let peers = ["owned", "inline"].map(|form| best_peer(found, load.name, form));
        let [owned, inline] = peers.map(|peer| median(peer));
        let target = match load.target_mops {
            _ if load.name == SCAN_ROW => Some(SCAN_TARGET_RATIO * owned.max(inline)),
            target => target,
        };
        let named = |peer: Option<&Cell>| {
            peer.map_or("-".to_owned(), |peer| {
                format!("{} ({})", mops(median(Some(peer))), peer.subject)
            })
        };
        let scaling = 2.0 * own(32, 2) / own(32, 1);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {}, {} | {} |",
            load.name,
            mops(ours),
            verdict(ours, target),
            named(peers[0]),
            named(peers[1]),
            ratio(ours / owned),
            ratio(ours / inline),
            verdict_ratio(scaling),
        );
    }
    out.push_str(
        "\nTwo threads to one: twice the operations per CPU-second of two threads over those of \
         one, which leaves out what other processes took.\n",
    );
    out
}

fn verdict(ours: f64, target: Option<f64>) -> String {
    let Some(target) = target.filter(|target| target.is_finite()) else { return "-".to_owned() };
    let word = if ours >= target { "met" } else { "**missed**" };
    format!(">= {} {word}", mops(target))
}

fn verdict_ratio(scaling: f64) -> String {
    if !scaling.is_finite() {
        return "-".to_owned();
    }
    let word = if scaling >= TWO_THREADS_TARGET_RATIO { "met" } else { "**missed**" };
    format!("{scaling:.2}x, >= {TWO_THREADS_TARGET_RATIO}x {word}")
}

fn mops(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { "-".to_owned() }
}

fn ratio(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}x") } else { "-".to_owned() }
}

/// Lines touched, and the share of what the machine can read.
fn limits(found: &Found) -> String {
    let mut out = String::from(
        "\n## Share of the machine's limit\n\nA read touches the line of its bucket and those of \
         its entry; a rewrite the bucket, the old entry's header and key, and the new entry's \
         bytes in sequence, which count by length; of 8-byte values, which are replaced where \
         they lie, bucket and entry only. Buckets beyond the first of a chain are rare \
         and left out. The limit is what one thread reads of independent random lines from an \
         array of the size of the row's index and entries, in windows between ours. It goes up \
         and down by half within minutes with what other machines on the same host do, and \
         neighbouring lines of one entry come cheaper than lines at random: both are why a share \
         can be above 100 %. Skewed rows live in the cache. Two threads to one: of the bare \
         lines; what the machine itself loses.\n\n\
         | load | entry, bytes | lines an operation | working set, MiB | million lines a second: \
         limit | ours | share | bare lines, two threads to one | harness, ns an operation |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for load in HASH_LOADS {
        let size = found.row_sizes.iter().find(|(row, ..)| row == load.name);
        let Some((_, bytes, entry_bytes)) = size else { continue };
        let lines = load.lines_per_operation(*entry_bytes);
        let own = |batch: u32| {
            median(cell(&found.cells, load.name, &format!("dovetail, batch {batch}"), 1))
        };
        let read = own(32).max(own(64)) * lines;
        let limit_of = |threads| median(cell(&found.limits, load.name, LINES, threads));
        let limit = limit_of(1);
        let scaling = ratio(2.0 * limit_of(2) / limit);
        let share = if load.is_skewed() {
            "-".to_owned()
        } else {
            format!("{:.0} %", read / limit * 100.0)
        };
        let harness = 1e3 / median(cell(&found.harness, load.name, "harness", 1));
        let _ = writeln!(
            out,
            "| {} | {entry_bytes:.0} | {lines:.2} | {} | {limit:.0} | {read:.0} | {share} | \
             {scaling} | {harness:.1} |",
            load.name,
            bytes >> 20,
        );
    }
    out.push_str(
        "\nThe harness draws an operation, forms key, hash, value and request and checks what is \
         read; its time (target `null:`) is part of ours.\n",
    );
    out
}

fn all_cells(found: &Found) -> String {
    let mut out = String::from(
        "\n## Everything\n\n| load | store | threads | million operations a CPU-second |\n\
         |---|---|---|---|\n",
    );
    for load in loads() {
        for cell in found.cells.iter().filter(|cell| cell.row == load.name) {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                cell.row,
                cell.subject,
                cell.thread_count,
                spread(cell)
            );
        }
    }
    out
}

fn spread(cell: &Cell) -> String {
    let spread = Spread::of(cell.mops.clone());
    format!("{:.2} ({:.2} to {:.2})", spread.median, spread.min, spread.max)
}

fn ablations(found: &Found) -> String {
    let mut out = String::from(
        "\n## Ablations\n\nWhat each optimisation is worth: the option of `dovetail bench` that \
         switches it off, under the load that it is for.\n\n\
         | load | threads | setting | million operations a CPU-second | to everything on |\n\
         |---|---|---|---|---|\n",
    );
    for found_cell in &found.ablations {
        let (row, threads) = (&found_cell.row, found_cell.thread_count);
        let base = median(cell(&found.ablations, row, BASE, threads));
        let _ = writeln!(
            out,
            "| {row} | {threads} | {} | {} | {} |",
            found_cell.subject,
            spread(found_cell),
            ratio(median(Some(found_cell)) / base)
        );
    }
    out
}

fn figures(found: &Found) -> String {
    let mut out = String::from("\n## How cost grows\n");
    for figure in &found.figures {
        let _ = write!(out, "\n![{}](store-{}.svg)\n\n", figure.title, figure.name);
        for curve in &figure.curves {
            let points: Vec<String> =
                curve.points.iter().map(|(x, y)| format!("{x}: {y:.1}")).collect();
            let _ = writeln!(
                out,
                "{}, {} and ns of CPU an operation: {}.\n",
                curve.name,
                figure.x_title,
                points.join(", ")
            );
        }
    }
    out
}

fn pauses(found: &Found) -> String {
    let mut out = String::from(
        "\n## Pauses\n\nTime of each `execute` of 32 requests and of each `maintain`, in us, \
         every call timed. CPU time leaves out what other processes took of the core, not what the \
         host took of the machine: the control is arithmetic without memory, run by turns with \
         the calls for as long in sum, and what it shows is the machine's.\n\n\
         | while | calls | p50 | p99 | p99.99 | longest | longest, CPU time | above 100 us of CPU \
         |\n|---|---|---|---|---|---|---|---|\n",
    );
    for pause in &found.pauses {
        for call in ["execute", "maintain", "control"] {
            let number = |path: &str| {
                let found = pause.calls.pointer(&format!("/{call}{path}"));
                found.and_then(Value::as_f64).unwrap_or(f64::NAN)
            };
            let _ = writeln!(
                out,
                "| {} | {} {call} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} |",
                pause.what,
                format_grouped(number("_us/count") as u64),
                number("_us/p50"),
                number("_us/p99"),
                number("_us/p9999"),
                number("_us/max"),
                number("_cpu_us/max"),
                number("_cpu_us/over_100us"),
            );
        }
    }
    out
}

fn samples(head: &Head, found: &Found) -> Value {
    let cells = |cells: &[Cell]| -> Vec<Value> {
        let one = |cell: &Cell| {
            json!({
                "row": cell.row,
                "subject": cell.subject,
                "is_peer": cell.is_peer,
                "threads": cell.thread_count,
                "mops_per_cpu_second": cell.mops,
            })
        };
        cells.iter().map(one).collect()
    };
    let figures: Vec<Value> = found
        .figures
        .iter()
        .map(|figure| {
            let curves = figure.curves.iter();
            let curves: Vec<Value> = curves
                .map(|curve| json!({ "name": curve.name, "x_cpu_ns": curve.points }))
                .collect();
            json!({ "name": figure.name, "x": figure.x_title, "curves": curves })
        })
        .collect();
    let pauses: Vec<Value> = found
        .pauses
        .iter()
        .map(|pause| json!({ "while": pause.what, "calls": pause.calls }))
        .collect();
    json!({
        "date": head.date,
        "commit": head.commit,
        "machine": head.machine,
        "command": head.command,
        "cells": cells(&found.cells),
        "ablations": cells(&found.ablations),
        "harness": cells(&found.harness),
        "mlines_per_second": cells(&found.limits),
        "figures": figures,
        "pauses": pauses,
        "thrown_away": found.thrown_away_count,
        "skipped": found.skipped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparisons::store::{Curve, Figure, Pause};

    fn cell(row: &str, subject: &str, thread_count: usize, mops: f64) -> Cell {
        let is_peer = !subject.starts_with("dovetail") && subject != "harness";
        let (row, subject) = (row.to_owned(), subject.to_owned());
        Cell { row, subject, is_peer, thread_count, mops: vec![mops - 1.0, mops, mops + 1.0] }
    }

    fn found() -> Found {
        let get = HASH_LOADS[0].name;
        Found {
            cells: vec![
                cell(get, "dovetail, batch 32", 1, 30.0),
                cell(get, "dovetail, batch 64", 1, 33.0),
                cell(get, "dovetail, batch 32", 2, 29.0),
                cell(get, "dashmap, owned", 1, 10.0),
                cell(get, "scc::HashMap, owned", 1, 11.0),
                cell(get, "std HashMap, no lock, inline", 1, 15.0),
                cell(SCAN_ROW, "dovetail, batch 32", 1, 5.0),
                cell(SCAN_ROW, "scc::TreeIndex, inline", 1, 3.0),
            ],
            ablations: vec![cell(get, "--batch 1", 1, 10.0), cell(get, BASE, 1, 30.0)],
            harness: vec![cell(get, "harness", 1, 400.0)],
            row_sizes: vec![(get.to_owned(), 512 << 20, 32.0)],
            limits: vec![cell(get, LINES, 1, 80.0), cell(get, LINES, 2, 76.0)],
            figures: vec![Figure {
                name: "items",
                title: "t",
                x_title: "items",
                is_log_x: true,
                curves: vec![Curve { name: "GET", points: vec![(1e6, 20.0), (1e7, 30.0)] }],
            }],
            pauses: vec![Pause {
                what: "cleaning".to_owned(),
                calls: json!({ "execute_us": { "count": 9, "max": 12.5 } }),
            }],
            skipped: vec!["x".to_owned()],
            thrown_away_count: 3,
        }
    }

    fn head() -> Head {
        let text = || "h".to_owned();
        Head { date: text(), commit: text(), machine: text(), command: text() }
    }

    #[test]
    fn targets_are_met_or_missed_and_peers_named() {
        let table = targets(&found());
        let want = "| 8/8 uniform GET | 33.0 | >= 32.0 met | 11.0 (scc::HashMap, owned) | \
                    15.0 (std HashMap, no lock, inline) | 3.00x, 2.20x | 1.93x, >= 1.9x met |";
        assert!(table.contains(want), "{table}");
        // Twice the best peer would be 6.
        assert!(table.contains("| 5.0 | >= 6.0 **missed** | -"), "{table}");
    }

    #[test]
    fn the_share_of_the_limit_counts_lines() {
        let table = limits(&found());
        let want = "| 8/8 uniform GET | 32 | 2.00 | 512 | 80 | 66 | 82 % | 1.90x | 2.5 |";
        assert!(table.contains(want), "{table}");
    }

    #[test]
    fn page_samples_and_figures_are_written() {
        let root = tempfile::tempdir().unwrap();
        let args = Args {
            milliseconds: 1,
            repetitions: 3,
            keys: 10_000_000,
            quick: false,
            cpus: vec![0, 1],
            share_min: 0.95,
            output: "out".into(),
        };
        let page = page(&head(), &args, &found());
        for want in ["10 000 000 items", "| --batch 1 |", "0.33x", "12.5", "3 windows", "- x"] {
            assert!(page.contains(want), "{want}: {page}");
        }
        write(root.path(), &args, &found()).unwrap();
        let read = |name: &str| std::fs::read_to_string(root.path().join("out").join(name));
        let json: Value = serde_json::from_str(&read("store.json").unwrap()).unwrap();
        assert_eq!(json["cells"].as_array().unwrap().len(), 8);
        assert!(read("store-items.svg").unwrap().contains("GET"));
    }
}
