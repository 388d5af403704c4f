//! Medians, extremes and quartiles of repeated measurements.

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of these; NaN when there are none.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        // Of an even number, the mean of the two in the middle.
        let median = (at(last / 2) + at(values.len() / 2)) / 2.0;
        Spread { median, min: at(0), max: at(last) }
    }
}

/// At these shares of the sorted values.
pub fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    [0.25, 0.5, 0.75].map(|share| {
        let at = share * last;
        let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
        low + (high - low) * at.fract()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 2.5);
        assert!(Spread::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn quartiles_lie_between_values() {
        assert_eq!(quartiles(vec![3.0, 1.0, 2.0]), [1.5, 2.0, 2.5]);
        assert_eq!(quartiles(vec![4.0]), [4.0; 3]);
    }
}
