//! The batch executor's tests, in suites/batch.rs, with each index.

#[path = "suites/batch.rs"]
mod with_hash;
#[path = "suites/batch.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;
