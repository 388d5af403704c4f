//! Send times of an open loop: Poisson or constant gaps, independent of the answers.

use std::fmt;
use std::str::FromStr;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::WorkloadError;

/// The gaps between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential gaps: many independent users (C-4 §3.1, Minos §5.4).
    Poisson,
    /// Equal gaps.
    Constant,
}

impl FromStr for Arrivals {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Arrivals, WorkloadError> {
        match text {
            "poisson" => Ok(Arrivals::Poisson),
            "constant" => Ok(Arrivals::Constant),
            _ => Err(WorkloadError::BadArrivals { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Arrivals::Poisson => "poisson",
            Arrivals::Constant => "constant",
        })
    }
}

/// The intended send times of one thread, in nanoseconds from its start.
#[derive(Clone, Debug)]
pub struct ArrivalClock {
    arrivals: Arrivals,
    gap_mean_ns: f64,
    /// The next time with its fraction, so that no rate drifts.
    next_ns: f64,
    random: SmallRng,
}

impl ArrivalClock {
    /// Arrivals at `per_second` on average; the first is one gap after the start.
    ///
    /// # Panics
    /// When the rate is not above 0.
    pub fn new(arrivals: Arrivals, per_second: f64, seed: u64) -> ArrivalClock {
        assert!(per_second > 0.0, "an open loop needs a rate above 0");
        let gap_mean_ns = 1e9 / per_second;
        let random = SmallRng::seed_from_u64(seed);
        let mut clock = ArrivalClock { arrivals, gap_mean_ns, next_ns: 0.0, random };
        clock.advance();
        clock
    }

    /// The next intended send time.
    pub fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Advances to the next one.
    pub fn advance(&mut self) {
        let gaps = match self.arrivals {
            Arrivals::Constant => 1.0,
            // 1 - [0, 1) is never 0, so the logarithm is finite.
            Arrivals::Poisson => -(1.0 - self.random.random::<f64>()).ln(),
        };
        self.next_ns += gaps * self.gap_mean_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(arrivals: Arrivals, per_second: f64, count: usize) -> Vec<f64> {
        let mut clock = ArrivalClock::new(arrivals, per_second, 3);
        let mut before = 0.0;
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(clock.next_ns - before);
            before = clock.next_ns;
            clock.advance();
        }
        found
    }

    #[test]
    fn constant_gaps_are_equal_and_do_not_drift() {
        let found = gaps(Arrivals::Constant, 3e6, 3_000_000);
        let sum: f64 = found.iter().sum();
        assert!((sum / 1e9 - 1.0).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn poisson_gaps_have_the_mean_the_spread_and_the_tail_of_an_exponential() {
        const COUNT: usize = 400_000;
        let found = gaps(Arrivals::Poisson, 1e6, COUNT);
        let mean = found.iter().sum::<f64>() / COUNT as f64;
        let variance = found.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / COUNT as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() / 1000.0 - 1.0).abs() < 0.01, "{variance}");
        let tail = found.iter().filter(|gap| **gap > 3000.0).count() as f64 / COUNT as f64;
        assert!((tail / (-3.0_f64).exp() - 1.0).abs() < 0.03, "{tail}");
    }
}
