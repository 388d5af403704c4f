//! The types that C and Rust both see.

use std::ffi::c_char;

/// What became of a call. 0 is success, positive are answers, negative are failures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, found, stored.
    Ok = 0,
    /// There is no such key.
    Missing = 1,
    /// The condition does not hold; nothing was changed.
    NotStored = 2,
    /// The item has another version; nothing was changed.
    Changed = 3,
    /// The value is longer than the buffer; its length was written, the buffer was not.
    BufferTooSmall = 4,
    /// NULL, misaligned, or no value that the argument may have.
    InvalidArgument = -1,
    /// There is no connection.
    NotConnected = -2,
    /// No answer in time; nothing was changed.
    TimedOut = -3,
    /// No answer: the write took effect once or not at all.
    Unknown = -4,
    /// The server is busy; nothing was changed.
    Busy = -5,
    /// Key or value is longer than the server or the client takes.
    TooLarge = -6,
    /// The value is not an integer, or the sum would be none of 64 bits; nothing was changed.
    NotANumber = -7,
    /// The server has no memory left; nothing was changed.
    OutOfMemory = -8,
    /// The server refused the request; nothing was changed.
    Refused = -9,
    /// The system or the server failed in another way; see `dovetail_last_error`.
    Failed = -10,
    /// An invariant broke inside the library; the handle is of no more use.
    Panicked = -11,
}

/// Store in any case.
pub const DOVETAIL_IF_ALWAYS: u32 = 0;
/// Store if there is no such key; `DOVETAIL_STATUS_NOT_STORED` otherwise.
pub const DOVETAIL_IF_ABSENT: u32 = 1;
/// Store if there is such a key; `DOVETAIL_STATUS_NOT_STORED` otherwise.
pub const DOVETAIL_IF_PRESENT: u32 = 2;
/// Store if the item has this version; `DOVETAIL_STATUS_CHANGED` or `DOVETAIL_STATUS_MISSING`
/// otherwise.
pub const DOVETAIL_IF_VERSION: u32 = 3;

/// The item does not expire.
pub const DOVETAIL_EXPIRY_NEVER: u32 = 0;
/// The item keeps the expiry that it has.
pub const DOVETAIL_EXPIRY_KEEP: u32 = 1;
/// The item expires `expiry_ms` milliseconds after the server stored it.
pub const DOVETAIL_EXPIRY_AFTER_MS: u32 = 2;
/// The item expires at `expiry_ms`, in milliseconds since 1970-01-01 UTC.
pub const DOVETAIL_EXPIRY_AT_MS: u32 = 3;

/// How to connect. All zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// The key of `--native-key-file` as 32 hexadecimal digits; NULL: none.
    pub tag_key_hex: *const c_char,
    /// A call ends after so long without an answer; 0: the default.
    pub timeout_ms: u64,
}

/// How to store. All zero is the default: in any case, for good.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetOptions {
    /// For `DOVETAIL_EXPIRY_AFTER_MS` and `DOVETAIL_EXPIRY_AT_MS`.
    pub expiry_ms: u64,
    /// For `DOVETAIL_IF_VERSION`.
    pub version: u64,
    /// One of `DOVETAIL_EXPIRY_...`.
    pub expiry: u32,
    /// One of `DOVETAIL_IF_...`.
    pub condition: u32,
    /// Opaque to the server.
    pub client_flags: u32,
}

/// One key of several.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its bytes.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

/// A value that the library owns; give it back with `dovetail_value_free`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Its bytes; NULL: there is no such key. Not NULL for an empty value.
    pub data: *mut u8,
    /// How many.
    pub len: usize,
}

/// A value with everything beside it. Give `value` back with `dovetail_value_free`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// Changes with each write; for `dovetail_cas`.
    pub version: u64,
    /// In milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// As stored.
    pub client_flags: u32,
}
