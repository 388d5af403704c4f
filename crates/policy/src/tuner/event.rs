//! The tuner's events, with their reasons, for a caller that logs them.

use std::fmt;

use super::{Configuration, Confirmed};

/// Why a search begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Nothing was ever tuned.
    FirstBaseline {
        /// What is served now.
        throughput_rps: f64,
    },
    /// Other throughput than the baseline's, window after window.
    Throughput {
        /// The baseline.
        from_rps: f64,
        /// The last window.
        to_rps: f64,
    },
    /// The objective of latency is missed, or kept again.
    Slo {
        /// The late part of the baseline.
        from_ratio: f64,
        /// That of the last window.
        to_ratio: f64,
    },
    /// Another part of the accesses goes to the hot keys.
    HotShare {
        /// The baseline.
        from_ratio: f64,
        /// The last window.
        to_ratio: f64,
    },
}

/// What a window led to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A search begins.
    Begun {
        /// Why.
        cause: Cause,
    },
    /// The workload changed during the search, which begins anew.
    Restarted,
    /// The search is over, and the old configuration stays.
    Kept {
        /// The old one.
        configuration: Configuration,
        /// What decided; `None`: nothing better was found, or the workload never rested.
        confirmed: Option<Confirmed>,
    },
    /// The search is over, and another configuration is better.
    Adopted {
        /// The old one.
        from: Configuration,
        /// The new one.
        to: Configuration,
        /// What decided.
        confirmed: Confirmed,
    },
    /// No client asks for anything any more: the old configuration stays.
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
    /// Hot set and ways only where there are any to turn.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Configuration { mr_thread_count, cached_item_count, mr_way_count } = self;
        match mr_thread_count {
            0 => write!(formatter, "run to completion")?,
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
