//! Counts since the totals were last reset, and rates per second.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use counters::{CommandIndex, Totals};
use store::StoreStats;

use super::Shared;

/// Rates over shorter times are mostly noise.
const RATE_TIME_MIN: Duration = Duration::from_millis(250);

/// The counts at the time of the last rates.
pub(super) struct RateSample {
    at: Instant,
    /// The counts at that time.
    counted: Rates,
    rates: Rates,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Commands.
    pub calls: u64,
    /// From clients.
    pub input_bytes: u64,
    /// To clients.
    pub output_bytes: u64,
}

impl RateSample {
    /// A sample before anything is counted.
    pub fn now() -> RateSample {
        RateSample { at: Instant::now(), counted: Rates::default(), rates: Rates::default() }
    }
}

impl Shared {
    /// The counts since CONFIG RESETSTAT or `stats reset`. The workers' counters only grow, so that
    /// [`Shared::totals`] stays fit for scrapers.
    pub fn totals_since_reset(&self) -> Totals {
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        self.totals().since(&baseline)
    }

    /// Counts from zero again, as CONFIG RESETSTAT does.
    pub fn reset_totals(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.totals();
        let store = self.store.stats();
        *self.store_baseline.lock().unwrap_or_else(PoisonError::into_inner) = store;
        self.observations.event_stream.prefixes.reset();
        let taken = |index| Some((index, self.durations(index)?));
        self.observations.reset_durations((0..CommandIndex::COUNT).filter_map(taken));
    }

    /// Rates per second, averaged since the last call that was at least 250 ms ago.
    pub fn rates(&self) -> Rates {
        let mut sample = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = sample.at.elapsed();
        if elapsed >= RATE_TIME_MIN {
            let totals = self.totals();
            let counted = Rates {
                calls: totals.calls(),
                input_bytes: totals.net_input_bytes,
                output_bytes: totals.net_output_bytes,
            };
            let then = sample.counted;
            let rate = |now: u64, then: u64| {
                (now.saturating_sub(then) as f64 / elapsed.as_secs_f64()) as u64
            };
            let rates = Rates {
                calls: rate(counted.calls, then.calls),
                input_bytes: rate(counted.input_bytes, then.input_bytes),
                output_bytes: rate(counted.output_bytes, then.output_bytes),
            };
            *sample = RateSample { at: Instant::now(), counted, rates };
        }
        sample.rates
    }

    /// Items that expired, and that were evicted, since the totals were reset.
    pub fn gone_since_reset(&self) -> (u64, u64) {
        let (now, then) = (
            self.store.stats(),
            *self.store_baseline.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let evicted = |stats: &StoreStats| stats.evicted_by_log + stats.evicted_by_index;
        (now.expired.saturating_sub(then.expired), evicted(&now).saturating_sub(evicted(&then)))
    }
}
