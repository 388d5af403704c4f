//! MSETEX, LCS, DELEX: commands on strings with options of their own.

use super::strings::TtlOption;
use super::{Read, is_word, next, next_i64};
use crate::resp::args::{ArgIter, Keys, Pairs};
use crate::resp::bits::{LcsRequest, LcsWants};
use crate::resp::command::{Command, MSetEx, SetCondition};
use crate::resp::compare::{Compares, Comparison};
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

pub(super) fn set_pairs_ex(mut rest: ArgIter<'_>) -> Read<'_> {
    let id = CommandId::MSetEx;
    let count =
        parse_i64(next(&mut rest)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or(ErrorReply::KeyCount)?;
    let arg_count = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(2);
    if rest.len() < arg_count {
        return Err(ErrorReply::PairCount);
    }
    let pairs = Pairs::new(rest.take_first(arg_count));
    for _ in 0..arg_count {
        rest.next();
    }
    let mut condition = SetCondition::Always;
    let mut ttl = TtlOption::default();
    while let Some(option) = rest.next() {
        if is_word(option, "nx") && condition != SetCondition::IfPresent {
            condition = SetCondition::IfAbsent;
        } else if is_word(option, "xx") && condition != SetCondition::IfAbsent {
            condition = SetCondition::IfPresent;
        } else {
            ttl.take_or_keep(option, &mut rest)?;
        }
    }
    Ok(Command::MSetEx(MSetEx { pairs, expiry: ttl.expiry(id)?, condition }))
}

/// DELEX: without a condition it is a DEL.
pub(super) fn delete(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let keys = Keys::all(rest);
    let key = next(&mut rest);
    let comparison = match (id, rest.next(), rest.next(), rest.next()) {
        (CommandId::DelIfEq, Some(operand), None, None) => {
            Comparison { compares: Compares::Equal, operand }
        }
        (CommandId::DelEx, None, ..) => return Ok(Command::Del { keys, id }),
        (CommandId::DelEx, Some(word), Some(operand), None) => {
            Compares::read(word).ok_or(ErrorReply::DeleteCondition)?.with(operand)?
        }
        _ => return Err(ErrorReply::WrongArity(id)),
    };
    Ok(Command::DelIf { key, comparison, id })
}

pub(super) fn lcs(mut rest: ArgIter<'_>) -> Read<'_> {
    let (left, right) = (next(&mut rest), next(&mut rest));
    let (mut wants_length, mut wants_matches) = (false, false);
    let (mut match_min_bytes, mut with_lengths) = (0, false);
    while let Some(option) = rest.next() {
        if is_word(option, "idx") {
            wants_matches = true;
        } else if is_word(option, "len") {
            wants_length = true;
        } else if is_word(option, "withmatchlen") {
            with_lengths = true;
        } else if is_word(option, "minmatchlen") && rest.len() > 0 {
            match_min_bytes = u64::try_from(next_i64(&mut rest)?).unwrap_or(0);
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    let wants = match (wants_length, wants_matches) {
        (true, true) => return Err(ErrorReply::LcsLengthAndIndexes),
        (true, false) => LcsWants::Length,
        (false, true) => LcsWants::Matches,
        (false, false) => LcsWants::Text,
    };
    Ok(Command::Lcs(LcsRequest { left, right, wants, match_min_bytes, with_lengths }))
}
