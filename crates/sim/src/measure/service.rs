//! How long a worker is busy with one request: the laws that the queueing models draw from.

use std::sync::Arc;

use policy::Access;
use rand::Rng;
use rand::RngExt;

use crate::measure::{Batching, CostTable};

/// A law of service times. All numbers are nanoseconds of one core.
#[derive(Clone, Debug)]
pub enum ServiceModel {
    /// Uniform between two bounds, whatever the request: C-4's own model, `[400, 800]` (C-4 §3.1).
    Uniform {
        /// Least.
        low_ns: f64,
        /// Most.
        high_ns: f64,
    },
    /// Two fixed times: a large one for `large_share_ratio` of the requests (Minos Fig. 2).
    Bimodal {
        /// Of most requests.
        small_ns: f64,
        /// Of the rest.
        large_ns: f64,
        /// The rest's share, 0 to 1.
        large_share_ratio: f64,
    },
    /// A constant and a part that grows with the item.
    BySize {
        /// Of an empty item.
        fixed_ns: f64,
        /// Of each byte of key and value.
        byte_ns: f64,
    },
    /// Drawn from what was measured with the real store.
    Measured {
        /// The measurements.
        table: Arc<CostTable>,
        /// Whether the worker takes its requests one by one or many at a time.
        batching: Batching,
    },
}

impl ServiceModel {
    /// One request's service time in nanoseconds; `size_bytes` is key and value.
    pub fn draw(&self, random: &mut impl Rng, access: Access, size_bytes: u64) -> f64 {
        match self {
            ServiceModel::Uniform { low_ns, high_ns } => {
                low_ns + (high_ns - low_ns) * random.random::<f64>()
            }
            ServiceModel::Bimodal { small_ns, large_ns, large_share_ratio } => {
                if random.random::<f64>() < *large_share_ratio { *large_ns } else { *small_ns }
            }
            ServiceModel::BySize { fixed_ns, byte_ns } => fixed_ns + byte_ns * size_bytes as f64,
            ServiceModel::Measured { table, batching } => {
                table.service_ns(access, size_bytes, *batching, random)
            }
        }
    }

    /// The mean of [`ServiceModel::draw`], for offered loads in units of capacity.
    pub fn mean_ns(&self, access: Access, size_bytes: u64) -> f64 {
        match self {
            ServiceModel::Uniform { low_ns, high_ns } => (low_ns + high_ns) / 2.0,
            ServiceModel::Bimodal { small_ns, large_ns, large_share_ratio } => {
                small_ns + (large_ns - small_ns) * large_share_ratio
            }
            ServiceModel::BySize { fixed_ns, byte_ns } => fixed_ns + byte_ns * size_bytes as f64,
            ServiceModel::Measured { table, batching } => {
                table.mean_ns(access, size_bytes, *batching)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use policy::Access;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::ServiceModel;
    use crate::measure::cost_table::tests::two_sizes;
    use crate::measure::{Batching, CostTable};

    const DRAWS: u32 = 200_000;

    #[track_caller]
    fn check(model: &ServiceModel, size_bytes: u64, low_ns: f64, high_ns: f64) {
        let mut random = SmallRng::seed_from_u64(7);
        let mut sum_ns = 0.0;
        for _ in 0..DRAWS {
            let drawn_ns = model.draw(&mut random, Access::Read, size_bytes);
            assert!((low_ns..=high_ns).contains(&drawn_ns), "{drawn_ns}");
            sum_ns += drawn_ns;
        }
        let mean_ns = sum_ns / f64::from(DRAWS);
        let want_ns = model.mean_ns(Access::Read, size_bytes);
        // The widest law here has a standard deviation of 10 times its mean: 3 % is 1.3 sigma of
        // the mean of 200,000 draws, the seed is fixed.
        assert!((mean_ns / want_ns - 1.0).abs() < 0.03, "{mean_ns} is not {want_ns}");
    }

    #[test]
    fn draws_stay_in_their_bounds_and_have_the_stated_mean() {
        check(&ServiceModel::Uniform { low_ns: 400.0, high_ns: 800.0 }, 16, 400.0, 800.0);
        let bimodal =
            ServiceModel::Bimodal { small_ns: 1.0, large_ns: 1000.0, large_share_ratio: 0.00125 };
        check(&bimodal, 16, 1.0, 1000.0);
        check(&ServiceModel::BySize { fixed_ns: 100.0, byte_ns: 0.5 }, 528, 364.0, 364.0);
        let table = Arc::new(CostTable::from_json(&two_sizes()).unwrap());
        let measured = ServiceModel::Measured { table, batching: Batching::One };
        check(&measured, 16, 50.0, 200.0);
        check(&measured, 58, 50.0, 1100.0);
    }
}
