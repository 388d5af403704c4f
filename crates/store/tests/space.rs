//! Tests of a full log, in suites/space.rs, with each index.

#[path = "suites/space.rs"]
mod with_hash;
#[path = "suites/space.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;
