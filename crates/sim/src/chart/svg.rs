//! The SVG of a figure: panels in a grid, one legend for all of them.
//!
//! ```text
//!  +--------------- title ---------------+
//!  |  panel   |   panel   |   panel      |     at most three in a row
//!  |  panel   |   panel   |              |
//!  +- legend: — ours  ▮ ours  ○ paper's -+
//! ```

mod axis;
mod palette;
mod panel;

use plotters::prelude::{
    BLACK, Circle, Color, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend,
    WHITE,
};

use crate::SimError;
use crate::chart::svg::palette::Palette;
use crate::chart::svg::panel::Area;
use crate::chart::{Chart, Style};

const PANEL_PIXELS: (u32, u32) = (460, 366);
/// A lone panel may be wider.
const PANEL_ALONE_PIXELS: (u32, u32) = (760, 456);
const TITLE_HEIGHT: u32 = 44;
const LEGEND_ROW_HEIGHT: u32 = 24;
const LEGEND_MARGIN: u32 = 16;
const SWATCH_WIDTH: i32 = 30;
/// Of the legend's letters, a little more than the widest usual font needs.
const LETTER_WIDTH: f64 = 8.2;
/// Of its capitals and signs.
const WIDE_LETTER_WIDTH: f64 = 12.0;
const RINGS_ARE: &str = "the paper's numbers";
const RINGS_COLOUR: RGBColor = RGBColor(90, 90, 90);

/// One SVG of all panels.
pub(super) fn draw(title: &str, charts: &[Chart]) -> Result<String, SimError> {
    let mut svg = String::new();
    draw_into(&mut svg, title, charts).map_err(|reason| SimError::Draw { reason })?;
    Ok(svg)
}

fn draw_into(svg: &mut String, title: &str, charts: &[Chart]) -> Result<(), String> {
    let mut palette = Palette::default();
    let series = || charts.iter().flat_map(|chart| &chart.series);
    series().for_each(|series| palette.add(&series.label));
    let (column_count, row_count) = grid(charts.len());
    let panel = if charts.len() > 1 { PANEL_PIXELS } else { PANEL_ALONE_PIXELS };
    let width = panel.0 * column_count as u32;
    let legend = Legend::of(charts, &palette, width);
    let body_height = panel.1 * row_count as u32;
    let height = TITLE_HEIGHT + body_height + legend.height();

    let area = SVGBackend::with_string(svg, (width, height)).into_drawing_area();
    let text = |error: &dyn std::fmt::Display| error.to_string();
    area.fill(&WHITE).map_err(|error| text(&error))?;
    let (head, rest) = area.split_vertically(TITLE_HEIGHT);
    let (body, foot) = rest.split_vertically(body_height);
    head.draw_text(title, &("sans-serif", 20).into_font().into(), (16, 14))
        .map_err(|error| text(&error))?;
    for (place, chart) in body.split_evenly((row_count, column_count)).iter().zip(charts) {
        panel::draw(place, chart, &palette)?;
    }
    legend.draw(&foot)?;
    area.present().map_err(|error| text(&error))
}

/// About how wide a label of the legend is drawn.
fn text_width(label: &str) -> i32 {
    let is_wide = |letter: char| letter.is_uppercase() || "+%".contains(letter);
    let widths = label.chars().map(|letter| match is_wide(letter) {
        true => WIDE_LETTER_WIDTH,
        false => LETTER_WIDTH,
    });
    widths.sum::<f64>() as i32
}

/// Columns and rows for this many panels.
fn grid(count: usize) -> (usize, usize) {
    let column_count = match count {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    (column_count, count.div_ceil(column_count).max(1))
}

/// The style of a label in the panels.
struct Entry<'a> {
    label: &'a str,
    colour: RGBColor,
    has_line: bool,
    has_bars: bool,
    has_rings: bool,
}

/// The entries of all panels, and where each stands: row and left edge.
struct Legend<'a> {
    entries: Vec<(Entry<'a>, usize, i32)>,
    row_count: usize,
}

impl<'a> Legend<'a> {
    fn of(charts: &'a [Chart], palette: &Palette<'a>, width: u32) -> Legend<'a> {
        let mut entries: Vec<Entry<'a>> = palette
            .labels()
            .iter()
            .map(|label| Entry {
                label,
                colour: palette.colour(label),
                has_line: has(charts, label, Style::Line),
                has_bars: has(charts, label, Style::Bars),
                has_rings: has(charts, label, Style::Marks),
            })
            .collect();
        if entries.iter().any(|entry| entry.has_rings && (entry.has_line || entry.has_bars)) {
            entries.push(Entry {
                label: RINGS_ARE,
                colour: RINGS_COLOUR,
                has_line: false,
                has_bars: false,
                has_rings: true,
            });
        }
        Legend::placed(entries, width as i32)
    }

    /// From left to right, then the next row.
    fn placed(entries: Vec<Entry<'a>>, width: i32) -> Legend<'a> {
        let margin = LEGEND_MARGIN as i32;
        let (mut row, mut left) = (0, margin);
        let mut places = Vec::new();
        for entry in entries {
            let entry_width = SWATCH_WIDTH + 8 + text_width(entry.label) + 20;
            if left > margin && left + entry_width > width - margin {
                (row, left) = (row + 1, margin);
            }
            places.push((entry, row, left));
            left += entry_width;
        }
        let row_count = if places.is_empty() { 0 } else { row + 1 };
        Legend { entries: places, row_count }
    }

    fn height(&self) -> u32 {
        LEGEND_ROW_HEIGHT * self.row_count as u32 + LEGEND_MARGIN
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        for (entry, row, left) in &self.entries {
            let middle = (LEGEND_ROW_HEIGHT as i32) * *row as i32 + 12;
            entry.draw_swatch(area, *left, middle)?;
            let place = (left + SWATCH_WIDTH + 8, middle - 7);
            area.draw_text(entry.label, &("sans-serif", 17).into_font().color(&BLACK), place)
                .map_err(|error| text(&error))?;
        }
        Ok(())
    }
}

fn has(charts: &[Chart], label: &str, style: Style) -> bool {
    let mut series = charts.iter().flat_map(|chart| &chart.series);
    series.any(|series| series.label == label && series.style == style)
}

impl Entry<'_> {
    fn draw_swatch(&self, area: &Area<'_>, left: i32, middle: i32) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let right = left + SWATCH_WIDTH;
        if self.has_bars {
            let corners = [(left, middle - 6), (right, middle + 6)];
            let bar = Rectangle::new(corners, self.colour.mix(0.75).filled());
            area.draw(&bar).map_err(|error| text(&error))?;
        }
        if self.has_line {
            let ends = [(left, middle), (right, middle)];
            let line = PathElement::new(ends, self.colour.stroke_width(2));
            area.draw(&line).map_err(|error| text(&error))?;
        }
        if self.has_rings {
            let ring =
                Circle::new((left + SWATCH_WIDTH / 2, middle), 5, self.colour.stroke_width(2));
            area.draw(&ring).map_err(|error| text(&error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
