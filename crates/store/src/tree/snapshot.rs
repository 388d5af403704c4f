//! A border's contents as of one moment, in order: what walks work on.

use super::Tree;
use super::node::{NO_NODE, Node, Version, WIDTH};
use super::slice::Place;
use crate::index::slot::Slot;

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
    count: usize,
    rows: [Row; WIDTH],
}

impl Snapshot {
    pub(super) const NONE: Snapshot = Snapshot {
        node: NO_NODE,
        version: Version::NONE,
        next: NO_NODE,
        prev: NO_NODE,
        count: 0,
        rows: [Row { place: Place::FIRST, slot: Slot::EMPTY }; WIDTH],
    };

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows[..self.count]
    }

    fn read(&mut self, node: &Node) {
        let order = node.order();
        self.count = order.count();
        for rank in 0..self.count {
            let index = order.slot_at(rank);
            self.rows[rank] = Row { place: node.place(index), slot: node.slot(index) };
        }
        (self.next, self.prev) = (node.next(), node.prev());
    }
}

impl Tree {
    /// Copies a border; false: it has left the tree.
    pub(super) fn snapshot(&self, node: u32, into: &mut Snapshot) -> bool {
        into.node = node;
        let node = self.node(node);
        loop {
            into.version = node.stable();
            if into.version.is_dead() {
                return false;
            }
            into.read(node);
            if node.is_same(into.version) {
                return true;
            }
        }
    }
}
