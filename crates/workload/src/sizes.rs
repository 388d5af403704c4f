//! Value lengths: fixed, uniform in a range, weighted classes, or a published distribution.
//!
//! A key's value always has the same length, because the length is a function of the id. A rewrite
//! therefore never changes an item's size, and a reader knows the length to expect.
//!
//! All but the simplest shapes are steps: ranges of lengths with cumulative weights. A continuous
//! distribution becomes `QUANTILES` steps of equal weight. Each step has the distribution's mean
//! within it as its length, so that the overall mean is kept and the last step stands for the whole
//! tail.
//!
//! ```text
//!  id ─▶ is it one of the large items? ─▶ mixed, scaled to the weights ─▶ step ─▶ length in it
//! ```

use std::fmt;
use std::str::FromStr;

use base::ByteSize;

use crate::WorkloadError;
use crate::scramble::mix;

/// The lengths of all values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSizes {
    text: String,
    shape: Shape,
    len_max_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Fixed(usize),
    Range {
        low: usize,
        high: usize,
    },
    /// The last step's `until` is the total.
    Steps(Vec<Step>),
    /// Ids from `first_large_id` on have sizes of their own.
    Tiered {
        regular: Box<ValueSizes>,
        large: Box<ValueSizes>,
        first_large_id: u64,
        key_count: u64,
    },
}

/// Lengths `low..=high`, each as likely as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    low: usize,
    high: usize,
    /// The sum of the weights to here and including.
    until: u64,
}

impl ValueSizes {
    /// All values `len_bytes` long.
    pub fn fixed(len_bytes: usize) -> ValueSizes {
        ValueSizes::new(len_bytes.to_string(), Shape::Fixed(len_bytes))
    }

    /// Lengths of a generalized Pareto distribution that starts at 0 and has this mean; a `shape`
    /// of 0 is the exponential distribution.
    ///
    /// # Panics
    /// When the shape is not in `0.0..0.9`: beyond, the mean is all tail.
    pub fn pareto(mean_bytes: f64, shape: f64) -> ValueSizes {
        assert!((0.0..PARETO_SHAPE_MAX).contains(&shape), "a shape of 0 to {PARETO_SHAPE_MAX}");
        let steps = quantile_steps(|from, to| pareto_mean(mean_bytes, shape, from, to));
        ValueSizes::new(format!("pareto:{mean_bytes}:{shape}"), Shape::Steps(steps))
    }

    /// Facebook's ETC pool as μTPS §5.2.2 gives it: 40 % of 1 to 13 bytes and 55 % of 14 to 300,
    /// both Zipf with the shortest the commonest, and 5 % uniform from 301 to `large_max_bytes`.
    pub fn etc(large_max_bytes: usize) -> ValueSizes {
        let mut steps = Vec::new();
        zipf_steps(&mut steps, 1, 13, 0.40);
        zipf_steps(&mut steps, 14, 300, 0.55);
        let until = steps.last().map_or(0, |step| step.until) + weight_of(0.05);
        steps.push(Step { low: 301, high: large_max_bytes.max(301), until });
        let text = format!("1-13 zipf:40,14-300 zipf:55,301-{large_max_bytes}:5");
        ValueSizes::new(text, Shape::Steps(steps))
    }

    /// These sizes for ids below `first_large_id`, `large` for the rest of `key_count` ids.
    pub fn with_large(self, large: ValueSizes, first_large_id: u64, key_count: u64) -> ValueSizes {
        let text = format!("{}; {} keys of {}", self, key_count - first_large_id, large);
        let (regular, large) = (Box::new(self), Box::new(large));
        ValueSizes::new(text, Shape::Tiered { regular, large, first_large_id, key_count })
    }

    fn new(text: String, shape: Shape) -> ValueSizes {
        let len_max_bytes = match &shape {
            Shape::Fixed(len) => *len,
            Shape::Range { high, .. } => *high,
            Shape::Steps(steps) => steps.iter().map(|step| step.high).max().unwrap_or(0),
            Shape::Tiered { regular, large, .. } => regular.len_max_bytes.max(large.len_max_bytes),
        };
        ValueSizes { text, shape, len_max_bytes }
    }

    /// The length of the value of `id`.
    #[inline]
    pub fn len_of(&self, id: u64) -> usize {
        if let Shape::Fixed(len) = self.shape {
            return len;
        }
        self.len_drawn(id)
    }

    fn len_drawn(&self, id: u64) -> usize {
        match &self.shape {
            Shape::Fixed(len) => *len,
            Shape::Range { low, high } => {
                let span = (high - low) as u64 + 1;
                low + scale(mix(id.wrapping_add(SIZE_SALT)), span) as usize
            }
            Shape::Steps(steps) => {
                let total = steps[steps.len() - 1].until;
                let mixed = mix(id.wrapping_add(SIZE_SALT));
                let point = scale(mixed, total);
                let step = steps[steps.partition_point(|step| step.until <= point)];
                let span = (step.high - step.low) as u64 + 1;
                step.low + scale(mix(mixed), span) as usize
            }
            Shape::Tiered { regular, large, first_large_id, .. } => {
                if id < *first_large_id {
                    regular.len_of(id)
                } else {
                    large.len_of(id)
                }
            }
        }
    }

    /// The length of every value, if all have the same.
    pub fn len_fixed_bytes(&self) -> Option<usize> {
        match self.shape {
            Shape::Fixed(len) => Some(len),
            _ => None,
        }
    }

    /// The longest value.
    pub fn len_max_bytes(&self) -> usize {
        self.len_max_bytes
    }

    /// The mean length over all keys.
    pub fn len_mean_bytes(&self) -> f64 {
        match &self.shape {
            Shape::Fixed(len) => *len as f64,
            Shape::Range { low, high } => (low + high) as f64 / 2.0,
            Shape::Steps(steps) => {
                let mut before = 0;
                let mut sum = 0.0;
                for step in steps {
                    sum += (step.low + step.high) as f64 / 2.0 * (step.until - before) as f64;
                    before = step.until;
                }
                sum / before as f64
            }
            Shape::Tiered { regular, large, first_large_id, key_count } => {
                let large_share = (key_count - first_large_id) as f64 / *key_count as f64;
                let regular_bytes = regular.len_mean_bytes() * (1.0 - large_share);
                regular_bytes + large.len_mean_bytes() * large_share
            }
        }
    }
}

/// Steps that a continuous distribution is cut into.
const QUANTILES: u32 = 256;

const PARETO_SHAPE_MAX: f64 = 0.9;

/// Steps of equal weight, as long as `mean_within(from, to)` says for each range of quantiles; at
/// least one byte. What rounding takes from one step it gives to the next.
fn quantile_steps(mean_within: impl Fn(f64, f64) -> f64) -> Vec<Step> {
    let mut rest = 0.0;
    let quantiles = f64::from(QUANTILES);
    let step = |index: u32| {
        let (from, to) = (f64::from(index) / quantiles, f64::from(index + 1) / quantiles);
        let wanted = mean_within(from, to) + rest;
        let len = wanted.round().clamp(1.0, LEN_MAX_BYTES as f64);
        rest = wanted - len;
        Step { low: len as usize, high: len as usize, until: u64::from(index) + 1 }
    };
    (0..QUANTILES).map(step).collect()
}

/// The mean between two quantiles of the generalized Pareto distribution with scale
/// `mean * (1 - shape)`: the quantile function `scale / shape * ((1 - u)^-shape - 1)`, integrated.
fn pareto_mean(mean_bytes: f64, shape: f64, from: f64, to: f64) -> f64 {
    let scale_bytes = mean_bytes * (1.0 - shape);
    let area = |quantile: f64| {
        let above = 1.0 - quantile;
        if above <= 0.0 {
            0.0
        } else if shape < 1e-6 {
            above * above.ln() - above
        } else {
            -above.powf(1.0 - shape) / (1.0 - shape) / shape
        }
    };
    let constant = if shape < 1e-6 { 0.0 } else { (to - from) / shape };
    scale_bytes * (area(to) - area(from) - constant) / (to - from)
}

/// A share as a weight.
fn weight_of(share: f64) -> u64 {
    (share * f64::from(u32::MAX)) as u64
}

/// Adds lengths `low..=high` that weigh `share` together, the k-th shortest as `k^-0.99`.
fn zipf_steps(steps: &mut Vec<Step>, low: usize, high: usize, share: f64) {
    let weight = |len: usize| ((len - low + 1) as f64).powf(-0.99);
    let sum: f64 = (low..=high).map(weight).sum();
    let mut until = steps.last().map_or(0, |step| step.until);
    for len in low..=high {
        until += weight_of(share * weight(len) / sum).max(1);
        steps.push(Step { low: len, high: len, until });
    }
}

/// Keeps sizes independent of everything else that is mixed from an id.
const SIZE_SALT: u64 = 0x5131_7a9b_4c3d_2e1f;

/// `random` scaled to `0..span` (Lemire's multiply-shift).
fn scale(random: u64, span: u64) -> u64 {
    ((u128::from(random) * u128::from(span)) >> 64) as u64
}

impl FromStr for ValueSizes {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<ValueSizes, WorkloadError> {
        if let Some(parameters) = text.strip_prefix("pareto:") {
            let sizes = pareto(parameters);
            return sizes.ok_or_else(|| WorkloadError::BadSizes { text: text.to_owned() });
        }
        let shape = if text.contains(':') {
            histogram(text)
        } else {
            let shape = |(low, high)| {
                if low == high { Shape::Fixed(low) } else { Shape::Range { low, high } }
            };
            range(text).map(shape)
        };
        let shape = shape.ok_or_else(|| WorkloadError::BadSizes { text: text.to_owned() })?;
        Ok(ValueSizes::new(text.to_owned(), shape))
    }
}

fn size(text: &str) -> Option<usize> {
    let bytes = text.parse::<ByteSize>().ok()?.bytes;
    if bytes <= LEN_MAX_BYTES { usize::try_from(bytes).ok() } else { None }
}

/// Redis' own limit on a string.
const LEN_MAX_BYTES: u64 = 512 << 20;

/// `BYTES` or `LOW-HIGH`.
fn range(text: &str) -> Option<(usize, usize)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (size(low)?, size(high)?);
    (low <= high).then_some((low, high))
}

/// `MEAN:SHAPE`.
fn pareto(text: &str) -> Option<ValueSizes> {
    let (mean_bytes, shape) = text.split_once(':')?;
    let (mean_bytes, shape): (f64, f64) = (mean_bytes.parse().ok()?, shape.parse().ok()?);
    let is_usable =
        (1.0..=(1 << 20) as f64).contains(&mean_bytes) && (0.0..PARETO_SHAPE_MAX).contains(&shape);
    is_usable.then(|| ValueSizes::pareto(mean_bytes, shape))
}

/// `SIZE:WEIGHT,...` where a size may be a range.
fn histogram(text: &str) -> Option<Shape> {
    let mut steps = Vec::new();
    let mut sum = 0_u64;
    for part in text.split(',') {
        let (lens, weight) = part.split_once(':')?;
        let (low, high) = range(lens)?;
        let weight: u64 = weight.trim().parse().ok()?;
        sum = sum.checked_add(weight)?;
        if weight > 0 {
            steps.push(Step { low, high, until: sum });
        }
    }
    (sum > 0).then_some(Shape::Steps(steps))
}

impl fmt::Display for ValueSizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want_mean: f64, want_max: usize) {
        const IDS: u64 = 100_000;
        let sizes: ValueSizes = text.parse().unwrap();
        let sum: usize = (0..IDS).map(|id| sizes.len_of(id)).sum();
        let found_mean = sum as f64 / IDS as f64;
        assert!((found_mean / want_mean - 1.0).abs() < 0.01, "{text}: mean {found_mean}");
        assert_eq!(sizes.len_mean_bytes(), want_mean, "{text}");
        assert_eq!(sizes.len_max_bytes(), want_max, "{text}");
        assert!((0..IDS).all(|id| sizes.len_of(id) <= want_max));
    }

    #[test]
    fn lengths_follow_what_was_asked() {
        check("64", 64.0, 64);
        check("1KiB", 1024.0, 1024);
        check("1-13", 7.0, 13);
        check("100:1,200:3", 175.0, 200);
        check("1KiB:1,8:0,0:1", 512.0, 1024);
        check("1-13:4,14-1400:6", 0.4 * 7.0 + 0.6 * 707.0, 1400);
    }

    #[track_caller]
    fn check_pareto(mean_bytes: f64, shape: f64) {
        let sizes = ValueSizes::pareto(mean_bytes, shape);
        let found = sizes.len_mean_bytes();
        assert!((found - mean_bytes).abs() < 0.01 * mean_bytes.max(1.0), "{sizes}: {found}");
        // The median of the distribution itself: the steps may not shift weight into the tail.
        let scale_bytes = mean_bytes * (1.0 - shape);
        let median = match shape {
            0.0 => scale_bytes * 2_f64.ln(),
            _ => scale_bytes / shape * (2_f64.powf(shape) - 1.0),
        };
        let below = (0..100_000).filter(|id| (sizes.len_of(*id) as f64) <= median).count();
        let below_share = below as f64 / 1e5;
        assert!(mean_bytes < 20.0 || (below_share - 0.5).abs() < 0.03, "{sizes}: {below_share}");
        assert_eq!(sizes.to_string().parse(), Ok(sizes));
    }

    #[test]
    fn pareto_sizes_keep_the_mean_and_the_median() {
        for mean_bytes in [1.0, 42.8, 250.0, 67_485.0] {
            for shape in [0.0, 0.2615, 0.348, 0.6] {
                check_pareto(mean_bytes, shape);
            }
        }
    }

    #[test]
    fn etc_has_the_classes_of_the_paper() {
        const IDS: u64 = 200_000;
        let sizes = ValueSizes::etc(8192);
        let share = |low: usize, high: usize| {
            let is_in = |id: &u64| (low..=high).contains(&sizes.len_of(*id));
            (0..IDS).filter(is_in).count() as f64 / IDS as f64
        };
        for (low, high, want) in [(1, 13, 0.40), (14, 300, 0.55), (301, 8192, 0.05)] {
            assert!((share(low, high) - want).abs() < 0.005, "{low}-{high}");
        }
        assert!(share(1, 1) > 0.10, "the shortest are the commonest");
        assert_eq!(sizes.len_max_bytes(), 8192);
    }

    #[test]
    fn large_items_have_sizes_of_their_own() {
        let sizes = ValueSizes::fixed(10).with_large(ValueSizes::fixed(1000), 90, 100);
        assert_eq!((sizes.len_of(89), sizes.len_of(90)), (10, 1000));
        assert_eq!((sizes.len_mean_bytes(), sizes.len_max_bytes()), (109.0, 1000));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "x",
            "5-4",
            "1-",
            "8:",
            "8:0",
            ":1",
            "8:1,",
            "8:1,x:2",
            "1GiB",
            "-1",
            "9-8:1",
            "pareto:",
            "pareto:5",
            "pareto:5:1",
            "pareto:0:0.1",
            "pareto:nan:0",
        ] {
            assert!(text.parse::<ValueSizes>().is_err(), "{text}");
        }
    }
}
