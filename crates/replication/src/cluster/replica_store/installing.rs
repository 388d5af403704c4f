//! Installs one entry into the store and into what is remembered of its shard, on the thread that
//! holds the latter.

use std::num::NonZeroU16;
use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use cluster::{Installed, Plain};
use store::{Replica, ReplicaChange, Session};

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
    let Plain { version, key, value, client_flags, expires_at, .. } = *plain;
    let is_flushed = version <= remembered.floor;
    if is_flushed || remembered.version_of(key).is_some_and(|it| it >= version) {
        return Installed::Older;
    }
    let change = match value {
        Some(value) => ReplicaChange::Put { value, client_flags, expires_at },
        None => ReplicaChange::Delete,
    };
    let replica = Replica { key, hash: hash(), change, version: version.bits(), shard: number };
    match session.install(now, &replica) {
        Ok(store::Installed::Newest) => {}
        Ok(store::Installed::Older { .. }) => return Installed::Older,
        Err(_) => return Installed::NoRoom,
    }
    let why = match value {
        None => Why::Deleted,
        Some(_) if expires_at.is_some() => Why::MayExpire,
        Some(_) => Why::Recent,
    };
    remembered.add(key, own_key, version, why);
    Installed::Newest
}
