//! Splits a full border, and its ancestors where they are full as well.
//!
//! ```text
//!  before   ... L ⇄ N(full) ⇄ R ...        N is changing until its parent knows M:
//!  after    ... L ⇄ N ⇄ M ⇄ R ...          the way down waits, a walk along sees N, then M
//! ```
//!
//! Going up, a thread keeps the lock of a node until it holds the parent's lock and has marked the
//! parent as changing (T5).

use super::insert::{Target, put_at, rank_of};
use super::memory::Spare;
use super::node::{NO_NODE, Node, Role, SEPARATORS, WIDTH};
use super::slice::{Place, SLICE_BYTES};
use super::{Keys, Tree};
use crate::hash::slot::Slot;

/// Two siblings whose parent does not have the right one yet; both are locked.
#[derive(Clone, Copy)]
struct Siblings {
    left: u32,
    right: u32,
    /// The first slice of the right one.
    separator: u64,
}

/// Splits the locked, full border and adds the target to the half it belongs to.
pub(super) fn split_border(
    tree: &Tree,
    border: u32,
    target: Target<'_>,
    slot: Slot,
    keys: &impl Keys,
    spare: &mut Spare,
) {
    let (left, place) = (tree.node(border), target.place());
    let new = tree.new_border(spare);
    let right = tree.node(new);
    left.begin_change();
    let order = left.order();
    let places: [Place; WIDTH] = std::array::from_fn(|rank| left.place(order.slot_at(rank)));
    let last_slice = places[WIDTH - 1].slice;
    let is_last = left.next() == NO_NODE && place.slice > last_slice;
    // Keys that come in order fill their nodes, except for a slice that would be in two (T1).
    let keep_count = match left.next() == NO_NODE && place.slice >= last_slice {
        true if is_last => WIDTH,
        true => last_rank(&places),
        false => split_rank(&places),
    };
    for (rank, moved) in places.iter().enumerate().skip(keep_count) {
        let index = order.slot_at(rank);
        put_at(right, rank - keep_count, *moved, left.slot(index));
        left.set_slot(index, Slot::EMPTY);
    }
    left.set_order(order.cut(keep_count));
    let separator = if is_last { place.slice } else { places[keep_count].slice };
    let home = if place.slice >= separator { right } else { left };
    put_at(home, rank_of(home, target, keys), place, slot);
    link_behind(tree, border, new);
    let root = ascend(tree, Siblings { left: border, right: new, separator }, spare);
    if let Some(root) = root {
        name_root(tree, target, root);
    }
}

/// Inserts the locked `new` behind the locked `border` in the list of borders.
fn link_behind(tree: &Tree, border: u32, new: u32) {
    let (left, right) = (tree.node(border), tree.node(new));
    let next = left.next();
    right.set_next(next);
    right.set_prev(border);
    if next != NO_NODE {
        // I1 of the node: `prev` belongs to the left neighbour's lock, which was `border`'s.
        tree.node(next).set_prev(new);
    }
    left.set_next(new);
}

/// Inserts the siblings into the parents, splitting full ones, and releases all locks. Returns
/// the layer's new root, if it got one.
fn ascend(tree: &Tree, mut siblings: Siblings, spare: &mut Spare) -> Option<u32> {
    loop {
        let Siblings { left, right, separator } = siblings;
        let Some(parent) = tree.lock_parent(left) else {
            let root = new_root(tree, siblings, spare);
            tree.node(right).unlock();
            tree.node(left).unlock_changed();
            return Some(root);
        };
        let parent_node = tree.node(parent);
        parent_node.begin_change();
        if parent_node.count() < SEPARATORS {
            let at = child_index(parent_node, left);
            insert_child(parent_node, at, separator, right);
            tree.node(right).set_parent(parent);
            tree.node(right).unlock();
            tree.node(left).unlock_changed();
            parent_node.unlock_changed();
            return None;
        }
        siblings = split_interior(tree, parent, siblings, spare);
        tree.node(right).unlock();
        tree.node(left).unlock_changed();
    }
}

/// Makes a root over two siblings without one.
fn new_root(tree: &Tree, siblings: Siblings, spare: &mut Spare) -> u32 {
    let Siblings { left, right, separator } = siblings;
    let root = spare.take();
    let node = tree.node(root);
    node.reset(Role::Interior);
    node.set_separator(0, separator);
    node.set_child(0, left);
    node.set_child(1, right);
    node.set_count(1);
    node.unlock();
    tree.node(right).set_parent(root);
    tree.node(left).set_parent(root);
    root
}

/// Splits the locked, changing, full `parent`, and adds the new sibling to its half. Parent and
/// new node stay locked.
fn split_interior(tree: &Tree, parent: u32, below: Siblings, spare: &mut Spare) -> Siblings {
    let new = spare.take();
    let (left, right) = (tree.node(parent), tree.node(new));
    right.reset(Role::Interior);
    let at = child_index(left, below.left);
    // The middle separator goes up. Children that come in order fill their nodes, as keys do.
    let is_last = at == SEPARATORS && left_is_last(tree, below);
    let middle = if is_last { SEPARATORS - 1 } else { SEPARATORS / 2 };
    let separator = left.separator(middle);
    for (to, from) in (middle + 1..=SEPARATORS).enumerate() {
        let child = left.child(from);
        right.set_child(to, child);
        tree.node(child).set_parent(new);
        if from < SEPARATORS {
            right.set_separator(to, left.separator(from));
        }
    }
    right.set_count(SEPARATORS - middle - 1);
    left.set_count(middle);
    let (home, home_id, at) = match at > middle {
        true => (right, new, at - middle - 1),
        false => (left, parent, at),
    };
    insert_child(home, at, below.separator, below.right);
    tree.node(below.right).set_parent(home_id);
    Siblings { left: parent, right: new, separator }
}

/// Makes the layer above (or the tree) name the present root of the target's layer. Only a
/// shortcut: the layer is also found through its old root (T4).
#[cold]
fn name_root(tree: &Tree, target: Target<'_>, root: u32) {
    if target.depth_bytes == 0 {
        tree.set_root(root);
        return;
    }
    let Some((border, index)) = tree.lock_link(target.key, target.depth_bytes - SLICE_BYTES) else {
        return;
    };
    let node = tree.node(border);
    if let Some(named) = node.slot(index).linked_bucket() {
        node.set_slot(index, Slot::link(tree.climb(named).node));
    }
    node.unlock();
}

/// Whether the right sibling is the last node of its level; a hint.
fn left_is_last(tree: &Tree, below: Siblings) -> bool {
    let right = tree.node(below.right);
    right.version().is_border() && right.next() == NO_NODE
}

/// The rank where the last slice begins.
fn last_rank(places: &[Place; WIDTH]) -> usize {
    let last_slice = places[WIDTH - 1].slice;
    let before = places.iter().rposition(|place| place.slice != last_slice);
    before.expect("a slice has fewer places than a border: lengths 0 to 8 and a group") + 1
}

/// The rank at which to split: the boundary between two slices that is closest to the middle (T1).
fn split_rank(places: &[Place; WIDTH]) -> usize {
    let is_boundary = |rank: &usize| places[rank - 1].slice != places[*rank].slice;
    let middle = WIDTH / 2;
    let distance = |rank: &usize| rank.abs_diff(middle);
    (1..WIDTH)
        .filter(is_boundary)
        .min_by_key(distance)
        .expect("a slice has fewer places than a border: lengths 0 to 8 and a group")
}

/// The index of `child` in the locked interior.
pub(super) fn child_index(node: &Node, child: u32) -> usize {
    (0..=node.count())
        .find(|index| node.child(*index) == child)
        .expect("a child's parent names it, and the parent is locked")
}

/// Adds `child` right of the child at `at`; the node is locked, changing and has room.
fn insert_child(node: &Node, at: usize, separator: u64, child: u32) {
    let count = node.count();
    debug_assert!(at <= count && count < SEPARATORS);
    for index in (at..count).rev() {
        node.set_separator(index + 1, node.separator(index));
        node.set_child(index + 2, node.child(index + 1));
    }
    node.set_separator(at, separator);
    node.set_child(at + 1, child);
    node.set_count(count + 1);
}
