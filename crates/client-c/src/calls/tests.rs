//! Tests of the calls without C: NULL in every argument, invalid values, panics, an invalid target.
#![allow(clippy::multiple_unsafe_ops_per_block)] // A table of calls is one block.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use server::{Config as ServerConfig, Pin, Poll, Server};

use super::*;

fn server() -> Server {
    let native = Some(([127, 0, 0, 1], 0).into());
    Server::start(ServerConfig {
        resp: None,
        memcached: None,
        native,
        admin: None,
        memory_bytes: 64 << 20,
        pin: Pin::Off,
        poll: Poll::Block,
        ..ServerConfig::default()
    })
    .unwrap()
}

fn connected(server: &Server) -> *mut Handle {
    let target = format!("native://{}\0", server.native_addr().unwrap());
    let mut handle = null_mut();
    // SAFETY: a text with its NUL, no options, a place for the handle.
    let outcome = unsafe { dovetail_connect(target.as_ptr().cast(), null(), &raw mut handle) };
    assert_eq!(outcome, Outcome::Ok, "{}", words());
    handle
}

fn words() -> String {
    // SAFETY: never NULL, and no call of this thread fails before it is copied.
    unsafe { CStr::from_ptr(dovetail_last_error()) }.to_str().unwrap().to_owned()
}

#[track_caller]
fn check(outcome: Outcome, want: Outcome, want_words: &str) {
    assert_eq!(outcome, want, "{}", words());
    assert!(words().contains(want_words), "`{}` does not say `{want_words}`", words());
}

const INVALID: Outcome = Outcome::InvalidArgument;

#[test]
fn no_client_is_refused_by_every_call() {
    let (key, len) = (b"key".as_ptr(), 3);
    let (mut value, mut length) = (hand_over(None), 0_usize);
    // SAFETY: NULL is what is tested; all else points to what its length says.
    let outcomes = unsafe {
        let none = null_mut();
        [
            dovetail_ping(none),
            dovetail_get(none, key, len, null_mut(), 0, &raw mut length),
            dovetail_get_value(none, key, len, &raw mut value),
            dovetail_get_item(none, key, len, null_mut()),
            dovetail_mget(none, null(), 0, null_mut()),
            dovetail_set(none, key, len, key, len, null()),
            dovetail_cas(none, key, len, key, len, 1),
            dovetail_delete(none, key, len),
            dovetail_incr(none, key, len, 1, null_mut()),
            dovetail_append(none, key, len, key, len, null_mut()),
        ]
    };
    for outcome in outcomes {
        check(outcome, INVALID, "the client is NULL");
    }
    // SAFETY: both take NULL for nothing to do.
    unsafe { dovetail_close(null_mut()) };
    // SAFETY: the same.
    unsafe { dovetail_value_free(null_mut()) };
}

#[test]
fn no_argument_is_refused_in_every_place() {
    let server = server();
    let handle = connected(&server);
    let (key, len) = (b"key".as_ptr(), 3);
    let (mut length, mut values) = (0_usize, [hand_over(None)]);
    let keys = [Key { data: null(), len: 3 }];
    let crooked = (&raw mut length).cast::<u8>().wrapping_add(1).cast::<usize>();
    let options = |expiry, condition| SetOptions { expiry, condition, ..SetOptions::default() };
    // SAFETY: NULL and misalignment are what is tested; all else points to what its length says.
    let outcomes = unsafe {
        [
            (dovetail_get(handle, null(), 3, null_mut(), 0, &raw mut length), "key is NULL"),
            (dovetail_get(handle, key, len, null_mut(), 9, &raw mut length), "buffer is NULL"),
            (dovetail_get(handle, key, len, null_mut(), 0, null_mut()), "value_len is NULL"),
            (dovetail_get(handle, key, len, null_mut(), 0, crooked), "or misaligned"),
            (dovetail_get(handle, key, usize::MAX, null_mut(), 0, &raw mut length), "key is"),
            (dovetail_get_value(handle, key, len, null_mut()), "value is NULL"),
            (dovetail_get_item(handle, key, len, null_mut()), "item is NULL"),
            (dovetail_mget(handle, null(), 1, &raw mut values[0]), "keys is NULL"),
            (dovetail_mget(handle, keys.as_ptr(), usize::MAX, &raw mut values[0]), "keys is"),
            (dovetail_mget(handle, keys.as_ptr(), 1, null_mut()), "values is NULL"),
            (dovetail_mget(handle, keys.as_ptr(), 1, &raw mut values[0]), "a key is NULL"),
            (dovetail_set(handle, null(), 1, key, len, null()), "key is NULL"),
            (dovetail_set(handle, key, len, null(), 1, null()), "value is NULL"),
            (dovetail_set(handle, key, len, key, len, &options(4, 0)), "4 is no DOVETAIL_EXPIRY"),
            (dovetail_set(handle, key, len, key, len, &options(0, 9)), "9 is no DOVETAIL_IF"),
            (dovetail_cas(handle, null(), 1, key, len, 1), "key is NULL"),
            (dovetail_delete(handle, null(), 1), "key is NULL"),
            (dovetail_incr(handle, null(), 1, 1, null_mut()), "key is NULL"),
            (dovetail_append(handle, key, len, null(), 1, null_mut()), "value is NULL"),
            (dovetail_connect(null(), null(), null_mut()), "target is NULL"),
            (dovetail_connect(c"shm:/x".as_ptr(), null(), null_mut()), "client is NULL"),
        ]
    };
    for (outcome, want_words) in outcomes {
        assert_eq!(outcome, INVALID, "{want_words}");
    }
    // One more of the first, for its words: the table's last failure is another's.
    // SAFETY: as above.
    let outcome = unsafe { dovetail_get(handle, null(), 3, null_mut(), 0, &raw mut length) };
    check(outcome, INVALID, "key is NULL or misaligned");
    // SAFETY: the handle is live; nothing was stored by a refused call.
    let outcome = unsafe { dovetail_delete(handle, key, len) };
    assert_eq!(outcome, Outcome::Missing);
    // SAFETY: the handle is not used again.
    unsafe { dovetail_close(handle) };
}

#[test]
fn a_target_that_is_none_or_is_not_served_has_its_words() {
    let connect = |target: &CStr, options: *const ConnectOptions| {
        let mut handle = null_mut();
        // SAFETY: a text, options or NULL, a place for the handle.
        let outcome = unsafe { dovetail_connect(target.as_ptr(), options, &raw mut handle) };
        assert!(handle.is_null());
        outcome
    };
    check(connect(c"resp://h", null()), INVALID, "`resp://h` is no native target");
    check(connect(c"shm:/nowhere/at/all", null()), Outcome::NotConnected, "/nowhere/at/all");
    check(connect(c"\xff", null()), INVALID, "target is not UTF-8");
    let options = ConnectOptions { tag_key_hex: c"12".as_ptr(), timeout_ms: 0 };
    check(connect(c"native://127.0.0.1", &raw const options), INVALID, "32 hexadecimal digits");
}

#[test]
fn a_panic_is_an_answer_and_the_handle_is_of_no_more_use() {
    let server = server();
    let handle = connected(&server);
    // SAFETY: the handle is live and used by this thread alone.
    let outcome = unsafe { on_handle(handle, |_| panic!("at {}", "once")) };
    check(outcome, Outcome::Panicked, "the client panicked: at once");
    // SAFETY: the same.
    let outcome = unsafe { dovetail_ping(handle) };
    check(outcome, Outcome::Panicked, "an earlier call of this client panicked");
    // SAFETY: the handle is not used again.
    unsafe { dovetail_close(handle) };
}

#[test]
fn a_value_is_freed_once_however_often_it_is_given_back() {
    for bytes in [Vec::new(), b"value".to_vec()] {
        let mut value = hand_over(Some(bytes));
        assert!(!value.data.is_null());
        for _ in 0..2 {
            // SAFETY: as `hand_over` made it, then NULL.
            unsafe { dovetail_value_free(&raw mut value) };
            assert_eq!((value.data, value.len), (null_mut(), 0));
        }
    }
}
