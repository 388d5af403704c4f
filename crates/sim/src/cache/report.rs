//! The output of a replay: a table, CSV, JSON, and a chart of miss ratio over size.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::SimError;
use crate::cache::{Row, Trace};
use crate::chart::{self, Axis, Chart, Scale, Series, Style, Table};

/// The numbers as one JSON object.
#[derive(Serialize)]
struct Json<'a> {
    trace: &'a str,
    requests: usize,
    look_ups: u64,
    objects: u64,
    working_set_bytes: u64,
    rows: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    engine: &'a str,
    policy: &'a str,
    size: &'a str,
    capacity: u64,
    capacity_unit: &'static str,
    miss_ratio: f64,
    byte_miss_ratio: f64,
    objects: f64,
    /// `null` where items count alike.
    bytes: Option<f64>,
    evictions: u64,
}

/// One JSON object on one line.
pub fn json(name: &str, trace: &Trace, rows: &[Row]) -> Result<String, SimError> {
    let rows = rows.iter().map(|row| JsonRow {
        engine: row.engine,
        policy: &row.policy,
        size: &row.size,
        capacity: row.capacity,
        capacity_unit: if row.is_objects { "objects" } else { "bytes" },
        miss_ratio: row.tally.miss_ratio(),
        byte_miss_ratio: row.tally.byte_miss_ratio(),
        objects: row.tally.objects,
        bytes: Some(row.tally.bytes).filter(|bytes| bytes.is_finite()),
        evictions: row.tally.evictions,
    });
    let json = Json {
        trace: name,
        requests: trace.requests().len(),
        look_ups: trace.look_count,
        objects: trace.object_count,
        working_set_bytes: trace.working_set_bytes,
        rows: rows.collect(),
    };
    serde_json::to_string(&json)
        .map_err(|error| SimError::BadParameter { what: format!("the result is no JSON: {error}") })
}

const COLUMNS: [&str; 8] = [
    "engine",
    "policy",
    "size",
    "miss ratio",
    "byte miss ratio",
    "objects held",
    "bytes held",
    "evictions",
];

fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let tally = &row.tally;
    let bytes = if tally.bytes.is_finite() { format!("{:.0}", tally.bytes) } else { String::new() };
    [
        row.engine.to_owned(),
        row.policy.clone(),
        row.size.clone(),
        format!("{:.4}", tally.miss_ratio()),
        format!("{:.4}", tally.byte_miss_ratio()),
        format!("{:.0}", tally.objects),
        bytes,
        tally.evictions.to_string(),
    ]
}

/// The numbers in columns, for a terminal.
pub fn text(name: &str, trace: &Trace, rows: &[Row]) -> String {
    let mut text = format!(
        "{name}: {} requests, {} of them look-ups, {} objects, {} bytes\n",
        trace.requests().len(),
        trace.look_count,
        trace.object_count,
        trace.working_set_bytes
    );
    let lines: Vec<[String; COLUMNS.len()]> =
        std::iter::once(COLUMNS.map(str::to_owned)).chain(rows.iter().map(cells)).collect();
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].len()).max().unwrap_or(0)
    });
    for line in &lines {
        let words = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < 3 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(words.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The table as a CSV file.
pub fn write_csv(path: &Path, rows: &[Row]) -> Result<PathBuf, SimError> {
    let columns = COLUMNS.map(|column| column.replace(' ', "_"));
    let rows = rows.iter().map(|row| cells(row).to_vec()).collect();
    chart::write_table(path, &Table { columns: columns.to_vec(), rows })
}

/// Miss ratio over size, a line for each policy.
pub fn write_svg(path: &Path, name: &str, rows: &[Row]) -> Result<PathBuf, SimError> {
    let mut charts = Vec::new();
    for (is_objects, label) in [(false, "bytes"), (true, "objects")] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.is_objects == is_objects).collect();
        if rows.is_empty() {
            continue;
        }
        charts.push(Chart {
            title: format!("miss ratio by {label} of cache"),
            x: Axis { label: format!("{label} of cache"), scale: Scale::Log },
            y: Axis { label: "miss ratio".to_owned(), scale: Scale::Linear },
            series: series(&rows),
        });
    }
    chart::write_picture(path, name, &charts)
}

fn series(rows: &[&Row]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let label = format!("{} {}", row.engine, row.policy);
        let point = (row.capacity as f64, row.tally.miss_ratio());
        match series.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(point),
            None => series.push(Series { label, style: Style::Line, points: vec![point] }),
        }
    }
    for series in &mut series {
        series.points.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    series
}
