//! The server from outside: one module for each topic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod compaction;
mod control;
mod counts;
mod doors;
mod dump;
mod exec_replies;
mod full;
mod hardship;
mod hot_set;
mod kinds;
mod large_help;
mod memcached;
mod moving;
mod native;
mod native_overload;
mod native_shm;
mod native_transports;
mod operators;
mod pause;
mod policies;
mod replies;
mod resp;
mod role_settings;
#[path = "routed.rs"]
mod routed;
mod sizes;
mod slo;
mod stealing;
mod support;
mod tracking;
mod turns;
mod whole_exec;
