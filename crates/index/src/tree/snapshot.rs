//! A copy of a border's contents as of one moment, in order: walks read these copies.

use super::Tree;
use super::node::{NO_NODE, Node, Version, WIDTH};
use super::slice::Place;
use crate::hash::slot::Slot;

/// One place of a border.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub place: Place,
    pub slot: Slot,
}

/// A copy of one border.
#[derive(Clone, Copy)]
pub(super) struct Snapshot {
    pub node: u32,
    pub version: Version,
    pub next: u32,
    pub prev: u32,
    has_links: bool,
    count: usize,
    rows: [Row; WIDTH],
}

impl Snapshot {
    pub(super) const NONE: Snapshot = Snapshot {
        node: NO_NODE,
        version: Version::NONE,
        next: NO_NODE,
        prev: NO_NODE,
        has_links: false,
        count: 0,
        rows: [Row { place: Place::FIRST, slot: Slot::EMPTY }; WIDTH],
    };

    #[inline]
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows[..self.count]
    }

    /// Whether layers hang on rows.
    #[inline]
    pub(super) fn has_links(&self) -> bool {
        self.has_links
    }

    /// Replaces this copy by one of a border; false: it has left the tree.
    pub(super) fn copy(&mut self, tree: &Tree, node: u32) -> bool {
        self.node = node;
        let node = tree.node(node);
        loop {
            self.version = node.stable();
            if self.version.is_dead() {
                return false;
            }
            self.read(node);
            if node.is_same(self.version) {
                return true;
            }
        }
    }

    #[inline]
    fn read(&mut self, node: &Node) {
        let order = node.order();
        self.count = order.count();
        self.has_links = false;
        let kinds = node.kinds();
        for (rank, row) in self.rows.iter_mut().enumerate().take(self.count) {
            let index = order.slot_at(rank);
            *row = Row { place: node.place_of(index, kinds), slot: node.slot(index) };
            self.has_links |= row.slot.linked_bucket().is_some();
        }
        (self.next, self.prev) = (node.next(), node.prev());
    }
}
