//! Tests with several threads, in suites/threads.rs, with each index.

#[path = "suites/threads.rs"]
mod with_hash;
#[path = "suites/threads.rs"]
#[allow(clippy::duplicate_mod)] // The same tests with another index.
mod with_tree;
