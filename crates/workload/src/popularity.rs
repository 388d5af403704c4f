//! Key popularity: uniform, or Zipf with any exponent of at least 0.
//!
//! Zipf ranks are drawn by rejection-inversion (W. Hörmann and G. Derflinger, "Rejection-inversion
//! to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): no table,
//! so 200 million keys cost as little as ten, and exponents above 1 need no second method. The
//! usual YCSB generator (Gray et al., SIGMOD 1994) approximates and stops at exponent 1.

use std::fmt;
use std::str::FromStr;

use rand::{Rng, RngExt};

use crate::WorkloadError;

/// The popularity of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// The key of rank `k` (from 1) in proportion to `k^-exponent`.
    Zipf {
        /// 0 is uniform; YCSB uses 0.99; production traces reach 2.5 (C-4 §1).
        exponent: f64,
    },
    /// Zipf over most keys; the keys of the last ids are few, asked for rarely and alike
    /// (Minos §5.3: "zipfian on the sets of tiny and small items", large ones uniform).
    ZipfBesideRare {
        /// The exponent of the Zipf part.
        exponent: f64,
        /// The rare keys, and how rare they are.
        rare: Rare,
    },
}

/// Keys outside the skewed part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rare {
    /// Their share of all keys, above 0 and below 1.
    pub key_share: f64,
    /// Their share of all requests, 0 to 1.
    pub request_share: f64,
}

impl Rare {
    /// How many of `key_count` keys are rare: at least one, unless there is only one key.
    pub fn count_of(&self, key_count: u64) -> u64 {
        let count = (self.key_share * key_count as f64).round() as u64;
        count.max(1).min(key_count - 1)
    }
}

impl FromStr for Popularity {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Popularity, WorkloadError> {
        let error = || WorkloadError::BadPopularity { text: text.to_owned() };
        let (zipf, rare) = match text.split_once("+rare:") {
            Some((zipf, rare)) => (zipf, Some(rare_of(rare).ok_or_else(error)?)),
            None => (text, None),
        };
        let exponent = match zipf.split_once(':') {
            None if text == "uniform" => return Ok(Popularity::Uniform),
            None if zipf == "zipf" => 0.99,
            Some(("zipf", exponent)) => exponent.parse::<f64>().map_err(|_| error())?,
            _ => return Err(error()),
        };
        match rare {
            _ if !(0.0..=EXPONENT_MAX).contains(&exponent) => Err(error()),
            Some(rare) => Ok(Popularity::ZipfBesideRare { exponent, rare }),
            None => Ok(Popularity::Zipf { exponent }),
        }
    }
}

/// `KEY_SHARE:REQUEST_SHARE`.
fn rare_of(text: &str) -> Option<Rare> {
    let (key_share, request_share) = text.split_once(':')?;
    let (key_share, request_share): (f64, f64) =
        (key_share.parse().ok()?, request_share.parse().ok()?);
    let is_usable = key_share > 0.0 && key_share < 1.0 && (0.0..=1.0).contains(&request_share);
    is_usable.then_some(Rare { key_share, request_share })
}

/// The largest exponent: beyond it, nearly every request goes to one key and the arithmetic
/// underflows.
const EXPONENT_MAX: f64 = 20.0;

impl fmt::Display for Popularity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Popularity::Uniform => formatter.write_str("uniform"),
            Popularity::Zipf { exponent } => write!(formatter, "zipf:{exponent}"),
            Popularity::ZipfBesideRare { exponent, rare } => {
                write!(formatter, "zipf:{exponent}+rare:{}:{}", rare.key_share, rare.request_share)
            }
        }
    }
}

/// Draws ranks, counted from 0 (the most popular), for a fixed number of keys.
#[derive(Clone, Debug)]
pub struct RankSampler {
    /// Keys that are not rare.
    regular_count: u64,
    zipf: Option<Zipf>,
    /// How many keys are rare, and the share of requests for them.
    rare: Option<(u64, f64)>,
}

impl RankSampler {
    /// A sampler over `key_count` keys.
    ///
    /// # Panics
    /// When there are no keys.
    pub fn new(popularity: Popularity, key_count: u64) -> RankSampler {
        assert!(key_count > 0, "a sampler needs at least one key");
        let (regular_count, rare) = match popularity {
            Popularity::ZipfBesideRare { rare, .. } if key_count > 1 => {
                let rare_count = rare.count_of(key_count);
                (key_count - rare_count, Some((rare_count, rare.request_share)))
            }
            _ => (key_count, None),
        };
        let zipf = match popularity {
            Popularity::Uniform => None,
            Popularity::Zipf { exponent } | Popularity::ZipfBesideRare { exponent, .. } => {
                Some(Zipf::new(exponent, regular_count))
            }
        };
        RankSampler { regular_count, zipf, rare }
    }

    /// Ranks below this are ordered by popularity; those from here on are rare and alike.
    pub fn regular_count(&self) -> u64 {
        self.regular_count
    }

    /// The rank of the next request's key.
    pub fn draw(&self, random: &mut impl Rng) -> u64 {
        if let Some((rare_count, request_share)) = self.rare
            && random.random::<f64>() < request_share
        {
            return self.regular_count + random.random_range(0..rare_count);
        }
        match &self.zipf {
            None => random.random_range(0..self.regular_count),
            Some(zipf) => zipf.draw(random) - 1,
        }
    }
}

/// Rejection-inversion: invert the integral of the hat `x^-exponent`, round, and reject rarely.
#[derive(Clone, Debug)]
struct Zipf {
    exponent: f64,
    rank_max: f64,
    integral_low: f64,
    integral_high: f64,
    /// Roundings smaller than this are accepted without the exact test.
    accept_below: f64,
}

impl Zipf {
    fn new(exponent: f64, key_count: u64) -> Zipf {
        let mut zipf = Zipf {
            exponent,
            rank_max: key_count as f64,
            integral_low: 0.0,
            integral_high: 0.0,
            accept_below: 0.0,
        };
        zipf.integral_low = zipf.integral(1.5) - 1.0;
        zipf.integral_high = zipf.integral(zipf.rank_max + 0.5);
        zipf.accept_below = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank from 1 to the number of keys.
    fn draw(&self, random: &mut impl Rng) -> u64 {
        loop {
            let unit: f64 = random.random();
            let area = self.integral_high + unit * (self.integral_low - self.integral_high);
            let point = self.integral_inverse(area);
            let rank = (point + 0.5).floor().clamp(1.0, self.rank_max);
            let is_near = rank - point <= self.accept_below;
            if is_near || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, point: f64) -> f64 {
        (-self.exponent * point.ln()).exp()
    }

    /// The integral of the density from 1 to `point`; `ln(point)` at exponent 1.
    fn integral(&self, point: f64) -> f64 {
        let log = point.ln();
        expm1_over_x((1.0 - self.exponent) * log) * log
    }

    fn integral_inverse(&self, area: f64) -> f64 {
        // Rounding may carry the product just below -1, where the logarithm ends.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (ln1p_over_x(scaled) * area).exp()
    }
}

/// `(e^x - 1) / x`, also where x nears 0 (exponent 1).
fn expm1_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

/// `ln(1 + x) / x`, also where x nears 0 (exponent 1).
fn ln1p_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    /// Ranks in bins whose edges double, so that each bin of a skewed distribution is well filled.
    fn bin_of(rank: u64) -> usize {
        (rank + 1).ilog2() as usize
    }

    fn exact_bins(exponent: f64, key_count: u64) -> Vec<f64> {
        let mut bins = vec![0.0; bin_of(key_count - 1) + 1];
        for rank in 0..key_count {
            bins[bin_of(rank)] += ((rank + 1) as f64).powf(-exponent);
        }
        let sum: f64 = bins.iter().sum();
        bins.iter().map(|weight| weight / sum).collect()
    }

    /// Pearson's chi-square, divided by its degrees of freedom: near 1 when the fit is right.
    #[track_caller]
    fn check_fit(popularity: Popularity, exponent: f64, key_count: u64) {
        const DRAWS: u64 = 400_000;
        let sampler = RankSampler::new(popularity, key_count);
        let mut random = SmallRng::seed_from_u64(42);
        let want = exact_bins(exponent, key_count);
        let mut found = vec![0_u64; want.len()];
        for _ in 0..DRAWS {
            let rank = sampler.draw(&mut random);
            assert!(rank < key_count);
            found[bin_of(rank)] += 1;
        }
        let mut chi_square = 0.0;
        let mut degrees = -1.0;
        for (share, count) in want.iter().zip(&found) {
            let expected = share * DRAWS as f64;
            if expected >= 5.0 {
                chi_square += (*count as f64 - expected).powi(2) / expected;
                degrees += 1.0;
            }
        }
        // The 99.99 % point of chi-square per degree is 3.6 at 9 degrees, 2.7 at 19.
        assert!(chi_square < 4.0 * f64::max(degrees, 1.0), "{popularity}: {chi_square}/{degrees}");
    }

    #[test]
    fn zipf_draws_fit_the_exact_shares_at_any_exponent() {
        for exponent in [0.0, 0.5, 0.9, 0.99, 1.0, 1.000_000_001, 1.2, 1.4, 2.5] {
            check_fit(Popularity::Zipf { exponent }, exponent, 100_000);
        }
    }

    #[test]
    fn uniform_draws_fit() {
        check_fit(Popularity::Uniform, 0.0, 100_000);
    }

    #[test]
    fn rare_keys_get_their_share_and_all_alike() {
        let rare = Rare { key_share: 0.01, request_share: 0.2 };
        let popularity = Popularity::ZipfBesideRare { exponent: 0.99, rare };
        let sampler = RankSampler::new(popularity, 1000);
        assert_eq!(sampler.regular_count(), 990);
        let mut random = SmallRng::seed_from_u64(3);
        const DRAWS: usize = 100_000;
        let mut hits = vec![0_usize; 1000];
        (0..DRAWS).for_each(|_| hits[sampler.draw(&mut random) as usize] += 1);
        for count in &hits[990..] {
            assert!((*count as f64 / DRAWS as f64 - 0.02).abs() < 0.002, "{count}");
        }
        let head = RankSampler::new(Popularity::Zipf { exponent: 0.99 }, 990);
        let alone = (0..DRAWS).filter(|_| head.draw(&mut random) == 0).count();
        assert!((hits[0] as f64 / (alone as f64 * 0.8) - 1.0).abs() < 0.05, "{} {alone}", hits[0]);
    }

    #[test]
    fn one_key_gets_everything() {
        let mut random = SmallRng::seed_from_u64(1);
        for popularity in [Popularity::Uniform, Popularity::Zipf { exponent: 0.99 }] {
            assert_eq!(RankSampler::new(popularity, 1).draw(&mut random), 0);
        }
    }

    /// Sum of `k^-exponent` to `key_count`: exact terms, then Euler-Maclaurin.
    fn harmonic(exponent: f64, key_count: f64) -> f64 {
        const EXACT: u64 = 1000;
        let head: f64 = (1..=EXACT).map(|rank| (rank as f64).powf(-exponent)).sum();
        let from = EXACT as f64;
        let area = (key_count.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent);
        head + area + (key_count.powf(-exponent) - from.powf(-exponent)) / 2.0
    }

    #[test]
    fn the_harmonic_sum_is_the_one_that_ycsb_ships() {
        // YCSB, ScrambledZipfianGenerator: ZETAN for 10^10 items at 0.99.
        assert!((harmonic(0.99, 1e10) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    #[test]
    fn the_hottest_of_192_mi_keys_is_asked_for_as_often_as_mica_says() {
        // MICA (ISCA'15) §6: 9.3 x 10^6 times more often than the average, at 0.99.
        let key_count = 192 << 20;
        let sampler = RankSampler::new(Popularity::Zipf { exponent: 0.99 }, key_count);
        let mut random = SmallRng::seed_from_u64(7);
        const DRAWS: u32 = 400_000;
        let hits = (0..DRAWS).filter(|_| sampler.draw(&mut random) == 0).count();
        let times_average = hits as f64 / f64::from(DRAWS) * key_count as f64;
        assert!((times_average / 9.3e6 - 1.0).abs() < 0.02, "{times_average}");
    }

    #[test]
    fn distributions_parse_as_they_print() {
        for text in ["uniform", "zipf:0.99", "zipf:0", "zipf:1.4", "zipf:1+rare:0.01:0.5"] {
            assert_eq!(text.parse::<Popularity>().map(|found| found.to_string()), Ok(text.into()));
        }
        for text in [
            "",
            "zipf:",
            "zipf:-1",
            "zipf:nan",
            "zipf:21",
            "zipf:inf",
            "normal",
            "Uniform ",
            "uniform+rare:0.1:0.1",
            "zipf:1+rare:0:0.1",
            "zipf:1+rare:0.1",
        ] {
            assert!(text.parse::<Popularity>().is_err(), "{text}");
        }
    }
}
