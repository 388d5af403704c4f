//! Searches for the highest load that keeps the SLO as the artifact does: 24 loads, from below.

use super::{PointOptions, PointResult, point};
use sim::SimError;

/// p99 of at most ten mean services (C-4 §3.1).
pub const SLO_NS: u64 = 7000;
/// How many loads are tried.
pub const LOAD_COUNT: usize = 24;
const LOAD_MIN: f64 = 0.05;

/// Load 1.0 on 64 cores, in requests a second.
pub const FULL_LOAD_RPS: f64 = 64.0 / 700e-9;

/// `count` loads from 0.05 to 1.
pub fn load(index: usize, count: usize) -> f64 {
    LOAD_MIN + (1.0 - LOAD_MIN) * index as f64 / (count - 1) as f64
}

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which of the loads; the first when even that one is too much.
    pub index: usize,
    /// The point there.
    pub point: PointResult,
    /// The point at the next load, which broke the SLO; `None` at the highest load.
    pub broken: Option<PointResult>,
}

impl Found {
    /// The load as a share of the cores' capacity.
    pub fn load(&self) -> f64 {
        load(self.index, LOAD_COUNT)
    }
}

/// The last load before the first whose p99 breaks the SLO.
pub fn max_load(options: &PointOptions) -> Result<Found, SimError> {
    let mut found: Option<Found> = None;
    for index in 0..LOAD_COUNT {
        let at = PointOptions { load: load(index, LOAD_COUNT), ..*options };
        let result = point(&at)?;
        // A latency that the artifact's histogram dropped is a late one all the same.
        let is_late = result.p99_of_all_ns().is_none_or(|p99_ns| p99_ns > SLO_NS);
        match (found.as_mut(), is_late) {
            (Some(found), true) => {
                found.broken = Some(result);
                break;
            }
            (None, true) => return Ok(Found { index: 0, point: result, broken: None }),
            (_, false) => found = Some(Found { index, point: result, broken: None }),
        }
    }
    found.ok_or_else(|| SimError::BadParameter { what: "no load was tried".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::load;

    #[test]
    fn loads_are_the_artifacts() {
        for (index, want) in [(0, 0.05), (17, 0.752_173_9), (22, 0.958_695_6), (23, 1.0)] {
            assert!((load(index, 24) - want).abs() < 1e-6);
        }
    }
}
