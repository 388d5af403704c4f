//! Tests of the simulator from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cluster;
mod measure;
