//! Fuzz bodies as plain functions: each takes any bytes and panics when a property does not hold.
//!
//! ```text
//!  fuzz_targets/X.rs (libFuzzer, nightly) ──▶ fuzz::X(&[u8]) ◀── tests/smoke.rs (stable, seeded)
//! ```
//!
//! To search further, keep what is found apart from the checked-in inputs:
//!
//! ```text
//!  mkdir -p fuzz/corpus/X/tmp
//!  cargo +nightly fuzz run X --features libfuzzer fuzz/corpus/X/tmp fuzz/corpus/X
//! ```
//!
//! An input of the parsers of streams is `cut seed (1 byte) | stream`: the stream is read in one
//! piece and again in pieces whose sizes the seed chooses, and both must give the same.

#![forbid(unsafe_code)]

mod acl_files;
mod checkpoints;
mod cluster_texts;
mod cuts;
mod data_files;
mod dumps;
mod foreign_configs;
mod foreign_data;
mod globs;
pub mod inputs;
mod memcached_binary;
mod memcached_datagrams;
mod memcached_text;
mod native_client;
mod native_frames;
mod native_memory;
mod numbers;
mod peer_datagrams;
mod peer_messages;
mod policy_events;
mod records;
mod resp_commands;
pub mod rng;
mod routed_commands;
mod store_requests;
mod windows;

pub use acl_files::acl_files;
pub use checkpoints::checkpoints;
pub use cluster_texts::cluster_texts;
pub use data_files::data_files;
pub use dumps::dumps;
pub use foreign_configs::foreign_configs;
pub use foreign_data::foreign_data;
pub use globs::globs;
pub use memcached_binary::memcached_binary;
pub use memcached_datagrams::memcached_datagrams;
pub use memcached_text::memcached_text;
pub use native_client::native_client;
pub use native_frames::native_frames;
pub use native_memory::native_memory;
pub use numbers::numbers;
pub use peer_datagrams::peer_datagrams;
pub use peer_messages::peer_messages;
pub use policy_events::policy_events;
pub use records::records;
pub use resp_commands::resp_commands;
pub use routed_commands::routed_commands;
pub use store_requests::store_requests;
pub use windows::windows;
