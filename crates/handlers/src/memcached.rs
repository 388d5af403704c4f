//! memcached's commands on the store: text and meta commands here, binary ones in [`binary`].
//!
//! Both ports serve the same keys: a value written by a Redis client has flags 0 here.

mod administration;
mod auth;
pub mod binary;
mod dump;
mod meta;
mod pace;
pub mod several;
mod stats;
mod storage;
pub mod udp;

use base::UnixMillis;
use commands::reply::{Answer, Shape};
use commands::rmw::{Rmw, copies_value};
use commands::work::Work;
use counters::{CommandIndex, MemcachedCommand};
use replication::replicate::GroupAnswer;
use runtime::connection::{Ending, Framing};
use sessions::end::End;
use store::{KEY_LEN_MAX_BYTES, Op};
use wire::Parsed;
use wire::memcached::{
    Arithmetic, Command, Encoder, Limits, MetaVerb, Rejection, Reply, Retrieve, StatsKind, Touch,
    expiry_from_exptime, next_command,
};

use crate::gather::{Fed, Gather};
use crate::memcached::administration::{
    limit_memory, refresh_certificates, shut_down, stream_events,
};
use crate::memcached::auth::authenticate;
use crate::memcached::binary::{feed_binary, is_binary};
use crate::memcached::dump::{dump, dump_connections, dump_left_bytes, dump_on};
use crate::memcached::meta::{delete_refused, run_meta};
use crate::memcached::pace::memcached_waits;
use crate::memcached::several::{left_bytes, read_each, read_on};
use crate::memcached::stats::stats;
use crate::memcached::storage::run_store;

/// What `version` answers: the protocol of this memcached.
pub const MEMCACHED_VERSION: &str = "1.6.18";

const _: () = assert!(Limits::KEY_MAX_BYTES <= KEY_LEN_MAX_BYTES);

/// The command that is being run.
#[derive(Clone, Copy)]
pub struct Caller {
    slot: usize,
    index: CommandIndex,
    is_quiet: bool,
}

impl Caller {
    fn answer(self, shape: Shape) -> Answer {
        Answer { slot: self.slot, command: self.index, is_quiet: self.is_quiet, shape }
    }
}

/// Runs as many commands from the front of `input` as may run now.
pub fn feed_memcached<'a>(gather: &mut Gather<'_, 'a>, slot: usize, input: &'a [u8]) -> Fed {
    if gather.core.connections[slot].memcached().framing != Framing::Text
        && is_binary(gather, slot, input)
    {
        return feed_binary(gather, slot, input);
    }
    let value_max_bytes = usize::try_from(gather.core.value_max_bytes).unwrap_or(usize::MAX);
    let limits = Limits::new(value_max_bytes);
    let (mut at, mut last_bytes) = (0, 0);
    if !gather.core.connections[slot].is_between_replies() {
        let Some(resumed_bytes) = resume(gather, slot, input) else { return Fed::up_to(0, 0) };
        at = resumed_bytes;
    }
    loop {
        at += swallow(gather, slot, &input[at..]);
        if at == input.len() || !gather.may_parse(slot) {
            // A command that has stopped (I4 of `several`, I2 of `dump`) is the last of these.
            let left_bytes =
                if gather.routes() { 0 } else { left_bytes(gather, slot, &input[..at]) };
            let left_bytes = left_bytes + dump_left_bytes(gather, slot, last_bytes);
            return Fed::up_to(at.saturating_sub(left_bytes), 0);
        }
        let rest = &input[at..];
        if gather.routes()
            && let Some(reading) = gather.core.connections[slot].memcached().reading.take()
        {
            at += read_on(gather, slot, reading, rest);
            gather.core.connections[slot].end_turned_away();
            continue;
        }
        let parser = &mut gather.core.connections[slot].memcached().parser;
        match next_command(parser, rest, &limits) {
            Parsed::Done { value, consumed_bytes } => {
                if gather.routes() && !enter_memcached(gather, slot, &value) {
                    return Fed::up_to(at, 0);
                }
                if gather.routes() {
                    gather.only_reads &= is_plain_read(&value);
                }
                if memcached_waits(gather, slot, &value, consumed_bytes) {
                    return Fed::up_to(at, 0);
                }
                at += consumed_bytes;
                last_bytes = consumed_bytes;
                gather.command_count += 1;
                memcached_command(gather, slot, value);
                if gather.routes() {
                    at -= left_bytes(gather, slot, &rest[..consumed_bytes]);
                }
            }
            Parsed::NeedMore { at_least_bytes } => {
                return Fed::up_to(at, at_least_bytes);
            }
            Parsed::Bad(error) => {
                gather.core.counters().protocol_errors.add(1);
                if let Some(reply) = error.reply() {
                    gather.reply_to(slot, |out| Encoder::new(out).reply(reply));
                }
                gather.core.connections[slot].memcached().is_garbled = true;
                gather.core.connections[slot].ending = Ending::AfterFlush;
                return Fed::up_to(input.len(), 0);
            }
        }
    }
}

/// Continues the command that is answered in parts; returns how many bytes of it are done. `None`:
/// nothing of the input may be parsed now.
#[cold]
fn resume<'a>(gather: &mut Gather<'_, 'a>, slot: usize, input: &'a [u8]) -> Option<usize> {
    let mut at = 0;
    if gather.core.connections[slot].memcached().dump.is_some() {
        at = dump_on(gather, slot);
        if at == 0 {
            return None;
        }
    } else if !gather.routes()
        && gather.may_parse(slot)
        && let Some(reading) = gather.core.connections[slot].memcached().reading.take()
    {
        at = read_on(gather, slot, reading, input);
    }
    gather.core.connections[slot].end_turned_away();
    Some(at)
}

/// Before a command: whether it may begin.
fn enter_memcached<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: &Result<Command<'a>, Rejection<'a>>,
) -> bool {
    let needs_auth = gather.core.connections[slot].memcached().needs_auth;
    // Where several nodes have the keys of a read, each key is routed (`several`).
    let is_split = |command: &Command<'_>| gather.core.cluster.is_some() && command.is_read();
    let is_routed =
        parsed.as_ref().is_ok_and(|command| command.is_on_one_key() || is_split(command));
    gather.enter(slot, !needs_auth && is_routed)
}

/// Skips the body of a command that was refused.
fn swallow(gather: &mut Gather<'_, '_>, slot: usize, input: &[u8]) -> usize {
    let ours = &mut gather.core.connections[slot].input;
    let skipped = usize::try_from(ours.skip_bytes).unwrap_or(usize::MAX).min(input.len());
    ours.skip_bytes -= skipped as u64;
    ours.has_skipped |= skipped > 0;
    skipped
}

fn memcached_command<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: Result<Command<'a>, Rejection<'a>>,
) {
    if gather.core.connections[slot].memcached().needs_auth {
        return authenticate(gather, slot, parsed);
    }
    match parsed {
        Ok(command) => run_memcached(gather, slot, command),
        Err(rejection) => reject(gather, slot, &rejection),
    }
}

fn reject<'a>(gather: &mut Gather<'_, 'a>, slot: usize, rejection: &Rejection<'a>) {
    let caller = caller(gather, slot, MemcachedCommand::Unknown, rejection.reply.is_none());
    gather.core.counters().command(caller.index).errors.add(1);
    gather.core.charge(Work::command());
    if let Some(reply) = rejection.reply {
        let is_too_large = reply == Reply::TooLarge;
        gather.core.counters().oversized_commands.add(u64::from(is_too_large));
        say_line(gather, caller, reply);
    }
    delete_refused(gather, caller, rejection);
    gather.core.connections[slot].input.skip_bytes += rejection.swallow_bytes;
}

fn caller(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    command: MemcachedCommand,
    is_quiet: bool,
) -> Caller {
    let index = CommandIndex::memcached(command);
    gather.core.counters().called(index);
    Caller { slot, index, is_quiet }
}

/// A reply that does not come from the batch.
fn say_line(gather: &mut Gather<'_, '_>, caller: Caller, reply: Reply) {
    if caller.is_quiet {
        gather.settle(caller.slot);
    } else {
        gather.reply_to(caller.slot, |out| Encoder::new(out).reply(reply));
    }
}

#[inline]
fn request<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    key: &'a [u8],
    op: Op<'a, Rmw<'a>>,
    shape: Shape,
) {
    let hash = gather.core.hash(key);
    gather.push(key, hash, op, caller.answer(shape));
}

/// An update that may copy the whole value, as a request of the batch.
fn request_update<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    key: &'a [u8],
    op: Op<'a, Rmw<'a>>,
    shape: Shape,
) {
    let copies = copies_value(&op);
    request(gather, caller, key, op, shape);
    if copies {
        gather.weigh();
    }
}

#[inline]
fn run_memcached<'a>(gather: &mut Gather<'_, 'a>, slot: usize, command: Command<'a>) {
    match command {
        Command::Get(retrieve) => run_retrieve(gather, slot, retrieve),
        Command::Store(store) => run_store(gather, slot, &store),
        Command::Meta(meta) => run_meta(gather, slot, meta),
        other => run_memcached_rare(gather, slot, other),
    }
}

#[inline]
fn run_retrieve<'a>(gather: &mut Gather<'_, 'a>, slot: usize, retrieve: Retrieve<'a>) {
    let Retrieve { keys, with_cas } = retrieve;
    let command = if with_cas { MemcachedCommand::Gets } else { MemcachedCommand::Get };
    let caller = caller(gather, slot, command, false);
    let mut ahead = keys;
    match (ahead.next(), ahead.next()) {
        (Some(key), None) => {
            let shape = Shape::McValue { with_cas, is_last: true };
            request(gather, caller, key, Op::Get, shape);
        }
        _ => read_each(gather, caller, keys, with_cas, None),
    }
}

fn run_memcached_rare<'a>(gather: &mut Gather<'_, 'a>, slot: usize, command: Command<'a>) {
    match command {
        Command::Get(retrieve) => run_retrieve(gather, slot, retrieve),
        Command::Store(store) => run_store(gather, slot, &store),
        Command::Meta(meta) => run_meta(gather, slot, meta),
        Command::GetAndTouch { exptime, retrieve } => {
            let Retrieve { keys, with_cas } = retrieve;
            let verb = if with_cas { MemcachedCommand::Gats } else { MemcachedCommand::Gat };
            let caller = caller(gather, slot, verb, false);
            let expires_at = expiry_from_exptime(exptime, gather.core.now);
            read_each(gather, caller, keys, with_cas, Some(expires_at));
        }
        Command::Delete(delete) => {
            let caller = caller(gather, slot, MemcachedCommand::Delete, delete.noreply);
            request(gather, caller, delete.key, Op::Delete, Shape::McDeleted);
        }
        Command::Arithmetic(arithmetic) => run_arithmetic(gather, slot, arithmetic),
        Command::Touch(touch) => touch_key(gather, slot, touch),
        Command::FlushAll { delay, noreply } => {
            gather.on_the_clock(|gather| flush_later(gather, slot, delay, noreply));
        }
        Command::Version => {
            let caller = caller(gather, slot, MemcachedCommand::Version, false);
            gather.reply_to(caller.slot, |out| Encoder::new(out).version(MEMCACHED_VERSION));
        }
        Command::Verbosity { noreply } => {
            let caller = caller(gather, slot, MemcachedCommand::Verbosity, noreply);
            say_line(gather, caller, Reply::Ok);
        }
        Command::Quit => {
            caller(gather, slot, MemcachedCommand::Quit, true);
            gather.settle(slot);
            gather.core.connections[slot].ending = Ending::AfterFlush;
        }
        Command::Stats(StatsKind::Connections) => dump_connections(gather, slot),
        Command::Stats(kind) => gather.on_the_clock(|gather| stats(gather, slot, kind)),
        Command::Dump(kind) => dump(gather, slot, kind),
        Command::ConfigGetCluster => cluster_config(gather, slot),
        Command::Shutdown { is_valid } => shut_down(gather, slot, is_valid),
        Command::RefreshCertificates { noreply } => refresh_certificates(gather, slot, noreply),
        Command::MemoryLimit { mib, noreply } => {
            gather.on_the_clock(|gather| limit_memory(gather, slot, mib, noreply));
        }
        Command::Watch { topics, noreply } => stream_events(gather, slot, topics, noreply),
        Command::MetaNoop => {
            let caller = caller(gather, slot, MemcachedCommand::Mn, false);
            say_line(gather, caller, Reply::MetaNoop);
        }
    }
}

/// config get cluster: lists the members that speak memcached. A server without a cluster names
/// the address by which the client reached it.
fn cluster_config(gather: &mut Gather<'_, '_>, slot: usize) {
    let caller = caller(gather, slot, MemcachedCommand::Config, false);
    let Some(view) = &gather.core.cluster else {
        // A Unix socket has no address: the one of the settings is used.
        let local = match gather.core.connections[slot].client.local {
            End::Ip(local) => Some(local),
            End::Unix(_) => gather.core.shared.config().memcached,
        };
        let Some(local) = local else { return say_line(gather, caller, Reply::Error) };
        let host = local.ip().to_canonical().to_string();
        // A client that asks by datagram gets the address for connections.
        let is_datagram = gather.core.connections[slot].exchange.is_some();
        let configured = gather.core.shared.config().memcached.filter(|_| is_datagram);
        let port = configured.map_or(0, |it| it.port());
        let nodes = [(host.as_str(), if port == 0 { local.port() } else { port })];
        return gather.reply_to(slot, |out| Encoder::new(out).cluster_config(1, nodes));
    };
    let configuration = view.configuration();
    let version = configuration.as_ref().map_or(0, |it| it.term.0);
    let all = configuration.iter().flat_map(|it| it.addresses.values());
    let is_tls = gather.core.connections[slot].tls.is_some();
    let nodes = all.filter_map(|it| Some((it.host.as_str(), it.memcached_port(is_tls)?)));
    gather.reply_to(slot, |out| Encoder::new(out).cluster_config(version, nodes));
}

fn run_arithmetic<'a>(gather: &mut Gather<'_, 'a>, slot: usize, arithmetic: Arithmetic<'a>) {
    let Arithmetic { key, delta, is_decrement, noreply } = arithmetic;
    let (command, update) = if is_decrement {
        (MemcachedCommand::Decr, Rmw::Decrease(delta))
    } else {
        (MemcachedCommand::Incr, Rmw::Increase(delta))
    };
    let caller = caller(gather, slot, command, noreply);
    request(gather, caller, key, Op::Update(update), Shape::McNumber);
}

fn touch_key<'a>(gather: &mut Gather<'_, 'a>, slot: usize, touch: Touch<'a>) {
    let caller = caller(gather, slot, MemcachedCommand::Touch, touch.noreply);
    let expires_at = expiry_from_exptime(touch.exptime, gather.core.now);
    let update = Op::Update(Rmw::SetExpiry(expires_at));
    request(gather, caller, touch.key, update, Shape::McTouched);
    gather.weigh();
}

/// flush_all, at once or at a later time. In a cluster it flushes all shards, because memcached
/// clients do not know which node serves what; a later flush is known only to this server.
fn flush_later(gather: &mut Gather<'_, '_>, slot: usize, delay: i64, noreply: bool) {
    let caller = caller(gather, slot, MemcachedCommand::FlushAll, noreply);
    let flushed = flush_at(gather, slot, delay);
    say_line(gather, caller, flushed.err().unwrap_or(Reply::Ok));
}

/// Whether everything was flushed, or will be; or why not.
fn flush_at(gather: &mut Gather<'_, '_>, slot: usize, delay: i64) -> Result<(), Reply> {
    gather.settle(slot);
    gather.core.connections[slot].has_written = true;
    let at = expiry_from_exptime(delay.max(0), gather.core.now);
    match at.filter(|at: &UnixMillis| *at > gather.core.now) {
        Some(at) => gather.core.shared.set_flush_at(Some(at)),
        None => {
            gather.core.shared.set_flush_at(None);
            match gather.engine.flush_shards(true) {
                None if gather.flush_store(slot) => {}
                None => return Err(Reply::LogFailed),
                Some(GroupAnswer::Good) => {}
                Some(_) => return Err(Reply::NotFlushed),
            }
        }
    }
    Ok(())
}

/// Whether a command changes nothing, so that it may run twice.
fn is_plain_read(parsed: &Result<Command<'_>, Rejection<'_>>) -> bool {
    match parsed {
        Ok(Command::Get(_)) => true,
        Ok(Command::Meta(meta)) => meta.verb == MetaVerb::Get && !pace::may_copy(meta),
        _ => false,
    }
}
