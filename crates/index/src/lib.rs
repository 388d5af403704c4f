//! The indexes of the store, and what lies under them: mapped memory and its reclamation.
//!
//! ```text
//!        key hash                     key
//!           │                          │
//!  hash: chains of buckets    tree: a trie of B+-trees ──▶ Slot: where the log has the entry
//!           └── blocks of lines ───────┘
//!                     │ borrowed from
//!  mapping: the log's memory, by NUMA node (placement)    epoch: when a block may be reused
//! ```
//!
//! The indexes know no entries: a slot holds a tag and an offset, and the caller compares keys. The
//! crate `store` has the log and executes requests. docs/design/store.md and docs/design/tree.md
//! describe the protocols, docs/formats/ the layouts.

pub mod epoch;
pub mod hash;
pub mod in_place;
mod key;
pub mod mapping;
pub mod placement;
pub mod prefetch;
pub mod tree;

pub use key::keys_equal;
