//! The functions that C calls. Each refuses NULL, catches panics and returns a status.

use std::ffi::{CStr, c_char};

use base::UnixMillis;
use client::{Client, Condition, Config, Expiry, Op, Status, TagKey, Want, Written};

use crate::boundary::{Failure, Handle, guarded, last_error, on_handle};
use crate::pointers::{Place, Places, hand_over, options_of, slice_of, take_back, text_of};
use crate::types::{
    ConnectOptions, DOVETAIL_EXPIRY_AFTER_MS, DOVETAIL_EXPIRY_AT_MS, DOVETAIL_EXPIRY_KEEP,
    DOVETAIL_EXPIRY_NEVER, DOVETAIL_IF_ABSENT, DOVETAIL_IF_ALWAYS, DOVETAIL_IF_PRESENT,
    DOVETAIL_IF_VERSION, Item, Key, Outcome, SetOptions, Value,
};

/// Connects to `native://HOST:PORT` or `shm:PATH` and writes the handle. `options` may be NULL.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_connect(
    target: *const c_char,
    options: *const ConnectOptions,
    client: *mut *mut Handle,
) -> Outcome {
    guarded(|| {
        // SAFETY: the header's rule on pointers.
        let target = unsafe { text_of("target", target) }?;
        // SAFETY: the same.
        let options = unsafe { options_of("options", options) }?;
        // SAFETY: the same.
        let place = unsafe { Place::new("client", client) }?;
        let config = match options {
            // SAFETY: the same, of the text that the options name.
            Some(options) => unsafe { config_of(options) }?,
            None => Config::default(),
        };
        let handle = Handle::new(Client::connect_with(target, config)?);
        place.put(Box::into_raw(Box::new(handle)));
        Ok(Outcome::Ok)
    })
}

/// # Safety
/// A tag key that is not NULL is a text of C.
unsafe fn config_of(options: ConnectOptions) -> Result<Config, Failure> {
    let mut config = Config::default();
    if !options.tag_key_hex.is_null() {
        // SAFETY: our own promise.
        let digits = unsafe { text_of("tag_key_hex", options.tag_key_hex) }?;
        let key = TagKey::from_hex(digits).map_err(|error| Failure::invalid(error.to_string()))?;
        config.tag_key = Some(key);
    }
    if options.timeout_ms > 0 {
        config.timeout_ns = options.timeout_ms.saturating_mul(1_000_000);
    }
    Ok(config)
}

/// Ends a connection and frees its handle, which is of no use afterwards. NULL is nothing to do.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_close(client: *mut Handle) {
    if client.is_null() || !client.is_aligned() {
        return;
    }
    // SAFETY: `dovetail_connect` made it from a box, and no thread uses it any more.
    let handle = unsafe { Box::from_raw(client) };
    guarded(|| {
        drop(handle);
        Ok(Outcome::Ok)
    });
}

/// Whether the server answers.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_ping(client: *mut Handle) -> Outcome {
    let call = |client: &mut Client| Ok(client.ping().map(|()| Outcome::Ok)?);
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Gets a value into the caller's buffer and writes its length. A value longer than
/// `buffer_capacity` answers `DOVETAIL_STATUS_BUFFER_TOO_SMALL`: the length is written, the buffer
/// is not. No memory is allocated.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_get(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    buffer: *mut u8,
    buffer_capacity: usize,
    value_len: *mut usize,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        // SAFETY: the same.
        let buffer = unsafe { Places::new("buffer", buffer, buffer_capacity) }?;
        // SAFETY: the same.
        let length = unsafe { Place::new("value_len", value_len) }?;
        let answered = client.ask(&Op::Get { key, touch: None }, Want::PLAIN, |answer| {
            if answer.status != Status::Ok {
                return Err(answer.status);
            }
            length.put(answer.value.len());
            Ok(buffer.put_bytes(answer.value))
        })?;
        match answered {
            Ok(true) => Ok(Outcome::Ok),
            Ok(false) => Ok(Outcome::BufferTooSmall),
            Err(Status::Miss) => Ok(Outcome::Missing),
            Err(status) => Err(client::ClientError::Refused(status).into()),
        }
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Gets a value into memory of the library: give it back with `dovetail_value_free`. It is written
/// for `DOVETAIL_STATUS_OK`, and as NULL for `DOVETAIL_STATUS_MISSING`.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_get_value(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    value: *mut Value,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        // SAFETY: the same.
        let place = unsafe { Place::new("value", value) }?;
        let found = client.get(key)?;
        let outcome = if found.is_some() { Outcome::Ok } else { Outcome::Missing };
        place.put(hand_over(found));
        Ok(outcome)
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Gets a value with its version, expiry and client flags, as `dovetail_get_value` does.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_get_item(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    item: *mut Item,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        // SAFETY: the same.
        let place = unsafe { Place::new("item", item) }?;
        let Some(found) = client.get_item(key)? else {
            let value = hand_over(None);
            place.put(Item { value, version: 0, expires_at_ms: 0, client_flags: 0 });
            return Ok(Outcome::Missing);
        };
        place.put(Item {
            value: hand_over(Some(found.value)),
            version: found.version,
            expires_at_ms: found.expires_at.map_or(0, |at| at.0),
            client_flags: found.client_flags,
        });
        Ok(Outcome::Ok)
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Gets the values of `count` keys, asked for together, in their order: `values` has room for as
/// many. For `DOVETAIL_STATUS_OK` all are written, those of missing keys as NULL; give each back
/// with `dovetail_value_free`.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_mget(
    client: *mut Handle,
    keys: *const Key,
    count: usize,
    values: *mut Value,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let keys = unsafe { slice_of("keys", keys, count) }?;
        // SAFETY: the same.
        let places = unsafe { Places::new("values", values, count) }?;
        let keys: Result<Vec<&[u8]>, Failure> = keys
            .iter()
            // SAFETY: the same, of each key.
            .map(|key| unsafe { slice_of("a key", key.data, key.len) })
            .collect();
        let found = client.mget(&keys?)?;
        places.put(found.into_iter().map(hand_over));
        Ok(Outcome::Ok)
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Stores a value. `options` may be NULL: in any case, for good.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_set(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    options: *const SetOptions,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        // SAFETY: the same.
        let value = unsafe { slice_of("value", value, value_len) }?;
        // SAFETY: the same.
        let options = unsafe { options_of("options", options) }?.unwrap_or_default();
        Ok(outcome_of(client.set_with(key, value, checked(options)?)?))
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// The options in the client's own words, if they are any.
fn checked(options: SetOptions) -> Result<client::SetOptions, Failure> {
    let expiry = match options.expiry {
        DOVETAIL_EXPIRY_NEVER => Expiry::Never,
        DOVETAIL_EXPIRY_KEEP => Expiry::Keep,
        DOVETAIL_EXPIRY_AFTER_MS => Expiry::AfterMs(options.expiry_ms),
        DOVETAIL_EXPIRY_AT_MS => Expiry::At(UnixMillis(options.expiry_ms)),
        other => return Err(Failure::invalid(format!("{other} is no DOVETAIL_EXPIRY_..."))),
    };
    let condition = match options.condition {
        DOVETAIL_IF_ALWAYS => Condition::Always,
        DOVETAIL_IF_ABSENT => Condition::IfAbsent,
        DOVETAIL_IF_PRESENT => Condition::IfPresent,
        DOVETAIL_IF_VERSION => Condition::IfVersion(options.version),
        other => return Err(Failure::invalid(format!("{other} is no DOVETAIL_IF_..."))),
    };
    Ok(client::SetOptions { expiry, condition, client_flags: options.client_flags })
}

fn outcome_of(written: Written) -> Outcome {
    match written {
        Written::Stored => Outcome::Ok,
        Written::NotStored => Outcome::NotStored,
        Written::Changed => Outcome::Changed,
        Written::Missing => Outcome::Missing,
    }
}

/// Stores a value for good if the item still has this version, which `dovetail_get_item` told.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_cas(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    version: u64,
) -> Outcome {
    let condition = DOVETAIL_IF_VERSION;
    let options = SetOptions { version, condition, ..SetOptions::default() };
    // SAFETY: the same rules.
    unsafe { dovetail_set(client, key, key_len, value, value_len, &raw const options) }
}

/// Deletes a key; `DOVETAIL_STATUS_MISSING` if it was not there.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_delete(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        Ok(if client.delete(key)? { Outcome::Ok } else { Outcome::Missing })
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Adds to a number, or subtracts, and writes the sum; an absent key counts as 0. `sum` may be
/// NULL.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_incr(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    delta: i64,
    sum: *mut i64,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        // SAFETY: the same.
        let place = unsafe { Place::optional("sum", sum) }?;
        let number = client.incr(key, delta)?;
        place.inspect(|place| place.put(number));
        Ok(Outcome::Ok)
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Puts bytes behind a value, or stores them where there is none, and writes the new length.
/// `total_len` may be NULL.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_append(
    client: *mut Handle,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    total_len: *mut u64,
) -> Outcome {
    let call = |client: &mut Client| {
        // SAFETY: the header's rule on pointers.
        let key = unsafe { slice_of("key", key, key_len) }?;
        // SAFETY: the same.
        let value = unsafe { slice_of("value", value, value_len) }?;
        // SAFETY: the same.
        let place = unsafe { Place::optional("total_len", total_len) }?;
        let total = client.append(key, value)?;
        place.inspect(|place| place.put(total.unsigned_abs()));
        Ok(Outcome::Ok)
    };
    // SAFETY: the header's rule on handles.
    unsafe { on_handle(client, call) }
}

/// Frees a value that the library owns and makes it NULL, so that freeing it again does nothing.
/// NULL is nothing to do.
///
/// # Safety
/// The rules at the top of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dovetail_value_free(value: *mut Value) {
    guarded(|| {
        // SAFETY: the header's rule on pointers.
        if let Some(taken) = unsafe { options_of("value", value.cast_const()) }? {
            // SAFETY: not NULL and aligned, since it was read.
            let place = unsafe { Place::new("value", value) }?;
            place.put(hand_over(None));
            // SAFETY: the header's rule on memory: as a call filled it, or already NULL.
            unsafe { take_back(taken) };
        }
        Ok(Outcome::Ok)
    });
}

/// The words of this thread's last failure, or an empty text. Never NULL. They stay until the next
/// failure of the same thread, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn dovetail_last_error() -> *const c_char {
    last_error()
}

/// The library's version, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn dovetail_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests;
