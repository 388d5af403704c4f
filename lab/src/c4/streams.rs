//! The random numbers of a run: the artifact's streams, or our own.

use std::sync::Arc;

use base::PartitionId;
use policy::Access;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use workload::scramble::mix;
use workload::{Popularity, RankSampler};

use super::PointOptions;
use super::artifact::{NumpyStream, PythonStream};
use super::keys::{InverseTable, KeyMap};

/// T_kvs is uniform over this range (C-4 §3.1).
const KVS_NS_MIN: f64 = 400.0;
const KVS_NS_SPREAD: f64 = 400.0;

/// A request as it is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// Reads or writes.
    pub access: Access,
    /// Its key's popularity rank.
    pub rank: u64,
    /// Where the key lives.
    pub partition: PartitionId,
}

/// All that is drawn in a run.
pub trait Streams {
    /// A gap between arrivals, in mean gaps.
    fn gap(&mut self) -> f64;
    /// The next request.
    fn request(&mut self) -> Drawn;
    /// How long the key-value part of a core's next request lasts.
    fn kvs_ns(&mut self, core: usize) -> f64;
}

fn drawn(is_write: bool, rank: u64, keys: &KeyMap) -> Drawn {
    Drawn {
        access: if is_write { Access::Write } else { Access::Read },
        rank,
        partition: keys.partition(rank),
    }
}

/// The artifact's streams: the same for all loads and policies.
pub struct ArtifactStreams {
    gaps: NumpyStream,
    requests: PythonStream,
    service: Vec<NumpyStream>,
    /// Of 10,001 rolls, how many write.
    write_rolls: u32,
    /// For uniform keys too: the artifact's sums are rounded, and that moves some draws.
    table: Arc<InverseTable>,
    keys: KeyMap,
}

impl ArtifactStreams {
    pub fn new(options: &PointOptions) -> ArtifactStreams {
        ArtifactStreams {
            gaps: NumpyStream::gaps(),
            requests: PythonStream::requests(),
            service: vec![NumpyStream::service(); options.workers],
            write_rolls: (100.0 * options.write_percent) as u32,
            table: InverseTable::shared(options.zipf, options.keys),
            keys: KeyMap::artifact(),
        }
    }
}

impl Streams for ArtifactStreams {
    #[inline]
    fn gap(&mut self) -> f64 {
        self.gaps.exponential()
    }

    #[inline]
    fn request(&mut self) -> Drawn {
        let is_write = self.requests.roll() < self.write_rolls;
        let rank = self.table.rank(self.requests.unit());
        drawn(is_write, rank, &self.keys)
    }

    #[inline]
    fn kvs_ns(&mut self, core: usize) -> f64 {
        KVS_NS_MIN + KVS_NS_SPREAD * self.service[core].unit()
    }
}

/// Our own: independent of each other, one seed for all.
pub struct OwnStreams {
    gaps: SmallRng,
    requests: SmallRng,
    service: Vec<SmallRng>,
    write_share: f64,
    ranks: RankSampler,
    keys: KeyMap,
}

impl OwnStreams {
    pub fn new(options: &PointOptions) -> OwnStreams {
        let stream = |index: u64| SmallRng::seed_from_u64(mix(options.seed).wrapping_add(index));
        let popularity = match options.zipf {
            0.0 => Popularity::Uniform,
            exponent => Popularity::Zipf { exponent },
        };
        OwnStreams {
            gaps: stream(0),
            requests: stream(1),
            service: (0..options.workers as u64).map(|core| stream(2 + core)).collect(),
            write_share: options.write_percent / 100.0,
            ranks: RankSampler::new(popularity, options.keys),
            keys: KeyMap::Hashed { seed: options.seed },
        }
    }
}

impl Streams for OwnStreams {
    #[inline]
    fn gap(&mut self) -> f64 {
        Exp1.sample(&mut self.gaps)
    }

    #[inline]
    fn request(&mut self) -> Drawn {
        let is_write = self.requests.random::<f64>() < self.write_share;
        drawn(is_write, self.ranks.draw(&mut self.requests), &self.keys)
    }

    #[inline]
    fn kvs_ns(&mut self, core: usize) -> f64 {
        KVS_NS_MIN + KVS_NS_SPREAD * self.service[core].random::<f64>()
    }
}
