//! Applies one request to a key's present value, without a store: yields the reply and the key's
//! new value.

use std::sync::Arc;

use base::UnixMillis;
use cluster::message::Changed;
use commands::rmw::{Refusal, Rmw};
use dispatch::lanes::request_slot::payload_of;
use store::request::{Effect, Item, Op, Outcome, Request, Set, Update, Verdict};

/// The inputs of the answer besides the key.
#[derive(Clone, Copy)]
pub(super) struct Context {
    pub now: UnixMillis,
    /// The version of the key's new entry, if it is changed.
    pub version: u64,
    pub value_max_bytes: u64,
}

/// Applies an operation. `old` is alive. `scratch` holds the bytes that an update writes.
pub(super) fn apply<'s>(
    request: &Request<'s, Rmw<'_>>,
    old: Option<Item<'s>>,
    context: Context,
    scratch: &'s mut Vec<u8>,
) -> (Outcome<'s, Refusal>, Changed) {
    match &request.op {
        Op::Get => (old.map_or(Outcome::Miss, Outcome::Hit), Changed::Nothing),
        Op::Set(set) => apply_set(set, old, context),
        Op::Delete => match old {
            Some(old) => (Outcome::Deleted { old: Some(old) }, Changed::Deleted),
            None => (Outcome::Miss, Changed::Nothing),
        },
        Op::Update(update) => {
            scratch.clear();
            let made_bytes = update.made_len_max(old.as_ref());
            if made_bytes > 0 {
                // All at once: a buffer that grows is there twice.
                let old_bytes = old.map_or(0, |old| old.value.len());
                scratch.reserve_exact(made_bytes + payload_of(&request.op).len() + old_bytes);
            }
            let verdict = update.apply(old.as_ref(), scratch);
            carry_out(request.key, verdict, old, context, scratch)
        }
    }
}

fn apply_set<'s>(
    set: &Set<'_>,
    old: Option<Item<'s>>,
    context: Context,
) -> (Outcome<'s, Refusal>, Changed) {
    if let Some(too_large) = too_large(set.value, context) {
        return (too_large, Changed::Nothing);
    }
    if let Some(refusal) = set.condition.refusal(old) {
        return (refusal, Changed::Nothing);
    }
    let expires_at = set.expiry.after(old.and_then(|old| old.expires_at));
    let stored = Outcome::Stored { version: context.version, old };
    if expires_at.is_some_and(|at| at <= context.now) {
        return (stored, Changed::Deleted);
    }
    let value = Arc::from(set.value);
    (stored, Changed::Value { value, client_flags: set.client_flags, expires_at })
}

fn carry_out<'s>(
    key: &'s [u8],
    verdict: Verdict<Refusal>,
    old: Option<Item<'s>>,
    context: Context,
    written: &'s [u8],
) -> (Outcome<'s, Refusal>, Changed) {
    let version = context.version;
    let written =
        |client_flags, expires_at| Item::of_stored(key, written, client_flags, version, expires_at);
    let new = match (verdict.effect(old.is_some(), context.now), old) {
        (Effect::Write { client_flags, expires_at, token: None }, _) => {
            written(client_flags, expires_at)
        }
        (Effect::Write { client_flags, expires_at, token }, _) => {
            Item { token, ..written(client_flags, expires_at) }
        }
        (Effect::Touch { expires_at }, Some(old)) => Item { version, expires_at, ..old },
        (Effect::Nothing | Effect::Touch { .. }, _) => {
            return (Outcome::Updated { old, new: None }, Changed::Nothing);
        }
        (Effect::Refused(why), _) => return (Outcome::Refused(why), Changed::Nothing),
        (Effect::Delete, None) => return (Outcome::Deleted { old }, Changed::Nothing),
        (Effect::Delete, Some(_)) => return (Outcome::Deleted { old }, Changed::Deleted),
    };
    let expires_at = new.expires_at;
    if let Some(too_large) = too_large(new.value, context) {
        return (too_large, Changed::Nothing);
    }
    let (value, client_flags) = new.folded();
    let changed = Changed::Value { value: Arc::from(&*value), client_flags, expires_at };
    (Outcome::Updated { old, new: Some(new) }, changed)
}

fn too_large<'s>(value: &[u8], context: Context) -> Option<Outcome<'s, Refusal>> {
    let len_bytes = value.len() as u64;
    let max_bytes = context.value_max_bytes;
    (len_bytes > max_bytes).then_some(Outcome::TooLarge { len_bytes, max_bytes })
}

#[cfg(test)]
mod tests {
    use store::request::{Condition, Expiry};

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000);

    fn run(op: Op<'_, Rmw<'_>>, old: Option<&[u8]>) -> (String, Changed) {
        run_on(op, old.map(|value| Item::of_stored(b"k", value, 7, 3, Some(UnixMillis(9_000)))))
    }

    fn run_on(op: Op<'_, Rmw<'_>>, old: Option<Item<'_>>) -> (String, Changed) {
        let request = Request { key: b"k", hash: base::KeyHash(0), op };
        let mut scratch = Vec::new();
        let context = Context { now: NOW, version: 4, value_max_bytes: 10 };
        let (outcome, changed) = apply(&request, old, context, &mut scratch);
        let told = match outcome {
            Outcome::Stored { version, .. } => format!("stored {version}"),
            Outcome::Updated { new: Some(new), .. } => {
                format!("updated {} {}", new.version, String::from_utf8_lossy(new.value))
            }
            other => format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
        };
        (told, changed)
    }

    fn value(text: &str, client_flags: u64, expires_at: Option<u64>) -> Changed {
        let value = text.as_bytes().into();
        Changed::Value { value, client_flags, expires_at: expires_at.map(UnixMillis) }
    }

    fn set(text: &str, expiry: Expiry, condition: Condition) -> Op<'_, Rmw<'static>> {
        Op::Set(Set { value: text.as_bytes(), client_flags: 1, expiry, condition })
    }

    #[test]
    fn sets_hold_to_their_conditions_and_expiries() {
        let always = Condition::Always;
        let check = |op, old: Option<&[u8]>, told: &str, changed| {
            assert_eq!(run(op, old), (told.to_owned(), changed));
        };
        let there: Option<&[u8]> = Some(b"x");
        check(set("a", Expiry::Never, always), there, "stored 4", value("a", 1, None));
        check(set("a", Expiry::Keep, always), there, "stored 4", value("a", 1, Some(9_000)));
        let past = Expiry::At(UnixMillis(1_000));
        check(set("a", past, always), there, "stored 4", Changed::Deleted);
        let nothing = Changed::Nothing;
        check(set("a", Expiry::Never, Condition::IfAbsent), there, "NotStored", nothing.clone());
        check(set("a", Expiry::Never, Condition::IfPresent), None, "NotStored", nothing.clone());
        let other = Condition::IfVersion(9);
        check(set("a", Expiry::Never, other), there, "VersionMismatch", nothing.clone());
        check(set("a", Expiry::Never, other), None, "Miss", nothing.clone());
        let same = Condition::IfVersion(3);
        check(set("a", Expiry::Never, same), there, "stored 4", value("a", 1, None));
        check(set("elevenbytes", Expiry::Never, always), None, "TooLarge", nothing);
    }

    #[test]
    fn a_chosen_token_goes_to_all_copies() {
        use commands::rmw::meta::{Guard, MetaStore, Named, NewExpiry};

        let store = MetaStore {
            value: b"v",
            client_flags: 7,
            expiry: NewExpiry::NEVER,
            guard: Guard::None,
            version: 0,
        };
        let named = Named { update: Rmw::MetaStore(store), token: 500 };
        let (told, changed) = run(Op::Update(Rmw::Named(&named)), None);
        assert_eq!(told, "updated 4 v");
        let Changed::Value { value: stored, client_flags, .. } = changed else {
            panic!("not stored");
        };
        let old = Item::of_stored(b"k", &stored, client_flags, 3, None);
        assert_eq!((old.cas(), old.value), (500, &b"v"[..]));
        // A new expiry keeps it, a new value does not.
        let (told, changed) =
            run_on(Op::Update(Rmw::SetExpiry(Some(UnixMillis(5_000)))), Some(old));
        let expires_at = Some(UnixMillis(5_000));
        let touched = Changed::Value { value: stored.clone(), client_flags, expires_at };
        assert_eq!((told.as_str(), changed), ("updated 4 v", touched));
        let cas = |token| set("a", Expiry::Never, Condition::IfToken(token));
        assert_eq!(run_on(cas(500), Some(old)), ("stored 4".to_owned(), value("a", 1, None)));
        assert_eq!(run_on(cas(3), Some(old)).0, "VersionMismatch");
        assert_eq!(run_on(cas(3), None).0, "Miss");
    }

    #[test]
    fn updates_write_touch_delete_and_refuse() {
        let update = |rmw| Op::Update(rmw);
        let (told, changed) = run(update(Rmw::IncrementBy(2)), Some(b"40"));
        assert_eq!((told.as_str(), changed), ("updated 4 42", value("42", 7, Some(9_000))));
        let (told, changed) = run(update(Rmw::IncrementBy(2)), Some(b"x"));
        assert_eq!((told.as_str(), changed), ("Refused", Changed::Nothing));
        let (told, changed) = run(update(Rmw::SetExpiry(Some(UnixMillis(5_000)))), Some(b"x"));
        assert_eq!((told.as_str(), changed), ("updated 4 x", value("x", 7, Some(5_000))));
        let (told, changed) = run(update(Rmw::SetExpiry(Some(UnixMillis(5)))), Some(b"x"));
        assert_eq!((told.as_str(), changed), ("Deleted", Changed::Deleted));
        let (told, changed) = run(update(Rmw::DeleteVersion(3)), Some(b"x"));
        assert_eq!((told.as_str(), changed), ("Deleted", Changed::Deleted));
        let (told, changed) = run(Op::Delete, None);
        assert_eq!((told.as_str(), changed), ("Miss", Changed::Nothing));
    }
}
