//! Tests of the store's public interface: one module for each topic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[cfg(not(loom))]
mod backup;
mod batch;
mod cut_off;
mod durable;
mod eviction;
mod expiry;
mod fragmentation;
#[cfg(not(any(loom, miri)))]
mod full_deletes;
mod full_durable;
mod growth;
mod hot;
mod last_use;
#[cfg(not(any(loom, miri)))]
mod media;
mod model;
mod nodes;
mod oracle;
mod range;
mod replica;
mod replica_durable;
#[cfg(not(any(loom, miri)))]
mod resize;
mod scratch;
mod several;
mod space;
mod support;
mod threads;
mod torture;
mod touch;
mod tuning;
mod untold;
mod waiting;
mod warm;
mod whole_commits;
mod whole_or_none;
