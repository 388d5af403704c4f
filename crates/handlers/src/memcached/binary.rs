//! memcached's binary protocol on the store: the same requests, batches and routes as the text
//! protocol.
//!
//! # Invariants
//! I1: a connection speaks binary if its first byte is the magic, and then never another protocol.
//! I2: the silence of quiet requests is decided here: only a request's shape knows its outcome, so
//!     that no request is quiet to the batch.

use commands::reply::{BinaryShape, Shape};
use commands::rmw::meta::{MetaCount, MetaJoin, NewExpiry};
use commands::rmw::{Bounded, Rmw, Side};
use counters::MemcachedCommand;
use runtime::connection::{Connection, Ending, Framing, ProtocolState};
use sessions::doors::Door;
use store::{Condition, Expiry, Op, Set};
use wire::Parsed;
use wire::memcached::binary::{
    Access, Encoder, HEADER_BYTES, Head, REQUEST_MAGIC, Refusal, Request, Rules, Status, Verb,
    next_request,
};
use wire::memcached::expiry_from_exptime;

use super::MEMCACHED_VERSION;
use crate::gather::Fed;
use crate::gather::Gather;
use crate::memcached::auth::sasl;
use crate::memcached::pace::is_long_binary;
use crate::memcached::stats::binary_stats;
use crate::memcached::{caller, flush_at, request, request_update, swallow};

/// Whether a connection speaks binary; its first byte decides.
#[cold]
pub(super) fn is_binary(gather: &mut Gather<'_, '_>, slot: usize, input: &[u8]) -> bool {
    let protocol_state = gather.core.connections[slot].memcached();
    if let (Framing::Undecided, Some(first)) = (protocol_state.framing, input.first()) {
        let is_binary = *first == REQUEST_MAGIC;
        protocol_state.framing = if is_binary { Framing::Binary } else { Framing::Text };
    }
    protocol_state.framing == Framing::Binary
}

/// Runs as many requests from the front of `input` as may run now.
pub(super) fn feed_binary<'a>(gather: &mut Gather<'_, 'a>, slot: usize, input: &'a [u8]) -> Fed {
    let value_max_bytes = usize::try_from(gather.core.value_max_bytes).unwrap_or(usize::MAX);
    let has_auth = gather.core.doors.of(Door::Memcached).asks_login();
    let mut at = 0;
    loop {
        at += swallow(gather, slot, &input[at..]);
        if at == input.len() || !gather.may_parse(slot) {
            return Fed::up_to(at, 0);
        }
        let access = match gather.core.connections[slot].memcached().needs_auth {
            true => Access::Stranger,
            false if has_auth => Access::Known,
            false => Access::Free,
        };
        match next_request(&input[at..], &Rules { value_max_bytes, access }) {
            Parsed::Done { value, consumed_bytes } => {
                let is_on_one_key = value.as_ref().is_ok_and(|it| it.verb.is_on_one_key());
                if gather.routes() && !gather.enter(slot, is_on_one_key) {
                    return Fed::up_to(at, 0);
                }
                if gather.routes() {
                    gather.only_reads &= value.as_ref().is_ok_and(|it| is_plain_read(it.verb));
                }
                let is_long = |gather: &mut Gather<'_, 'a>| {
                    value.as_ref().is_ok_and(|it| is_long_binary(gather, slot, it))
                };
                if gather.waits_behind_others(slot, consumed_bytes, is_long) {
                    return Fed::up_to(at, 0);
                }
                at += consumed_bytes;
                match value {
                    Ok(request) => binary(gather, slot, &request),
                    Err(refusal) => refuse_binary(gather, slot, &refusal),
                }
            }
            Parsed::NeedMore { at_least_bytes } => {
                return Fed::up_to(at, at_least_bytes);
            }
            Parsed::Bad(_) => {
                gather.core.counters().protocol_errors.add(1);
                gather.core.connections[slot].memcached().is_garbled = true;
                gather.core.connections[slot].ending = Ending::AfterFlush;
                return Fed::up_to(input.len(), 0);
            }
        }
    }
}

/// A response that does not come from the batch.
pub(super) fn binary_say(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    head: Head,
    encode: impl FnOnce(&mut Encoder<'_>),
) {
    gather.reply_to(slot, |out| encode(&mut Encoder::new(out, head)));
}

/// An error response with a status and its text.
pub(super) fn binary_refuse(gather: &mut Gather<'_, '_>, slot: usize, head: Head, status: Status) {
    binary_say(gather, slot, head, |to| to.refuse(status));
}

fn refuse_binary<'a>(gather: &mut Gather<'_, 'a>, slot: usize, refusal: &Refusal<'a>) {
    let caller = caller(gather, slot, MemcachedCommand::Unknown, false);
    gather.core.counters().command(caller.index).errors.add(1);
    let is_too_large = refusal.status == Status::TooLarge;
    gather.core.counters().oversized_commands.add(u64::from(is_too_large));
    binary_refuse(gather, slot, refusal.head, refusal.status);
    if let Some(key) = refusal.delete_key {
        request(gather, caller, key, Op::Delete, Shape::McNothing);
    }
    gather.core.connections[slot].input.skip_bytes += refusal.swallow_bytes;
    if refusal.closes {
        gather.core.connections[slot].ending = Ending::AfterFlush;
    }
}

fn binary<'a>(gather: &mut Gather<'_, 'a>, slot: usize, request: &Request<'a>) {
    let Some(command) = command_of(request) else {
        return binary_rare(gather, slot, request);
    };
    let caller = caller(gather, slot, command, false);
    let op = binary_op(gather, request);
    let shape = binary_shape(gather, request);
    request_update(gather, caller, request.key, op, Shape::Binary(shape));
}

fn binary_flush<'a>(gather: &mut Gather<'_, 'a>, slot: usize, request: &Request<'a>) {
    let Request { head, is_quiet, .. } = *request;
    caller(gather, slot, MemcachedCommand::FlushAll, is_quiet);
    if let Err(why) = flush_at(gather, slot, request.exptime()) {
        let is_failed = matches!(why, wire::memcached::Reply::LogFailed);
        let status = if is_failed { Status::Internal } else { Status::Temporary };
        binary_refuse(gather, slot, head, status);
    } else if !is_quiet {
        binary_say(gather, slot, head, |to| to.done(0));
    }
}

/// Requests on no key, or on all keys.
fn binary_rare<'a>(gather: &mut Gather<'_, 'a>, slot: usize, request: &Request<'a>) {
    let Request { head, is_quiet, .. } = *request;
    match request.verb {
        Verb::Stat => gather.on_the_clock(|gather| binary_stats(gather, slot, request)),
        Verb::ListMechanisms | Verb::Authenticate | Verb::Step => sasl(gather, slot, request),
        Verb::Version => {
            caller(gather, slot, MemcachedCommand::Version, false);
            binary_say(gather, slot, head, |to| to.text(MEMCACHED_VERSION));
        }
        Verb::Flush => gather.on_the_clock(|gather| binary_flush(gather, slot, request)),
        Verb::Quit => {
            caller(gather, slot, MemcachedCommand::Quit, is_quiet);
            gather.settle(slot);
            if !is_quiet {
                binary_say(gather, slot, head, |to| to.done(0));
            }
            gather.core.connections[slot].ending = Ending::AfterFlush;
        }
        _ => {
            caller(gather, slot, MemcachedCommand::Noop, false);
            binary_say(gather, slot, head, |to| to.done(0));
        }
    }
}

fn binary_shape<'a>(gather: &mut Gather<'_, 'a>, request: &Request<'a>) -> BinaryShape {
    let head = request.head;
    let shape = |note_start: usize, note_len: usize| BinaryShape {
        head,
        // A batch has few notes, each at most as long as a key.
        note_start: note_start as u32,
        note_len: note_len as u8,
    };
    let initial = request.initial().unwrap_or(0).to_be_bytes();
    let token_base;
    let note = match request.verb {
        Verb::Set | Verb::Add | Verb::Replace if !request.is_quiet => {
            token_base = store::token_base(request.key).to_be_bytes();
            &token_base[..]
        }
        Verb::GetKey | Verb::GetKeyAndTouch if !request.is_quiet => request.key,
        Verb::Increment | Verb::Decrement => &initial,
        _ => return shape(0, 0),
    };
    let notes = gather.fresh_notes();
    let start = notes.len();
    notes.extend_from_slice(note);
    shape(start, note.len())
}

fn binary_op<'a>(gather: &Gather<'_, 'a>, request: &Request<'a>) -> Op<'a, Rmw<'a>> {
    let expires_at = || expiry_from_exptime(request.exptime(), gather.core.now);
    match request.verb {
        Verb::Set | Verb::Add | Verb::Replace => Op::Set(Set {
            value: request.value,
            client_flags: request.flags().into(),
            expiry: expires_at().map_or(Expiry::Never, Expiry::At),
            condition: match (request.verb, request.cas) {
                (Verb::Set, 0) => Condition::Always,
                (Verb::Add, 0) => Condition::IfAbsent,
                (_, 0) => Condition::IfPresent,
                (_, cas) => Condition::IfToken(cas),
            },
        }),
        Verb::Append => binary_join(gather, request, Side::Behind),
        Verb::Prepend => binary_join(gather, request, Side::Before),
        Verb::Delete if request.cas == 0 => Op::Delete,
        Verb::Delete => Op::Update(Rmw::DeleteToken(request.cas)),
        Verb::Touch | Verb::GetAndTouch | Verb::GetKeyAndTouch => {
            Op::Update(Rmw::SetExpiry(expires_at()))
        }
        Verb::Increment | Verb::Decrement => {
            let initial = request.initial();
            let count = MetaCount {
                delta: request.delta(),
                version: request.cas,
                vivify: initial.map_or(NewExpiry::KEPT, |_| NewExpiry::at(expires_at())),
                initial: initial.unwrap_or(0),
                touch: NewExpiry::KEPT,
            };
            Op::Update(match request.verb {
                Verb::Decrement => Rmw::MetaDecrease(count),
                _ => Rmw::MetaIncrease(count),
            })
        }
        _ => Op::Get,
    }
}

fn binary_join<'a>(gather: &Gather<'_, 'a>, request: &Request<'a>, side: Side) -> Op<'a, Rmw<'a>> {
    let (bytes, max_bytes) = (request.value, gather.core.value_max_bytes);
    if request.cas == 0 {
        return Op::Update(Rmw::Join(Bounded { bytes, max_bytes }, side));
    }
    let join = MetaJoin {
        bytes,
        // At most 512 MiB.
        max_bytes: u32::try_from(max_bytes).unwrap_or(u32::MAX),
        version: request.cas,
        vivify: NewExpiry::KEPT,
        client_flags: 0,
    };
    Op::Update(match side {
        Side::Behind => Rmw::MetaAppend(join),
        Side::Before => Rmw::MetaPrepend(join),
    })
}

/// Whether a request changes nothing, so that it may run twice.
fn is_plain_read(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::GetKey | Verb::Noop | Verb::Version)
}

/// The command that a request on a key is counted as; None: it is on no key.
fn command_of(request: &Request<'_>) -> Option<MemcachedCommand> {
    Some(match request.verb {
        Verb::Get | Verb::GetKey => MemcachedCommand::Get,
        Verb::Touch => MemcachedCommand::Touch,
        Verb::GetAndTouch | Verb::GetKeyAndTouch => MemcachedCommand::Gat,
        Verb::Set | Verb::Add | Verb::Replace if request.cas != 0 => MemcachedCommand::Cas,
        Verb::Set => MemcachedCommand::Set,
        Verb::Add => MemcachedCommand::Add,
        Verb::Replace => MemcachedCommand::Replace,
        Verb::Append => MemcachedCommand::Append,
        Verb::Prepend => MemcachedCommand::Prepend,
        Verb::Delete => MemcachedCommand::Delete,
        Verb::Increment => MemcachedCommand::Incr,
        Verb::Decrement => MemcachedCommand::Decr,
        _ => return None,
    })
}

/// The response to a request on a binary connection whose rest cannot be read.
pub fn unfinished(connection: &Connection) -> Option<Vec<u8>> {
    let ProtocolState::Memcached(protocol_state) = &connection.protocol_state else { return None };
    let header = connection.input.held.first_chunk::<HEADER_BYTES>()?;
    let [_, opcode, _, _, _, _, _, _, _, _, _, _, o0, o1, o2, o3, ..] = *header;
    let head = Head { opcode, opaque: [o0, o1, o2, o3] };
    (protocol_state.framing == Framing::Binary).then(|| {
        let mut out = Vec::new();
        Encoder::new(&mut out, head)
            .refuse_with(Status::OutOfMemory, "Out of memory reading request");
        out
    })
}
