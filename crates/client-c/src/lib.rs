//! The native client for C: an opaque handle, plain types, one function for each request.
//!
//! ```text
//!  dovetail.h ─▶ calls     one extern function for each request
//!                  ├▶ pointers   raw pointers to slices, or refused
//!                  ├▶ boundary   the handle, panics caught, errors to a status and a text
//!                  │     └─▶ client::Client
//!                  └▶ types      what both languages see: the only place for a layout
//! ```
//!
//! `include/dovetail.h` is generated from these sources (tests/header.rs); its rules for callers
//! are `HEADER` below.
//!
//! # Invariants
//! I1: no NULL and no misaligned pointer is dereferenced: the call returns `INVALID_ARGUMENT`.
//! I2: no integer from C becomes an enum or a bool before it is checked.
//! I3: no panic unwinds into C. Profiles with `panic = "abort"`, such as release, end the process
//!     at a panic (decision 0004); with `panic = "unwind"` the call returns `PANICKED`, and so do
//!     all later calls with that handle.
//! I4: memory that C owns is written only with the result of the call, after the request has ended.
//!
//! # Concurrency
//! One thread at a time may use a handle; a handle may move between threads. Handles share nothing.
//!
//! # Trade-offs
//! Each call waits for its answer: `dovetail_mget` is the only pipeline. Programs that need more
//! use the Rust client's polling API. Cargo does not apply LTO to a crate that is also an rlib, as
//! this one is for its tests; to save the last nanoseconds:
//! `cargo rustc --release -p client-c --crate-type cdylib`.
//!
//! # References
//! Decision 0027: why this crate may say `unsafe`.

mod boundary;
mod calls;
mod pointers;
mod types;

pub use boundary::Handle;
pub use calls::{
    dovetail_append, dovetail_cas, dovetail_close, dovetail_connect, dovetail_delete, dovetail_get,
    dovetail_get_item, dovetail_get_value, dovetail_incr, dovetail_last_error, dovetail_mget,
    dovetail_ping, dovetail_set, dovetail_value_free, dovetail_version,
};
pub use types::{
    ConnectOptions, DOVETAIL_EXPIRY_AFTER_MS, DOVETAIL_EXPIRY_AT_MS, DOVETAIL_EXPIRY_KEEP,
    DOVETAIL_EXPIRY_NEVER, DOVETAIL_IF_ABSENT, DOVETAIL_IF_ALWAYS, DOVETAIL_IF_PRESENT,
    DOVETAIL_IF_VERSION, Item, Key, Outcome, SetOptions, Value,
};

/// The head of `include/dovetail.h`: what callers must keep.
pub const HEADER: &str = "\
/* The C client of Dovetail, over UDP and shared memory.
 *
 * Threads: a handle is used by one thread at a time; it may move between calls. The simplest rule
 * is one handle for each thread. Handles share nothing.
 *
 * Pointers: NULL is refused with DOVETAIL_STATUS_INVALID_ARGUMENT wherever a pointer is needed,
 * never followed; NULL with a length of 0 is an empty key or value. What is not NULL must point to
 * as much readable (for results: writable) memory as its length or its type says, for as long as
 * the call lasts. Results do not overlap with arguments. They are written only where a function
 * says so; on other statuses they stay as they were.
 *
 * Memory: a dovetail_value that a call has filled belongs to the library until
 * dovetail_value_free; do not change its pointer or its length. A handle lives until
 * dovetail_close. Values outlive their handle.
 *
 * Status: 0 is success, positive are the other answers of a working server, negative are failures,
 * of which dovetail_last_error has the words.
 *
 * Panics: a broken invariant inside the library ends the process in a release build. Built with
 * cargo build --release -p client-c --config 'profile.release.panic=\"unwind\"'
 * the call returns DOVETAIL_STATUS_PANICKED instead; then only dovetail_close is of use.
 */";

// The thread rule: a handle may move to another thread.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Handle>();
};
