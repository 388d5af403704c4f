//! What a figure is: a name, what it runs, and a report of numbers, charts and words.

use crate::SimError;

/// How close to the published artifact's model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// What a server would do; every request counts.
    #[default]
    Honest,
    /// The published artifact's model, with its streams and its quirks.
    Artifact,
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests of each point; `None`: the figure's own default.
    pub requests: Option<u64>,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Which model.
    pub fidelity: Fidelity,
    /// How many points run side by side.
    pub threads: usize,
}

/// One figure that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// As the user writes it, e.g. `c4-fig3`.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Runs all points.
    pub run: fn(&Options) -> Result<Report, SimError>,
}

/// What a figure's run gives: written as `NAME.csv`, `NAME.svg` and `NAME.md`.
#[derive(Clone, Debug)]
pub struct Report {
    /// The numbers.
    pub table: Table,
    /// The panels of the picture, side by side.
    pub charts: Vec<Chart>,
    /// What was run, how far it is from the paper, and why. Markdown.
    pub text: String,
}

/// Named columns of text cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Names, with units.
    pub columns: Vec<String>,
    /// As many cells as columns.
    pub rows: Vec<Vec<String>>,
}

/// One panel.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above the panel.
    pub title: String,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// Lines and marks.
    pub series: Vec<Series>,
}

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// With the unit.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
}

/// How an axis maps numbers to places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors; all numbers above 0.
    Log,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub label: String,
    /// Ours are lines, the paper's own numbers are marks.
    pub style: Style,
    /// `(x, y)`; points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line with small dots.
    Line,
    /// Marks only, in the colour of the series with the same label before them, if there is one.
    Marks,
    /// Vertical bars around `x`, series side by side.
    Bars,
}
