//! Tests of the log's use of space, in suites/fragmentation.rs, with each index.

#[path = "suites/fragmentation.rs"]
mod with_hash;
#[path = "suites/fragmentation.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;
