//! Measured costs: the store's service times, and the transfer of cache lines, on this machine.
//!
//! ```text
//!  the real store ──▶ store_costs ──▶ CostTable (JSON) ─▶ service times ─┐
//!  two pinned cores ─▶ line_costs ──▶ LineCosts (in it) ─▶ LineTransfer ─┴▶ models
//! ```
//!
//! # Invariants
//! I1: this module makes no decision; a model asks "how long?" and advances its clock by the
//!     answer.
//! I2: a simulation reads a committed or named table and never the current clock, so that one seed
//! gives one result; only `measure` reads a clock, and only on request.
//!
//! # Limits
//! A table holds the costs of one core alone. The mutual effect of many cores is the law stated in
//! [`LineTransfer`], extrapolated from two cores.

pub mod cost_table;
pub mod line_costs;
pub mod line_transfer;
pub mod store_costs;

pub use cost_table::{Batching, CostRow, CostTable, LineCosts};
pub use line_transfer::{CORES_MAX, LineTransfer, SharedItem};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::SimError;
use cost_table::CostFile;

/// Measures this machine, which takes about 15 seconds, with a progress bar on a terminal.
///
/// `command`: how the user asked, to be kept in the file; `commit`: of the sources, if known.
pub fn measure(
    command: &str,
    date: &str,
    commit: Option<&str>,
    sizes: store_costs::Sizes,
) -> Result<CostTable, SimError> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("measuring {msg} {bar:40} {pos}/{len}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let rows = store_costs::measure(sizes, &bar)?;
    bar.set_message("cache lines");
    let lines = line_costs::measure()?;
    bar.finish_and_clear();
    CostTable::new(CostFile {
        machine: machine(),
        date: date.to_owned(),
        commit: commit.map(str::to_owned),
        command: command.to_owned(),
        unit: "ns".to_owned(),
        rows,
        lines,
    })
}

/// The processor's name, the cores that this process may use, and the kernel.
fn machine() -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{name}, {cores} cores, kernel {}", kernel.trim())
}
