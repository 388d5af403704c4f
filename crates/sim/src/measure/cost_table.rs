//! A table of measured costs: histograms of service times by item size, and costs of line
//! transfers.
//!
//! ```text
//!  { "machine": "...", "date": "...", "commit": "...", "command": "...", "unit": "ns",
//!    "rows": [ { "access": "get", "batch": 1, "key_bytes": 8, "value_bytes": 8,
//!                "classes": [[low, high, count], ...] }, ... ],
//!    "lines": { "transfer_ns": ..., ... } }
//! ```
//!
//! # Invariants
//! I1: each pair of access and batch size has at least one row, and no two rows of one item size.
//! I2: the classes of a row are in ascending order, do not overlap and count at least one sample.
//!
//! # Trade-offs
//! Between two sizes a quantile is interpolated between the same quantiles of both rows. Beyond the
//! largest size the slope of the two largest rows is extended; below the smallest size the smallest
//! row is used.

use std::path::Path;

use policy::Access;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::SimError;
use crate::measure::LineTransfer;

/// The table of the machine that the committed figures were made with.
const DEFAULT_JSON: &str = include_str!("../../data/costs-default.json");

/// The number of requests that a worker has in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// One at a time: every cache miss is waited for.
    One,
    /// A full batch of 32: misses overlap; times are a batch's over its length.
    Full,
}

/// The measurements with two cores on one line. Nanoseconds, medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineCosts {
    /// Half a round trip of one line between two cores.
    pub transfer_ns: f64,
    /// The extra time of each further line in a read of lines that the other core has written.
    pub read_next_line_ns: f64,
    /// The extra time of each further line in a write of lines that the other core has read.
    pub write_next_line_ns: f64,
    /// The 5th and 95th percentile of `transfer_ns`, over chunks of round trips.
    pub transfer_spread_ns: (f64, f64),
}

impl LineCosts {
    /// The law extrapolated from the numbers of these two cores.
    ///
    /// Two cores cannot show how long an item's supplier is busy with one line for one reader: the
    /// law takes the cost of a further line, because lines of one stream follow each other no
    /// faster. Nor can they show the cost of a second sharer: the law takes 0.
    pub fn law(&self) -> LineTransfer {
        let next_line_ns = (self.read_next_line_ns + self.write_next_line_ns) / 2.0;
        LineTransfer {
            transfer_ns: self.transfer_ns,
            next_line_ns,
            serial_ns: next_line_ns,
            sharer_ns: 0.0,
        }
    }
}

/// The operation of a row's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// A GET that hits and copies the value out.
    Get,
    /// A SET of an existing key.
    Set,
}

/// The service times of one operation on items of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostRow {
    /// Which operation.
    pub access: Operation,
    /// Requests in one call of the store.
    pub batch: u32,
    /// Of the key.
    pub key_bytes: u32,
    /// Of the value.
    pub value_bytes: u32,
    /// `(low, high, count)`: how many samples lay between two times in nanoseconds a request.
    pub classes: Vec<(f64, f64, u64)>,
}

impl CostRow {
    /// Key and value.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// Mean of all samples, each taken in the middle of its class.
    pub fn mean_ns(&self) -> f64 {
        let (sum_ns, count) = self.classes.iter().fold((0.0, 0), |(sum_ns, seen), class| {
            (sum_ns + (class.0 + class.1) / 2.0 * class.2 as f64, seen + class.2)
        });
        sum_ns / count as f64
    }

    /// The time below which `share` (0 to 1) of the samples lie, interpolated in its class.
    pub fn quantile_ns(&self, share: f64) -> f64 {
        let total: u64 = self.classes.iter().map(|class| class.2).sum();
        let mut rank = share * total as f64;
        for &(low_ns, high_ns, count) in &self.classes {
            if rank < count as f64 {
                return low_ns + (high_ns - low_ns) * rank / count as f64;
            }
            rank -= count as f64;
        }
        self.classes.last().map_or(0.0, |class| class.1)
    }
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostFile {
    /// Processor, cores, kernel.
    pub machine: String,
    /// UTC, `YYYY-MM-DD`.
    pub date: String,
    /// The commit of the measured sources, if known.
    pub commit: Option<String>,
    /// The command that made the file.
    pub command: String,
    /// Always `ns`: nanoseconds.
    pub unit: String,
    /// One per operation, batch and size.
    pub rows: Vec<CostRow>,
    /// `None`: the machine has one core.
    pub lines: Option<LineCosts>,
}

/// A file's rows, sorted and with cumulative counts, ready to be drawn from.
#[derive(Clone, Debug)]
pub struct CostTable {
    file: CostFile,
    /// `[access][batching]`, ascending by size.
    columns: [[Vec<Sampler>; 2]; 2],
}

#[derive(Clone, Debug)]
struct Sampler {
    size_bytes: f64,
    mean_ns: f64,
    /// `(low, high, samples before this class)`.
    classes: Vec<(f64, f64, f64)>,
    count: f64,
}

impl CostTable {
    /// The committed table, or why its file is damaged.
    pub fn committed() -> Result<CostTable, SimError> {
        CostTable::from_json(DEFAULT_JSON)
    }

    /// Reads a table from a file.
    pub fn read(path: &Path) -> Result<CostTable, SimError> {
        let at = |reason: String| SimError::BadParameter {
            what: format!("{}: {reason}", path.display()),
        };
        let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
        CostTable::from_json(&text).map_err(|error| at(error.to_string()))
    }

    /// Reads a table from its text.
    pub fn from_json(text: &str) -> Result<CostTable, SimError> {
        let file: CostFile = serde_json::from_str(text).map_err(|error| {
            SimError::BadParameter { what: format!("not a table of costs: {error}") }
        })?;
        CostTable::new(file)
    }

    /// Checks I1 and I2 and prepares the rows.
    pub fn new(file: CostFile) -> Result<CostTable, SimError> {
        let bad = |what: String| Err(SimError::BadParameter { what });
        let mut columns: [[Vec<Sampler>; 2]; 2] = Default::default();
        for row in &file.rows {
            let name = format!("the row {:?} {} B x {}", row.access, row.size_bytes(), row.batch);
            let ascending = row.classes.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            let sound = row.classes.iter().all(|class| class.0 <= class.1 && class.2 > 0);
            if row.classes.is_empty() || !ascending || !sound {
                return bad(format!("{name} has no ascending classes with samples"));
            }
            let batching = match row.batch {
                1 => Batching::One,
                32 => Batching::Full,
                _ => return bad(format!("{name} has a batch that is not 1 or 32")),
            };
            columns[row.access as usize][batching as usize].push(Sampler::new(row));
        }
        for column in columns.iter_mut().flatten() {
            column.sort_by(|left, right| left.size_bytes.total_cmp(&right.size_bytes));
            if column.windows(2).any(|pair| pair[0].size_bytes == pair[1].size_bytes) {
                return bad("two rows have the same operation, batch and size".to_owned());
            }
            if column.is_empty() {
                return bad("rows for get and set with batches of 1 and 32 are needed".to_owned());
            }
        }
        Ok(CostTable { file, columns })
    }

    /// Where and when it was measured, and all rows.
    pub fn file(&self) -> &CostFile {
        &self.file
    }

    /// The law of moving lines on this machine; `None` when it was measured with one core.
    pub fn line_transfer(&self) -> Option<LineTransfer> {
        self.file.lines.as_ref().map(LineCosts::law)
    }

    /// One request's service time in nanoseconds; `size_bytes` is key and value.
    pub fn service_ns(
        &self,
        access: Access,
        size_bytes: u64,
        batching: Batching,
        random: &mut impl Rng,
    ) -> f64 {
        let share = random.random::<f64>();
        self.between(access, size_bytes, batching, |sampler| sampler.quantile_ns(share))
    }

    /// The mean of [`CostTable::service_ns`].
    pub fn mean_ns(&self, access: Access, size_bytes: u64, batching: Batching) -> f64 {
        self.between(access, size_bytes, batching, |sampler| sampler.mean_ns)
    }

    /// `value` of the sizes on both sides of `size_bytes`, interpolated.
    fn between(
        &self,
        access: Access,
        size_bytes: u64,
        batching: Batching,
        value: impl Fn(&Sampler) -> f64,
    ) -> f64 {
        let size_bytes = size_bytes as f64;
        let column = &self.columns[operation(access) as usize][batching as usize];
        let above = column.partition_point(|sampler| sampler.size_bytes < size_bytes);
        if above == 0 || column.len() == 1 {
            return value(&column[0]);
        }
        let above = above.min(column.len() - 1);
        let (lower, upper) = (&column[above - 1], &column[above]);
        let (low_ns, high_ns) = (value(lower), value(upper));
        let part = (size_bytes - lower.size_bytes) / (upper.size_bytes - lower.size_bytes);
        (low_ns + (high_ns - low_ns) * part).max(0.0)
    }
}

fn operation(access: Access) -> Operation {
    match access {
        Access::Read => Operation::Get,
        Access::Write => Operation::Set,
    }
}

impl Sampler {
    fn new(row: &CostRow) -> Sampler {
        let mut before = 0.0;
        let mut classes = Vec::with_capacity(row.classes.len());
        for &(low_ns, high_ns, count) in &row.classes {
            classes.push((low_ns, high_ns, before));
            before += count as f64;
        }
        let size_bytes = row.size_bytes() as f64;
        Sampler { size_bytes, mean_ns: row.mean_ns(), classes, count: before }
    }

    fn quantile_ns(&self, share: f64) -> f64 {
        let rank = share * self.count;
        let index = self.classes.partition_point(|class| class.2 <= rank) - 1;
        let (low_ns, high_ns, before) = self.classes[index];
        let after = self.classes.get(index + 1).map_or(self.count, |next| next.2);
        low_ns + (high_ns - low_ns) * (rank - before) / (after - before)
    }
}

#[cfg(test)]
mod tests {
    use policy::Access;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::{Batching, CostTable};

    /// Two sizes: 16 bytes cost 50 to 200 ns, 100 bytes ten times as much and more.
    fn two_sizes() -> String {
        let row = |access: &str, batch: u32, value_bytes: u32, classes: &str| {
            format!(
                r#"{{"access":"{access}","batch":{batch},"key_bytes":8,
                   "value_bytes":{value_bytes},"classes":{classes}}}"#
            )
        };
        let mut rows = Vec::new();
        for access in ["get", "set"] {
            for batch in [1, 32] {
                rows.push(row(access, batch, 92, "[[500,1500,50],[1600,2000,50]]"));
                rows.push(row(access, batch, 8, "[[50,150,90],[150,200,10]]"));
            }
        }
        file_of(&rows.join(","))
    }

    fn file_of(rows: &str) -> String {
        format!(
            r#"{{"machine":"m","date":"2023-03-25","commit":null,"command":"c","unit":"ns",
               "rows":[{rows}],"lines":null}}"#
        )
    }

    #[track_caller]
    fn check_bad(text: &str, want: &str) {
        let error = CostTable::from_json(text).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }

    #[test]
    fn a_damaged_table_is_refused_with_its_reason() {
        check_bad("[]", "not a table of costs");
        check_bad(&file_of(""), "rows for get and set");
        let good = two_sizes();
        check_bad(&good.replace("\"batch\":32", "\"batch\":31"), "not 1 or 32");
        check_bad(&good.replace("[150,200,10]", "[140,200,10]"), "ascending");
        check_bad(&good.replace("[150,200,10]", "[150,200,0]"), "ascending");
        check_bad(&good.replace("\"value_bytes\":92", "\"value_bytes\":8"), "the same operation");
    }

    #[test]
    fn means_are_interpolated_between_sizes_and_extended_beyond_the_largest() {
        let table = CostTable::from_json(&two_sizes()).unwrap();
        let small_ns = 0.9 * 100.0 + 0.1 * 175.0;
        let large_ns = 0.5 * 1000.0 + 0.5 * 1800.0;
        for (size_bytes, want_ns) in [
            (0, small_ns),
            (16, small_ns),
            (58, (small_ns + large_ns) / 2.0),
            (100, large_ns),
            (184, 2.0 * large_ns - small_ns),
        ] {
            let mean_ns = table.mean_ns(Access::Write, size_bytes, Batching::Full);
            assert!((mean_ns - want_ns).abs() < 1e-9, "{size_bytes}: {mean_ns}, not {want_ns}");
        }
    }

    #[test]
    fn a_draw_falls_into_each_class_as_often_as_it_was_seen() {
        let table = CostTable::from_json(&two_sizes()).unwrap();
        let mut random = SmallRng::seed_from_u64(3);
        let draws = 100_000;
        let high = (0..draws)
            .filter(|_| table.service_ns(Access::Read, 16, Batching::One, &mut random) >= 150.0)
            .count();
        // 10 % of 100,000: one sigma is 95.
        assert!((9_500..10_500).contains(&high), "{high}");
    }

    #[test]
    fn the_committed_table_is_sound_and_grows_with_the_item() {
        let table = CostTable::committed().unwrap();
        assert!(table.file().rows.len() >= 20 && table.file().unit == "ns");
        for access in [Access::Read, Access::Write] {
            for batching in [Batching::One, Batching::Full] {
                let mean_ns = |size_bytes| table.mean_ns(access, size_bytes, batching);
                let sizes = [16, 1 << 10, 16 << 10, 256 << 10, 1 << 20];
                assert!(sizes.windows(2).all(|pair| mean_ns(pair[0]) < mean_ns(pair[1])));
            }
            let small = |batching| table.mean_ns(access, 16, batching);
            assert!(small(Batching::Full) < small(Batching::One), "a batch overlaps its misses");
        }
        let law = table.line_transfer().unwrap();
        assert!(law.transfer_ns > law.next_line_ns && law.next_line_ns > 0.0);
    }
}
