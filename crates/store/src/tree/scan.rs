//! Walking the keys in order, up or down, while others change the tree.
//!
//! ```text
//!  frames   layer 0: behind "user:123" ─▶ layer 1: behind " ..." ─▶ ...     where to go on above
//!  ahead    the border after this one: copied, its entries asked for, its neighbour asked for
//!  now      a copy of one border, worked off row by row
//! ```
//!
//! # Invariants
//! I1: `edge` is the place of the last row that was worked off in this layer; only rows beyond it
//!     are, and in the border that is worked on the rest of its group. Places of a layer are worked
//!     off in order, each once: a group is in one border, and so in one copy.
//! I2: a key that is there throughout is never passed by: it can leave a copied border only to the
//!     right, to a new node that the copy's `next` does not name; walking up, the copy has the key
//!     itself. Walking down, the neighbour's `next` must name the border that was left.
//! I3: whatever does not fit together ends in a new descent to the last key that was yielded.

use super::descend::{Border, LayerGone};
use super::node::NO_NODE;
use super::slice::{Kind, Place, SLICE_BYTES};
use super::snapshot::{Row, Snapshot};
use super::{Keys, Tree};
use crate::index::slot::Slot;
use crate::range::Direction;
use base::sync::Backoff;

/// Keys that a border typically has: how many borders a walk will want.
const ROWS_TYPICAL: usize = 10;

/// A layer above the present one: the border with the link that was followed.
#[derive(Clone, Copy)]
struct Frame {
    border: Border,
    slice: u64,
}

/// The copies of the layer that was left for the one below; others are copied anew.
struct Parked {
    /// How many frames there are while this is the layer above; 0: nothing is parked.
    frame_count: usize,
    now: Snapshot,
    worked: usize,
    ahead: Snapshot,
    has_ahead: bool,
}

/// A walk; holds slots, so it ends before its session quiesces.
pub(crate) struct Walk<'t, K> {
    tree: &'t Tree,
    keys: &'t K,
    direction: Direction,
    frames: Vec<Frame>,
    now: Snapshot,
    /// Rows of `now` that are worked off.
    worked: usize,
    /// The border behind `now`, if `has_ahead`.
    ahead: Snapshot,
    has_ahead: bool,
    /// The layer above as it was left, so that a short layer does not cost another copy of it.
    parked: Parked,
    edge: Place,
    is_over: bool,
    /// Entries that are still wanted: no more are asked for ahead.
    wanted: usize,
}

/// Where a descent begins: at a key or beside it, or at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin<'k> {
    /// The first key in the direction of the walk.
    End,
    /// This key or, if it is not there, the next one.
    At(&'k [u8]),
    /// The key behind this one.
    Behind(&'k [u8]),
}

impl<'t, K: Keys> Walk<'t, K> {
    /// A walk that yields nothing before `Walk::seek`.
    pub(crate) fn new(tree: &'t Tree, keys: &'t K, direction: Direction) -> Walk<'t, K> {
        Walk {
            tree,
            keys,
            direction,
            frames: Vec::new(),
            now: Snapshot::NONE,
            worked: 0,
            ahead: Snapshot::NONE,
            has_ahead: false,
            parked: Parked {
                frame_count: 0,
                now: Snapshot::NONE,
                worked: 0,
                ahead: Snapshot::NONE,
                has_ahead: false,
            },
            edge: Place::FIRST,
            is_over: true,
            wanted: usize::MAX,
        }
    }

    /// Says how many entries will be wanted, so that no others are asked for.
    pub(crate) fn expect(&mut self, entry_count: usize) {
        self.wanted = entry_count;
    }

    /// Goes to the place from which `next` yields.
    pub(crate) fn seek(&mut self, from: Origin<'_>) {
        let mut backoff = Backoff::new();
        while self.try_seek(from).is_err() {
            backoff.snooze();
        }
    }

    fn try_seek(&mut self, from: Origin<'_>) -> Result<(), LayerGone> {
        self.frames.clear();
        self.parked.frame_count = 0;
        self.is_over = false;
        let mut root = self.tree.root();
        let (key, with_key) = match from {
            Origin::End => return self.enter(root),
            Origin::At(key) => (key, true),
            Origin::Behind(key) => (key, false),
        };
        let mut depth_bytes = 0;
        loop {
            let place = Place::of(key, depth_bytes);
            self.enter_at(root, place)?;
            // Rows before the place are worked off; the one at it needs a look.
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
        // It was asked for with this one, by the parent's word.
        self.copy_ahead();
        Ok(())
    }

    /// The row that is `back` before the first one that is not worked off, if it is at `place`.
    fn worked_at(&self, place: Place, back: usize) -> Option<Row> {
        let worked = self.worked.checked_sub(back)?;
        self.row(worked).filter(|row| row.place == place)
    }

    /// Whether the entry at the seek's place is on the wanted side of its key.
    fn is_wanted(&self, slot: Slot, key: &[u8], with_key: bool) -> bool {
        // SAFETY: the slot was read since the last quiescent point; a walk ends before the next.
        let found = unsafe { self.keys.key(slot) };
        match self.direction {
            Direction::Forward => found > key || (with_key && found == key),
            Direction::Reverse => found < key || (with_key && found == key),
        }
    }

    /// The first layer's or a link's layer, from its beginning in the direction of the walk.
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
        self.has_ahead = false;
        loop {
            let neighbour_count = self.wanted.div_ceil(ROWS_TYPICAL);
            let border =
                self.tree.descend_to_walk(root, place.slice, self.direction, neighbour_count)?;
            // The copy may be of a later moment than the descent: keys may have left for the right.
            if self.tree.snapshot(border.node, &mut self.now) && self.now.version == border.version
            {
                return Ok(());
            }
        }
    }

    fn push_frame(&mut self, slice: u64) {
        let border = Border { node: self.now.node, version: self.now.version };
        self.frames.push(Frame { border, slice });
    }

    /// How many rows, in the direction of the walk, are not beyond `edge`.
    fn beyond(&self, edge: Place) -> usize {
        let rows = self.now.rows();
        match self.direction {
            Direction::Forward => rows.iter().take_while(|row| row.place <= edge).count(),
            Direction::Reverse => rows.iter().rev().take_while(|row| row.place >= edge).count(),
        }
    }

    fn row(&self, worked: usize) -> Option<Row> {
        let rows = self.now.rows();
        match self.direction {
            Direction::Forward => rows.get(worked).copied(),
            Direction::Reverse => rows.len().checked_sub(worked + 1).map(|rank| rows[rank]),
        }
    }

    /// The next entry's slot. `last` is the key that was yielded last, or where the walk began.
    pub(crate) fn next(&mut self, last: Origin<'_>) -> Option<Slot> {
        while !self.is_over {
            let Some(row) = self.row(self.worked) else {
                if self.leave_border().is_err() {
                    self.seek_again(last);
                }
                continue;
            };
            self.worked += 1;
            self.edge = row.place;
            if !self.has_ahead && self.worked == self.now.rows().len() / 2 {
                self.copy_ahead();
            }
            if let Some(layer) = row.slot.linked_bucket() {
                self.push_frame(row.place.slice);
                self.park();
                if self.enter(layer).is_err() {
                    self.seek_again(last);
                }
            } else if !row.slot.is_empty() {
                self.wanted = self.wanted.saturating_sub(1);
                return Some(row.slot);
            }
        }
        None
    }

    /// What the walk stood on has changed: on from the last key, once others had a chance.
    #[cold]
    fn seek_again(&mut self, last: Origin<'_>) {
        Backoff::new().snooze();
        self.seek(last);
    }

    /// Copies the neighbour, which has arrived by now, and asks for its entries and for the one
    /// behind it.
    fn copy_ahead(&mut self) {
        let neighbour = self.neighbour();
        let beyond_now = self.wanted.saturating_sub(self.now.rows().len() - self.worked);
        if neighbour == NO_NODE
            || beyond_now == 0
            || !self.tree.snapshot(neighbour, &mut self.ahead)
        {
            return;
        }
        self.has_ahead = true;
        match self.direction {
            Direction::Forward => self.prefetch_rows(self.ahead.rows().iter(), beyond_now),
            Direction::Reverse => self.prefetch_rows(self.ahead.rows().iter().rev(), beyond_now),
        }
        if beyond_now <= self.ahead.rows().len() {
            return;
        }
        let behind = match self.direction {
            Direction::Forward => self.ahead.next,
            Direction::Reverse => self.ahead.prev,
        };
        if behind != NO_NODE {
            self.tree.memory.prefetch(behind);
        }
    }

    /// To the neighbour, or back to the layer above, or over. `Err`: things have moved (I3).
    fn leave_border(&mut self) -> Result<(), LayerGone> {
        let neighbour = self.neighbour();
        if neighbour == NO_NODE {
            return self.leave_layer();
        }
        let left = self.now.node;
        let is_copied = std::mem::take(&mut self.has_ahead);
        if is_copied {
            std::mem::swap(&mut self.now, &mut self.ahead);
        } else if !self.tree.snapshot(neighbour, &mut self.now) {
            return Err(LayerGone);
        }
        if self.direction == Direction::Reverse && self.now.next != left {
            return Err(LayerGone); // I2: it has split, or the one that was left is gone.
        }
        // Keys that were deleted and came back may lie behind the edge (T3 of the tree).
        self.worked = self.beyond(self.edge);
        // The neighbour of one that was copied ahead was asked for then.
        match is_copied {
            true => self.copy_ahead(),
            false => self.look_ahead(),
        }
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
        self.has_ahead = false;
        let is_there = self.tree.snapshot(frame.border.node, &mut self.now);
        if !is_there || self.now.version != frame.border.version {
            return Err(LayerGone);
        }
        self.edge = Place { slice: frame.slice, kind: Kind::LONGER };
        self.worked = self.beyond(self.edge);
        self.look_ahead();
        Ok(())
    }

    /// Puts the copies of this layer aside; the frame for it was just pushed.
    fn park(&mut self) {
        std::mem::swap(&mut self.now, &mut self.parked.now);
        std::mem::swap(&mut self.ahead, &mut self.parked.ahead);
        self.parked.worked = self.worked;
        self.parked.has_ahead = self.has_ahead;
        self.parked.frame_count = self.frames.len();
    }

    /// Takes the copies of the layer above, if they are the ones put aside; its frame was just
    /// popped. They may be old by now, as any copy that is being worked on (I2).
    fn unpark(&mut self) -> bool {
        let is_parked = self.parked.frame_count == self.frames.len() + 1;
        if is_parked {
            std::mem::swap(&mut self.now, &mut self.parked.now);
            std::mem::swap(&mut self.ahead, &mut self.parked.ahead);
            self.worked = self.parked.worked;
            self.has_ahead = self.parked.has_ahead;
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

    /// Asks for the entries of the rows that are left, and for the neighbour.
    fn look_ahead(&self) {
        let rows = self.now.rows();
        let left = rows.len() - self.worked.min(rows.len());
        match self.direction {
            Direction::Forward => self.prefetch_rows(rows[rows.len() - left..].iter(), self.wanted),
            Direction::Reverse => self.prefetch_rows(rows[..left].iter().rev(), self.wanted),
        }
        if self.neighbour() != NO_NODE && left < self.wanted {
            self.tree.memory.prefetch(self.neighbour());
        }
    }

    fn prefetch_rows<'r>(&self, rows: impl Iterator<Item = &'r Row>, limit: usize) {
        rows.take(limit).for_each(|row| self.prefetch_row(row));
    }

    #[inline]
    fn prefetch_row(&self, row: &Row) {
        match row.slot.linked_bucket() {
            Some(layer) => self.tree.memory.prefetch(layer),
            None if row.slot.is_empty() => {}
            None => self.keys.prefetch(row.slot),
        }
    }
}
