//! The boundary between C and Rust: the handle, the text of the last error, and panics, which stop
//! here.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::{Client, ClientError, RequestError, Status, SubmitError};

use crate::types::Outcome;

/// A connection to a server. Opaque; made by `dovetail_connect`, freed by `dovetail_close`.
#[derive(Debug)]
pub struct Handle {
    client: Client,
    /// A call panicked: what it left behind is not to be trusted.
    is_broken: bool,
}

/// Why a call failed: the status and the words.
#[derive(Debug)]
pub struct Failure {
    outcome: Outcome,
    words: String,
}

impl Failure {
    /// An argument is none.
    pub fn invalid(words: String) -> Failure {
        Failure { outcome: Outcome::InvalidArgument, words }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure { outcome: outcome_of(&error), words: error.to_string() }
    }
}

fn outcome_of(error: &ClientError) -> Outcome {
    match error {
        ClientError::BadTarget(_) => Outcome::InvalidArgument,
        ClientError::Connect(_) => Outcome::NotConnected,
        ClientError::Submit(SubmitError::Full) => Outcome::Busy,
        ClientError::Submit(_) => Outcome::TooLarge,
        ClientError::Request(error) => match error {
            RequestError::TimedOut => Outcome::TimedOut,
            RequestError::Unknown => Outcome::Unknown,
            RequestError::Busy => Outcome::Busy,
            RequestError::TooLong { .. } | RequestError::ValueTooLong => Outcome::TooLarge,
            RequestError::NoSession(_) => Outcome::NotConnected,
            _ => Outcome::Failed,
        },
        ClientError::Refused(status) => match status {
            Status::NotANumber | Status::OutOfRange => Outcome::NotANumber,
            Status::TooLarge => Outcome::TooLarge,
            Status::OutOfMemory => Outcome::OutOfMemory,
            Status::Busy => Outcome::Busy,
            _ => Outcome::Refused,
        },
        _ => Outcome::Failed,
    }
}

impl Handle {
    /// A handle of C's own.
    pub fn new(client: Client) -> Handle {
        Handle { client, is_broken: false }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The words of this thread's last failure; they stay until its next one.
pub fn last_error() -> *const c_char {
    const NONE: &CStr = c"";
    LAST_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(NONE.as_ptr())
}

fn remember(words: String) {
    let words = CString::new(words.replace('\0', "?")).unwrap_or_default();
    // A thread that ends has no last error any more, and no call of it asks.
    let _ = LAST_ERROR.try_with(|text| text.replace(words));
}

/// Runs a call that needs no handle; a failure's words are remembered.
pub fn guarded(call: impl FnOnce() -> Result<Outcome, Failure>) -> Outcome {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { outcome: Outcome::Panicked, words: panic_words(&*panic) },
    };
    remember(failure.words);
    failure.outcome
}

fn panic_words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the client panicked: {}", words.unwrap_or("no reason given"))
}

/// Runs a call on a handle.
///
/// # Safety
/// A `handle` that is not NULL came from `dovetail_connect`, was not closed, and is used by no
/// other thread meanwhile.
pub unsafe fn on_handle(
    handle: *mut Handle,
    call: impl FnOnce(&mut Client) -> Result<Outcome, Failure>,
) -> Outcome {
    if handle.is_null() || !handle.is_aligned() {
        return guarded(|| Err(Failure::invalid("the client is NULL or misaligned".to_owned())));
    }
    // SAFETY: `dovetail_connect` made it from a box; no other thread uses it, by our caller's
    // promise.
    let handle = unsafe { &mut *handle };
    if handle.is_broken {
        remember("an earlier call of this client panicked".to_owned());
        return Outcome::Panicked;
    }
    let outcome = guarded(|| call(&mut handle.client));
    handle.is_broken = outcome == Outcome::Panicked;
    outcome
}
