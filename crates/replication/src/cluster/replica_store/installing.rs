//! Installs one entry into the store and into what is remembered of its shard, on the thread that
//! holds the latter.

use std::num::NonZeroU16;
use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use cluster::record::Entry;
use cluster::{Installed, Plain};
use store::{NotInstalled, Replica, ReplicaChange, Session};

use super::remembered::{Remembered, Why};

/// Makes an entry the state of its key, unless a newer one is known. `own_key`: the key, if the
/// caller has it in an `Arc` already. The hash is computed only if it is needed.
pub(super) fn install_in(
    session: &mut Session,
    now: UnixMillis,
    remembered: &mut Remembered,
    (plain, number): (&Plain<'_>, NonZeroU16),
    own_key: Option<&Arc<[u8]>>,
    hash: impl FnOnce() -> KeyHash,
) -> Installed {
    if !is_newer(remembered, plain) {
        return Installed::Older;
    }
    let installed = session.install(now, &replica_of(plain, number, hash()));
    remember(remembered, plain, own_key, installed)
}

/// The same for entries of several keys of one shard, in their order: readers see all of them or
/// none. Whether there was no room for one.
pub(super) fn install_all_in(
    session: &mut Session,
    now: UnixMillis,
    remembered: &mut Remembered,
    (entries, number): (&[Arc<Entry>], NonZeroU16),
    hash: impl Fn(&[u8]) -> KeyHash,
) -> bool {
    let newer = entries.iter().filter(|entry| is_newer(remembered, &entry.as_plain()));
    let newer: Vec<Plain<'_>> = newer.map(|entry| entry.as_plain()).collect();
    let replica_of = |plain| replica_of(plain, number, hash(plain.key));
    let replicas: Vec<Replica<'_>> = newer.iter().map(replica_of).collect();
    let mut is_full = false;
    session.install_all(now, &replicas, |index, installed| {
        let installed = remember(remembered, &newer[index], None, installed);
        is_full |= installed == Installed::NoRoom;
    });
    is_full
}

fn is_newer(remembered: &Remembered, plain: &Plain<'_>) -> bool {
    let is_flushed = plain.version <= remembered.floor;
    !is_flushed && remembered.version_of(plain.key).is_none_or(|it| it < plain.version)
}

fn replica_of<'p>(plain: &Plain<'p>, number: NonZeroU16, hash: KeyHash) -> Replica<'p> {
    let Plain { version, key, value, client_flags, expires_at, .. } = *plain;
    let change = match value {
        Some(value) => ReplicaChange::Put { value, client_flags, expires_at },
        None => ReplicaChange::Delete,
    };
    Replica { key, hash, change, version: version.bits(), shard: number }
}

/// Notes the new state of a key, if the store has taken it.
fn remember(
    remembered: &mut Remembered,
    plain: &Plain<'_>,
    own_key: Option<&Arc<[u8]>>,
    installed: Result<store::Installed, NotInstalled>,
) -> Installed {
    match installed {
        Ok(store::Installed::Newest) => {}
        Ok(store::Installed::Older { .. }) => return Installed::Older,
        Err(_) => return Installed::NoRoom,
    }
    let why = match plain.value {
        None => Why::Deleted,
        Some(_) if plain.expires_at.is_some() => Why::MayExpire,
        Some(_) => Why::Recent,
    };
    remembered.add(plain.key, own_key, plain.version, why);
    Installed::Newest
}
