//! Placement of memory: the NUMA node of each part of it (decision 0037).
//!
//! ```text
//!  segments:   0 ................. 5 6 ................. 11     two nodes, as many threads on each
//!  region:     |      region 0     |      region 1       |
//!  asked of:   |      node 0       |      node 1         |
//!              log ▶        ◀ index log ▶         ◀ index
//! ```
//!
//! A session appends to its own node's region while that has a free segment, then anywhere. The
//! index borrows from the tops of the regions in turn, so that its lines are spread over the nodes.
//!
//! # Invariants
//! I1: regions follow each other without a gap and cover all segments.
//! I2: with one region the kernel is asked for nothing, and the store behaves as on a machine
//!     without NUMA nodes.
//!
//! # Limits
//! The kernel is asked to *prefer* a node: when that is full, it takes another node's memory.
//! Memory that threads of another node read stays in place.
//!
//! # References
//! MICA §4.1 and §5.1 (partitions on the node of their core), decision 0037.

use std::io;
use std::ops::Range;

use crate::mapping::{HUGE_PAGE_BYTES, Mapping, NODES_MAX};

/// A NUMA node and its share of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeShare {
    /// As in `/sys/devices/system/node/node<ID>`.
    pub node_id: u32,
    /// Its part of the sum of all weights: the number of threads on it.
    pub weight: u32,
}

/// The result of placing memory on NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// No placement: there is one node, or none was named.
    Unbound,
    /// Each node has its region.
    Bound {
        /// The number of nodes.
        node_count: usize,
    },
    /// The kernel refused: memory lies where it is first touched.
    Refused {
        /// The kernel's error.
        reason: String,
    },
}

/// The regions of a log.
#[derive(Debug)]
pub struct Regions {
    /// One past the last segment of each (I1).
    ends: Vec<u32>,
    /// The node of each; empty with one region.
    node_ids: Vec<u32>,
}

impl Regions {
    /// A single region with all segments.
    pub fn one(segment_count: u32) -> Regions {
        Regions { ends: vec![segment_count], node_ids: Vec::new() }
    }

    /// One region for each node, by weight; borders lie on huge pages. A single region for fewer
    /// than two nodes, and if the log is too small to be divided.
    pub fn divide(segment_count: u32, segment_bytes: u64, nodes: &[NodeShare]) -> Regions {
        let step = (HUGE_PAGE_BYTES as u64 / segment_bytes).max(1);
        let total = nodes.iter().map(|share| u64::from(share.weight)).sum::<u64>();
        let mut sum = 0;
        let mut ends: Vec<u32> = Vec::with_capacity(nodes.len());
        for share in nodes {
            sum += u64::from(share.weight);
            let end = u128::from(segment_count) * u128::from(sum) / u128::from(total.max(1));
            ends.push((end as u64 / step * step) as u32);
        }
        if let Some(last) = ends.last_mut() {
            *last = segment_count;
        }
        let starts = [0].into_iter().chain(ends.iter().copied());
        let has_empty = starts.zip(&ends).any(|(start, end)| start >= *end);
        if nodes.len() < 2 || has_empty || nodes.iter().any(|share| share.node_id >= NODES_MAX) {
            return Regions::one(segment_count);
        }
        Regions { ends, node_ids: nodes.iter().map(|share| share.node_id).collect() }
    }

    /// The number of regions.
    #[inline]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The segments of a region.
    #[inline]
    pub fn range(&self, region: usize) -> Range<u32> {
        let start = region.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[region]
    }

    /// The region of a node; `None`: it has none of its own.
    #[inline]
    pub fn of_node(&self, node_id: u32) -> Option<usize> {
        self.node_ids.iter().position(|id| *id == node_id)
    }

    /// Requests that each region lie on its node. `prefer` gets a byte range of the memory and a
    /// node (I2).
    pub fn bind(
        &self,
        segment_bytes: u64,
        mut prefer: impl FnMut(Range<usize>, u32) -> io::Result<()>,
    ) -> io::Result<()> {
        for (region, node_id) in self.node_ids.iter().enumerate() {
            let Range { start, end } = self.range(region);
            let at = |segment: u32| (u64::from(segment) * segment_bytes) as usize;
            prefer(at(start)..at(end), *node_id)?;
        }
        Ok(())
    }
}

/// Divides a log's memory between nodes, as far as the kernel lets it.
pub fn place(
    memory: &Mapping,
    (segment_count, segment_bytes): (u32, u64),
    nodes: &[NodeShare],
) -> (Regions, Placement) {
    let regions = Regions::divide(segment_count, segment_bytes, nodes);
    if regions.count() == 1 {
        return (regions, Placement::Unbound);
    }
    match regions.bind(segment_bytes, |bytes, node_id| memory.prefer_node(bytes, node_id)) {
        Ok(()) => {
            let node_count = regions.count();
            (regions, Placement::Bound { node_count })
        }
        // Some kernels, and the filters of most containers, answer EPERM or ENOSYS.
        Err(error) => {
            (Regions::one(segment_count), Placement::Refused { reason: error.to_string() })
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::mapping::HugePages;

    fn share(node_id: u32, weight: u32) -> NodeShare {
        NodeShare { node_id, weight }
    }

    #[track_caller]
    fn check(segment_count: u32, segment_bytes: u64, nodes: &[NodeShare], want: &[Range<u32>]) {
        let regions = Regions::divide(segment_count, segment_bytes, nodes);
        let found: Vec<_> = (0..regions.count()).map(|region| regions.range(region)).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn a_log_is_divided_by_weight_on_borders_of_huge_pages() {
        check(12, 4 << 20, &[share(0, 1), share(1, 1)], &[0..6, 6..12]);
        check(12, 4 << 20, &[share(0, 3), share(2, 1)], &[0..9, 9..12]);
        check(100, 64 << 10, &[share(0, 1), share(1, 1)], &[0..32, 32..100]);
    }

    #[test]
    fn what_cannot_be_divided_is_one_region() {
        check(12, 4 << 20, &[], std::slice::from_ref(&(0..12)));
        check(12, 4 << 20, &[share(0, 4)], std::slice::from_ref(&(0..12)));
        check(12, 64 << 10, &[share(0, 1), share(1, 1)], std::slice::from_ref(&(0..12)));
        check(12, 4 << 20, &[share(0, 1), share(1, 0)], std::slice::from_ref(&(0..12)));
        check(12, 4 << 20, &[share(0, 0), share(1, 0)], std::slice::from_ref(&(0..12)));
        check(12, 4 << 20, &[share(0, 1), share(1024, 1)], std::slice::from_ref(&(0..12)));
    }

    #[test]
    fn each_region_is_asked_of_its_node_and_one_region_of_none() {
        let asked = |nodes: &[NodeShare]| {
            let mut asked = Vec::new();
            let regions = Regions::divide(8, 2 << 20, nodes);
            let bound = regions.bind(2 << 20, |bytes, node| {
                asked.push((bytes, node));
                Ok(())
            });
            bound.map(|()| asked).unwrap_or_default()
        };
        assert_eq!(asked(&[share(1, 1), share(3, 3)]), [(0..4 << 20, 1), (4 << 20..16 << 20, 3)]);
        assert_eq!(asked(&[share(0, 1)]), []);
    }

    #[test]
    fn a_node_that_the_machine_lacks_is_refused_and_the_log_stays_whole() {
        let memory = Mapping::new(8 << 20, HugePages::Off).expect("anonymous memory");
        let (regions, placement) = place(&memory, (4, 2 << 20), &[share(1022, 1), share(1023, 1)]);
        assert_eq!(regions.count(), 1);
        assert!(matches!(placement, Placement::Refused { .. }), "{placement:?}");
    }

    #[test]
    fn memory_that_is_asked_of_the_first_node_can_be_used() {
        let memory = Mapping::new(4 << 20, HugePages::Off).expect("anonymous memory");
        if let Err(error) = memory.prefer_node(0..2 << 20, 0) {
            eprintln!("skipped: memory cannot be bound to node 0: {error}");
            return;
        }
        assert_eq!(memory.preferred_node(0).expect("the policy can be read"), Some(0));
        assert_eq!(memory.preferred_node(2 << 20).expect("the policy can be read"), None);
        // SAFETY: inside the mapping, which this test owns.
        unsafe { memory.as_ptr().write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { memory.as_ptr().read() }, 7);
    }
}
