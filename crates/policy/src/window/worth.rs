//! Which writes of a batch are worth a window: merging costs time, too.

/// The writes of a key that are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compacts {
    /// Four or more of a kilobyte each: the store writes shorter values faster than they can be
    /// replayed (decision 0029). Of plain SETs that follow each other the last, where the search
    /// pays (decision 0110).
    #[default]
    Long,
    /// Two or more of any length, as C-4 does (§4.3).
    All,
}

impl Compacts {
    /// The minimum length of a long write.
    pub const LONG_BYTES_MIN: u64 = 1 << 10;

    /// A plain SET of fewer bytes costs the store no more than leaving it out: it replaces a word
    /// where it lies.
    pub const SUPERSEDED_BYTES_MIN: usize = 9;

    /// Whether plain SETs are left out if another one of their key follows. C-4's rule makes a
    /// window of them.
    #[inline]
    pub fn leaves_out_superseded(self) -> bool {
        self == Compacts::Long
    }

    /// The minimum number of writes of one key that may be worth a window.
    pub fn writes_min(self) -> u8 {
        match self {
            Compacts::Long => 4,
            Compacts::All => 2,
        }
    }

    /// The minimum number of bytes that the store would copy for each of them.
    pub fn write_bytes_min(self) -> u64 {
        match self {
            Compacts::Long => Self::LONG_BYTES_MIN,
            Compacts::All => 0,
        }
    }

    /// Whether merging so many writes of so many bytes saves more than it costs.
    pub fn is_worth_a_window(self, writes: u8, bytes: u64) -> bool {
        writes >= self.writes_min() && bytes >= u64::from(writes) * self.write_bytes_min()
    }
}
