//! RESTORE, and the commands of a server with several databases.

use super::{Read, is_word, next};
use crate::resp::args::ArgIter;
use crate::resp::command::{Command, Restore};
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;

pub(super) fn restore(mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, ttl, payload) = (next(&mut rest), next(&mut rest), next(&mut rest));
    let ttl_ms = parse_i64(ttl);
    let mut restore = Restore { key, payload, ttl_ms, is_absolute: false, replaces: false };
    let (mut has_idle_time, mut has_frequency) = (false, false);
    while let Some(option) = rest.next() {
        if is_word(option, "replace") {
            restore.replaces = true;
        } else if is_word(option, "absttl") {
            restore.is_absolute = true;
        } else if is_word(option, "idletime") && rest.len() > 0 && !has_frequency {
            let seconds = parse_i64(next(&mut rest)).ok_or(ErrorReply::NotAnInteger)?;
            if seconds < 0 {
                return Err(ErrorReply::RestoreIdleTime);
            }
            has_idle_time = true;
        } else if is_word(option, "freq") && rest.len() > 0 && !has_idle_time {
            let frequency = parse_i64(next(&mut rest)).ok_or(ErrorReply::NotAnInteger)?;
            if !(0..=255).contains(&frequency) {
                return Err(ErrorReply::RestoreFrequency);
            }
            has_frequency = true;
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::Restore(restore))
}

pub(super) fn move_key(mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, index) = (next(&mut rest), next(&mut rest));
    Ok(Command::Move { key, database_index: database_index(index)? })
}

/// An index of a database, which need not exist.
pub(super) fn database_index<'a>(text: &[u8]) -> Result<i64, ErrorReply<'a>> {
    let index = parse_i64(text).ok_or(ErrorReply::NotAnInteger)?;
    i32::try_from(index).map(i64::from).map_err(|_| ErrorReply::NotA32BitInteger)
}

pub(super) fn swap_databases(mut rest: ArgIter<'_>) -> Read<'_> {
    let mut read = |error| {
        let index = parse_i64(next(&mut rest)).and_then(|index| i32::try_from(index).ok());
        index.map(i64::from).ok_or(error)
    };
    let first = read(ErrorReply::FirstDatabase)?;
    let second = read(ErrorReply::SecondDatabase)?;
    Ok(Command::SwapDb { indexes: [first, second] })
}
