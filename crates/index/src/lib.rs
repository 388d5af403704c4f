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
//! No layout of an entry is known here: a slot holds a tag and an offset. The hash index hands
//! candidates to its caller, which compares keys; the tree compares them through `tree::Keys`.
//!
//! Above it is only `store`, which has the log, supplies segments (`hash::Lender`) and implements
//! `tree::Keys`. With `--index tree` the hash index holds no slots: its heads are the stripes that
//! writers lock. `in_place` has the two words of a short value (K12). Readers take no lock; writers
//! hold the chain's (K4). docs/design/store.md and docs/design/tree.md describe the protocols,
//! docs/formats/ the layouts.

pub mod epoch;
pub mod hash;
pub mod in_place;
mod key;
pub mod mapping;
pub mod placement;
pub mod prefetch;
pub mod tree;

pub use key::keys_equal;
