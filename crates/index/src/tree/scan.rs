//! Walks the keys in order, up or down, while other sessions change the tree.
//!
//! ```text
//!  frames   layer 0: behind "user:123" ─▶ layer 1: behind " ..." ─▶ ...     where to go on above
//!  now      a copy of one border, worked off row by row
//!  beyond   the borders that the parent names next are asked for on the way down
//! ```
//!
//! A walk yields slots and reads no entry unless it has to restart. So a caller that prefetches the
//! entry of each slot, and takes many slots before it looks at the first, has all entries on their
//! way (session/range.rs).
//!
//! # Invariants
//! I1: `edge` is the place of the last row yielded in this layer. The rows still to yield are those
//!     beyond it, and in the current border the rest of its group. Places of a layer are yielded in
//!     order, each once: a group is in one border, and so in one copy.
//! I2: a walk never passes by a key that is present throughout. The key can leave a copied border
//!     only to the right, to a new node that the copy's `next` does not name; walking up, the copy
//!     has the key itself. Walking down, the neighbour's `next` must name the border that was left.
//! I3: on any inconsistency the walk descends anew to the last key that it yielded.

use super::Hint;
use super::descend::{Border, LayerGone};
use super::node::NO_NODE;
use super::slice::{Kind, Place, SLICE_BYTES};
use super::snapshot::{Row, Snapshot};
use super::{Direction, Keys, Tree};
use crate::hash::slot::Slot;
use base::sync::Backoff;

/// The keys that a border typically has: an estimate of how many borders a walk will need.
const ROWS_TYPICAL: usize = 10;

/// A layer above the present one: the border with the link that was followed.
#[derive(Clone, Copy)]
struct Frame {
    border: Border,
    slice: u64,
}

/// The copy of the border that was left for the layer below; others are copied anew.
struct Parked {
    /// The number of frames while this is the layer above; 0: nothing is parked.
    frame_count: usize,
    now: Snapshot,
    worked: usize,
}

/// A walk. It holds slots, so it must end before its session quiesces.
pub struct Walk<'t, 'k, K> {
    tree: &'t Tree,
    keys: &'t K,
    direction: Direction,
    /// The origin of the walk.
    origin: Origin<'k>,
    /// The last slot yielded.
    last: Option<Slot>,
    frames: Vec<Frame>,
    now: Snapshot,
    /// The number of rows of `now` that are done.
    worked: usize,
    /// The layer above as it was left, so that a short layer does not cost another copy of it.
    parked: Parked,
    edge: Place,
    is_over: bool,
    /// The number of entries still wanted: beyond them no borders are prefetched.
    wanted: usize,
}

/// The place where a descent begins: at a key or beside it, or at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'k> {
    /// The first key in the direction of the walk.
    End,
    /// This key or, if it is not there, the next one.
    At(&'k [u8]),
    /// The key behind this one.
    Behind(&'k [u8]),
}

impl<'k> Origin<'k> {
    /// Its key; for an end the first key.
    #[inline]
    pub fn key(self) -> &'k [u8] {
        match self {
            Origin::End => &[],
            Origin::At(key) | Origin::Behind(key) => key,
        }
    }
}

impl<'t, 'k, K: Keys> Walk<'t, 'k, K> {
    /// A walk that yields nothing before `Walk::start`.
    pub fn new(tree: &'t Tree, keys: &'t K) -> Walk<'t, 'k, K> {
        Walk {
            tree,
            keys,
            direction: Direction::Forward,
            origin: Origin::End,
            last: None,
            frames: Vec::new(),
            now: Snapshot::NONE,
            worked: 0,
            parked: Parked { frame_count: 0, now: Snapshot::NONE, worked: 0 },
            edge: Place::FIRST,
            is_over: true,
            wanted: usize::MAX,
        }
    }

    /// Moves to the place from which `next` yields. About `wanted` entries are expected to be read;
    /// `hint` is the end of a search for the origin's key.
    #[inline]
    pub fn start(&mut self, direction: Direction, origin: Origin<'k>, wanted: usize, hint: Hint) {
        (self.direction, self.origin, self.last, self.wanted) = (direction, origin, None, wanted);
        self.seek(origin, hint);
    }

    /// Prefetches the borders that a walk from the hint on will visit.
    #[inline]
    pub fn ask_ahead(tree: &Tree, direction: Direction, wanted: usize, hint: Hint) {
        if let Some(border) = hint.first_layer() {
            tree.ask_for_neighbours(border.node, direction, wanted.div_ceil(ROWS_TYPICAL));
        }
    }

    fn seek(&mut self, from: Origin<'_>, hint: Hint) {
        let (mut hint, mut backoff) = (hint, Backoff::new());
        while self.try_seek(from, hint).is_err() {
            hint = Hint::NONE;
            backoff.snooze();
        }
    }

    fn try_seek(&mut self, from: Origin<'_>, hint: Hint) -> Result<(), LayerGone> {
        self.frames.clear();
        self.parked.frame_count = 0;
        self.is_over = false;
        let mut root = self.tree.root();
        let (key, with_key) = match from {
            Origin::End => return self.enter(root),
            Origin::At(key) => (key, true),
            Origin::Behind(key) => (key, false),
        };
        let mut hinted = hint.first_layer();
        let mut depth_bytes = 0;
        loop {
            let place = Place::of(key, depth_bytes);
            if !hinted.take().is_some_and(|border| self.copy(border)) {
                self.enter_at(root, place)?;
            }
            // Rows before the place are done; the one at it must be checked.
            self.edge = place;
            self.worked = self.beyond(place);
            let Some(row) = self.worked_at(place, 1) else { break };
            if let Some(layer) = row.slot.linked_bucket() {
                self.push_frame(place.slice);
                root = layer;
                depth_bytes += SLICE_BYTES;
                continue;
            }
            // Rows of a group are in the order of their keys: the wanted ones are the last.
            let mut back = 1;
            while let Some(row) = self.worked_at(place, back) {
                if !row.slot.is_empty() && !self.is_wanted(row.slot, key, with_key) {
                    break;
                }
                back += 1;
            }
            self.worked -= back - 1;
            break;
        }
        self.look_ahead();
        Ok(())
    }

    /// The row that is `back` before the first one not done, if it is at `place`.
    #[inline]
    fn worked_at(&self, place: Place, back: usize) -> Option<Row> {
        let worked = self.worked.checked_sub(back)?;
        self.row(worked).filter(|row| row.place == place)
    }

    /// Whether the entry at the place of the descent is on the wanted side of its key.
    #[inline]
    fn is_wanted(&self, slot: Slot, key: &[u8], with_key: bool) -> bool {
        // SAFETY: the slot was read since the last quiescent point; walks end before the next.
        let found = unsafe { self.keys.key(slot) };
        match self.direction {
            Direction::Forward => found > key || (with_key && found == key),
            Direction::Reverse => found < key || (with_key && found == key),
        }
    }

    /// Enters the first layer or a link's layer, from its beginning in the direction of the walk.
    fn enter(&mut self, root: u32) -> Result<(), LayerGone> {
        let place = match self.direction {
            Direction::Forward => Place::FIRST,
            Direction::Reverse => Place::END,
        };
        self.enter_at(root, place)?;
        self.edge = place;
        self.worked = 0;
        self.look_ahead();
        Ok(())
    }

    fn enter_at(&mut self, root: u32, place: Place) -> Result<(), LayerGone> {
        loop {
            let border = self.tree.descend(root, place.slice)?;
            let neighbour_count = self.wanted.div_ceil(ROWS_TYPICAL);
            self.tree.ask_for_neighbours(border.node, self.direction, neighbour_count);
            if self.copy(border) {
                return Ok(());
            }
        }
    }

    /// Copies a border as it was when it was reached; false: keys may have moved to the right
    /// since.
    fn copy(&mut self, border: Border) -> bool {
        self.now.copy(self.tree, border.node) && self.now.version == border.version
    }

    #[inline]
    fn push_frame(&mut self, slice: u64) {
        let border = Border { node: self.now.node, version: self.now.version };
        self.frames.push(Frame { border, slice });
    }

    /// The number of rows, in the direction of the walk, that are not beyond `edge`.
    fn beyond(&self, edge: Place) -> usize {
        let rows = self.now.rows();
        match self.direction {
            Direction::Forward => rows.iter().take_while(|row| row.place <= edge).count(),
            Direction::Reverse => rows.iter().rev().take_while(|row| row.place >= edge).count(),
        }
    }

    #[inline]
    fn row(&self, worked: usize) -> Option<Row> {
        let rows = self.now.rows();
        match self.direction {
            Direction::Forward => rows.get(worked).copied(),
            Direction::Reverse => rows.len().checked_sub(worked + 1).map(|rank| rows[rank]),
        }
    }

    /// The next entry's slot.
    #[inline]
    pub fn next_slot(&mut self) -> Option<Slot> {
        while !self.is_over {
            let Some(row) = self.row(self.worked) else {
                if self.leave_border().is_err() {
                    self.seek_again();
                }
                continue;
            };
            self.worked += 1;
            self.edge = row.place;
            if row.slot.is_entry() {
                self.wanted = self.wanted.saturating_sub(1);
                self.last = Some(row.slot);
                return Some(row.slot);
            }
            if let Some(layer) = row.slot.linked_bucket() {
                self.push_frame(row.place.slice);
                self.park();
                if self.enter(layer).is_err() {
                    self.seek_again();
                }
            }
        }
        None
    }

    /// Restarts behind the last key after the tree has changed, once other sessions had a chance to
    /// finish.
    #[cold]
    fn seek_again(&mut self) {
        Backoff::new().snooze();
        let from = match self.last {
            None => self.origin,
            // SAFETY: the slot was read since the last quiescent point; walks end before the next.
            Some(slot) => Origin::Behind(unsafe { self.keys.key(slot) }),
        };
        self.seek(from, Hint::NONE);
    }

    /// Moves to the neighbour, or back to the layer above, or ends. `Err`: the tree has changed
    /// (I3).
    fn leave_border(&mut self) -> Result<(), LayerGone> {
        let neighbour = self.neighbour();
        if neighbour == NO_NODE {
            return self.leave_layer();
        }
        let left = self.now.node;
        if !self.now.copy(self.tree, neighbour) {
            return Err(LayerGone);
        }
        if self.direction == Direction::Reverse && self.now.next != left {
            return Err(LayerGone); // I2: it has split, or the one that was left is gone.
        }
        // Keys that were deleted and inserted again may lie behind the edge (T3 of the tree).
        self.worked = self.beyond(self.edge);
        self.look_ahead();
        Ok(())
    }

    fn leave_layer(&mut self) -> Result<(), LayerGone> {
        let Some(frame) = self.frames.pop() else {
            self.is_over = true;
            return Ok(());
        };
        if self.unpark() {
            self.edge = Place { slice: frame.slice, kind: Kind::LONGER };
            return Ok(());
        }
        if !self.copy(frame.border) {
            return Err(LayerGone);
        }
        self.edge = Place { slice: frame.slice, kind: Kind::LONGER };
        self.worked = self.beyond(self.edge);
        self.look_ahead();
        Ok(())
    }

    /// Puts the copy of this layer aside; the frame for it was just pushed.
    fn park(&mut self) {
        std::mem::swap(&mut self.now, &mut self.parked.now);
        self.parked.worked = self.worked;
        self.parked.frame_count = self.frames.len();
    }

    /// Takes the copy of the layer above, if it is the one put aside; its frame was just popped. It
    /// may be old by now, like any copy in use (I2).
    fn unpark(&mut self) -> bool {
        let is_parked = self.parked.frame_count == self.frames.len() + 1;
        if is_parked {
            std::mem::swap(&mut self.now, &mut self.parked.now);
            self.worked = self.parked.worked;
            self.parked.frame_count = 0;
        }
        is_parked
    }

    fn neighbour(&self) -> u32 {
        match self.direction {
            Direction::Forward => self.now.next,
            Direction::Reverse => self.now.prev,
        }
    }

    /// Prefetches the layers of the remaining rows, and the neighbour.
    #[inline]
    fn look_ahead(&self) {
        let rows = self.now.rows();
        let left = rows.len() - self.worked.min(rows.len());
        if self.now.has_links() {
            let rows = match self.direction {
                Direction::Forward => &rows[rows.len() - left..],
                Direction::Reverse => &rows[..left],
            };
            let layers = rows.iter().filter_map(|row| row.slot.linked_bucket());
            layers.for_each(|layer| self.tree.memory.prefetch(layer));
        }
        if self.neighbour() != NO_NODE && left < self.wanted {
            self.tree.memory.prefetch(self.neighbour());
        }
    }
}
