//! Draws requests one by one, to fill a trace or to feed a simulator.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::mix::{Mix, Reads};
use crate::popularity::{Popularity, RankSampler};
use crate::scramble::Scramble;
use crate::sizes::ValueSizes;

/// The parameters of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// Shares of operations.
    pub mix: Mix,
    /// The popularity of keys for reads and updates.
    pub popularity: Popularity,
    /// Keys that exist at the start; ids `0..key_count`.
    pub key_count: u64,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// The operation of a trace entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read the key of this id.
    Read(u64),
    /// Read the key that is this many inserts older than the lane's newest.
    ReadLatest(u64),
    /// Rewrite the key of this id.
    Update(u64),
    /// Write a key that does not exist yet.
    Insert,
    /// Read the key of this id and write it back changed.
    ReadModifyWrite(u64),
    /// Read a range of keys; needs an ordered index.
    Scan {
        /// The first key.
        id: u64,
        /// How many keys, 1 to [`crate::mix::SCAN_KEYS_MAX`].
        keys: u64,
    },
}

/// One request, with everything that a model of a store needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key's popularity rank, from 0; for reads of the latest: how far back. An insert's key
    /// has no rank yet: this is its id.
    pub rank: u64,
    /// The key; for scans, the first.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// The length of the key's value, read or written.
    pub value_len_bytes: usize,
}

/// An endless stream of requests; inserts make the key set grow.
#[derive(Clone, Debug)]
pub struct Requests {
    drawer: Drawer,
    value_sizes: ValueSizes,
    key_count: u64,
}

impl Requests {
    /// The requests of `draw`, with the lengths from `value_sizes`.
    pub fn new(draw: &Draw, value_sizes: ValueSizes) -> Requests {
        Requests { drawer: Drawer::new(draw), value_sizes, key_count: draw.key_count }
    }

    /// The next request.
    pub fn draw(&mut self) -> Request {
        let Drawn { rank, operation } = self.drawer.next();
        let newest = self.key_count - 1;
        let (rank, id) = match operation {
            Operation::Read(id) | Operation::Update(id) | Operation::ReadModifyWrite(id) => {
                (rank, id)
            }
            Operation::Scan { id, .. } => (rank, id),
            Operation::ReadLatest(back) => (rank, newest - back.min(newest)),
            Operation::Insert => {
                self.key_count += 1;
                (newest + 1, newest + 1)
            }
        };
        Request { rank, id, operation, value_len_bytes: self.value_sizes.len_of(id) }
    }
}

/// An operation and the popularity rank that its key was drawn by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    pub rank: u64,
    pub operation: Operation,
}

/// Turns random numbers into operations.
#[derive(Clone, Debug)]
pub(crate) struct Drawer {
    random: SmallRng,
    ranks: RankSampler,
    scramble: Option<Scramble>,
    mix: Mix,
}

impl Drawer {
    pub(crate) fn new(draw: &Draw) -> Drawer {
        let ranks = RankSampler::new(draw.popularity, draw.key_count);
        // With uniform keys there are no hot keys to spread.
        let scramble = match draw.popularity {
            Popularity::Uniform => None,
            _ => Some(Scramble::new(ranks.regular_count(), draw.seed)),
        };
        Drawer { random: SmallRng::seed_from_u64(draw.seed), ranks, scramble, mix: draw.mix }
    }

    pub(crate) fn next(&mut self) -> Drawn {
        let mut point = self.random.random_range(0..self.mix.total());
        let rank = self.ranks.draw(&mut self.random);
        let mut falls_in = |weight: u32| {
            let is_in = point < weight;
            point = point.wrapping_sub(weight);
            is_in
        };
        let operation = if falls_in(self.mix.read) {
            match self.mix.reads {
                Reads::Popular => Operation::Read(self.id(rank)),
                Reads::Latest => Operation::ReadLatest(rank),
            }
        } else if falls_in(self.mix.update) {
            Operation::Update(self.id(rank))
        } else if falls_in(self.mix.insert) {
            Operation::Insert
        } else if falls_in(self.mix.read_modify_write) {
            Operation::ReadModifyWrite(self.id(rank))
        } else {
            let lengths = self.mix.scan_keys;
            let keys = self.random.random_range(lengths.min..=lengths.max);
            Operation::Scan { id: self.id(rank), keys }
        };
        Drawn { rank, operation }
    }

    /// Rare keys are not shuffled: they have no hot ones among them.
    fn id(&self, rank: u64) -> u64 {
        match self.scramble {
            Some(scramble) if rank < self.ranks.regular_count() => scramble.apply(rank),
            _ => rank,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, Trace};

    #[test]
    fn requests_are_the_operations_of_the_trace_of_the_same_seed() {
        for name in ["ycsb-a", "ycsb-e", "minos", "twitter-12"] {
            let profile: Profile = name.parse().unwrap();
            let trace = Trace::draw(&profile.draw(5000, 3), 2000);
            let (mut cursor, mut requests) = (trace.cursor(0, 1), profile.requests(5000, 3));
            for _ in 0..2000 {
                assert_eq!(requests.draw().operation, cursor.advance(), "{name}");
            }
        }
    }

    #[test]
    fn reads_of_the_latest_follow_the_inserts() {
        let mut requests = "ycsb-d".parse::<Profile>().unwrap().requests(1000, 1);
        let (mut newest, mut distance_sum, mut read_count) = (999, 0, 0);
        for _ in 0..20_000 {
            let request = requests.draw();
            match request.operation {
                Operation::Insert => {
                    assert_eq!(request.id, newest + 1);
                    newest = request.id;
                }
                _ => {
                    assert!(request.id <= newest);
                    distance_sum += newest - request.id;
                    read_count += 1;
                }
            }
        }
        assert!(newest > 1800, "inserts go on: {newest}");
        // The mean of Zipf(0.99) over 1000 ranks is about 135.
        assert!((100..170).contains(&(distance_sum / read_count)));
    }

    #[test]
    fn scans_are_one_to_a_hundred_keys_long() {
        let mut requests = "ycsb-e".parse::<Profile>().unwrap().requests(1000, 1);
        let lengths: Vec<u64> = (0..20_000)
            .filter_map(|_| match requests.draw().operation {
                Operation::Scan { keys, .. } => Some(keys),
                _ => None,
            })
            .collect();
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert!((mean - 50.5).abs() < 1.0, "{mean}");
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
    }
}
