//! The tuner's events, with their reasons, for a caller that logs them.

use std::fmt;

use super::{Configuration, Confirmed, Tried};

/// The reason for a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// No search was made yet.
    FirstBaseline {
        /// The present throughput.
        throughput_rps: f64,
    },
    /// The throughput differs from the baseline, window after window.
    Throughput {
        /// The baseline's.
        from_rps: f64,
        /// The last window's.
        to_rps: f64,
    },
    /// The latency objective is missed, or met again.
    Slo {
        /// The baseline's share of late requests.
        from_ratio: f64,
        /// The last window's share.
        to_ratio: f64,
    },
    /// The share of accesses to the hot keys has changed.
    HotShare {
        /// The baseline's.
        from_ratio: f64,
        /// The last window's.
        to_ratio: f64,
    },
}

/// The effect of a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A search begins.
    Begun {
        /// The reason.
        cause: Cause,
    },
    /// The workload changed during the search, which restarts.
    Restarted,
    /// The search has ended, and the old configuration stays.
    Kept {
        /// The old configuration.
        configuration: Configuration,
        /// The deciding windows; `None`: nothing better was found, or the workload kept changing.
        confirmed: Option<Confirmed>,
        /// What else was measured.
        tried: Tried,
    },
    /// The search has ended, and another configuration is better.
    Adopted {
        /// The old configuration.
        from: Configuration,
        /// The new configuration.
        to: Configuration,
        /// The deciding windows.
        confirmed: Confirmed,
        /// What else was measured.
        tried: Tried,
    },
    /// There are no requests any more: the old configuration stays.
    GivenUp,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::FirstBaseline { throughput_rps } => {
                write!(formatter, "first saturated load, {throughput_rps:.0} requests/s")
            }
            Cause::Throughput { from_rps, to_rps } => {
                write!(formatter, "throughput went from {from_rps:.0} to {to_rps:.0} requests/s")
            }
            Cause::Slo { from_ratio, to_ratio } => {
                let (from_pct, to_pct) = (from_ratio * 100.0, to_ratio * 100.0);
                write!(formatter, "late requests went from {from_pct:.0} % to {to_pct:.0} %")
            }
            Cause::HotShare { from_ratio, to_ratio } => {
                let (from_pct, to_pct) = (from_ratio * 100.0, to_ratio * 100.0);
                write!(formatter, "hot share went from {from_pct:.0} % to {to_pct:.0} %")
            }
        }
    }
}

impl fmt::Display for Configuration {
    /// Formats policies, hot set and ways only if they are not the usual ones.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Configuration { policies, mr_thread_count, cached_item_count, mr_way_count } = self;
        match mr_thread_count {
            0 if policies.stay() => write!(formatter, "run to completion")?,
            0 => write!(formatter, "{policies}")?,
            1 => write!(formatter, "1 memory-resident thread")?,
            _ => write!(formatter, "{mr_thread_count} memory-resident threads")?,
        }
        if *cached_item_count > 0 {
            write!(formatter, ", {cached_item_count} hot items")?;
        }
        if *mr_way_count > 1 {
            write!(formatter, ", {mr_way_count} cache ways")?;
        }
        Ok(())
    }
}
