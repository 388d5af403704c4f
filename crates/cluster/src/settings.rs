//! Start-up settings of the state machines, and the arithmetic of leases (K3).

use base::Instant;

use crate::scheme::Scheme;

/// When a node acknowledges what it has received (K21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is in memory. A node that restarts has no data.
    Replicated,
    /// When it is on the medium. A node that restarts has everything that it acknowledged.
    Fsync,
}

/// Settings of a whole cluster: every node and every manager has the same.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a lease lasts.
    pub lease_ns: u64,
    /// How much a monotonic clock may run faster or slower than true time, in parts per million.
    pub drift_ppm: u64,
    /// How long the config store keeps a silent session.
    pub session_ns: u64,
    /// A landed write that is not acknowledged is sent again after this time.
    pub retry_ns: u64,
    /// The time between two announcements of CommitVer (Rowan-KV §4.4: 15 ms).
    pub commit_interval_ns: u64,
    /// Copies of each shard, the primary's among them.
    pub copies: u8,
    /// With fewer complete copies writes are refused (K23).
    pub min_copies: u8,
    /// The number of nodes that the first configuration waits for.
    pub first_nodes: u8,
    /// The number of shards that the 16,384 slots are divided into.
    pub shards: u16,
    /// The meaning of an acknowledgement.
    pub durability: Durability,
    /// How entries travel to backups.
    pub scheme: Scheme,
    /// The most bytes that one replication datagram carries.
    pub datagram_bytes: usize,
    /// The size of a segment of the backup log.
    pub segment_bytes: usize,
    /// Entries in one part of a copy; one part of a shard is under way at a time.
    pub copy_part_entries: usize,
    /// Shards that are copied to a new backup at the same time, in the whole cluster.
    pub copies_at_once: u16,
    /// Writes of one shard that wait for acknowledgements; more are answered with busy.
    pub pending_max: usize,
    /// After a cold start: how long to wait for nodes that have not come back.
    pub grace_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease_ns: 10_000_000,
            drift_ppm: 1_000,
            session_ns: 40_000_000,
            retry_ns: 1_000_000,
            commit_interval_ns: 15_000_000,
            copies: 3,
            min_copies: 2,
            first_nodes: 3,
            shards: 64,
            durability: Durability::Replicated,
            scheme: Scheme::Rowan,
            datagram_bytes: 1_400,
            segment_bytes: 4 << 20,
            copy_part_entries: 256,
            copies_at_once: 4,
            pending_max: 4_096,
            grace_ns: 2_000_000_000,
        }
    }
}

impl Settings {
    /// The time after which a node that relies on having a lease regards it as ended: early, on its
    /// own clock.
    ///
    /// With `d` the drift bound, a holder's clock at its slowest needs `lease x (1-2d) / (1-d)` of
    /// true time for this, which is less than `lease`; see [`Settings::lapse_ns`].
    pub fn held_ns(&self, time_ns: u64) -> u64 {
        time_ns - self.slack_ns(time_ns)
    }

    /// The time after which a node that relies on the end of another's lease regards it as ended:
    /// late, on its own clock.
    ///
    /// At its fastest the clock counts this in `lease x (1+2d) / (1+d)` of true time, which is more
    /// than `lease`.
    pub fn lapse_ns(&self, time_ns: u64) -> u64 {
        time_ns + self.slack_ns(time_ns)
    }

    /// A node that is silent for this long is regarded as dead. Its lease may last longer: the
    /// commit waits for the lease, the new configuration does not.
    pub fn silence_ns(&self) -> u64 {
        self.lease_ns / 4 * 3
    }

    /// How long a new primary that is alone leaves reads unanswered while copies wait. If the cause
    /// that stopped the others (a power cut) stops this node too, it has done so by then. Without a
    /// medium a power cut loses everything, so waiting is of no use.
    pub fn hold_ns(&self) -> u64 {
        match self.durability {
            Durability::Replicated => 0,
            Durability::Fsync => 10 * self.lease_ns,
        }
    }

    /// A target that has not advanced a primary's write for this long holds the shard up and is
    /// replaced. It is longer than any failover takes, so that a node that dies is not taken for a
    /// slow one.
    pub fn patience_ns(&self) -> u64 {
        8 * self.lease_ns
    }

    fn slack_ns(&self, time_ns: u64) -> u64 {
        (u128::from(time_ns) * u128::from(2 * self.drift_ppm)).div_ceil(1_000_000) as u64
    }
}

/// `time_ns` after `at`.
pub(crate) fn after(at: Instant, time_ns: u64) -> Instant {
    Instant { ns: at.ns.saturating_add(time_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_stops_before_a_waiter_goes_on_with_any_two_clocks_in_the_bound() {
        for drift_ppm in [0, 1, 1_000, 50_000] {
            let settings = Settings { drift_ppm, ..Settings::default() };
            let lease_ns = settings.lease_ns;
            let drift = drift_ppm as f64 / 1e6;
            let held_true_ns = settings.held_ns(lease_ns) as f64 / (1.0 - drift);
            let lapsed_true_ns = settings.lapse_ns(lease_ns) as f64 / (1.0 + drift);
            assert!(held_true_ns <= lapsed_true_ns, "{drift_ppm}");
        }
    }
}
