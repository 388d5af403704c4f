//! Many keys at once: a state machine for each, which asks for its next node's lines and gives way
//! to the others until they have arrived (uTPS §3.3; M5).
//!
//! ```text
//!  round 1   key 0: root ─prefetch─▶     key 1: root ─prefetch─▶      ...
//!  round 2   key 0: interior ──────▶     key 1: interior ──────▶      ...
//!  last      key 0: border ──prefetch entry, note border and version: the hint
//! ```
//!
//! A state machine never waits and never begins again: whatever stands in its way ends it without a
//! hint, and the request looks its key up by itself.

use super::descend::Found;
use super::node::{NO_NODE, Version};
use super::slice::{Place, SLICE_BYTES};
use super::{Keys, Tree};
use crate::config::BATCH_MAX;
use crate::index::Position;
use crate::index::slot::Slot;

/// Where a key's search ended: a border that had it, or would have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint {
    /// `NO_NODE`: nothing is known.
    border: u32,
    version: Version,
    depth_bytes: u32,
}

impl Hint {
    pub(crate) const NONE: Hint = Hint { border: NO_NODE, version: Version::NONE, depth_bytes: 0 };
}

/// One key on its way down.
#[derive(Clone, Copy)]
struct Seek {
    at: u32,
    /// The node above in the same layer, and its version; `NO_NODE` at a layer's top.
    above: u32,
    above_version: Version,
    depth_bytes: u32,
}

/// What a step found.
enum Step {
    More,
    /// The border, and the slot of its key or of one that begins alike.
    Border(Version, Option<Slot>),
    Lost,
}

impl Tree {
    /// Brings each key to its border and asks for the lines of its entry. `hints` has a place for
    /// each key, at most [`BATCH_MAX`].
    pub(crate) fn seek_batch<'k, K: Keys>(
        &self,
        keys: &K,
        key_of: impl Fn(usize) -> &'k [u8],
        hints: &mut [Hint],
    ) {
        let root = self.root();
        let start = Seek { at: root, above: NO_NODE, above_version: Version::NONE, depth_bytes: 0 };
        let mut seeks = [start; BATCH_MAX];
        let mut active = std::array::from_fn::<u8, BATCH_MAX, _>(|index| index as u8);
        let mut active_count = hints.len();
        while active_count > 0 {
            let mut kept = 0;
            for turn in 0..active_count {
                let index = usize::from(active[turn]);
                let seek = &mut seeks[index];
                match self.step(seek, key_of(index)) {
                    Step::More => {
                        active[kept] = active[turn];
                        kept += 1;
                    }
                    Step::Border(version, slot) => {
                        if let Some(slot) = slot {
                            keys.prefetch(slot);
                        }
                        let (border, depth_bytes) = (seek.at, seek.depth_bytes);
                        hints[index] = Hint { border, version, depth_bytes };
                    }
                    Step::Lost => hints[index] = Hint::NONE,
                }
            }
            active_count = kept;
        }
    }

    #[inline]
    fn step(&self, seek: &mut Seek, key: &[u8]) -> Step {
        let node = self.node(seek.at);
        let version = node.version();
        if version.is_changing() || version.is_dead() {
            return Step::Lost;
        }
        if seek.above != NO_NODE {
            if !self.node(seek.above).is_same(seek.above_version) {
                return Step::Lost;
            }
        } else if node.parent() != NO_NODE {
            return self.go_to(seek, node.parent()); // An old root.
        }
        let place = Place::of(key, seek.depth_bytes as usize);
        if version.is_border() {
            let found = node.search(place, |_| true);
            if let Some(layer) = found.and_then(|(_, slot)| slot.linked_bucket()) {
                seek.depth_bytes += SLICE_BYTES as u32;
                seek.above = NO_NODE;
                return self.go_to(seek, layer);
            }
            return Step::Border(version, found.map(|(_, slot)| slot));
        }
        let child = node.child_for(place.slice);
        if !node.is_same(version) {
            return Step::Lost;
        }
        (seek.above, seek.above_version) = (seek.at, version);
        self.go_to(seek, child)
    }

    #[inline]
    fn go_to(&self, seek: &mut Seek, node: u32) -> Step {
        seek.at = node;
        self.memory.prefetch(node);
        Step::More
    }

    /// [`Tree::find`], first where the hint says. What this session changed since is seen: a
    /// border that keys have left has another version.
    #[inline]
    pub(crate) fn find_hinted(&self, hint: Hint, key: &[u8], keys: &impl Keys) -> Option<Position> {
        if hint.border != NO_NODE {
            match self.look(hint.border, key, hint.depth_bytes as usize, keys) {
                Found::Entry(index, slot) => {
                    return Some(Position { bucket: hint.border, index, slot });
                }
                Found::Nothing if self.node(hint.border).is_same(hint.version) => return None,
                Found::Nothing | Found::Layer(_) => {}
            }
        }
        self.find(key, keys)
    }
}
