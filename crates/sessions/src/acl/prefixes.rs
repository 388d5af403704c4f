//! The prefixes whose keys a user may read, checked for many prefixes at once.
//!
//! ```text
//!  patterns  ~a:* ~a:b:* ~c*  ─▶ sorted, without those that another one begins:  a:  c
//!  prefix    a:b:7            ─▶ the last of them that is not behind it:         a:  begins it
//! ```
//!
//! # Invariants
//! P1: no kept pattern begins with another kept one. So only one pattern can begin a prefix: the
//!     last one that does not sort after it.

use super::selector::Selector;
use super::user::User;

/// The memory of a pattern here.
pub const PATTERN_BYTES: usize = size_of::<&[u8]>();

/// The patterns of one user that allow reading all keys with some prefix.
pub struct ReadPrefixes<'u> {
    has_all: bool,
    /// The fixed beginnings of the patterns, sorted (P1).
    plain: Vec<&'u [u8]>,
}

impl<'u> ReadPrefixes<'u> {
    /// The prefixes of a user: they take [`PATTERN_BYTES`] for each of its patterns.
    pub fn new(user: &'u User) -> ReadPrefixes<'u> {
        let selectors = || std::iter::once(&user.root).chain(&user.selectors);
        let has_all = selectors().any(|it| it.reads_prefix_by_all());
        let mut plain = Vec::new();
        if !has_all {
            plain.reserve_exact(user.pattern_count());
            plain.extend(selectors().flat_map(Selector::read_prefixes));
            plain.sort_unstable();
            plain.dedup_by(|next, kept| next.starts_with(kept));
        }
        ReadPrefixes { has_all, plain }
    }

    /// Whether the user may read every key with this prefix.
    pub fn covers(&self, prefix: &[u8]) -> bool {
        let behind = self.plain.partition_point(|plain| *plain <= prefix);
        let last = behind.checked_sub(1).map(|at| self.plain[at]);
        self.has_all || last.is_some_and(|plain| prefix.starts_with(plain))
    }
}
