//! Tests of the simulator from outside: the papers' figures at a small scale.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod c4_artifact;
mod c4_honest;
mod c4_hot;
mod cluster;
mod measure;
mod mica;
mod minos_queues;
mod minos_server;
mod rowan;
