//! Updates that change only the expiry.

use base::UnixMillis;
use store::request::{Item, Verdict};
use wire::resp::ExpireCondition;

use super::Refusal;

/// Sets or clears the expiry of a key that exists.
pub(super) fn set(old: Option<&Item<'_>>, expires_at: Option<UnixMillis>) -> Verdict<Refusal> {
    match old {
        None => Verdict::Keep,
        Some(_) => Verdict::Touch { expires_at },
    }
}

/// Sets the expiry of a key that exists, if the old expiry allows it.
pub(super) fn expire(
    old: Option<&Item<'_>>,
    at: UnixMillis,
    condition: ExpireCondition,
) -> Verdict<Refusal> {
    match old {
        Some(old) if condition.allows(old.expires_at, at) => {
            Verdict::Touch { expires_at: Some(at) }
        }
        _ => Verdict::Keep,
    }
}

/// Clears the expiry of a key that has one.
pub(super) fn persist(old: Option<&Item<'_>>) -> Verdict<Refusal> {
    match old {
        Some(old) if old.expires_at.is_some() => Verdict::Touch { expires_at: None },
        _ => Verdict::Keep,
    }
}
