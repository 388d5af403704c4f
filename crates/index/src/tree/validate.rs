//! Validates the tree by recounting it: order, fill, links, parents, layers.

use super::node::{GROUP_MAX, NO_NODE, SEPARATORS};
use super::slice::{Kind, Place, SLICE_BYTES};
use super::{Keys, Tree};
use crate::hash::slot::Slot;

/// The counts of a tree's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Entries.
    pub entry_count: u64,
    /// Nodes with places of keys.
    pub border_count: u64,
    /// Nodes above them.
    pub interior_count: u64,
    /// Layers below the first.
    pub layer_count: u64,
}

impl Census {
    /// Recounts a tree; calls `visit` with each entry's slot in order of layers. Panics if an
    /// invariant is broken; no session may write meanwhile.
    pub fn of(tree: &Tree, keys: &impl Keys, mut visit: impl FnMut(Slot)) -> Census {
        let mut census = Census::default();
        let top = Layer { root: tree.root(), depth_bytes: 0, slice: 0 };
        // Depth first, so that one path holds the prefix of each next layer.
        let (mut layers, mut path) = (vec![top], Vec::new());
        while let Some(layer) = layers.pop() {
            if layer.depth_bytes > 0 {
                path.truncate(layer.depth_bytes - SLICE_BYTES);
                path.extend(layer.slice.to_be_bytes());
            }
            let root = tree.climb(layer.root).node;
            let mut borders = Vec::new();
            let bounds = Bounds { low: 0, high: None };
            validate_node(tree, root, NO_NODE, bounds, &mut borders, &mut census);
            validate_list(tree, &borders);
            for border in borders {
                let rows = rows_of(tree, border);
                validate_groups(&rows, keys);
                for (place, slot) in rows {
                    if let Some(root) = slot.linked_bucket() {
                        assert_eq!(place.kind, Kind::LONGER, "links are for longer keys");
                        let depth_bytes = layer.depth_bytes + SLICE_BYTES;
                        layers.push(Layer { root, depth_bytes, slice: place.slice });
                        census.layer_count += 1;
                        continue;
                    }
                    // SAFETY: no session writes, so the entry that a slot names stays.
                    let key = unsafe { keys.key(slot) };
                    assert_eq!(Place::of(key, layer.depth_bytes), place, "a key's own place");
                    assert!(key.starts_with(&path), "a key's own layer");
                    census.entry_count += 1;
                    visit(slot);
                }
            }
        }
        census
    }

    /// The number of lines that the nodes take.
    pub fn line_count(self) -> u64 {
        let node_lines = (super::node::NODE_BYTES / crate::prefetch::LINE_BYTES) as u64;
        (self.border_count + self.interior_count) * node_lines
    }
}

/// A layer still to be validated.
struct Layer {
    root: u32,
    depth_bytes: usize,
    /// The slice above it.
    slice: u64,
}

/// The bounds of a subtree: slices from `low` (inclusive) to `high` (exclusive; `None`: no bound).
#[derive(Clone, Copy)]
struct Bounds {
    low: u64,
    high: Option<u64>,
}

fn rows_of(tree: &Tree, border: u32) -> Vec<(Place, Slot)> {
    let node = tree.node(border);
    let order = node.order();
    assert!(order.is_whole(), "a permutation has each slot once");
    for rank in order.count()..super::node::WIDTH {
        assert!(node.slot(order.slot_at(rank)).is_empty(), "I3: free slots are empty");
    }
    let row = |rank| (node.place(order.slot_at(rank)), node.slot(order.slot_at(rank)));
    let rows: Vec<_> = (0..order.count()).map(row).collect();
    assert!(rows.iter().all(|(_, slot)| !slot.is_empty()), "I3: used slots are not");
    rows
}

/// One subtree; recursion is as deep as a layer's tree is high, at most twelve.
fn validate_node(
    tree: &Tree,
    at: u32,
    parent: u32,
    bounds: Bounds,
    borders: &mut Vec<u32>,
    census: &mut Census,
) {
    let node = tree.node(at);
    let version = node.version();
    assert!(node.try_lock().is_some(), "a lock was left behind");
    node.unlock();
    assert!(!version.is_changing() && !version.is_dead(), "I2 of the node");
    assert_eq!(node.parent(), parent, "a child knows its parent");
    if version.is_border() {
        census.border_count += 1;
        borders.push(at);
        let rows = rows_of(tree, at);
        let is_longer = |place: Place| place.kind == Kind::LONGER;
        let grow = |pair: &[(Place, Slot)]| {
            pair[0].0 < pair[1].0 || (pair[0].0 == pair[1].0 && is_longer(pair[0].0))
        };
        assert!(rows.windows(2).all(grow), "T1: places grow");
        let is_inside = |slice| slice >= bounds.low && bounds.high.is_none_or(|high| slice < high);
        assert!(rows.iter().all(|(place, _)| is_inside(place.slice)), "T2");
        return;
    }
    census.interior_count += 1;
    let count = node.count();
    assert!(count <= SEPARATORS);
    for index in 0..=count {
        let low = if index == 0 { bounds.low } else { node.separator(index - 1) };
        let high = if index == count { bounds.high } else { Some(node.separator(index)) };
        assert!(low >= bounds.low && high.is_none_or(|high| low < high), "T2: separators grow");
        validate_node(tree, node.child(index), at, Bounds { low, high }, borders, census);
    }
}

/// The list of borders is the order of the leaves, both ways; only the first may be empty.
fn validate_list(tree: &Tree, borders: &[u32]) {
    for (at, border) in borders.iter().enumerate() {
        let neighbour = |at: Option<usize>| at.and_then(|at| borders.get(at)).copied();
        let (next, prev) = (neighbour(Some(at + 1)), neighbour(at.checked_sub(1)));
        assert_eq!(tree.node(*border).next(), next.unwrap_or(NO_NODE), "the list up");
        assert_eq!(tree.node(*border).prev(), prev.unwrap_or(NO_NODE), "the list down");
        assert!(at == 0 || tree.node(*border).order().count() > 0, "T4: only the first");
    }
}

/// Checks that a link is alone at its place, and that the keys of a group are few and ascending
/// (T1).
fn validate_groups(rows: &[(Place, Slot)], keys: &impl Keys) {
    for group in rows.chunk_by(|left, right| left.0 == right.0).filter(|group| group.len() > 1) {
        assert!(group.len() <= GROUP_MAX, "T1: larger groups have a layer");
        assert!(
            group.iter().all(|(_, slot)| slot.linked_bucket().is_none()),
            "T1: a link is alone"
        );
        // SAFETY: no session writes, so what a slot names stays.
        let key_of = |slot: Slot| unsafe { keys.key(slot) };
        assert!(
            group.is_sorted_by(|left, right| key_of(left.1) < key_of(right.1)),
            "T1: keys grow"
        );
    }
}
