//! One panel: axes, our lines and bars, and the paper's numbers as rings on top.

use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, Cartesian2d, ChartBuilder, ChartContext, Circle, Color, DrawingArea, IntoFont,
    IntoTextStyle, LineSeries, RGBColor, Rectangle, SVGBackend,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::svg::axis::{Span, written};
use crate::chart::svg::palette::Palette;
use crate::chart::{Axis, Chart, Scale, Series, Style};

/// Share of the room between two groups of bars that they fill together.
const BARS_SHARE: f64 = 0.8;
const TITLE_HEIGHT: u32 = 28;
const MARGIN: u32 = 8;
/// The last number of the horizontal axis stands half outside.
const MARGIN_RIGHT: u32 = 22;
/// For the numbers of the vertical axis and what they are.
const LABELS_WIDTH: u32 = 68;
const GRID: RGBColor = RGBColor(225, 225, 225);
const GRID_LIGHT: RGBColor = RGBColor(243, 243, 243);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Context<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<Span, Span>>;

/// Draws the panel into its area.
pub(super) fn draw(area: &Area<'_>, chart: &Chart, palette: &Palette<'_>) -> Result<(), String> {
    let bars = Bars::of(chart);
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = Span::around(chart.x.scale, points().map(|point| point.0), bars.group_width / 2.0);
    // Bars on a linear axis stand on 0, so it must be there.
    let base = (!bars.labels.is_empty() && chart.y.scale == Scale::Linear).then_some(0.0);
    let y = Span::around(chart.y.scale, points().map(|point| point.1).chain(base), 0.0);
    let (head, body) = area.split_vertically(TITLE_HEIGHT);
    let middle = (LABELS_WIDTH + MARGIN + head.dim_in_pixel().0 - MARGIN_RIGHT) as i32 / 2;
    let centred = Pos::new(HPos::Center, VPos::Top);
    head.draw_text(
        &chart.title,
        &("sans-serif", 19).into_font().into_text_style(&head).pos(centred),
        (middle, 8),
    )
    .map_err(|error| error.to_string())?;
    let mut context = ChartBuilder::on(&body)
        .margin(MARGIN)
        .margin_right(MARGIN_RIGHT)
        .x_label_area_size(48)
        .y_label_area_size(LABELS_WIDTH)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(|error| error.to_string())?;
    mesh(&mut context, &chart.x, &chart.y)?;
    for series in &chart.series {
        let shown = series.points.iter().filter(|point| x.shows(point.0) && y.shows(point.1));
        let colour = palette.colour(&series.label);
        let points: Vec<(f64, f64)> =
            shown.map(|point| (point.0 + bars.offset_of(series), point.1)).collect();
        match series.style {
            Style::Line => line(&mut context, points, colour)?,
            Style::Bars => bars.draw(&mut context, &points, y.base(), colour)?,
            Style::Marks => rings(&mut context, points, colour)?,
        }
    }
    Ok(())
}

fn mesh(context: &mut Context<'_, '_>, x: &Axis, y: &Axis) -> Result<(), String> {
    let names: &[&str] = if let Scale::Names(names) = x.scale { names } else { &[] };
    let x_label = |number: &f64| match names.get(number.round() as usize) {
        Some(name) => (*name).to_owned(),
        None => written(*number),
    };
    context
        .configure_mesh()
        .x_desc(&x.label)
        .y_desc(&y.label)
        .x_label_formatter(&x_label)
        .y_label_formatter(&|number| written(*number))
        .axis_desc_style(("sans-serif", 17))
        .label_style(("sans-serif", 15))
        .bold_line_style(GRID)
        .light_line_style(GRID_LIGHT)
        .axis_style(BLACK)
        .draw()
        .map_err(|error| error.to_string())
}

fn line(
    context: &mut Context<'_, '_>,
    points: Vec<(f64, f64)>,
    colour: RGBColor,
) -> Result<(), String> {
    let dots = points.clone();
    context
        .draw_series(LineSeries::new(points, colour.stroke_width(2)))
        .map_err(|error| error.to_string())?;
    context
        .draw_series(dots.into_iter().map(|point| Circle::new(point, 2, colour.filled())))
        .map_err(|error| error.to_string())?;
    Ok(())
}

fn rings(
    context: &mut Context<'_, '_>,
    points: Vec<(f64, f64)>,
    colour: RGBColor,
) -> Result<(), String> {
    let rings = points.into_iter().map(|point| Circle::new(point, 5, colour.stroke_width(2)));
    context.draw_series(rings).map(|_| ()).map_err(|error| error.to_string())
}

/// Where the bars of each label stand beside each other around the same `x`.
struct Bars<'a> {
    labels: Vec<&'a str>,
    group_width: f64,
}

impl<'a> Bars<'a> {
    fn of(chart: &'a Chart) -> Bars<'a> {
        let is_bars = |series: &&Series| series.style == Style::Bars;
        let series = || chart.series.iter().filter(is_bars);
        let labels: Vec<&str> = series().map(|series| series.label.as_str()).collect();
        let mut places: Vec<f64> =
            series().flat_map(|series| &series.points).map(|point| point.0).collect();
        places.retain(|place| place.is_finite());
        places.sort_by(f64::total_cmp);
        let gaps = places.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0);
        let gap = gaps.fold(f64::INFINITY, f64::min);
        let room = if gap.is_finite() { gap } else { 1.0 };
        let group_width = if labels.is_empty() { 0.0 } else { room * BARS_SHARE };
        Bars { labels, group_width }
    }

    fn bar_width(&self) -> f64 {
        self.group_width / self.labels.len().max(1) as f64
    }

    /// Marks with the label of bars stand over those; lines are where they are.
    fn offset_of(&self, series: &Series) -> f64 {
        let index = self.labels.iter().position(|label| *label == series.label);
        match index {
            Some(index) if series.style != Style::Line => {
                self.bar_width() * (index as f64 + 0.5) - self.group_width / 2.0
            }
            _ => 0.0,
        }
    }

    fn draw(
        &self,
        context: &mut Context<'_, '_>,
        points: &[(f64, f64)],
        base: f64,
        colour: RGBColor,
    ) -> Result<(), String> {
        let half = self.bar_width() * 0.45;
        let bar = |point: &(f64, f64)| {
            let (x, y) = *point;
            Rectangle::new([(x - half, base), (x + half, y)], colour.mix(0.75).filled())
        };
        context.draw_series(points.iter().map(bar)).map(|_| ()).map_err(|error| error.to_string())
    }
}
