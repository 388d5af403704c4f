//! Throughput in windows of 10 ms, with the faults: a picture and its numbers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, RGBColor, Rectangle, SVGBackend,
    Text, WHITE,
};

use super::history::WINDOW_NS;

/// A fault with its times since the start.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The kind of fault.
    pub name: String,
    /// The time of injection.
    pub began_ns: u64,
    /// The time of healing.
    pub healed_ns: u64,
    /// The time when every shard had all its copies again.
    pub whole_ns: u64,
}

/// Writes `path`, an SVG, and a CSV beside it.
pub fn write(path: &Path, windows: &[u32], marks: &[Mark]) -> Result<()> {
    let mut text = "start_ms,answered,fault\n".to_owned();
    for (index, count) in windows.iter().enumerate() {
        let at_ns = index as u64 * WINDOW_NS;
        let mark = marks.iter().find(|mark| (mark.began_ns..mark.healed_ns).contains(&at_ns));
        let name = mark.map_or("", |mark| &mark.name);
        let _ = writeln!(text, "{},{count},{name}", index * 10);
    }
    std::fs::write(path.with_extension("csv"), text)
        .with_context(|| format!("cannot write beside {}", path.display()))?;
    draw(path, windows, marks)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn draw(path: &Path, windows: &[u32], marks: &[Mark]) -> Result<()> {
    let area = SVGBackend::new(path, (1100, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let y_max = f64::from(windows.iter().copied().max().unwrap_or(1).max(1)) * 100.0 * 1.35;
    let mut builder = ChartBuilder::on(&area);
    let caption =
        "Requests answered, in windows of 10 ms. Red: broken; orange: not whole again yet";
    builder.caption(caption, ("sans-serif", 17));
    builder.margin(12).x_label_area_size(42).y_label_area_size(64);
    let x_max = seconds(windows.len() as u64 * WINDOW_NS);
    let mut chart = builder.build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).y_label_formatter(&|count| format!("{count:.0}"));
    mesh.x_desc("s since the start").y_desc("requests per second").draw()?;
    let broken = RGBColor(214, 39, 40).mix(0.25).filled();
    let unwhole = RGBColor(255, 187, 120).mix(0.3).filled();
    for (index, mark) in marks.iter().enumerate() {
        let (began, healed) = (seconds(mark.began_ns), seconds(mark.healed_ns));
        let whole = seconds(mark.whole_ns);
        chart.draw_series([
            Rectangle::new([(healed, 0.0), (whole, y_max)], unwhole),
            Rectangle::new([(began, 0.0), (healed, y_max)], broken),
        ])?;
        // In three rows, so that neighbours do not cover each other.
        let height = y_max * (0.98 - 0.06 * (index % 3) as f64);
        let font = ("sans-serif", 11).into_font();
        chart.draw_series([Text::new(
            mark.name.clone(),
            (began.min(x_max * 0.87), height),
            font,
        )])?;
    }
    let points = windows
        .iter()
        .enumerate()
        .map(|(index, count)| (seconds(index as u64 * WINDOW_NS), f64::from(*count) * 100.0));
    chart.draw_series(LineSeries::new(points, RGBColor(31, 119, 180).stroke_width(1)))?;
    area.present().with_context(|| format!("cannot write {}", path.display()))
}
