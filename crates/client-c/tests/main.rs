//! Tests of the C client from outside: its header and its example.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod example;
mod header;
