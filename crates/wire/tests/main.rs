//! The protocols from outside: encoded messages are parsed back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod native;
mod round_trip;
