//! The manager's part: in each second with requests, the counted sizes become a plan.

use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use dispatch::sizes::SizeNumbers;
use runtime::shared::Shared;

use super::{Controller, Decision, Observed};

/// Minos §3: "core 0 aggregates these histograms", each second.
const EPOCH: Duration = Duration::from_secs(1);

/// Ends the epochs.
pub struct SizeMonitor {
    shared: Arc<Shared>,
}

impl SizeMonitor {
    /// For a server whose dispatch considers sizes.
    pub fn new(shared: Arc<Shared>) -> SizeMonitor {
        SizeMonitor { shared }
    }
}

impl Controller for SizeMonitor {
    fn name(&self) -> &'static str {
        "sizes"
    }

    fn period(&self) -> Duration {
        EPOCH
    }

    /// The threshold changes nearly each second; the decision log gets an entry when a worker
    /// changes sides.
    fn tick(&mut self, _now: Instant, _observed: &Observed) -> Option<Decision> {
        // A plan that waits for a trial moves no worker.
        let is_used = self.shared.roles().latest().policies.tell_sizes();
        let change = self.shared.sizes()?.end_epoch(self.shared.size_counts(), is_used)?;
        let SizeNumbers { small_workers, .. } = SizeNumbers::from(&*change.before);
        let after = SizeNumbers::from(&*change.after);
        (is_used && change.moves_workers()).then(|| Decision {
            what: vec!["size_classes"],
            change: format!("small workers {small_workers} to {}", after.small_workers),
            reason: change.to_string(),
            inputs: vec![
                ("threshold_bytes", after.threshold_bytes as f64),
                ("small_cost_share_ratio", change.small_share),
            ],
        })
    }
}
