//! How far a list of keys or connections for a memcached client has come.

use wire::memcached::DumpKind;

/// A list that has begun.
pub struct DumpWalk {
    /// How far it is.
    pub place: Place,
    /// What is shown.
    pub wanted: Wanted,
    /// The command's length in the input.
    pub command_bytes: usize,
}

/// The list that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Keys, in the form of one dump.
    Keys(DumpKind),
    /// `stats conns`.
    Connections,
}

/// The kind of the list.
pub struct Wanted {
    /// Which list.
    pub list: List,
    /// The number of items and bytes that may still be shown.
    pub left_count: usize,
    /// The bytes among them.
    pub left_bytes: usize,
}

impl Wanted {
    /// Whether nothing more may be shown.
    pub fn is_nothing(&self) -> bool {
        self.left_count == 0 || self.left_bytes == 0
    }
}

/// How far a walk has come.
pub enum Place {
    /// After this key of an ordered index.
    Ordered(Option<Vec<u8>>),
    /// At this cursor of a hash index.
    Hashed(u64),
    /// Behind this id, among the clients of the start.
    Clients {
        /// The client behind which it goes on.
        id: u64,
        /// The youngest of the start.
        end_id: u64,
    },
    /// All were shown.
    End,
}

impl DumpWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        let key_bytes = match &self.place {
            Place::Ordered(Some(key)) => key.capacity(),
            _ => 0,
        };
        size_of::<DumpWalk>() + key_bytes
    }

    /// Whether all were shown.
    pub fn is_over(&self) -> bool {
        matches!(self.place, Place::End) || self.wanted.is_nothing()
    }
}
