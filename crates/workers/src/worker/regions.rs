//! The bytes that a round parses: of each connection that was read, a region of the arena, or a
//! buffer of its own.
//!
//! ```text
//!  arena: [ conn 3: held | new ][ conn 7: new ][ conn 9: held | new ] ... free ...
//! ```

use std::cell::Cell;
use std::sync::Arc;

use handlers::gather::Fed;
use runtime::core::Core;

/// The most that one round reads into the arena: small enough to stay in the processor's
/// second-level cache.
const ARENA_BYTES: usize = 256 << 10;

/// Bytes of one connection that this round parses.
pub(super) struct Region {
    pub slot: usize,
    pub place: Place,
    /// How far parsing got.
    pub fed: Cell<Option<Fed>>,
    /// Whether the connection's output holds nothing but replies to these bytes, all of which are
    /// plain reads: a write that has happened must never be answered as one that has not.
    pub is_answer_alone: Cell<bool>,
    /// Whether, beyond that, they may be parsed again.
    pub may_repeat: Cell<bool>,
    /// The number of commands among them that were run; unknown for memcached's binary ones.
    pub command_count: Cell<usize>,
}

/// Where the bytes of a region are.
pub(super) enum Place {
    Arena {
        start: usize,
        end: usize,
    },
    Own(Vec<u8>),
    /// The same, in a buffer from which requests may borrow beyond the round.
    Shared(Arc<Vec<u8>>),
}

impl Region {
    /// The buffer from which requests may still borrow after the round.
    #[inline]
    pub fn receive_buffer(&self) -> Option<&Arc<Vec<u8>>> {
        match &self.place {
            Place::Shared(bytes) => Some(bytes),
            Place::Arena { .. } | Place::Own(_) => None,
        }
    }

    /// The bytes of the commands taken from it, once it was parsed.
    pub fn taken<'r>(&'r self, arena: &'r [u8]) -> Option<&'r [u8]> {
        let fed = self.fed.get()?;
        Some(&self.bytes(arena)[fed.skipped_bytes..fed.consumed_bytes])
    }

    /// Its bytes.
    #[inline]
    pub fn bytes<'r>(&'r self, arena: &'r [u8]) -> &'r [u8] {
        match &self.place {
            Place::Arena { start, end } => &arena[*start..*end],
            Place::Own(bytes) => bytes,
            Place::Shared(bytes) => bytes,
        }
    }
}

/// The arena, and the regions of the gathering under way.
pub(super) struct Regions {
    pub arena: Box<[u8]>,
    pub all: Vec<Region>,
}

impl Regions {
    /// An arena, and no region.
    pub fn new() -> Regions {
        Regions { arena: vec![0; ARENA_BYTES].into_boxed_slice(), all: Vec::new() }
    }

    /// Adds a connection's bytes, of which `new_bytes` have been read just now.
    #[inline]
    pub fn add(&mut self, core: &Core, slot: usize, place: Place, new_bytes: usize) {
        core.counters().input_bytes.add(new_bytes as u64);
        core.connections[slot].client.set_active(core.now);
        let (fed, command_count) = (Cell::new(None), Cell::new(0));
        let (is_answer_alone, may_repeat) = (Cell::default(), Cell::default());
        self.all.push(Region { slot, place, fed, is_answer_alone, may_repeat, command_count });
    }

    /// The slots of the connections whose bytes were parsed, and the bytes of the commands taken.
    pub fn taken(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.all.iter().filter_map(|region| Some((region.slot, region.taken(&self.arena)?)))
    }
}
