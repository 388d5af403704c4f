//! The machine's NUMA nodes, read from sysfs, and the resulting placement of the store's memory
//! (decision 0037).
//!
//! ```text
//!  /sys/devices/system/node/has_memory       0-1
//!                           node0/cpulist    0-3,8-11   ┐ and the processors   ┌ node 0: 4 of them
//!                           node1/cpulist    4-7,12-15  ┴ that are allowed   ─▶└ node 1: 4 of them
//! ```
//!
//! # Limits
//! A list that cannot be read or parsed counts as no node: memory is then placed where it is first
//! touched, as on a machine with one node.

use std::path::Path;

use store::{NodeShare, Placement};

/// Whether the store's memory is allocated on the nodes whose workers use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// If there are several nodes, and the kernel allows it.
    Auto,
    /// Memory lies where it is first touched.
    Off,
}

/// Where the kernel lists its nodes.
pub const SYSFS_NODES: &str = "/sys/devices/system/node";

/// More CPUs or nodes than any kernel supports.
const NUMBER_MAX: usize = 1 << 16;

/// A node with memory, and those of its CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub processors: Vec<usize>,
}

/// The nodes that have memory and an allowed CPU, by their numbers; `root` is [`SYSFS_NODES`]
/// except in tests.
pub fn nodes(root: &Path, allowed: &[usize]) -> Vec<Node> {
    let read = |path: &Path| std::fs::read_to_string(path).ok().and_then(|text| parse_list(&text));
    let with_memory = read(&root.join("has_memory"));
    let mut nodes: Vec<Node> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id: u32 = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let has_memory = with_memory.as_ref().is_none_or(|ids| ids.contains(&(id as usize)));
            let mut processors = read(&entry.path().join("cpulist"))?;
            processors.retain(|processor| allowed.contains(processor));
            (has_memory && !processors.is_empty()).then_some(Node { id, processors })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// The division of the store's memory between the nodes: by the workers that run on each, or by
/// CPUs where workers are not pinned. Empty: no division.
pub fn shares(numa: Numa, nodes: &[Node], worker_processors: &[usize]) -> Vec<NodeShare> {
    if numa == Numa::Off {
        return Vec::new();
    }
    let weight = |node: &Node| match worker_processors {
        [] => node.processors.len(),
        pinned => pinned.iter().filter(|processor| node.processors.contains(processor)).count(),
    };
    let share = |node: &Node| NodeShare { node_id: node.id, weight: weight(node) as u32 };
    let shares: Vec<NodeShare> = nodes.iter().map(share).filter(|share| share.weight > 0).collect();
    if shares.len() < 2 { Vec::new() } else { shares }
}

/// The node of a CPU.
pub fn node_of(nodes: &[Node], processor: usize) -> Option<u32> {
    nodes.iter().find(|node| node.processors.contains(&processor)).map(|node| node.id)
}

/// Logs the placement in one line.
pub fn announce(placement: &Placement) {
    match placement {
        Placement::Bound { node_count } => {
            tracing::info!("memory: {node_count} nodes, index interleaved, segments local");
        }
        Placement::Refused { reason } => tracing::warn!(
            "memory is not bound to NUMA nodes: mbind: {reason}; allow it (a container: \
             CAP_SYS_NICE), or say --numa off"
        ),
        _ => tracing::debug!("memory: one node, nothing bound"),
    }
}

/// A list of numbers as the kernel writes it: `0-3,8`; `None`: it is none.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(numbers);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_number(first)?, parse_number(last)?);
        if first > last {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Only digits: `usize::parse` would accept a sign.
fn parse_number(text: &str) -> Option<usize> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_digits && *number < NUMBER_MAX)
}

#[cfg(test)]
mod tests;
