//! Turns pointers from C into slices and values, or refuses them.
//!
//! # Invariants
//! I1 of the crate: NULL and misaligned pointers are refused before they are dereferenced. The
//! header states the other requirements on pointers, which the caller must meet; they are the only
//! reason that the functions here are unsafe.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::boundary::Failure;
use crate::types::Value;

fn invalid(name: &str) -> Failure {
    Failure::invalid(format!("{name} is NULL or misaligned"))
}

fn is_usable<T>(pointer: *const T) -> bool {
    !pointer.is_null() && pointer.is_aligned()
}

/// `len` things of C; NULL is an empty slice when `len` is 0.
///
/// # Safety
/// A usable pointer points to `len` initialised things that no thread writes to during `'a`.
pub unsafe fn slice_of<'a, T>(name: &str, data: *const T, len: usize) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    let is_possible = len.checked_mul(size_of::<T>()).is_some_and(|n| isize::try_from(n).is_ok());
    if !is_usable(data) || !is_possible {
        return Err(invalid(name));
    }
    // SAFETY: not NULL, aligned and no longer than an object can be; the rest the caller keeps.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// A text of C that ends with a NUL.
///
/// # Safety
/// A pointer that is not NULL points to a NUL-terminated text that no thread writes to during `'a`.
pub unsafe fn text_of<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(invalid(name));
    }
    // SAFETY: not NULL; that it ends with a NUL the caller keeps.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// The options at a pointer; the default for NULL.
///
/// # Safety
/// A pointer that is not NULL points to an initialised `T`.
pub unsafe fn options_of<T: Copy>(name: &str, options: *const T) -> Result<Option<T>, Failure> {
    if options.is_null() {
        return Ok(None);
    }
    if !is_usable(options) {
        return Err(invalid(name));
    }
    // SAFETY: not NULL and aligned; that it is initialised the caller keeps.
    Ok(Some(unsafe { options.read() }))
}

/// A place for a result: one `T` that C owns.
pub struct Place<T>(*mut T);

impl<T> Place<T> {
    /// # Safety
    /// A usable pointer may be written until the call returns.
    pub unsafe fn new(name: &str, pointer: *mut T) -> Result<Place<T>, Failure> {
        if is_usable(pointer) { Ok(Place(pointer)) } else { Err(invalid(name)) }
    }

    /// As [`Place::new`]; nothing is written for NULL.
    ///
    /// # Safety
    /// The same.
    pub unsafe fn optional(name: &str, pointer: *mut T) -> Result<Option<Place<T>>, Failure> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: the same promise.
        unsafe { Place::new(name, pointer) }.map(Some)
    }

    /// Writes the result; what was there is not looked at.
    pub fn put(&self, value: T) {
        // SAFETY: checked by `new` to be neither NULL nor misaligned; writable by its promise.
        unsafe { self.0.write(value) };
    }
}

/// Places for several results in a row.
pub struct Places<T> {
    first: *mut T,
    len: usize,
}

impl<T> Places<T> {
    /// # Safety
    /// A usable pointer has `len` things of room that may be written until the call returns.
    pub unsafe fn new(name: &str, first: *mut T, len: usize) -> Result<Places<T>, Failure> {
        let is_possible =
            len.checked_mul(size_of::<T>()).is_some_and(|n| isize::try_from(n).is_ok());
        if len > 0 && !(is_usable(first) && is_possible) {
            return Err(invalid(name));
        }
        Ok(Places { first, len })
    }

    /// Writes the results, as many as there are places at most.
    pub fn put(&self, values: impl Iterator<Item = T>) {
        for (index, value) in values.take(self.len).enumerate() {
            // SAFETY: index < len, and `new` has checked that len things fit an object.
            let place = unsafe { self.first.add(index) };
            // SAFETY: within the room that `new` was promised, which is aligned.
            unsafe { place.write(value) };
        }
    }
}

impl Places<u8> {
    /// Copies bytes; false, and nothing is written, if there is no room for them.
    pub fn put_bytes(&self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len {
            return false;
        }
        if !bytes.is_empty() {
            // SAFETY: room for `len` bytes by `new`, not NULL since len > 0. The bytes are the
            // library's own, so they do not overlap with C's buffer.
            unsafe { bytes.as_ptr().copy_to_nonoverlapping(self.first, bytes.len()) };
        }
        true
    }
}

/// Hands a value over to C; [`take_back`] gets it again.
pub fn hand_over(value: Option<Vec<u8>>) -> Value {
    match value {
        None => Value { data: std::ptr::null_mut(), len: 0 },
        Some(bytes) => {
            let bytes = bytes.into_boxed_slice();
            Value { len: bytes.len(), data: Box::into_raw(bytes).cast() }
        }
    }
}

/// Frees what [`hand_over`] gave away.
///
/// # Safety
/// `value` is as `hand_over` made it, and was not taken back before.
pub unsafe fn take_back(value: Value) {
    if !value.data.is_null() {
        let bytes = std::ptr::slice_from_raw_parts_mut(value.data, value.len);
        // SAFETY: `hand_over` made it from a box of this length; it has no other owner.
        drop(unsafe { Box::from_raw(bytes) });
    }
}
