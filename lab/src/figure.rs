//! A figure: a name, a run function, and the report of numbers, charts and text.
//!
//! ```text
//!  Options ─▶ Figure::run ─▶ Report ─┬─ table  ─▶ NAME.csv
//!                                    ├─ charts ─▶ NAME.svg   ours as lines, the paper's as rings
//!                                    └─ text   ─▶ NAME.md    with the command that gave it
//! ```
//!
//! Files are complete or absent, and equal reports give equal bytes ([`sim::chart`]).

mod markdown;

use std::path::{Path, PathBuf};

use sim::SimError;
pub use sim::chart::{Axis, Chart, Scale, Series, Style, Table};
use sim::chart::{file, picture};

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
            ("csv", report.table.csv()),
            ("svg", picture(&format!("{}: {}", self.name, self.about), &report.charts)?),
            ("md", markdown::compose(self, options, report)),
        ];
        file::write_all(directory, self.name, &files)
    }
}
