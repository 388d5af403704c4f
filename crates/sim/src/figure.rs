//! A figure: a name, a run function, and the report of numbers, charts and text.
//!
//! ```text
//!  Options ─▶ Figure::run ─▶ Report ─┬─ table  ─▶ NAME.csv
//!                                    ├─ charts ─▶ NAME.svg   ours as lines, the paper's as rings
//!                                    └─ text   ─▶ NAME.md    with the command that gave it
//! ```
//!
//! # Invariants
//! I1: an existing file is complete: each file is written beside its place and renamed into it.
//! I2: equal reports give equal bytes: they contain no clock, no host name, and no order of
//!     threads.

mod csv;
mod file;
mod markdown;
mod svg;

use std::path::{Path, PathBuf};

use crate::SimError;

/// The model: that of a server, or the published artifact's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// What a server would do; every request counts.
    #[default]
    Honest,
    /// The published artifact's model, with its streams and its quirks.
    Artifact,
}

/// The user's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Requests of each point; `None`: the figure's own default.
    pub requests: Option<u64>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The model.
    pub fidelity: Fidelity,
    /// The number of points that run in parallel.
    pub threads: usize,
    /// A file of CPU costs, if the figure uses some; `None`: the paper's.
    pub costs: Option<PathBuf>,
    /// The object set, if the figure has a choice; `None`: its own.
    pub objects: Option<String>,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name on the command line, e.g. `c4-fig3`.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Runs all points.
    pub run: fn(&Options) -> Result<Report, SimError>,
}

/// The result of a figure: written as `NAME.csv`, `NAME.svg` and `NAME.md`.
#[derive(Clone, Debug)]
pub struct Report {
    /// The numbers.
    pub table: Table,
    /// The panels of the picture, side by side.
    pub charts: Vec<Chart>,
    /// What was run, the difference from the paper, and its reasons. Markdown.
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
    /// `x` is 0, 1, 2 ... and these are the names to write there.
    Names(&'static [&'static str]),
}

impl Fidelity {
    /// As the user writes it.
    pub fn name(self) -> &'static str {
        match self {
            Fidelity::Honest => "honest",
            Fidelity::Artifact => "artifact",
        }
    }
}

impl Figure {
    /// Checks before a long run that its files can be written; creates the directory.
    pub fn prepare(&self, directory: &Path) -> Result<(), SimError> {
        file::check_directory(directory, self.name)
    }

    /// Writes `NAME.csv`, `NAME.svg` and `NAME.md` (I1) and says where.
    pub fn write(
        &self,
        report: &Report,
        options: &Options,
        directory: &Path,
    ) -> Result<Vec<PathBuf>, SimError> {
        let files = [
            ("csv", csv::encode(&report.table)),
            ("svg", svg::draw(&format!("{}: {}", self.name, self.about), &report.charts)?),
            ("md", markdown::compose(self, options, report)),
        ];
        file::write_all(directory, self.name, &files)
    }
}

/// Writes a table alone, as CSV (I1).
pub fn write_table(path: &Path, table: &Table) -> Result<PathBuf, SimError> {
    file::write_one(path, &csv::encode(table))
}

/// Writes charts alone, as SVG (I1).
pub fn write_picture(path: &Path, title: &str, charts: &[Chart]) -> Result<PathBuf, SimError> {
    file::write_one(path, &svg::draw(title, charts)?)
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
