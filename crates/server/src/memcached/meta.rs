//! mg, ms, md, ma and me as requests of the store.

use store::{Condition, Expiry, Op, Set};
use wire::memcached::{
    Meta, MetaEcho, MetaFlags, MetaMode, MetaVerb, Rejection, expiry_from_exptime, meta::base64,
};

use super::Caller;
use crate::counters::MemcachedCommand;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::reply::{MetaKind, MetaShape, Shape};
use crate::rmw::meta::{
    MetaCount, MetaGet, MetaInvalidate, MetaJoin, MetaStore, NewExpiry, Regard,
};
use crate::rmw::{Rmw, Side};

/// A meta command that is read.
#[derive(Clone, Copy)]
struct Asked<'a> {
    meta: Meta<'a>,
    flags: MetaFlags,
    kind: MetaKind,
}

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs a meta command.
    pub(super) fn meta(&mut self, slot: usize, meta: Meta<'a>) {
        let (command, kind) = match meta.verb {
            MetaVerb::Get => (MemcachedCommand::Mg, MetaKind::Get),
            MetaVerb::Set => (MemcachedCommand::Ms, MetaKind::Set),
            MetaVerb::Delete => (MemcachedCommand::Md, MetaKind::Delete),
            MetaVerb::Arithmetic => (MemcachedCommand::Ma, MetaKind::Count),
            MetaVerb::Debug => (MemcachedCommand::Me, MetaKind::Debug),
        };
        let caller = self.caller(slot, command, false);
        let asked = Asked { meta, flags: meta.flags(), kind };
        match meta.decoded_key() {
            None => self.ask_meta(caller, asked, meta.key, false),
            Some(key) => {
                let mut apart = self.apart();
                apart.ask_meta(caller, asked, &key, true);
                apart.flush();
            }
        }
    }

    /// Deletes what a refused ms would have replaced.
    pub(super) fn delete_refused(&mut self, caller: Caller, rejection: &Rejection<'a>) {
        let Some(key) = rejection.delete_key else { return };
        if !rejection.is_key_base64 {
            return self.request(caller, key, Op::Delete, Shape::McNothing);
        }
        // It could be read, or the command would have been refused for that.
        let Some(key) = base64::decode(key) else { return };
        let mut apart = self.apart();
        apart.request(caller, &key, Op::Delete, Shape::McNothing);
        apart.flush();
    }

    fn ask_meta(&mut self, caller: Caller, asked: Asked<'a>, key: &'a [u8], is_base64: bool) {
        let Asked { meta, flags, kind } = asked;
        let op = self.meta_op(&asked);
        let notes = self.fresh_notes();
        let note_start = notes.len();
        MetaEcho::note(meta.verb, meta.words, key, is_base64, notes);
        let shape = MetaShape {
            kind,
            with_value: flags.with_value && kind == MetaKind::Get,
            with_version: flags.with_version || flags.version.is_some(),
            is_quiet: flags.is_quiet,
            // A batch has few notes, each at most as long as a line and a key.
            note_start: note_start as u32,
            note_len: (notes.len() - note_start) as u16,
        };
        self.request(caller, key, op, Shape::Meta(shape));
    }

    fn meta_op(&self, asked: &Asked<'a>) -> Op<'a, Rmw<'a>> {
        let Asked { meta, flags, kind } = asked;
        let time = |exptime: Option<i64>| match exptime {
            None => NewExpiry::KEPT,
            Some(exptime) => NewExpiry::at(expiry_from_exptime(exptime, self.core.now)),
        };
        let vivify = match flags.is_touched_last {
            true => time(flags.exptime),
            false => time(flags.vivify),
        };
        match kind {
            MetaKind::Debug if self.core.shared.store().notes_use() => {
                Op::Update(Rmw::MetaGet(MetaGet::LOOK))
            }
            MetaKind::Debug => Op::Get,
            MetaKind::Get => Op::Update(Rmw::MetaGet(MetaGet {
                vivify,
                touch: time(flags.exptime),
                recache: time(flags.recache),
                is_touched_first: flags.is_touched_first,
                regard: if flags.is_unnoted { Regard::Unnoted } else { Regard::Read },
            })),
            MetaKind::Set => self.meta_set(meta.value, flags),
            MetaKind::Delete if flags.invalidates || flags.removes_value => {
                Op::Update(Rmw::MetaInvalidate(MetaInvalidate {
                    version: flags.version,
                    touch: time(flags.exptime),
                    makes_stale: flags.invalidates,
                    removes_value: flags.removes_value,
                }))
            }
            MetaKind::Delete => match flags.version {
                Some(version) => Op::Update(Rmw::DeleteVersion(version)),
                None => Op::Delete,
            },
            MetaKind::Count => {
                let count = MetaCount {
                    delta: flags.delta,
                    version: flags.version.unwrap_or(0),
                    vivify,
                    initial: flags.initial,
                    touch: time(flags.exptime),
                };
                Op::Update(match flags.mode {
                    MetaMode::Decrease => Rmw::MetaDecrease(count),
                    _ => Rmw::MetaIncrease(count),
                })
            }
        }
    }

    fn meta_set(&self, value: &'a [u8], flags: &MetaFlags) -> Op<'a, Rmw<'a>> {
        let time = |exptime: i64| expiry_from_exptime(exptime, self.core.now);
        let expires_at = time(flags.exptime.unwrap_or(0));
        let join = |side| {
            let join = MetaJoin {
                bytes: value,
                // At most 512 MiB.
                max_bytes: u32::try_from(self.core.value_max_bytes).unwrap_or(u32::MAX),
                version: flags.version.unwrap_or(0),
                vivify: flags.vivify.map_or(NewExpiry::KEPT, |it| NewExpiry::at(time(it))),
                client_flags: flags.client_flags,
            };
            Op::Update(match side {
                Side::Behind => Rmw::MetaAppend(join),
                Side::Before => Rmw::MetaPrepend(join),
            })
        };
        let condition = match (flags.mode, flags.version) {
            (MetaMode::Append, _) => return join(Side::Behind),
            (MetaMode::Prepend, _) => return join(Side::Before),
            (MetaMode::Add, _) => Condition::IfAbsent,
            (_, Some(version)) if flags.invalidates => {
                let (client_flags, expiry) = (flags.client_flags, NewExpiry::at(expires_at));
                let store = MetaStore { value, client_flags, expiry, version };
                return Op::Update(Rmw::MetaStore(store));
            }
            (_, Some(version)) => Condition::IfVersion(version),
            (MetaMode::Replace, None) => Condition::IfPresent,
            (MetaMode::Usual | MetaMode::Decrease, None) => Condition::Always,
        };
        Op::Set(Set {
            value,
            client_flags: flags.client_flags.into(),
            expiry: expires_at.map_or(Expiry::Never, Expiry::At),
            condition,
        })
    }
}
