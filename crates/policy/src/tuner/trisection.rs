//! Finds the highest point of a unimodal curve over whole numbers, in few measurements.
//!
//! ```text
//!   low          x1        x2            high      exclusive bounds, a Fibonacci number F(k) apart
//!    │            │         │             │        x1 = low + F(k-2), x2 = low + F(k-1)
//!    ├────────────┼─────────┼─────────────┤
//!
//!   P(x1) < P(x2): the best is in (x1, high), and x2 is that range's x1
//!   P(x1) > P(x2): the best is in (low, x2), and x1 is that range's x2
//! ```
//!
//! uTPS §3.5 cuts the range in thirds, which costs two measurements per step. Fibonacci distances
//! also cut it in three parts, and each step costs one: 27 points take 7 measurements.
//!
//! On a plateau a tie gives no direction, so a hint, a point known to be good, decides which side
//! stays. On a strictly unimodal curve the best lies between two equal points, and either side is
//! right.
//!
//! # Invariants
//! I1: each point is measured at most once.
//! I2: points beyond the range are never measured; they count as minus infinity.

use std::ops::RangeInclusive;

/// A search in progress. Call `next`, measure there, call `record`.
#[derive(Clone, Debug)]
pub struct Trisection {
    /// Exclusive bounds as positions; position 1 is the first point of the range.
    low: u32,
    /// F(k-2) and F(k-1): the distances of the inner points from `low`.
    distances: (u32, u32),
    at_first: Option<f64>,
    at_second: Option<f64>,
    start: u32,
    point_count: u32,
    hint: u32,
    best: Option<(u32, f64)>,
    tie_ratio: f64,
}

impl Trisection {
    /// Searches `range`, which is not empty. `hint` is a point known to be good.
    pub fn new(range: &RangeInclusive<u32>, hint: u32, tie_ratio: f64) -> Trisection {
        assert!(range.start() <= range.end(), "an empty range has no highest point");
        let point_count = range.end() - range.start() + 1;
        let mut distances = (1, 1);
        while distances.0 + distances.1 <= point_count {
            distances = (distances.1, distances.0 + distances.1);
        }
        let mut trisection = Trisection {
            low: 0,
            distances,
            at_first: None,
            at_second: None,
            start: *range.start(),
            point_count,
            hint: hint.clamp(*range.start(), *range.end()) - range.start() + 1,
            best: None,
            tie_ratio,
        };
        trisection.narrow();
        trisection
    }

    /// The most measurements for a range: if the curve falls or rises throughout, no point beyond
    /// the range saves one.
    pub fn steps_max(range: &RangeInclusive<u32>) -> u32 {
        let count_steps = |value_at: fn(u32) -> f64| {
            let mut trisection = Trisection::new(range, *range.start(), 0.0);
            let mut step_count = 0;
            while let Some(point) = trisection.next() {
                trisection.record(value_at(point));
                step_count += 1;
            }
            step_count
        };
        count_steps(f64::from).max(count_steps(|point| -f64::from(point)))
    }

    /// The next point to measure; `None` when the search is over.
    pub fn next(&self) -> Option<u32> {
        let (first, second) = self.positions();
        let position = match (self.at_first, self.at_second) {
            (None, _) => first,
            (_, None) if first != second => second,
            _ => return None,
        };
        Some(self.start + position - 1)
    }

    /// Takes the measurement at that point.
    pub fn record(&mut self, value: f64) {
        let point = self.next().expect("the search goes on");
        if self.best.is_none_or(|(_, best)| value > best) {
            self.best = Some((point, value));
        }
        if self.at_first.is_none() {
            self.at_first = Some(value);
        } else {
            self.at_second = Some(value);
        }
        self.narrow();
    }

    /// The best point measured.
    pub fn best(&self) -> Option<(u32, f64)> {
        self.best
    }

    fn positions(&self) -> (u32, u32) {
        (self.low + self.distances.0, self.low + self.distances.1)
    }

    /// Drops an outer part as long as both inner points are known.
    fn narrow(&mut self) {
        loop {
            let (first, second) = self.positions();
            if first == second {
                return;
            }
            if second > self.point_count {
                self.at_second = Some(f64::NEG_INFINITY);
            }
            let keeps_left = match (self.at_first, self.at_second) {
                (_, Some(f64::NEG_INFINITY)) => true,
                (Some(at_first), Some(at_second)) if self.is_tie(at_first, at_second) => {
                    self.hint <= (first + second) / 2
                }
                (Some(at_first), Some(at_second)) => at_first > at_second,
                _ => return,
            };
            let narrower = (self.distances.1 - self.distances.0, self.distances.0);
            if keeps_left {
                self.at_second = self.at_first.take();
            } else {
                self.low = first;
                self.at_first = self.at_second.take();
            }
            self.distances = narrower;
            if narrower.0 == narrower.1 {
                // One point is left; it may have come from either side.
                self.at_first = self.at_first.or(self.at_second);
            }
        }
    }

    fn is_tie(&self, one: f64, other: f64) -> bool {
        (one - other).abs() <= self.tie_ratio * one.abs().max(other.abs())
    }
}

#[cfg(test)]
mod tests;
