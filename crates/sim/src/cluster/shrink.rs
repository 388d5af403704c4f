//! Shrinks a failing run as long as it still fails.

use crate::cluster::scenario::Scenario;
use crate::cluster::{Options, Report, run};

/// Drops faults one by one, then clients and requests, as long as the run fails in any way.
pub fn shrink(options: &Options) -> (Options, Report) {
    let mut best = options.clone();
    let mut report = run(&best);
    let scenario = Scenario::draw(options);
    let count = Scenario::draw(&Options { only_faults: None, ..options.clone() }).faults.len();
    let mut kept: Vec<usize> = options.only_faults.clone().unwrap_or_else(|| (0..count).collect());
    let mut attempt = |candidate: Options, best: &mut Options| {
        let found = run(&candidate);
        let fails = found.failure.is_some();
        if fails {
            *best = candidate;
            report = found;
        }
        fails
    };
    for fault in kept.clone() {
        let fewer: Vec<usize> = kept.iter().copied().filter(|other| *other != fault).collect();
        let only_faults = Some(fewer.clone());
        if attempt(Options { only_faults, ..best.clone() }, &mut best) {
            kept = fewer;
        }
    }
    for kind in best.faults.clone() {
        let faults = best.faults.iter().copied().filter(|other| *other != kind).collect();
        // With fewer kinds other faults would be drawn: only kinds that act throughout may be
        // dropped.
        let candidate = Options { faults, ..best.clone() };
        if Scenario::draw(&candidate).node_count == scenario.node_count {
            attempt(candidate, &mut best);
        }
    }
    for clients in (1..scenario.client_count).rev() {
        attempt(Options { clients: Some(clients), ..best.clone() }, &mut best);
    }
    for requests in [40, 30, 20, 15, 10, 5] {
        attempt(Options { requests: Some(requests), ..best.clone() }, &mut best);
    }
    (best, report)
}
