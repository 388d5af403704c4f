//! Rowan-KV Fig. 2: each remote thread writes a log of its own.

use std::fmt::Write as _;

use super::streams::Place;
use super::sweep::{self, STREAMS_MAX};
use crate::figure::{Options, Report};
use sim::SimError;

/// §2.4: size, local writers or not, amplification at 144 streams.
const PAPER: [(u64, bool, f64); 4] =
    [(64, false, 2.48), (128, false, 1.58), (64, true, 2.49), (128, true, 1.70)];
/// Up to here it is negligible.
const QUIET_STREAMS: usize = 90;

pub(crate) fn run(options: &Options) -> Result<Report, SimError> {
    // The sender chose the address when it sent.
    let runs = sweep::run_all("rowan-fig2", options, Place::Issue);
    let mut text = String::from(
        "Rowan-KV Fig. 2: remote threads that each write a log of their own, one write at a \
         time.\n\n\
         | writes | local writers | paper, 144 streams | here | here, 90 streams |\n\
         |---|---|---|---|---|\n",
    );
    for (size_bytes, is_local, want) in PAPER {
        let at = |streams| {
            let run = sweep::find(&runs, streams, size_bytes, is_local);
            run.map_or(f64::NAN, |run| run.outcome.amplification)
        };
        let local = if is_local { "18" } else { "none" };
        let _ = writeln!(
            text,
            "| {size_bytes} B | {local} | {want:.2} | {:.2} | {:.2} |",
            at(STREAMS_MAX),
            at(QUIET_STREAMS),
        );
    }
    text.push_str(
        "\nA line stays in the buffer while fewer than 48 others are written to behind it: with 90 \
         streams over three DIMMs 30, with 144 streams 48, and then some DIMM always has more. It \
         falls behind, and since writes of the NIC keep their order, all streams wait for it. Two \
         numbers were fitted to these four: when a buffer begins to drain, and how many pieces may \
         wait for a DIMM.\n",
    );
    Ok(Report { table: sweep::table(&runs), charts: sweep::charts(&runs, &PAPER), text })
}
