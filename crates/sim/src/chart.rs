//! Tables and charts, as CSV and SVG files.
//!
//! ```text
//!  Table ─▶ NAME.csv
//!  Chart ─▶ NAME.svg   ours as lines, published numbers as rings
//! ```
//!
//! # Invariants
//! I1: an existing file is complete: each file is written beside its place and renamed into it.
//! I2: equal charts give equal bytes: they contain no clock, no host name, and no order of threads.

mod csv;
pub mod file;
mod svg;

use std::path::{Path, PathBuf};

use crate::SimError;

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

/// The text of a picture of some charts, side by side under a title.
pub fn picture(title: &str, charts: &[Chart]) -> Result<String, SimError> {
    svg::draw(title, charts)
}

impl Table {
    /// As comma-separated values.
    pub fn csv(&self) -> String {
        csv::encode(self)
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
