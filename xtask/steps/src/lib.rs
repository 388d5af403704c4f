//! What the developer's programs, `xtask` and `lab`, share: steps, and the programs they start.
//!
//! ```text
//!  launch ─▶ FEATURES        builds xtask as the tests are built
//!  xtask ─▶ Step, Report     a command with a name: timed, and its tests counted
//!  lab   ─▶ server_binary    builds the server that is measured
//!  both  ─▶ programs         whether a program is there, free ports, a server that listens
//! ```
//!
//! No shipped binary uses this crate.
#![forbid(unsafe_code)]

pub mod programs;
mod step;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

pub use step::{Report, Step, Tally};

/// The features of the one build that all tests share. With others, or for a part of the workspace,
/// cargo would build most of it again (12 of 33 minutes).
pub const FEATURES: &str = "landing/xdp,server/xdp,dovetail/xdp";

/// Where cargo builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into)
}

/// The release build of the server.
pub fn server_step() -> Step {
    Step::new("binary", "cargo build --release --locked -p dovetail")
}

/// Builds the server with optimization; returns its path.
pub fn server_binary(root: &Path) -> Result<PathBuf> {
    ensure!(server_step().run(root), "dovetail does not build");
    Ok(target(root).join("release/dovetail"))
}
