//! Batched lookups: one state machine per key prefetches its next node's lines and yields to the
//! others until they have arrived (uTPS §3.3).
//!
//! ```text
//!  round 1   key 0: root ─prefetch─▶     key 1: root ─prefetch─▶      ...
//!  round 2   key 0: interior ──────▶     key 1: interior ──────▶      ...
//!  last      key 0: border ──prefetch entry, note border and version: the hint
//! ```
//!
//! A state machine never waits and never restarts: an obstacle ends it without a hint, and the
//! request then looks its key up by itself.

use super::descend::{Border, Found};
use super::node::{NO_NODE, Node, Version};
use super::slice::{Place, SLICE_BYTES};
use super::{BATCH_MAX, Keys, Tree};
use crate::hash::Position;
use crate::hash::slot::Tag;

/// The end of a key's search: the border that had the key, or would have it.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// `NO_NODE`: nothing is known.
    border: u32,
    version: Version,
    depth_bytes: u32,
}

impl Hint {
    /// Nothing is known.
    pub const NONE: Hint = Hint { border: NO_NODE, version: Version::NONE, depth_bytes: 0 };

    /// A hint with a border alone, without its version and layer: no search may begin there.
    #[inline]
    pub(super) fn in_some_layer(border: u32) -> Hint {
        Hint { border, ..Hint::NONE }
    }

    /// `NO_NODE`: nothing is known.
    #[inline]
    pub(super) fn node(self) -> u32 {
        self.border
    }

    /// The border of the first layer in which the search ended.
    #[inline]
    pub(super) fn first_layer(self) -> Option<Border> {
        let Hint { border, version, depth_bytes } = self;
        (border != NO_NODE && depth_bytes == 0).then_some(Border { node: border, version })
    }
}

/// A key to search for.
#[derive(Clone, Copy)]
pub struct Sought<'k> {
    /// The key.
    pub key: &'k [u8],
    /// The tag of the key's entry, which distinguishes it in its group; `None`: all entries of the
    /// group are prefetched.
    pub tag: Option<Tag>,
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

/// The result of a step.
enum Step {
    More,
    /// The border; the entries at the key's place are being prefetched.
    Border(Version),
    Lost,
}

impl Tree {
    /// Descends to each key's border and prefetches the lines of its entry. `hints` has a place for
    /// each key, at most [`BATCH_MAX`].
    pub fn seek_batch<'k, K: Keys>(
        &self,
        keys: &K,
        sought_of: impl Fn(usize) -> Sought<'k>,
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
                match self.step(seek, sought_of(index), keys) {
                    Step::More => {
                        active[kept] = active[turn];
                        kept += 1;
                    }
                    Step::Border(version) => {
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
    fn step(&self, seek: &mut Seek, sought: Sought<'_>, keys: &impl Keys) -> Step {
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
        let place = Place::of(sought.key, seek.depth_bytes as usize);
        if version.is_border() {
            if let Some(layer) = ask_for_entries(node, place, sought.tag, keys) {
                seek.depth_bytes += SLICE_BYTES as u32;
                seek.above = NO_NODE;
                return self.go_to(seek, layer);
            }
            return Step::Border(version);
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

    /// [`Tree::find`], beginning at the hint. It sees this session's changes since the hint: a
    /// border that keys have left has another version.
    #[inline]
    pub fn find_hinted(&self, hint: Hint, key: &[u8], keys: &impl Keys) -> Option<Position> {
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

/// Prefetches the entry at the place that has the tag; all entries at the place if none has it,
/// because an insert among them will compare keys. Returns the layer below, if there is one.
#[inline]
fn ask_for_entries(node: &Node, place: Place, tag: Option<Tag>, keys: &impl Keys) -> Option<u32> {
    let mut is_asked = false;
    let link = node.search(place, |slot| {
        if slot.linked_bucket().is_some() {
            return true;
        }
        if tag.is_some_and(|tag| slot.has_tag(tag)) {
            keys.prefetch(slot);
            is_asked = true;
        }
        false
    });
    if link.is_none() && !is_asked {
        node.search(place, |slot| {
            keys.prefetch(slot);
            false
        });
    }
    link.and_then(|(_, slot)| slot.linked_bucket())
}
