//! Charts of how the cost grows.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoLogRange, LineSeries, Palette, Palette99,
    PathElement, Ranged, SVGBackend, WHITE,
};

use super::Figure;

/// Writes one figure.
pub fn draw(figure: &Figure, path: &Path) -> Result<()> {
    let points = || figure.curves.iter().flat_map(|curve| curve.points.iter().copied());
    let x_min = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let x_max = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    if !x_min.is_finite() || x_min >= x_max {
        return Ok(());
    }
    if figure.is_log_x {
        draw_on(figure, path, (x_min..x_max).log_scale())
    } else {
        draw_on(figure, path, x_min..x_max)
    }
}

fn draw_on<X>(figure: &Figure, path: &Path, x_range: X) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let points = figure.curves.iter().flat_map(|curve| curve.points.iter());
    let y_values: Vec<f64> = points.map(|point| point.1).collect();
    let y_max = y_values.iter().copied().fold(1.0, f64::max);
    let y_min = y_values.iter().copied().fold(y_max, f64::min);
    let area = SVGBackend::new(path, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&area);
    builder.caption(figure.title, ("sans-serif", 17)).margin(12);
    builder.x_label_area_size(42).y_label_area_size(64);
    let mut chart = builder
        .build_cartesian_2d(x_range, (y_min * 0.8..y_max * 1.2).log_scale())
        .context("cannot lay the chart out")?;
    chart
        .configure_mesh()
        .x_desc(figure.x_title)
        .y_desc("CPU time, ns per operation")
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    for (index, curve) in figure.curves.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)))?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        let dots = curve.points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    chart.configure_series_labels().background_style(WHITE).draw()?;
    area.present().context("cannot write the chart")
}

/// A number with a decimal unit.
fn short(number: f64) -> String {
    let (number, unit) = match number {
        number if number >= 1e6 => (number / 1e6, " M"),
        number if number >= 1e4 => (number / 1e3, " k"),
        number => (number, ""),
    };
    let digits = if number.fract().abs() < 0.05 || number >= 100.0 { 0 } else { 1 };
    format!("{number:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparisons::store::Curve;

    #[test]
    fn numbers_are_short() {
        for (number, want) in [(1e6, "1 M"), (30e6, "30 M"), (16_384.0, "16.4 k"), (0.5, "0.5")] {
            assert_eq!(short(number), want);
        }
    }

    #[test]
    fn a_figure_has_its_curves_and_its_title() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.svg");
        let curves = vec![Curve { name: "GET", points: vec![(1e6, 25.0), (1e8, 60.0)] }];
        for is_log_x in [false, true] {
            let curves = curves.clone();
            let figure = Figure { name: "n", title: "cost", x_title: "items", is_log_x, curves };
            draw(&figure, &path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("GET") && text.contains("cost"), "{text}");
        }
    }
}
