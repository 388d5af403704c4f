//! Where the workload stands in C-4's taxonomy, from the counted commands.
//!
//! ```text
//!  commands' cells ─▶ reads, writes of the last second ─┐
//!  hot set ─────────▶ share of the hottest key, slope ──┴─▶ Region ─▶ /stats, the page
//! ```
//!
//! It changes nothing: it reports what runs, and which write policy C-4 would give it.

use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use counters::{Access, CommandIndex, WorkerCounters};
use dispatch::published::Workload;
use policy::taxonomy::{Observed as Load, Popularity, Region};
use runtime::shared::Shared;

use super::{Controller, Decision, Observed};

/// How often the place is computed.
const EPOCH: Duration = Duration::from_secs(1);

/// The number of epochs in a row that must agree on another region before the decision log gets an
/// entry.
const AGREEING_EPOCHS: u32 = 3;

/// Computes the place each second.
pub struct WorkloadMonitor {
    shared: Arc<Shared>,
    before: Counts,
    notice: Notice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    reads: u64,
    writes: u64,
}

impl WorkloadMonitor {
    /// For this server.
    pub fn new(shared: Arc<Shared>) -> WorkloadMonitor {
        WorkloadMonitor { shared, before: Counts::default(), notice: Notice::default() }
    }
}

impl Controller for WorkloadMonitor {
    fn name(&self) -> &'static str {
        "taxonomy"
    }

    fn period(&self) -> Duration {
        EPOCH
    }

    fn tick(&mut self, _: Instant, observed: &Observed) -> Option<Decision> {
        let now = Counts::sum(self.shared.all_counters());
        let before = std::mem::replace(&mut self.before, now);
        let load = Load {
            read_count: now.reads.saturating_sub(before.reads),
            write_count: now.writes.saturating_sub(before.writes),
            worker_count: observed.busy_ns.len() as u32,
            popularity: self.shared.hot_keys().and_then(|keys| keys.now().popularity()),
        };
        if load.read_count + load.write_count == 0 {
            return None;
        }
        self.shared.control().workload.set(Some(Workload { load }));
        self.notice.see(&load)
    }
}

impl Counts {
    fn sum<'a>(workers: impl Iterator<Item = &'a WorkerCounters>) -> Counts {
        let mut counts = Counts::default();
        for worker in workers {
            for (index, cells) in worker.commands.iter().enumerate() {
                match CommandIndex::access(index) {
                    // A command on several keys reads each of them.
                    Some(Access::Read) => counts.reads += cells.hits.get() + cells.misses.get(),
                    Some(Access::Write) => counts.writes += cells.calls.get(),
                    None => {}
                }
            }
        }
        counts
    }
}

/// A region is reported once it lasts.
#[derive(Debug, Default)]
struct Notice {
    told: Option<Region>,
    other: Option<(Region, u32)>,
}

impl Notice {
    fn see(&mut self, load: &Load) -> Option<Decision> {
        let region = load.region();
        if self.told == Some(region) {
            self.other = None;
            return None;
        }
        let epoch_count = match self.other {
            Some((other, epoch_count)) if other == region => epoch_count + 1,
            _ => 1,
        };
        self.other = Some((region, epoch_count));
        if epoch_count < AGREEING_EPOCHS {
            return None;
        }
        self.other = None;
        let before = self.told.replace(region);
        let from = before.map_or("nothing".to_owned(), |region| region.to_string());
        Some(Decision {
            what: Vec::new(),
            change: format!("workload from {from} to {region}"),
            reason: format!("C-4 would run it with {}", region.recommendation()),
            inputs: inputs(load),
        })
    }
}

/// Quantities that were not observed are left out.
fn inputs(load: &Load) -> Vec<(&'static str, f64)> {
    let mut inputs = vec![("write_ratio", load.write_ratio())];
    if let Some(Popularity { hottest_share_ratio, zipf_exponent }) = load.popularity {
        inputs.push(("hottest_share_ratio", hottest_share_ratio));
        inputs.extend(zipf_exponent.map(|exponent| ("zipf_exponent", exponent)));
    }
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn load(write_count: u64) -> Load {
        let popularity = Some(Popularity { hottest_share_ratio: 0.0, zipf_exponent: None });
        Load { read_count: 100 - write_count, write_count, worker_count: 4, popularity }
    }

    #[test]
    fn a_region_is_told_once_it_lasts() {
        let mut notice = Notice::default();
        let tell = |notice: &mut Notice, writes| notice.see(&load(writes)).map(|note| note.change);
        assert_eq!(tell(&mut notice, 0), None);
        assert_eq!(tell(&mut notice, 0), None);
        assert_eq!(tell(&mut notice, 0).as_deref(), Some("workload from nothing to R_uni"));
        // A second of writes now and then does not change the workload.
        for _ in 0..10 {
            assert_eq!(tell(&mut notice, 90), None);
            assert_eq!(tell(&mut notice, 0), None);
        }
        assert_eq!([90, 90].map(|writes| tell(&mut notice, writes)), [None, None]);
        assert_eq!(tell(&mut notice, 90).as_deref(), Some("workload from R_uni to WI_uni"));
    }

    #[test]
    fn keys_that_are_not_sampled_make_no_uniform_load() {
        let unseen = Load { popularity: None, ..load(60) };
        let json = Workload { load: unseen }.json();
        assert_eq!(
            (&json["region"], &json["suits"]),
            (&json!("WI_?"), &json!("--write-policy d-crew"))
        );
        assert_eq!((&json["hottest_share_ratio"], inputs(&unseen).len()), (&Value::Null, 1));
    }

    #[test]
    fn keys_count_as_reads_and_calls_as_writes() {
        let workers = [WorkerCounters::new(), WorkerCounters::new()];
        let get = CommandIndex::resp(wire::resp::CommandId::MGet);
        let set = CommandIndex::memcached(counters::MemcachedCommand::Set);
        let ping = CommandIndex::resp(wire::resp::CommandId::Ping);
        for worker in &workers {
            worker.command(get).calls.add(1);
            worker.command(get).hits.add(3);
            worker.command(get).misses.add(2);
            worker.command(set).calls.add(4);
            worker.command(ping).calls.add(100);
        }
        assert_eq!(Counts::sum(workers.iter()), Counts { reads: 10, writes: 8 });
    }

    #[test]
    fn what_is_shown_names_the_region_and_what_suits_it() {
        let json = Workload { load: load(60) }.json();
        assert_eq!(json["region"], "WI_uni");
        assert_eq!(json["suits"], "--write-policy d-crew --compaction off");
        assert_eq!(json["write_ratio"], 0.6);
    }
}
