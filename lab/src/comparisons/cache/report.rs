//! The output of `lab cache`: a page with losses first, the rows as JSON, and a chart.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, Palette, Palette99, Rectangle, SVGBackend, WHITE,
};
use serde_json::json;

use crate::comparisons::cache::{Args, Row};
use crate::comparisons::conditions::{commit, date, output_of};

const PEER: &str = "memcached";

/// The resolution of miss ratios: repeated replays differ by less, because requests of one batch
/// may pass each other.
const TIE: f64 = 0.0005;

/// Writes page, JSON and chart.
pub fn write(root: &Path, args: &Args, summaries: &[String], rows: &[Row]) -> Result<()> {
    let (date, commit) = (date(root)?, commit(root)?);
    let version = output_of(root, "memcached", &["--version"])?;
    let directory = root.join(&args.output);
    std::fs::create_dir_all(&directory)?;
    let place = |extension: &str| directory.join(format!("{date}-cache.{extension}"));
    let page = page(&date, &commit, &version, args, summaries, rows)?;
    std::fs::write(place("md"), page)?;
    std::fs::write(place("json"), json_of(rows))?;
    let svg = draw(rows).map_err(|error| anyhow::anyhow!("the chart: {error}"))?;
    std::fs::write(place("svg"), svg)?;
    println!("{}", place("md").display());
    Ok(())
}

fn json_of(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "workload": row.workload,
                "memory_mib": row.memory_mib,
                "server": row.server,
                "miss_ratio": row.miss_ratio,
                "byte_miss_ratio": row.byte_miss_ratio,
                "items": row.items,
                "evictions": row.evictions,
                "resident_mib": row.resident_mib,
            })
        })
        .collect();
    format!("{:#}\n", json!(rows))
}

/// Ours over memcached's on the same workload and memory.
fn ratio_to_peer(rows: &[Row], row: &Row) -> Option<f64> {
    let is_peer = |other: &&Row| {
        other.server == PEER && other.workload == row.workload && other.memory_mib == row.memory_mib
    };
    Some(row.miss_ratio / rows.iter().find(is_peer)?.miss_ratio)
}

fn page(
    date: &str,
    commit: &str,
    version: &str,
    args: &Args,
    summaries: &[String],
    rows: &[Row],
) -> Result<String> {
    let mut page = format!("# Miss ratios at equal memory, {date}\n\n");
    writeln!(
        page,
        "The same requests at Dovetail and at {version}, a fresh server each time: a get, and on a \
         miss a set of the trace's size and TTL, over one connection of memcached's text protocol. \
         Memory is what each server was told (`--memory`, `-m`); memcached adds its hash table and \
         buffers to it, Dovetail does not. Commit {commit}.\n"
    )?;
    let trace = if args.trace.is_some() { " --trace FILE" } else { "" };
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let clusters: Vec<u64> = args.clusters.iter().copied().map(u64::from).collect();
    writeln!(
        page,
        "```sh\ncargo run -p lab --release -- cache{trace} --clusters {} --requests {} --memory {} \
         --eviction {}\n```\n",
        list(&clusters),
        args.requests,
        list(&args.memory),
        args.eviction.join(",")
    )?;
    for summary in summaries {
        writeln!(page, "- {summary}")?;
    }
    losses(&mut page, rows)?;
    writeln!(
        page,
        "\n| workload | MiB | server | miss ratio | to memcached's | byte miss ratio | items | \
         evictions | resident MiB |\n|---|---|---|---|---|---|---|---|---|"
    )?;
    for row in rows {
        let ratio = ratio_to_peer(rows, row).unwrap_or(f64::NAN);
        writeln!(
            page,
            "| {} | {} | {} | {:.4} | {:.3}x | {:.4} | {:.0} | {} | {:.0} |",
            row.workload,
            row.memory_mib,
            row.server,
            row.miss_ratio,
            ratio,
            row.byte_miss_ratio,
            row.items,
            row.evictions,
            row.resident_mib
        )?;
    }
    writeln!(page, "\n![miss ratios]({date}-cache.svg)")?;
    Ok(page)
}

/// The rows in which ours misses more than memcached.
fn losses(page: &mut String, rows: &[Row]) -> Result<()> {
    let lost = |row: &&Row| {
        let peer = ratio_to_peer(rows, row).map_or(row.miss_ratio, |ratio| row.miss_ratio / ratio);
        row.server != PEER && row.miss_ratio > peer + TIE
    };
    let lost: Vec<&Row> = rows.iter().filter(lost).collect();
    let ours = rows.iter().filter(|row| row.server != PEER).count();
    writeln!(page, "\nDovetail misses more than memcached in {} of {ours} rows.", lost.len())?;
    for row in lost {
        let ratio = ratio_to_peer(rows, row).unwrap_or(f64::NAN);
        let Row { workload, memory_mib, server, .. } = row;
        writeln!(page, "- {workload} at {memory_mib} MiB, {server}: {ratio:.3}x")?;
    }
    Ok(())
}

const GROUP_WIDTH: u32 = 90;
const HEIGHT: u32 = 420;
/// Part of a group's width that its bars fill.
const BARS_SHARE: f64 = 0.8;

/// Bars, one group for each workload and memory.
fn draw(rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let mut servers: Vec<&str> = rows.iter().map(|row| row.server.as_str()).collect();
    let mut groups: Vec<String> = rows.iter().map(group_of).collect();
    groups.dedup();
    servers.sort_unstable();
    servers.dedup();
    let width = 120 + GROUP_WIDTH * groups.len() as u32;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption("miss ratio at equal memory", ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..groups.len() as f64, 0.0..1.0)?;
        let name = |x: &f64| groups.get(*x as usize).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(groups.len() + 1)
            .x_label_formatter(&name)
            .draw()?;
        let bar_width = BARS_SHARE / servers.len().max(1) as f64;
        for (place, server) in servers.iter().enumerate() {
            let colour = Palette99::pick(place).mix(0.8);
            let bars = rows.iter().filter(|row| row.server == *server).filter_map(|row| {
                let group = groups.iter().position(|group| *group == group_of(row))? as f64;
                let left = group + (1.0 - BARS_SHARE) / 2.0 + bar_width * place as f64;
                let corners = [(left, 0.0), (left + bar_width, row.miss_ratio)];
                Some(Rectangle::new(corners, colour.filled()))
            });
            chart.draw_series(bars)?.label(*server).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
            });
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw()?;
        area.present()?;
    }
    Ok(svg)
}

fn group_of(row: &Row) -> String {
    let workload = row.workload.split('.').next().unwrap_or_default();
    format!("{workload}, {} MiB", row.memory_mib)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, miss_ratio: f64) -> Row {
        Row {
            workload: "twitter-12".to_owned(),
            memory_mib: 64,
            server: server.to_owned(),
            miss_ratio,
            byte_miss_ratio: miss_ratio,
            items: 10.0,
            evictions: 1,
            resident_mib: 70.0,
        }
    }

    #[track_caller]
    fn check_losses(ours: f64, theirs: f64, want: &str) {
        let mut text = String::new();
        losses(&mut text, &[row(PEER, theirs), row("dovetail", ours)]).unwrap();
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn losses_are_counted_and_named() {
        check_losses(0.50, 0.51, "in 0 of 1 rows");
        check_losses(0.50, 0.50, "in 0 of 1 rows");
        check_losses(0.55, 0.50, "- twitter-12 at 64 MiB, dovetail: 1.100x");
    }

    #[test]
    fn a_chart_names_servers_and_groups() {
        let svg = draw(&[row(PEER, 0.5), row("dovetail", 0.4)]).unwrap();
        for want in ["<svg", "memcached", "dovetail", "twitter-12, 64 MiB"] {
            assert!(svg.contains(want), "{want}");
        }
    }
}
