//! The output of `lab peers`: a page, the raw samples as JSON, a chart, and the table of the
//! README.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, Palette, Palette99, Rectangle, SVGBackend, WHITE,
};
use serde_json::{Value, json};

use crate::comparisons::conditions::{commit, date, machine};
use crate::comparisons::peers::measure::Sample;
use crate::comparisons::peers::servers::Kind;
use crate::comparisons::peers::{Args, WORKLOADS};
use crate::comparisons::statistics::Spread;

/// One server under one workload.
#[derive(Clone, Debug)]
pub struct Row {
    workload: &'static str,
    server: &'static str,
    kind: Kind,
    /// One for each repetition.
    pub samples: Vec<Sample>,
}

impl Row {
    /// A row without samples.
    pub fn new(workload: &'static str, server: &'static str, kind: Kind) -> Row {
        Row { workload, server, kind, samples: Vec::new() }
    }

    /// Whether it is the row of this pair.
    pub fn is_of(&self, workload: &str, server: &str) -> bool {
        self.workload == workload && self.server == server
    }

    fn spread(&self, field: fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(field).collect())
    }

    fn cpu_ns(&self) -> Spread {
        self.spread(|sample| sample.server_cpu_ns_per_op)
    }
}

/// The store in process at one batch size.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// Requests in flight.
    pub batch: u32,
    /// One for each repetition.
    pub ops_per_cpu_second: Vec<f64>,
}

impl Embedded {
    /// A row without samples.
    pub fn new(batch: u32) -> Embedded {
        Embedded { batch, ops_per_cpu_second: Vec::new() }
    }
}

/// All results of one run, and its conditions.
pub struct Run {
    date: String,
    commit: String,
    machine: String,
    command: String,
    versions: Vec<(String, String)>,
    rows: Vec<Row>,
    embedded: Vec<Embedded>,
}

impl Run {
    /// Adds date, commit and machine to the samples.
    pub fn describe(
        root: &Path,
        args: &Args,
        versions: Vec<(String, String)>,
        rows: Vec<Row>,
        embedded: Vec<Embedded>,
    ) -> Result<Run> {
        Ok(Run {
            date: date(root)?,
            commit: commit(root)?,
            machine: machine(root)?,
            command: format!(
                "cargo run -p lab --release -- peers --seconds {} --repetitions {} --keys {} \
                 --share-min {}",
                args.seconds, args.repetitions, args.keys, args.share_min
            ),
            versions,
            rows,
            embedded,
        })
    }

    fn rows_of(&self, workload: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.workload == workload)
    }

    /// The least median CPU time per operation among the servers of this kind.
    fn least_cpu_ns(&self, workload: &str, kind: Kind) -> f64 {
        let of_kind = self.rows_of(workload).filter(|row| row.kind == kind);
        of_kind.map(|row| row.cpu_ns().median).fold(f64::NAN, f64::min)
    }
}

/// Writes the page, the samples and the chart, and renews the table of the README.
pub fn write(root: &Path, folder: &Path, run: &Run) -> Result<()> {
    let folder = root.join(folder);
    std::fs::create_dir_all(&folder)?;
    let path = |extension: &str| folder.join(format!("{}-peers.{extension}", run.date));
    std::fs::write(path("md"), page(run))?;
    std::fs::write(path("json"), format!("{:#}\n", samples(run)))?;
    draw(run, &path("svg")).context("cannot draw the chart")?;
    let readme = root.join("README.md");
    let text = std::fs::read_to_string(&readme)?;
    if let Some(renewed) = replace_table(&text, &table(run)) {
        std::fs::write(&readme, renewed)?;
    }
    println!("wrote {}", path("md").display());
    Ok(())
}

const TABLE_BEGIN: &str = "<!-- peers: begin -->";
const TABLE_END: &str = "<!-- peers: end -->";

/// The README with the part between the two marks replaced.
fn replace_table(readme: &str, table: &str) -> Option<String> {
    let (head, rest) = readme.split_once(TABLE_BEGIN)?;
    let (_, tail) = rest.split_once(TABLE_END)?;
    Some(format!("{head}{TABLE_BEGIN}\n{table}{TABLE_END}{tail}"))
}

fn table(run: &Run) -> String {
    let mut out = String::from(
        "| workload | server | server CPU, ns per operation (least to most) | to the best peer | \
         to no store | thousand operations a second | p50, us | p99, us \
         |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in WORKLOADS.iter().flat_map(|workload| run.rows_of(workload.name)) {
        let cpu = row.cpu_ns();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {:.0} ({:.0} to {:.0}) | {:.2}x | {:.2}x | {:.0} | {:.1} | {:.0} |",
            row.workload,
            row.server,
            cpu.median,
            cpu.min,
            cpu.max,
            cpu.median / run.least_cpu_ns(row.workload, Kind::Peer),
            cpu.median / run.least_cpu_ns(row.workload, Kind::Bare),
            row.spread(|sample| sample.ops_per_second).median / 1000.0,
            row.spread(|sample| sample.latency_us_p50).median,
            row.spread(|sample| sample.latency_us_p99).median,
        );
    }
    out.push('\n');
    out.push_str(
        "| store in process, 8-byte keys and values, uniform GET | million operations per CPU \
         second |\n|---|---|\n",
    );
    for row in &run.embedded {
        let ops = Spread::of(row.ops_per_cpu_second.clone());
        let (median, min, max) = (ops.median / 1e6, ops.min / 1e6, ops.max / 1e6);
        let _ = writeln!(out, "| batch {} | {median:.1} ({min:.1} to {max:.1}) |", row.batch);
    }
    let _ = writeln!(
        out,
        "\nMedians; {}; commit {}; {}; one core each for server and client; 16-byte keys, 64-byte \
         values, Zipf 0.99; `{}`.",
        run.machine, run.commit, run.date, run.command
    );
    out
}

fn page(run: &Run) -> String {
    let mut out = format!("# Dovetail and its peers, {}\n\n{}\n", run.date, table(run));
    let _ = writeln!(out, "![server CPU per operation]({}-peers.svg)\n", run.date);
    out.push_str("Programs:\n\n");
    for (name, version) in &run.versions {
        let _ = writeln!(out, "- {name}: `{version}`");
    }
    out.push_str(
        "\nServers stand on one core, the load generator on another. While one server is measured \
         the others are stopped by SIGSTOP. Repetitions are interleaved. CPU time is the run time \
         of all threads from /proc/PID/task/*/schedstat. Runs in which a side got less than \
         `--share-min` of its core, while it wanted it, are thrown away and repeated.\n",
    );
    out
}

fn samples(run: &Run) -> Value {
    let rows: Vec<Value> = run
        .rows
        .iter()
        .map(|row| {
            let each =
                |field: fn(&Sample) -> f64| row.samples.iter().map(field).collect::<Vec<_>>();
            json!({
                "workload": row.workload,
                "server": row.server,
                "ops_per_second": each(|sample| sample.ops_per_second),
                "server_cpu_ns_per_op": each(|sample| sample.server_cpu_ns_per_op),
                "latency_us_p50": each(|sample| sample.latency_us_p50),
                "latency_us_p99": each(|sample| sample.latency_us_p99),
                "server_share_ratio": each(|sample| sample.server_share_ratio),
                "client_share_ratio": each(|sample| sample.client_share_ratio),
            })
        })
        .collect();
    let embedded: Vec<Value> = run
        .embedded
        .iter()
        .map(|row| json!({ "batch": row.batch, "ops_per_cpu_second": row.ops_per_cpu_second }))
        .collect();
    json!({
        "date": run.date,
        "commit": run.commit,
        "machine": run.machine,
        "command": run.command,
        "versions": run.versions,
        "rows": rows,
        "embedded": embedded,
    })
}

/// One group of bars for each workload, one bar for each server.
fn draw(run: &Run, path: &Path) -> Result<()> {
    let bars: Vec<(f64, f64, &Row)> = WORKLOADS
        .iter()
        .enumerate()
        .flat_map(|(group, workload)| {
            let count = run.rows_of(workload.name).count() as f64;
            run.rows_of(workload.name).enumerate().map(move |(index, row)| {
                let width = 0.8 / count;
                (group as f64 + 0.1 + index as f64 * width, width, row)
            })
        })
        .collect();
    let top = bars.iter().map(|(.., row)| row.cpu_ns().max).fold(1.0, f64::max) * 1.1;
    let area = SVGBackend::new(path, (900, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("server CPU, ns per operation (less is better)", ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..WORKLOADS.len() as f64, 0.0..top)?;
    let name_at = |x: &f64| {
        let workload = WORKLOADS.get(x.floor() as usize);
        workload.filter(|_| (x.fract() - 0.5).abs() < 0.01).map_or("", |workload| workload.name)
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * WORKLOADS.len() + 1)
        .x_label_formatter(&|x| name_at(x).to_owned())
        .draw()?;
    let mut servers: Vec<&str> = Vec::new();
    for (.., row) in &bars {
        // Not every server is put under every workload.
        if !servers.contains(&row.server) {
            servers.push(row.server);
        }
    }
    for (index, server) in servers.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let own = bars.iter().filter(|(.., row)| row.server == *server);
        chart
            .draw_series(own.map(|(x, width, row)| {
                Rectangle::new([(*x, 0.0), (x + width * 0.9, row.cpu_ns().median)], colour.filled())
            }))?
            .label(*server)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    }
    chart.configure_series_labels().background_style(WHITE).draw()?;
    area.present().context("cannot write the chart")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_marks_of_the_readme_changes() {
        let readme = format!("a\n{TABLE_BEGIN}\nold\n{TABLE_END}\nb\n");
        let renewed = replace_table(&readme, "new\n").unwrap();
        assert_eq!(renewed, format!("a\n{TABLE_BEGIN}\nnew\n{TABLE_END}\nb\n"));
        assert_eq!(replace_table("no marks", "new"), None);
    }

    fn run_of(medians: [f64; 4]) -> Run {
        let sample = |cpu_ns: f64| Sample {
            ops_per_second: 1e9 / cpu_ns,
            server_cpu_ns_per_op: cpu_ns,
            latency_us_p50: 10.0,
            latency_us_p99: 20.0,
            server_share_ratio: 1.0,
            client_share_ratio: 1.0,
        };
        let names = [
            ("dovetail", Kind::Ours),
            ("no store", Kind::Bare),
            ("redis-server", Kind::Peer),
            ("memcached", Kind::Peer),
        ];
        let rows = WORKLOADS.iter().flat_map(|workload| {
            names.iter().zip(medians).map(move |((name, kind), cpu_ns)| {
                let mut row = Row::new(workload.name, name, *kind);
                row.samples = [cpu_ns - 1.0, cpu_ns, cpu_ns + 1.0].map(sample).into();
                row
            })
        });
        Run {
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
            machine: "m".to_owned(),
            command: "c".to_owned(),
            versions: Vec::new(),
            rows: rows.collect(),
            embedded: vec![Embedded { batch: 32, ops_per_cpu_second: vec![30e6] }],
        }
    }

    #[test]
    fn ratios_are_to_the_best_peer() {
        let table = table(&run_of([400.0, 200.0, 1000.0, 2000.0]));
        let want =
            "| GET, 4 x 32 | dovetail | 400 (399 to 401) | 0.40x | 2.00x | 2500 | 10.0 | 20 |";
        assert!(table.contains(want), "{table}");
        assert!(table.contains("| memcached | 2000 (1999 to 2001) | 2.00x | 10.00x |"), "{table}");
        assert!(table.contains("| batch 32 | 30.0 (30.0 to 30.0) |"), "{table}");
    }

    #[test]
    fn page_samples_and_chart_are_written_and_the_readme_renewed() {
        let root = tempfile::tempdir().unwrap();
        let readme = format!("a\n{TABLE_BEGIN}\n{TABLE_END}\n");
        std::fs::write(root.path().join("README.md"), readme).unwrap();
        write(root.path(), Path::new("out"), &run_of([400.0, 200.0, 1000.0, 2000.0])).unwrap();
        let read = |name: &str| std::fs::read_to_string(root.path().join(name)).unwrap();
        assert!(read("out/2026-01-02-peers.md").contains("0.40x"));
        assert!(read("README.md").contains("0.40x"));
        let json: Value = serde_json::from_str(&read("out/2026-01-02-peers.json")).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), 16);
        let chart = read("out/2026-01-02-peers.svg");
        assert!(chart.contains("GET, 4 x 32") && chart.contains("redis-server"), "{chart}");
    }
}
