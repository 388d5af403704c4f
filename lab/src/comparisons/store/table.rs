//! The measurements of `lab store`: loads, targets, and the number of lines that an operation
//! touches.

/// Keys and values of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// 8-byte keys and values.
    Tiny,
    /// 16-byte keys, 64-byte values.
    Small,
    /// Keys of 1 to 10 digits, 8-byte values.
    Decimal,
}

impl Items {
    /// The name for `store-peers`.
    pub fn name(self) -> &'static str {
        match self {
            Items::Tiny => "tiny",
            Items::Small => "small",
            Items::Decimal => "decimal",
        }
    }

    /// Options of the load generator.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Items::Tiny => &["--key-size", "8", "--value-size", "8"],
            Items::Small => &["--key-size", "16", "--value-size", "64"],
            Items::Decimal => &["--key-style", "decimal", "--value-size", "8"],
        }
    }

    /// Whether a rewrite replaces the value in place.
    fn are_in_place(self) -> bool {
        matches!(self, Items::Tiny)
    }

    /// Bytes of an entry that a lookup compares: header and key.
    pub fn compared_bytes(self) -> f64 {
        match self {
            Items::Tiny => 16.0 + 8.0,
            Items::Small => 16.0 + 16.0,
            Items::Decimal => 16.0 + 10.0,
        }
    }
}

/// One row of the table of the issue.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// In tables.
    pub name: &'static str,
    pub items: Items,
    /// A ratio or the name of a workload.
    pub work: &'static str,
    pub distribution: &'static str,
    /// Million operations a CPU-second, one thread, 10 M items.
    pub target_mops: Option<f64>,
    /// Share of operations that write.
    pub write_share: f64,
}

impl Load {
    /// `--ratio` or `--workload`, and the distribution.
    pub fn options(&self) -> Vec<&'static str> {
        let work = if self.work.contains(':') { "--ratio" } else { "--workload" };
        let mut options = vec![work, self.work, "--distribution", self.distribution];
        options.extend(self.items.options());
        options
    }

    /// Whether popular keys stay in the cache, so that the machine's limit does not apply.
    pub fn is_skewed(&self) -> bool {
        self.distribution != "uniform"
    }

    /// Random lines that an operation touches in memory, given the mean length of an entry.
    ///
    /// A read: the bucket, and the entry's lines. A rewrite: the bucket, the old entry's header
    /// and key, and the new entry's bytes, which are written in sequence and count by length,
    /// unless the value is replaced where it lies.
    pub fn lines_per_operation(&self, entry_bytes: f64) -> f64 {
        let read = 1.0 + lines_of(entry_bytes, entry_bytes);
        let appended_bytes = if self.items.are_in_place() { 0.0 } else { entry_bytes };
        let write = 1.0
            + lines_of(entry_bytes, self.items.compared_bytes().min(entry_bytes))
            + appended_bytes / LINE_BYTES;
        read * (1.0 - self.write_share) + write * self.write_share
    }
}

const LINE_BYTES: f64 = 64.0;

/// Mean number of lines that the first `touched_bytes` of an entry lie in, where entries of
/// `entry_bytes` follow each other.
fn lines_of(entry_bytes: f64, touched_bytes: f64) -> f64 {
    let entry_bytes = entry_bytes.round().max(1.0);
    // After 64 entries of a whole number of bytes, the places in a line repeat.
    let lines: f64 = (0..64)
        .map(|index| {
            let start = (f64::from(index) * entry_bytes) % LINE_BYTES;
            ((start + touched_bytes) / LINE_BYTES).ceil()
        })
        .sum();
    lines / 64.0
}

pub const TINY_GET: &str = "8/8 uniform GET";
pub const TINY_HALF_AND_HALF: &str = "8/8 uniform 50:50";
pub const TINY_ZIPF: &str = "8/8 Zipf 0.99 95:5";
pub const SMALL_HALF_AND_HALF: &str = "16/64 uniform 50:50";

/// The load of this name, if there is one.
pub fn load_named(name: &str) -> Option<Load> {
    HASH_LOADS.into_iter().chain(TREE_LOADS).find(|load| load.name == name)
}

/// The hash index's rows.
pub const HASH_LOADS: [Load; 5] = [
    Load {
        name: TINY_GET,
        items: Items::Tiny,
        work: "1:0",
        distribution: "uniform",
        target_mops: Some(32.0),
        write_share: 0.0,
    },
    Load {
        name: TINY_HALF_AND_HALF,
        items: Items::Tiny,
        work: "50:50",
        distribution: "uniform",
        target_mops: Some(21.0),
        write_share: 0.5,
    },
    Load {
        name: TINY_ZIPF,
        items: Items::Tiny,
        work: "95:5",
        distribution: "zipf:0.99",
        target_mops: Some(40.0),
        write_share: 0.05,
    },
    Load {
        name: "16/64 uniform GET",
        items: Items::Small,
        work: "1:0",
        distribution: "uniform",
        target_mops: Some(19.0),
        write_share: 0.0,
    },
    Load {
        name: SMALL_HALF_AND_HALF,
        items: Items::Small,
        work: "50:50",
        distribution: "uniform",
        target_mops: Some(14.0),
        write_share: 0.5,
    },
];

/// The ordered index's rows.
pub const TREE_LOADS: [Load; 3] = [
    Load {
        name: "tree, decimal keys, GET",
        items: Items::Decimal,
        work: "1:0",
        distribution: "uniform",
        target_mops: Some(2.5),
        write_share: 0.0,
    },
    Load {
        name: "tree, decimal keys, 50:50",
        items: Items::Decimal,
        work: "50:50",
        distribution: "uniform",
        target_mops: None,
        write_share: 0.5,
    },
    Load {
        name: SCAN_ROW,
        items: Items::Decimal,
        work: "ycsb-e",
        distribution: "uniform",
        target_mops: None,
        write_share: 0.05,
    },
];

/// The row whose target is twice the best peer.
pub const SCAN_ROW: &str = "tree, 95 % scans of 50, 5 % inserts";
/// The factor over the best peer.
pub const SCAN_TARGET_RATIO: f64 = 2.0;
/// Items of every scan.
pub const SCAN_KEYS: &str = "50";
/// Times the throughput of one thread that two must have.
pub const TWO_THREADS_TARGET_RATIO: f64 = 1.9;

/// A map of another crate.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The name for `store-peers`.
    pub name: &'static str,
    /// In tables.
    pub title: &'static str,
    /// Whether threads may share it.
    pub is_shared: bool,
    pub is_ordered: bool,
}

/// The measured peers.
pub const PEERS: [Peer; 6] = [
    Peer { name: "hashmap", title: "std HashMap, no lock", is_shared: false, is_ordered: false },
    Peer { name: "dashmap", title: "dashmap", is_shared: true, is_ordered: false },
    Peer { name: "scc", title: "scc::HashMap", is_shared: true, is_ordered: false },
    Peer { name: "btree", title: "std BTreeMap, no lock", is_shared: false, is_ordered: true },
    Peer { name: "treeindex", title: "scc::TreeIndex", is_shared: true, is_ordered: true },
    Peer { name: "skiplist", title: "crossbeam-skiplist", is_shared: true, is_ordered: true },
];

/// The forms of keys and values in a peer: the name for `store-peers`, and the meaning.
pub const FORMS: [(&str, &str); 2] = [("owned", "owned bytes"), ("inline", "inline, fixed length")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_half_a_line_lie_in_one_and_longer_ones_in_more() {
        assert_eq!(lines_of(32.0, 32.0), 1.0);
        assert_eq!(lines_of(64.0, 64.0), 1.0);
        assert_eq!(lines_of(96.0, 96.0), 2.0);
        // Places 0, 8, .., 56: only the first is in one line.
        assert_eq!(lines_of(72.0, 72.0), 2.0 + 0.0);
        assert_eq!(lines_of(40.0, 40.0), 1.5);
    }

    #[test]
    fn a_read_touches_a_bucket_and_an_entry() {
        assert_eq!(HASH_LOADS[0].lines_per_operation(32.0), 2.0);
        assert_eq!(HASH_LOADS[1].lines_per_operation(32.0), 2.0);
        assert_eq!(HASH_LOADS[3].lines_per_operation(96.0), 3.0);
    }
}
