//! The fields of each kind of message, written and read side by side.

use std::sync::Arc;

use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader, put_count};
use crate::message::{Contents, Message};

/// Kinds of messages. A number is never reused for another message: a new one takes the next
/// number.
mod kind {
    pub(super) const LEASE: u8 = 1;
    pub(super) const GRANTED: u8 = 2;
    pub(super) const INSTALL: u8 = 3;
    pub(super) const INSTALLED: u8 = 4;
    pub(super) const COMMIT: u8 = 5;
    pub(super) const JOINED: u8 = 6;
    pub(super) const FILLED: u8 = 7;
    pub(super) const ACKED: u8 = 8;
    pub(super) const GATHER: u8 = 9;
    pub(super) const GATHERED: u8 = 10;
    pub(super) const SCATTER: u8 = 11;
    pub(super) const SCATTERED: u8 = 12;
    pub(super) const COPY: u8 = 13;
    pub(super) const COPIED: u8 = 14;
    pub(super) const FETCH: u8 = 15;
    pub(super) const FETCHED: u8 = 16;
    pub(super) const PULL: u8 = 17;
    pub(super) const REQUEST: u8 = 18;
    pub(super) const REPLY: u8 = 19;
    pub(super) const ASK_CONFIGURATION: u8 = 20;
    pub(super) const CONFIGURATION: u8 = 21;
    pub(super) const STATISTICS: u8 = 22;
    pub(super) const FORWARD: u8 = 23;
    pub(super) const FORWARDED: u8 = 24;
    pub(super) const WITHHELD: u8 = 25;
    pub(super) const OVERDUE: u8 = 26;
    pub(super) const CROWDED: u8 = 27;
    pub(super) const ENDING: u8 = 28;
    pub(super) const ENDED: u8 = 29;
}

/// Appends the kind, then the fields in their order.
macro_rules! put {
    ($out:expr, $kind:expr $(, $field:expr)*) => {{
        $out.push($kind);
        $($field.put($out);)*
    }};
}

/// Appends everything except the bytes of a forward, which end the message and are returned.
pub(super) fn put<'a>(message: &'a Message, out: &mut Vec<u8>) -> Option<&'a Arc<[u8]>> {
    match message {
        Message::Forward { id, bytes } => {
            put!(out, kind::FORWARD, id);
            put_count(bytes.len(), out);
            return Some(bytes);
        }
        Message::Forwarded { id, bytes } => {
            put!(out, kind::FORWARDED, id, bytes.is_some());
            bytes.iter().for_each(|bytes| put_count(bytes.len(), out));
            return bytes.as_ref();
        }
        Message::Lease { sent_at, term, recovered, addresses } => {
            put!(out, kind::LEASE, sent_at, term, recovered, addresses);
        }
        Message::Granted { sent_at, term, is_committed } => {
            put!(out, kind::GRANTED, sent_at, term, is_committed);
        }
        Message::Ending { is_settled } => put!(out, kind::ENDING, is_settled),
        Message::Ended => put!(out, kind::ENDED),
        Message::Install(configuration) => put!(out, kind::INSTALL, configuration),
        Message::Installed { term } => put!(out, kind::INSTALLED, term),
        Message::Commit { term } => put!(out, kind::COMMIT, term),
        Message::Joined { term, shard, node } => put!(out, kind::JOINED, term, shard, node),
        Message::Filled { term, shard } => put!(out, kind::FILLED, term, shard),
        Message::Withheld { term, shard } => put!(out, kind::WITHHELD, term, shard),
        Message::Crowded { term, shard } => put!(out, kind::CROWDED, term, shard),
        Message::Overdue { term, shard, node } => put!(out, kind::OVERDUE, term, shard, node),
        Message::Statistics { term, window_ns, shards } => {
            put!(out, kind::STATISTICS, term, window_ns, shards);
        }
        Message::Request(request) => put!(out, kind::REQUEST, request),
        Message::Reply { sequence, outcome } => put!(out, kind::REPLY, sequence, outcome),
        Message::AskConfiguration => put!(out, kind::ASK_CONFIGURATION),
        Message::Configuration(configuration) => put!(out, kind::CONFIGURATION, configuration),
        Message::Acked { term, blocks } => put!(out, kind::ACKED, term, blocks),
        Message::Gather { term, shard } => put!(out, kind::GATHER, term, shard),
        Message::Gathered { term, shard, contents } => {
            put!(out, kind::GATHERED, term, shard, contents);
        }
        Message::Scatter { term, shard, contents } => {
            put!(out, kind::SCATTER, term, shard, contents);
        }
        Message::Scattered { term, shard } => put!(out, kind::SCATTERED, term, shard),
        Message::Copy { term, shard, part, contents, next } => {
            put!(out, kind::COPY, term, shard, part, contents, next);
        }
        Message::Copied { term, shard, part } => put!(out, kind::COPIED, term, shard, part),
        Message::Fetch { term, shard, key } => put!(out, kind::FETCH, term, shard, key),
        Message::Fetched { term, shard, key, entry } => {
            put!(out, kind::FETCHED, term, shard, key, entry);
        }
        Message::Pull { term, shard, part, cursor } => {
            put!(out, kind::PULL, term, shard, part, cursor);
        }
    }
    None
}

pub(super) fn get(from: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let unknown = from.damaged();
    Ok(match from.byte()? {
        kind::LEASE => {
            let (sent_at, term) = (from.get()?, from.get()?);
            Message::Lease { sent_at, term, recovered: from.get()?, addresses: from.get()? }
        }
        kind::GRANTED => {
            Message::Granted { sent_at: from.get()?, term: from.get()?, is_committed: from.get()? }
        }
        kind::ENDING => Message::Ending { is_settled: from.get()? },
        kind::ENDED => Message::Ended,
        kind::INSTALL => Message::Install(from.get()?),
        kind::INSTALLED => Message::Installed { term: from.get()? },
        kind::COMMIT => Message::Commit { term: from.get()? },
        kind::JOINED => {
            Message::Joined { term: from.get()?, shard: from.get()?, node: from.get()? }
        }
        kind::FILLED => Message::Filled { term: from.get()?, shard: from.get()? },
        kind::WITHHELD => Message::Withheld { term: from.get()?, shard: from.get()? },
        kind::CROWDED => Message::Crowded { term: from.get()?, shard: from.get()? },
        kind::OVERDUE => {
            Message::Overdue { term: from.get()?, shard: from.get()?, node: from.get()? }
        }
        kind::STATISTICS => {
            let (term, window_ns) = (from.get()?, from.get()?);
            Message::Statistics { term, window_ns, shards: from.get()? }
        }
        kind::REQUEST => Message::Request(from.get()?),
        kind::REPLY => Message::Reply { sequence: from.get()?, outcome: from.get()? },
        kind::ASK_CONFIGURATION => Message::AskConfiguration,
        kind::CONFIGURATION => Message::Configuration(from.get()?),
        kind::FORWARD => Message::Forward { id: from.get()?, bytes: from.get()? },
        kind::FORWARDED => Message::Forwarded { id: from.get()?, bytes: from.get()? },
        other => return get_between_nodes(other, from, unknown),
    })
}

fn get_between_nodes(
    kind: u8,
    from: &mut Reader<'_>,
    unknown: DecodeError,
) -> Result<Message, DecodeError> {
    if !(kind::ACKED..=kind::PULL).contains(&kind) {
        return Err(unknown);
    }
    let term = from.get()?;
    if kind == kind::ACKED {
        return Ok(Message::Acked { term, blocks: from.get()? });
    }
    let shard = from.get()?;
    Ok(match kind {
        kind::GATHER => Message::Gather { term, shard },
        kind::GATHERED => Message::Gathered { term, shard, contents: from.get()? },
        kind::SCATTER => Message::Scatter { term, shard, contents: from.get()? },
        kind::SCATTERED => Message::Scattered { term, shard },
        kind::COPY => {
            let (part, contents): (u64, Contents) = (from.get()?, from.get()?);
            Message::Copy { term, shard, part, contents, next: from.get()? }
        }
        kind::COPIED => Message::Copied { term, shard, part: from.get()? },
        kind::FETCH => Message::Fetch { term, shard, key: from.get()? },
        kind::FETCHED => {
            let key: Arc<[u8]> = from.get()?;
            Message::Fetched { term, shard, key, entry: from.get()? }
        }
        kind::PULL => Message::Pull { term, shard, part: from.get()?, cursor: from.get()? },
        _ => return Err(unknown),
    })
}
