//! The protocols from outside: what is encoded is read back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod native;
mod round_trip;
