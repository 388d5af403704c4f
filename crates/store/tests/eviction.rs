//! Tests of cache eviction, in suites/eviction.rs, with each index.

#[path = "suites/eviction.rs"]
mod with_hash;
#[path = "suites/eviction.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;
