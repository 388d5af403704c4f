//! The course of a resharding, as a picture and as numbers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::{
    BLACK, ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor,
    SVGBackend, SeriesLabelPosition, Text, WHITE,
};

use super::reshard::{Course, WINDOW};

/// Writes `path`, an SVG, and a CSV beside it.
pub fn write(path: &Path, course: &Course) -> Result<()> {
    let servers = course.windows.first().map_or(0, Vec::len);
    let mut text = "start_ms,answered".to_owned();
    for server in 1..=servers {
        let _ = write!(text, ",n{server},n{server}_cpu_10ms");
    }
    text.push_str(",mark\n");
    for (index, window) in course.windows.iter().enumerate() {
        let began = WINDOW * index as u32;
        let _ = write!(text, "{},{}", began.as_millis(), window.iter().sum::<u32>());
        for (server, answered) in window.iter().enumerate() {
            let until = |index: usize| course.ticks.get(index).map_or(0, |ticks| ticks[server]);
            let before = index.checked_sub(1).map_or(0, until);
            let spent = if before == 0 { 0 } else { until(index).saturating_sub(before) };
            let _ = write!(text, ",{answered},{spent}");
        }
        let marks = course.marks.iter().filter(|mark| (began..began + WINDOW).contains(&mark.1));
        let names: Vec<&str> = marks.map(|mark| mark.0.as_str()).collect();
        let _ = writeln!(text, ",{}", names.join(" + "));
    }
    std::fs::write(path.with_extension("csv"), text)
        .with_context(|| format!("cannot write beside {}", path.display()))?;
    draw(path, course)
}

fn draw(path: &Path, course: &Course) -> Result<()> {
    let area = SVGBackend::new(path, (1100, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let per_s = |count: u32| f64::from(count) / WINDOW.as_secs_f64() / 1000.0;
    let x_max = (WINDOW * course.windows.len() as u32).as_secs_f64();
    let total = |window: &Vec<u32>| per_s(window.iter().sum());
    let most = course.windows.iter().map(total).fold(1.0, f64::max);
    let y_max = most * 1.45;
    let mut builder = ChartBuilder::on(&area);
    builder.caption("Requests answered while one shard is hot and moves", ("sans-serif", 17));
    builder.margin(12).x_label_area_size(42).y_label_area_size(60);
    let mut chart = builder.build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).x_desc("s since the start").y_desc("1000 requests per second");
    mesh.x_label_formatter(&|s| format!("{s:.0}"))
        .y_label_formatter(&|count| format!("{count:.0}"));
    mesh.draw()?;
    let mut row = 0;
    let mut last: Option<(&str, f64)> = None;
    for (name, at) in &course.marks {
        let at = at.as_secs_f64();
        // What follows at once is said once.
        if last.is_some_and(|(before, time)| before == name && at - time < 0.2) {
            continue;
        }
        last = Some((name, at));
        let line = PathElement::new([(at, 0.0), (at, y_max)], BLACK.mix(0.6));
        chart.draw_series([line])?;
        let height = y_max * (0.99 - 0.05 * f64::from(row % 5));
        row += 1;
        let font = ("sans-serif", 13).into_font();
        chart.draw_series([Text::new(name.clone(), (at + x_max * 0.004, height), font)])?;
    }
    let mut line = |name: String, color: RGBColor, of: &dyn Fn(&Vec<u32>) -> f64| -> Result<()> {
        let middle = |index: usize| (WINDOW * index as u32 + WINDOW / 2).as_secs_f64();
        let points = course.windows.iter().enumerate();
        let points = points.map(|(index, window)| (middle(index), of(window)));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        Ok(())
    };
    let (from, to) = (course.from, course.to);
    line("all servers".to_owned(), RGBColor(31, 119, 180), &total)?;
    line(format!("n{}: has the hot shard", to + 1), RGBColor(214, 39, 40), &|w| per_s(w[to]))?;
    line(format!("n{}: loses load", from + 1), RGBColor(44, 160, 44), &|w| per_s(w[from]))?;
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8));
    legend.border_style(BLACK.mix(0.3)).draw()?;
    area.present().with_context(|| format!("cannot write {}", path.display()))
}
