//! set, add, replace, append, prepend, cas.

use commands::reply::Shape;
use commands::rmw::{Bounded, Rmw, Side};
use counters::MemcachedCommand;
use store::{Condition, Expiry, Op, Set};
use wire::memcached::{Store, StoreVerb, expiry_from_exptime};

use crate::gather::Gather;
use crate::memcached::{caller, request};

/// Runs a storage command.
#[inline]
pub(super) fn run_store<'a>(gather: &mut Gather<'_, 'a>, slot: usize, store: &Store<'a>) {
    let (command, condition) = match store.verb {
        StoreVerb::Set => (MemcachedCommand::Set, Condition::Always),
        StoreVerb::Add => (MemcachedCommand::Add, Condition::IfAbsent),
        StoreVerb::Replace => (MemcachedCommand::Replace, Condition::IfPresent),
        StoreVerb::Cas(version) => (MemcachedCommand::Cas, Condition::IfToken(version)),
        StoreVerb::Append => return join(gather, slot, store, Side::Behind),
        StoreVerb::Prepend => return join(gather, slot, store, Side::Before),
    };
    let caller = caller(gather, slot, command, store.noreply);
    let expires_at = expiry_from_exptime(store.exptime, gather.core.now);
    let set = Set {
        value: store.value,
        client_flags: store.flags.into(),
        expiry: expires_at.map_or(Expiry::Never, Expiry::At),
        condition,
    };
    request(gather, caller, store.key, Op::Set(set), Shape::McStored);
}

fn join<'a>(gather: &mut Gather<'_, 'a>, slot: usize, store: &Store<'a>, side: Side) {
    let command = match side {
        Side::Behind => MemcachedCommand::Append,
        Side::Before => MemcachedCommand::Prepend,
    };
    let caller = caller(gather, slot, command, store.noreply);
    let part = Bounded { bytes: store.value, max_bytes: gather.core.value_max_bytes };
    request(gather, caller, store.key, Op::Update(Rmw::Join(part, side)), Shape::McStored);
    gather.weigh();
}
