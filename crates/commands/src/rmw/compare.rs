//! Writes and deletions that depend on the present value: SET IFEQ, DELEX and similar ones.

use base::UnixMillis;
use store::Pieces;
use store::request::{Expiry, Item, Verdict};
use twox_hash::XxHash3_64;
use wire::resp::{Compares, Comparison};

use super::Refusal;

/// The expiry of a write in 8 bytes instead of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedExpiry(u64);

impl PackedExpiry {
    const NEVER: u64 = u64::MAX;
    const KEEP: u64 = u64::MAX - 1;

    fn unpacked(self) -> Expiry {
        match self.0 {
            PackedExpiry::NEVER => Expiry::Never,
            PackedExpiry::KEEP => Expiry::Keep,
            at_ms => Expiry::At(UnixMillis(at_ms)),
        }
    }
}

impl From<Expiry> for PackedExpiry {
    fn from(expiry: Expiry) -> PackedExpiry {
        PackedExpiry(match expiry {
            Expiry::Never => PackedExpiry::NEVER,
            Expiry::Keep => PackedExpiry::KEEP,
            // The two values above are half a billion years away.
            Expiry::At(at) => at.0.min(PackedExpiry::KEEP - 1),
        })
    }
}

/// The digest of the DIGEST command: XXH3 of 64 bits.
pub fn digest(value: &[u8]) -> u64 {
    XxHash3_64::oneshot(value)
}

/// Whether a value satisfies the comparison. An absent value differs from every value.
fn passes(comparison: Comparison<'_>, value: Option<&[u8]>) -> bool {
    let operand = comparison.operand;
    let has_digest = |value: &[u8]| {
        // Sixteen digits: that was checked when the command was parsed.
        let wanted = std::str::from_utf8(operand).ok();
        wanted.and_then(|text| u64::from_str_radix(text, 16).ok()) == Some(digest(value))
    };
    match comparison.compares {
        Compares::Equal => value == Some(operand),
        Compares::NotEqual => value != Some(operand),
        Compares::DigestEqual => value.is_some_and(has_digest),
        Compares::DigestNotEqual => !value.is_some_and(has_digest),
    }
}

/// SET with a comparison.
pub(super) fn set<'v>(
    old: Option<&Item<'v>>,
    comparison: Comparison<'_>,
    (new, expiry): (&'v [u8], PackedExpiry),
    pieces: &mut Pieces<'v>,
) -> Verdict<Refusal> {
    if !passes(comparison, old.map(|old| old.value)) {
        return Verdict::Keep;
    }
    pieces.before = new;
    let expires_at = match expiry.unpacked() {
        Expiry::Never => None,
        Expiry::Keep => old.and_then(|old| old.expires_at),
        Expiry::At(at) => Some(at),
    };
    Verdict::Write { client_flags: 0, expires_at }
}

/// DELEX with a condition.
pub(super) fn delete(old: Option<&Item<'_>>, comparison: Comparison<'_>) -> Verdict<Refusal> {
    match old {
        Some(old) if passes(comparison, Some(old.value)) => Verdict::Delete,
        _ => Verdict::Keep,
    }
}
