//! The load of the clients: few keys, values of all sizes, pipelines.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::linearizable::model::Ask;
use crate::linearizable::value::Value;

/// The shape of a history.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Lengths of values, drawn evenly; what is appended is at most [`TAIL_BYTES_MAX`] of it.
    pub sizes: &'static [usize],
    /// Keys of a round: the fewer, the more collisions.
    pub keys: usize,
    /// Requests of one pipeline, at most.
    pub depth_max: usize,
    /// Pipelines of all clients until keys that no client has seen take the place of a round's.
    pub pipelines_per_round: usize,
    pub rounds: usize,
    /// One in this many pipelines ends with its client's death.
    pub deaths_one_in: u32,
}

/// What tails are appended: longer ones fit no frame of a native client.
const TAIL_BYTES_MAX: usize = 600;

/// Short values, as many pipelines as possible.
pub const SMALL: Load = Load {
    sizes: &[1, 2, 7, 8, 9, 30, 100],
    keys: 2,
    depth_max: 6,
    pipelines_per_round: 16,
    rounds: 40,
    deaths_one_in: 12,
};

/// Values that compaction puts together, and those at which the ways of a value part: 1 KiB
/// (cells), 4 KiB (pinned replies), 16 KiB (borrowed requests), 64 KiB (pinned output).
pub const MIDDLE: Load = Load {
    sizes: &[1000, 1100, 1500, 4095, 4096, 5000, 16_300, 16_400, 17_000, 65_535, 70_000],
    keys: 2,
    depth_max: 12,
    pipelines_per_round: 12,
    rounds: 20,
    deaths_one_in: 12,
};

/// Long pipelines on many keys, so that requests wait that nothing else of their pipeline is about;
/// some values are large where 10,000 bytes are.
pub const WIDE: Load = Load {
    sizes: &[1, 8, 100, 1100, 5000, 20_000],
    keys: 24,
    depth_max: 48,
    pipelines_per_round: 24,
    rounds: 12,
    deaths_one_in: 24,
};

/// Up to 8 MiB.
pub const LARGE: Load = Load {
    sizes: &[1, 5, 3000, 100_000, 300_000, 1 << 20, 8 << 20],
    keys: 1,
    depth_max: 3,
    pipelines_per_round: 12,
    rounds: 2,
    deaths_one_in: 6,
};

/// The protocol of a client: not every protocol has every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Resp,
    Text,
    Native,
}

/// One request before it is sent.
#[derive(Clone, Debug)]
pub struct Asked {
    pub key: usize,
    pub name: String,
    pub ask: Ask,
    /// Of the value or tail.
    pub bytes: Vec<u8>,
    /// Another spelling of it, where there are several; of a write in memcached's protocol, odd
    /// means `noreply`.
    pub spelling: u32,
}

/// One client's choices; the same for the same seed and the same answers.
pub struct Draw {
    random: SmallRng,
    load: Load,
    dialect: Dialect,
    unique: u64,
}

impl Draw {
    pub fn new(seed: u64, client: u64, load: Load, dialect: Dialect) -> Draw {
        let random = SmallRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(client));
        Draw { random, load, dialect, unique: client << 40 }
    }

    /// Requests of one pipeline on a round's keys; `versions` is what this client knows of them.
    pub fn pipeline(&mut self, round: usize, versions: &[Option<u64>]) -> Vec<Asked> {
        let depth = self.random.random_range(1..=self.load.depth_max);
        let mut is_read = vec![false; self.load.keys];
        let mut pipeline = Vec::new();
        // Half of the pipelines stay with one key, so that its requests are many in a row.
        let only_key = self.chance(2).then(|| self.random.random_range(0..self.load.keys));
        for _ in 0..depth {
            let local = only_key.unwrap_or_else(|| self.random.random_range(0..self.load.keys));
            // A native client keeps no order between a read and a write behind it.
            if self.dialect == Dialect::Native && is_read[local] {
                continue;
            }
            let (ask, bytes) = self.ask(versions[local]);
            is_read[local] = matches!(ask, Ask::Get | Ask::Gets);
            let key = round * self.load.keys + local;
            let spelling = self.random.random();
            pipeline.push(Asked { key, name: name(key), ask, bytes, spelling });
        }
        pipeline
    }

    /// Whether this client dies now, and after how many replies.
    pub fn death(&mut self, request_count: usize) -> Option<usize> {
        let is_death = self.chance(self.load.deaths_one_in);
        is_death.then(|| self.random.random_range(0..=request_count))
    }

    /// True once in `one_in` times.
    pub fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    fn ask(&mut self, version: Option<u64>) -> (Ask, Vec<u8>) {
        if self.chance(4) {
            return (Ask::Get, Vec::new());
        }
        match (self.dialect, self.random.random_range(0..10)) {
            (_, 0) => (Ask::Delete, Vec::new()),
            (_, 1) => self.with_value(Ask::Add),
            (_, 2..=4) => self.with_value(Ask::Set),
            (Dialect::Resp, 5) => self.with_value(Ask::Exchange),
            (Dialect::Resp, 6) => (Ask::Take, Vec::new()),
            (Dialect::Text, 7) => self.with_tail(Ask::AppendExisting),
            (_, 7) => self.with_tail(Ask::Append),
            (Dialect::Resp, _) | (Dialect::Native, 8) => (Ask::Increment, Vec::new()),
            (Dialect::Text, 8) => (Ask::IncrementExisting, Vec::new()),
            (Dialect::Text | Dialect::Native, _) => match version {
                Some(version) => self.with_value(|value| Ask::CompareAndSwap { version, value }),
                None => (Ask::Gets, Vec::new()),
            },
        }
    }

    fn with_value(&mut self, ask: impl FnOnce(Value) -> Ask) -> (Ask, Vec<u8>) {
        let bytes = if self.chance(4) {
            self.random.random_range(0..1000_u32).to_string().into_bytes()
        } else {
            let len_bytes = self.load.sizes[self.below(self.load.sizes.len())];
            self.text(len_bytes)
        };
        (ask(Value::of(&bytes)), bytes)
    }

    fn with_tail(&mut self, ask: impl FnOnce(Value) -> Ask) -> (Ask, Vec<u8>) {
        let len_bytes = self.load.sizes[self.below(self.load.sizes.len())].min(TAIL_BYTES_MAX);
        let bytes = self.text(len_bytes);
        (ask(Value::of(&bytes)), bytes)
    }

    /// Bytes that no other request of the history has, if they are eight or more, and of which no
    /// two places are alike. They begin with a letter: no number comes of them.
    fn text(&mut self, len_bytes: usize) -> Vec<u8> {
        self.unique += 1;
        let mut bytes = Vec::with_capacity(len_bytes + 8);
        let mut word = self.unique.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while bytes.len() < len_bytes {
            bytes.extend_from_slice(&word.to_le_bytes());
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        bytes.truncate(len_bytes);
        if let Some(first) = bytes.first_mut() {
            *first = b'a' + *first % 26;
        }
        bytes
    }
}

/// A key as the server sees it.
pub fn name(key: usize) -> String {
    format!("history-{key}")
}
