//! How long values are: fixed, uniform in a range, or a histogram.
//!
//! A key's value always has the same length: it follows from the id. A rewrite therefore
//! never changes an item's size, and a reader knows what length to expect.

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
    /// (length, sum of the weights to here and including); the last sum is the total.
    Histogram(Vec<(usize, u64)>),
}

impl ValueSizes {
    /// All values `len_bytes` long.
    pub fn fixed(len_bytes: usize) -> ValueSizes {
        ValueSizes::new(len_bytes.to_string(), Shape::Fixed(len_bytes))
    }

    fn new(text: String, shape: Shape) -> ValueSizes {
        let len_max_bytes = match &shape {
            Shape::Fixed(len) => *len,
            Shape::Range { high, .. } => *high,
            Shape::Histogram(steps) => steps.iter().map(|step| step.0).max().unwrap_or(0),
        };
        ValueSizes { text, shape, len_max_bytes }
    }

    /// The length of the value of `id`.
    #[inline(always)]
    pub fn len_of(&self, id: u64) -> usize {
        match &self.shape {
            Shape::Fixed(len) => *len,
            Shape::Range { low, high } => {
                let span = (high - low) as u64 + 1;
                low + scale(mix(id.wrapping_add(SIZE_SALT)), span) as usize
            }
            Shape::Histogram(steps) => {
                let total = steps[steps.len() - 1].1;
                let point = scale(mix(id.wrapping_add(SIZE_SALT)), total);
                let index = steps.partition_point(|step| step.1 <= point);
                steps[index].0
            }
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
            Shape::Histogram(steps) => {
                let mut before = 0;
                let mut sum = 0.0;
                for (len, until) in steps {
                    sum += *len as f64 * (until - before) as f64;
                    before = *until;
                }
                sum / before as f64
            }
        }
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
        let shape = if text.contains(':') {
            histogram(text)
        } else if let Some((low, high)) = text.split_once('-') {
            match (size(low), size(high)) {
                (Some(low), Some(high)) if low <= high => Some(Shape::Range { low, high }),
                _ => None,
            }
        } else {
            size(text).map(Shape::Fixed)
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

fn histogram(text: &str) -> Option<Shape> {
    let mut steps = Vec::new();
    let mut sum = 0_u64;
    for part in text.split(',') {
        let (len, weight) = part.split_once(':')?;
        let weight: u64 = weight.trim().parse().ok()?;
        sum = sum.checked_add(weight)?;
        if weight > 0 {
            steps.push((size(len)?, sum));
        }
    }
    (sum > 0).then_some(Shape::Histogram(steps))
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
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "x", "5-4", "1-", "8:", "8:0", ":1", "8:1,", "8:1,x:2", "1GiB", "-1"] {
            assert!(text.parse::<ValueSizes>().is_err(), "{text}");
        }
    }
}
