//! Values of RDB: strings are read, values of other types are skipped.
//!
//! ```text
//!  list, set, quicklist              count, strings
//!  hash                              count, pairs of strings
//!  sorted set                        count, strings and scores
//!  ziplist, listpack, intset, zipmap one string
//!  module                            id, then marked values up to a mark of the end
//!  stream                            packed nodes, numbers, groups with what is pending
//! ```

use std::io::Read;

use super::input::Input;
use super::{Content, RdbError};

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const SORTED_SET_TEXT: u8 = 3;
const HASH: u8 = 4;
const SORTED_SET: u8 = 5;
const MODULE: u8 = 7;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const SORTED_SET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
const STREAM: u8 = 15;
const HASH_LISTPACK: u8 = 16;
const SORTED_SET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const STREAM_2: u8 = 19;
const SET_LISTPACK: u8 = 20;
const STREAM_3: u8 = 21;
const HASH_TIMES_EARLY: u8 = 22;
const HASH_LISTPACK_TIMES_EARLY: u8 = 23;
const HASH_TIMES: u8 = 24;
const HASH_LISTPACK_TIMES: u8 = 25;

/// The markers in a module's saved data.
const MODULE_END: u64 = 0;
const MODULE_SIGNED: u64 = 1;
const MODULE_UNSIGNED: u64 = 2;
const MODULE_FLOAT: u64 = 3;
const MODULE_DOUBLE: u64 = 4;
const MODULE_STRING: u64 = 5;

/// Reads the value after a key; `at` is the place of its type.
pub(super) fn value(input: &mut Input<impl Read>, kind: u8, at: u64) -> Result<Content, RdbError> {
    let name = match kind {
        STRING => return input.string().map(Content::String),
        LIST | LIST_QUICKLIST => {
            strings(input, 1)?;
            "list"
        }
        LIST_ZIPLIST => packed(input, "list")?,
        LIST_QUICKLIST_2 => {
            for _ in 0..input.number()? {
                input.skip_numbers(1)?;
                input.skip_string()?;
            }
            "list"
        }
        SET => {
            strings(input, 1)?;
            "set"
        }
        SET_INTSET | SET_LISTPACK => packed(input, "set")?,
        SORTED_SET_TEXT | SORTED_SET => {
            scores(input, kind == SORTED_SET_TEXT)?;
            "zset"
        }
        SORTED_SET_ZIPLIST | SORTED_SET_LISTPACK => packed(input, "zset")?,
        HASH => {
            strings(input, 2)?;
            "hash"
        }
        HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK | HASH_LISTPACK_TIMES_EARLY => {
            packed(input, "hash")?
        }
        HASH_LISTPACK_TIMES => {
            input.skip(8)?;
            packed(input, "hash")?
        }
        HASH_TIMES | HASH_TIMES_EARLY => {
            fields_with_times(input, kind == HASH_TIMES)?;
            "hash"
        }
        STREAM | STREAM_2 | STREAM_3 => {
            stream(input, kind)?;
            "stream"
        }
        MODULE => {
            input.skip_numbers(1)?;
            module_values(input)?;
            "module"
        }
        _ => return Err(RdbError::Kind { at, kind }),
    };
    Ok(Content::Other(name))
}

/// Skips a module's auxiliary data: its id, when it is loaded, and values.
pub(super) fn module_aux(input: &mut Input<impl Read>) -> Result<(), RdbError> {
    input.skip_numbers(3)?;
    module_values(input)
}

fn module_values(input: &mut Input<impl Read>) -> Result<(), RdbError> {
    loop {
        match input.number()? {
            MODULE_END => return Ok(()),
            MODULE_SIGNED | MODULE_UNSIGNED => input.skip_numbers(1)?,
            MODULE_FLOAT => input.skip(4)?,
            MODULE_DOUBLE => input.skip(8)?,
            MODULE_STRING => input.skip_string()?,
            _ => return Err(input.damaged("no value of a module is marked so")),
        }
    }
}

/// Skips a string with all elements.
fn packed(input: &mut Input<impl Read>, name: &'static str) -> Result<&'static str, RdbError> {
    input.skip_string().map(|()| name)
}

/// Skips a count, and that many groups of strings.
fn strings(input: &mut Input<impl Read>, each: u32) -> Result<(), RdbError> {
    for _ in 0..input.number()? {
        for _ in 0..each {
            input.skip_string()?;
        }
    }
    Ok(())
}

fn scores(input: &mut Input<impl Read>, are_texts: bool) -> Result<(), RdbError> {
    for _ in 0..input.number()? {
        input.skip_string()?;
        if !are_texts {
            input.skip(8)?;
            continue;
        }
        let [len] = input.array()?;
        // 253 to 255: not a number and the two infinities.
        if len < 253 {
            input.skip(u64::from(len))?;
        }
    }
    Ok(())
}

fn fields_with_times(input: &mut Input<impl Read>, has_earliest: bool) -> Result<(), RdbError> {
    if has_earliest {
        input.skip(8)?;
    }
    for _ in 0..input.number()? {
        input.skip_numbers(1)?;
        input.skip_string()?;
        input.skip_string()?;
    }
    Ok(())
}

fn stream(input: &mut Input<impl Read>, kind: u8) -> Result<(), RdbError> {
    strings(input, 2)?;
    // Entries, and the last id in two numbers.
    input.skip_numbers(3)?;
    if kind != STREAM {
        // The first id, the highest that was deleted, entries that were ever added.
        input.skip_numbers(5)?;
    }
    for _ in 0..input.number()? {
        input.skip_string()?;
        input.skip_numbers(if kind == STREAM { 2 } else { 3 })?;
        for _ in 0..input.number()? {
            // Id and time of delivery, then how often.
            input.skip(16 + 8)?;
            input.skip_numbers(1)?;
        }
        for _ in 0..input.number()? {
            input.skip_string()?;
            input.skip(if kind == STREAM_3 { 16 } else { 8 })?;
            for _ in 0..input.number()? {
                input.skip(16)?;
            }
        }
    }
    Ok(())
}
