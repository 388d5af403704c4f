//! The random streams of the published artifact, and its map from keys to buckets, bit for bit.
//!
//! ```text
//!  gaps      NumPy  Generator(PCG64(0xdeadbeef)).exponential    ziggurat of 256 layers
//!  service   NumPy  Generator(PCG64(0x1234cafe)).uniform        one such generator per core
//!  requests  Python random.seed(0xcafed00d): randint(0, 10000), then random()
//!  buckets   sha256(decimal text of the rank), hex digits [-16:-8], modulo 2^20
//! ```
//!
//! # References
//! C-4 appendix A. The ziggurat's constants: G. Marsaglia and W. W. Tsang, "The ziggurat method for
//! generating random variables", Journal of Statistical Software 5(8), 2000.

use std::sync::OnceLock;

use rand::Rng;
use rand_mt::Mt;
use rand_pcg::Lcg128Xsl64;
use sha2::{Digest, Sha256};

/// The artifact's key space.
pub const KEYS_MAX: u64 = 1_600_000;

/// Buckets that keys fall into.
pub const BUCKET_COUNT: u32 = 1 << 20;

/// What NumPy's seeding makes of 0xdeadbeef: initial state and stream.
const GAPS_SEED: (u128, u128) =
    (0x9418_c763_2a43_b469_ec7a_28fc_f09d_b92e, 0x7064_c39f_2cb8_b0e2_0644_5652_dc4c_09df);

/// What NumPy's seeding makes of 0x1234cafe.
const SERVICE_SEED: (u128, u128) =
    (0xab5c_623d_372d_30a8_d3b7_3139_ad8f_c625, 0xbcb7_e556_85bf_68fa_ed66_8d58_73fc_ab66);

/// A NumPy generator.
#[derive(Clone, Debug)]
pub struct NumpyStream {
    bits: Lcg128Xsl64,
}

impl NumpyStream {
    fn new((state, stream): (u128, u128)) -> NumpyStream {
        NumpyStream { bits: Lcg128Xsl64::new(state, stream) }
    }

    /// The stream of gaps between arrivals.
    pub fn gaps() -> NumpyStream {
        NumpyStream::new(GAPS_SEED)
    }

    /// One core's stream of service times: the same for every core.
    pub fn service() -> NumpyStream {
        NumpyStream::new(SERVICE_SEED)
    }

    /// Uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        let tables = ziggurat();
        loop {
            let bits = self.bits.next_u64() >> 3;
            let layer = (bits & 0xff) as usize;
            let bits = bits >> 8;
            let x = bits as f64 * tables.width[layer];
            if bits < tables.accept[layer] {
                return x;
            }
            if layer == 0 {
                return ZIGGURAT_TAIL - (-self.unit()).ln_1p();
            }
            let (low, high) = (tables.density[layer], tables.density[layer - 1]);
            if (high - low) * self.unit() + low < (-x).exp() {
                return x;
            }
        }
    }
}

/// Where the tail layer begins, and the area of each layer.
const ZIGGURAT_TAIL: f64 = 7.697_117_470_131_05;
const ZIGGURAT_AREA: f64 = 0.003_949_659_822_581_557;

struct Ziggurat {
    accept: [u64; 256],
    width: [f64; 256],
    density: [f64; 256],
}

fn ziggurat() -> &'static Ziggurat {
    static TABLES: OnceLock<Ziggurat> = OnceLock::new();
    TABLES.get_or_init(|| {
        let scale = (1_u64 << 53) as f64;
        let mut edge = ZIGGURAT_TAIL;
        let base = ZIGGURAT_AREA / (-edge).exp();
        let mut tables = Ziggurat { accept: [0; 256], width: [0.0; 256], density: [0.0; 256] };
        tables.accept[0] = (edge / base * scale) as u64;
        tables.width[0] = base / scale;
        tables.density[0] = 1.0;
        tables.width[255] = edge / scale;
        tables.density[255] = (-edge).exp();
        for layer in (1..255).rev() {
            let above = edge;
            edge = -(ZIGGURAT_AREA / edge + (-edge).exp()).ln();
            tables.accept[layer + 1] = (edge / above * scale) as u64;
            tables.width[layer] = edge / scale;
            tables.density[layer] = (-edge).exp();
        }
        tables
    })
}

/// Python's generator as the artifact uses it for each request.
#[derive(Clone, Debug)]
pub struct PythonStream {
    bits: Mt,
}

impl PythonStream {
    /// Seeded as the artifact does.
    pub fn requests() -> PythonStream {
        PythonStream { bits: Mt::new_with_key([0xcafe_d00d]) }
    }

    /// `randint(0, 10000)`: 14 bits, drawn again while too large.
    #[inline]
    pub fn roll(&mut self) -> u32 {
        loop {
            let roll = self.bits.next_u32() >> 18;
            if roll <= 10_000 {
                return roll;
            }
        }
    }

    /// `random()`: uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        let high = u64::from(self.bits.next_u32() >> 5);
        let low = u64::from(self.bits.next_u32() >> 6);
        ((high << 26) + low) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

/// The bucket of each of the artifact's keys, by popularity rank.
pub fn buckets() -> &'static [u32] {
    static BUCKETS: OnceLock<Vec<u32>> = OnceLock::new();
    BUCKETS.get_or_init(|| (0..KEYS_MAX).map(bucket).collect())
}

fn bucket(rank: u64) -> u32 {
    let digest = Sha256::digest(rank.to_string().as_bytes());
    let word: [u8; 4] = digest[24..28].try_into().expect("4 of 32 bytes");
    u32::from_be_bytes(word) % BUCKET_COUNT
}

#[cfg(test)]
mod tests {
    use super::{NumpyStream, PythonStream, bucket};

    fn close(got: f64, want: f64) -> bool {
        (got - want).abs() <= want.abs() * 1e-14
    }

    #[test]
    fn gaps_are_numpys() {
        let mut stream = NumpyStream::gaps();
        let gaps: Vec<f64> = (0..2_000_000).map(|_| stream.exponential()).collect();
        for (index, want) in [
            (0, 0.212_261_577_932_312_6),
            (1, 2.073_349_152_712_103),
            (2, 2.459_661_766_478_043),
            // Draw 1981 comes from the tail layer: everything after it depends on the retries.
            (2999, 0.722_166_051_858_693),
            (1_999_999, 0.147_454_442_773_677_1),
        ] {
            assert!((gaps[index] - want).abs() < 2e-14, "{index}: {} {want}", gaps[index]);
        }
        let sum: f64 = gaps.iter().sum();
        assert!((sum - 2_001_074.415_728_129).abs() < 1e-5, "{sum}");
    }

    #[test]
    fn service_times_are_numpys() {
        let mut stream = NumpyStream::service();
        let times: Vec<f64> = (0..1000).map(|_| 400.0 + 400.0 * stream.unit()).collect();
        let wanted =
            [(0, 557.440_281_251_506), (1, 707.160_940_508_327_1), (999, 679.431_786_987_556_4)];
        for (index, want) in wanted {
            assert!(close(times[index], want), "{index}: {} {want}", times[index]);
        }
    }

    #[test]
    fn requests_are_pythons() {
        let mut stream = PythonStream::requests();
        let draws: Vec<(u32, f64)> = (0..100_000).map(|_| (stream.roll(), stream.unit())).collect();
        for (index, roll, unit) in [
            (0, 3952, 0.779_070_394_026_919_2),
            (1, 7064, 0.925_443_922_471_152_6),
            (2, 417, 0.258_192_260_927_179_3),
            (99_999, 4799, 0.666_698_319_396_145_8),
        ] {
            assert_eq!(draws[index].0, roll);
            assert!(close(draws[index].1, unit), "{} {unit}", draws[index].1);
        }
    }

    #[test]
    fn hot_keys_share_the_artifacts_cores() {
        let cores: Vec<u32> = (0..10).map(|rank| bucket(rank) % 64).collect();
        assert_eq!(cores, [58, 29, 46, 7, 60, 21, 38, 9, 47, 3]);
    }
}
