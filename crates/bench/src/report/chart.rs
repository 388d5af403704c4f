//! Draws latency over percentiles as an SVG; each further nine of the tail is as wide as the body.

use base::format_grouped;
use plotters::prelude::{
    BLACK, BLUE, ChartBuilder, Color, IntoDrawingArea, IntoLogRange, LineSeries, SVGBackend, WHITE,
};

use crate::error::BenchError;
use crate::plan::Plan;
use crate::report::table::title;
use crate::summary::Summary;

const SIZE_PIXELS: (u32, u32) = (1000, 560);
/// Up to p99.999: `1 / (1 - quantile)`.
const NINES_MAX: f64 = 1e5;
const POINTS_PER_DECADE: f64 = 40.0;

pub(super) fn draw(plan: &Plan, summary: &Summary) -> Result<String, BenchError> {
    let mut svg = String::new();
    draw_into(&mut svg, plan, summary).map_err(|reason| BenchError::Write {
        path: "the chart".into(),
        source: std::io::Error::other(reason),
    })?;
    Ok(svg)
}

/// One point for each step of `1 / (1 - quantile)`, evenly spaced on its logarithm.
fn points(summary: &Summary) -> Vec<(f64, f64)> {
    let count = (NINES_MAX.log10() * POINTS_PER_DECADE) as u32;
    let point = |step: u32| {
        let rarity = 10_f64.powf(f64::from(step) / POINTS_PER_DECADE);
        (rarity, summary.latency_us(1.0 - 1.0 / rarity).max(0.001))
    };
    (0..=count).map(point).collect()
}

fn draw_into(svg: &mut String, plan: &Plan, summary: &Summary) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let points = points(summary);
    let low = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|point| point.1).fold(low, f64::max);
    let area = SVGBackend::with_string(svg, SIZE_PIXELS).into_drawing_area();
    area.fill(&WHITE).map_err(|error| text(&error))?;
    let (head, body) = area.split_vertically(52);
    let throughput =
        format!("{} operations/s", format_grouped(summary.total.ops_per_second as u64));
    for (row, line) in [throughput, title(plan)].into_iter().enumerate() {
        let place = (16, 10 + 20 * row as i32);
        head.draw_text(&line, &("sans-serif", 13).into(), place).map_err(|error| text(&error))?;
    }
    let mut chart = ChartBuilder::on(&body)
        .margin(16)
        .margin_right(40)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d((1.0..NINES_MAX).log_scale(), (low * 0.8..high * 1.25).log_scale())
        .map_err(|error| text(&error))?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc("latency (us)")
        .x_label_formatter(&|rarity| percentile(*rarity))
        .y_label_formatter(&|latency| format!("{latency}"))
        .axis_style(BLACK)
        .draw()
        .map_err(|error| text(&error))?;
    chart
        .draw_series(LineSeries::new(points, BLUE.stroke_width(2)))
        .map_err(|error| text(&error))?;
    area.present().map_err(|error| text(&error))
}

/// `1 / (1 - quantile)` as a readable percentage: 100 is 99 %.
fn percentile(rarity: f64) -> String {
    let percent = 100.0 * (1.0 - 1.0 / rarity);
    let nines = rarity.log10().floor().max(0.0) as usize;
    format!("{percent:.*} %", nines.saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_written_with_their_nines() {
        for (rarity, want) in [(1.0, "0 %"), (10.0, "90 %"), (100.0, "99 %"), (1e4, "99.99 %")] {
            assert_eq!(percentile(rarity), want);
        }
    }
}
