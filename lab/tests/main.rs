//! Tests of the figures from outside: at a small scale, and by the program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod c4_artifact;
mod c4_honest;
mod c4_hot;
mod command;
mod mica;
mod minos_queues;
mod minos_server;
mod rowan;
