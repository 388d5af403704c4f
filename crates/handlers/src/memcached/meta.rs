//! mg, ms, md, ma and me as requests of the store.

use commands::reply::{MetaKind, MetaShape, Shape};
use commands::rmw::meta::{
    Guard, MetaCount, MetaGet, MetaInvalidate, MetaJoin, MetaStore, Named, NewExpiry, Regard,
};
use commands::rmw::{Rmw, Side};
use counters::{CommandIndex, MemcachedCommand, MetaForm};
use store::{Condition, Expiry, Op, Set};
use wire::memcached::{
    Meta, MetaEcho, MetaFlags, MetaMode, MetaVerb, Rejection, expiry_from_exptime, meta::base64,
};

use super::Caller;
use crate::gather::Gather;
use crate::memcached::{caller, request, request_update};

/// A parsed meta command.
#[derive(Clone, Copy)]
struct Asked<'a> {
    meta: Meta<'a>,
    flags: MetaFlags,
    kind: MetaKind,
}

impl Asked<'_> {
    /// The form, if it is counted apart.
    fn form(&self) -> Option<MetaForm> {
        let flags = &self.flags;
        let (is_made, is_touched) = (flags.vivify.is_some(), flags.exptime.is_some());
        match self.kind {
            MetaKind::Get => match (is_made, is_touched) {
                (false, false) => None,
                (false, true) => Some(MetaForm::Touch),
                (true, false) => Some(MetaForm::Make),
                (true, true) => Some(MetaForm::MakeAndTouch),
            },
            MetaKind::Set => match flags.mode {
                MetaMode::Add | MetaMode::Append | MetaMode::Prepend => None,
                _ => flags.version.map(|_| MetaForm::Compare),
            },
            MetaKind::Delete => flags.invalidates.then_some(MetaForm::Invalidate),
            MetaKind::Count => match (is_made, flags.mode) {
                (false, MetaMode::Decrease) => Some(MetaForm::Decrease),
                (true, MetaMode::Decrease) => Some(MetaForm::DecreaseOrMake),
                (true, _) => Some(MetaForm::IncreaseOrMake),
                (false, _) => None,
            },
            MetaKind::Debug => None,
        }
    }
}

/// Runs a meta command.
pub(super) fn run_meta<'a>(gather: &mut Gather<'_, 'a>, slot: usize, meta: Meta<'a>) {
    let (command, kind) = match meta.verb {
        MetaVerb::Get => (MemcachedCommand::Mg, MetaKind::Get),
        MetaVerb::Set => (MemcachedCommand::Ms, MetaKind::Set),
        MetaVerb::Delete => (MemcachedCommand::Md, MetaKind::Delete),
        MetaVerb::Arithmetic => (MemcachedCommand::Ma, MetaKind::Count),
        MetaVerb::Debug => (MemcachedCommand::Me, MetaKind::Debug),
    };
    let mut caller = caller(gather, slot, command, false);
    let asked = Asked { meta, flags: meta.flags(), kind };
    if let Some(form) = asked.form() {
        caller.index = CommandIndex::form(form);
        gather.core.counters().command(caller.index).calls.add(1);
    }
    let key = meta.decoded_key();
    if key.is_none() && asked.flags.new_version.is_none() {
        let op = meta_op(gather, &asked);
        return ask_meta(gather, caller, asked, (meta.key, false), op);
    }
    // A decoded key has to live until the command is executed.
    let (is_base64, key) = (key.is_some(), key.as_deref().unwrap_or(meta.key));
    let mut op = meta_op(gather, &asked);
    let mut named = None;
    if let (Op::Update(update), Some(token)) = (op, asked.flags.new_version) {
        op = Op::Update(Rmw::Named(named.insert(Named { update, token })));
    }
    let mut apart = gather.apart();
    ask_meta(&mut apart, caller, asked, (key, is_base64), op);
    apart.flush();
}

/// Deletes what a refused ms would have replaced.
pub(super) fn delete_refused<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    rejection: &Rejection<'a>,
) {
    let Some(key) = rejection.delete_key else { return };
    if !rejection.is_key_base64 {
        return request(gather, caller, key, Op::Delete, Shape::McNothing);
    }
    // It was decodable, or the command would have been refused for that.
    let Some(key) = base64::decode(key) else { return };
    let mut apart = gather.apart();
    request(&mut apart, caller, &key, Op::Delete, Shape::McNothing);
    apart.flush();
}

fn ask_meta<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    asked: Asked<'a>,
    (key, is_base64): (&'a [u8], bool),
    op: Op<'a, Rmw<'a>>,
) {
    let Asked { meta, flags, kind } = asked;
    let notes = gather.fresh_notes();
    let note_start = notes.len();
    let with_version = flags.with_version || flags.version.is_some();
    let token_base = match kind {
        MetaKind::Set if with_version => store::token_base(key),
        _ => 0,
    };
    MetaEcho::note((meta.verb, meta.words), (key, is_base64), token_base, notes);
    let shape = MetaShape {
        kind,
        with_value: flags.with_value && kind == MetaKind::Get,
        with_version,
        is_quiet: flags.is_quiet,
        // A batch has few notes, each at most as long as a line and a key.
        note_start: note_start as u32,
        note_len: (notes.len() - note_start) as u16,
    };
    request_update(gather, caller, key, op, Shape::Meta(shape));
}

fn meta_op<'a>(gather: &Gather<'_, 'a>, asked: &Asked<'a>) -> Op<'a, Rmw<'a>> {
    let Asked { meta, flags, kind } = asked;
    let time = |exptime: Option<i64>| match exptime {
        None => NewExpiry::KEPT,
        Some(exptime) => NewExpiry::at(expiry_from_exptime(exptime, gather.core.now)),
    };
    let vivify = match flags.is_touched_last {
        true => time(flags.exptime),
        false => time(flags.vivify),
    };
    match kind {
        MetaKind::Debug if gather.core.shared.store().notes_use() => {
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
        MetaKind::Set => meta_set(gather, meta.value, flags),
        MetaKind::Delete if flags.invalidates || flags.removes_value => {
            Op::Update(Rmw::MetaInvalidate(MetaInvalidate {
                version: flags.version,
                touch: time(flags.exptime),
                makes_stale: flags.invalidates,
                removes_value: flags.removes_value,
            }))
        }
        MetaKind::Delete => match flags.version {
            Some(version) => Op::Update(Rmw::DeleteToken(version)),
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

fn meta_set<'a>(gather: &Gather<'_, 'a>, value: &'a [u8], flags: &MetaFlags) -> Op<'a, Rmw<'a>> {
    let time = |exptime: i64| expiry_from_exptime(exptime, gather.core.now);
    let expires_at = time(flags.exptime.unwrap_or(0));
    let join = |side| {
        let join = MetaJoin {
            bytes: value,
            // At most 512 MiB.
            max_bytes: u32::try_from(gather.core.value_max_bytes).unwrap_or(u32::MAX),
            version: flags.version.unwrap_or(0),
            vivify: flags.vivify.map_or(NewExpiry::KEPT, |it| NewExpiry::at(time(it))),
            client_flags: flags.client_flags,
        };
        Op::Update(match side {
            Side::Behind => Rmw::MetaAppend(join),
            Side::Before => Rmw::MetaPrepend(join),
        })
    };
    let guard = match (flags.mode, flags.version) {
        (MetaMode::Append, _) => return join(Side::Behind),
        (MetaMode::Prepend, _) => return join(Side::Before),
        (MetaMode::Add, _) => Guard::Absent,
        (_, Some(_)) if flags.invalidates => Guard::SameOrOlderToken,
        (_, Some(_)) => Guard::SameToken,
        (MetaMode::Replace, None) => Guard::Present,
        (MetaMode::Usual | MetaMode::Decrease, None) => Guard::None,
    };
    let version = flags.version.unwrap_or(0);
    let condition = match guard {
        Guard::None => Condition::Always,
        Guard::Absent => Condition::IfAbsent,
        Guard::Present => Condition::IfPresent,
        Guard::SameToken | Guard::SameOrOlderToken => Condition::IfToken(version),
    };
    if guard == Guard::SameOrOlderToken || flags.new_version.is_some() {
        let (client_flags, expiry) = (flags.client_flags, NewExpiry::at(expires_at));
        let store = MetaStore { value, client_flags, expiry, guard, version };
        return Op::Update(Rmw::MetaStore(store));
    }
    Op::Set(Set {
        value,
        client_flags: flags.client_flags.into(),
        expiry: expires_at.map_or(Expiry::Never, Expiry::At),
        condition,
    })
}
