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
use runtime::engine::Engine;
use sessions::end::End;
use store::{KEY_LEN_MAX_BYTES, Op};
use wire::Parsed;
use wire::memcached::{
    Arithmetic, Command, Encoder, Limits, MetaVerb, Rejection, Reply, Retrieve, StatsKind, Touch,
    expiry_from_exptime, next_command,
};

use crate::gather::{Fed, Gather};

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

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs as many commands from the front of `input` as may run now.
    pub fn feed_memcached(&mut self, slot: usize, input: &'a [u8]) -> Fed {
        if self.core.connections[slot].memcached().framing != Framing::Text
            && self.is_binary(slot, input)
        {
            return self.feed_binary(slot, input);
        }
        let value_max_bytes = usize::try_from(self.core.value_max_bytes).unwrap_or(usize::MAX);
        let limits = Limits::new(value_max_bytes);
        let (mut at, mut last_bytes) = (0, 0);
        if self.core.connections[slot].memcached().dump.is_some() {
            at = self.dump_on(slot);
            if at == 0 {
                return Fed::up_to(0, 0);
            }
        } else if !E::ROUTES
            && self.may_parse(slot)
            && let Some(reading) = self.core.connections[slot].memcached().reading.take()
        {
            at = self.read_on(slot, reading, input);
        }
        loop {
            at += self.swallow(slot, &input[at..]);
            if at == input.len() || !self.may_parse(slot) {
                // A command that has stopped (I4 of `several`, I2 of `dump`) is the last of these.
                let left_bytes = if E::ROUTES { 0 } else { self.left_bytes(slot, &input[..at]) };
                let left_bytes = left_bytes + self.dump_left_bytes(slot, last_bytes);
                return Fed::up_to(at.saturating_sub(left_bytes), 0);
            }
            let rest = &input[at..];
            if E::ROUTES
                && let Some(reading) = self.core.connections[slot].memcached().reading.take()
            {
                at += self.read_on(slot, reading, rest);
                continue;
            }
            let parser = &mut self.core.connections[slot].memcached().parser;
            match next_command(parser, rest, &limits) {
                Parsed::Done { value, consumed_bytes } => {
                    if E::ROUTES && !self.enter_memcached(slot, &value) {
                        return Fed::up_to(at, 0);
                    }
                    if E::ROUTES {
                        self.only_reads &= is_plain_read(&value);
                    }
                    if self.memcached_waits(slot, &value, consumed_bytes) {
                        return Fed::up_to(at, 0);
                    }
                    at += consumed_bytes;
                    last_bytes = consumed_bytes;
                    self.memcached_command(slot, value);
                    if E::ROUTES {
                        at -= self.left_bytes(slot, &rest[..consumed_bytes]);
                    }
                }
                Parsed::NeedMore { at_least_bytes } => {
                    return Fed::up_to(at, at_least_bytes);
                }
                Parsed::Bad(error) => {
                    self.core.counters().protocol_errors.add(1);
                    if let Some(reply) = error.reply() {
                        self.reply_to(slot, |out| Encoder::new(out).reply(reply));
                    }
                    self.core.connections[slot].memcached().is_garbled = true;
                    self.core.connections[slot].ending = Ending::AfterFlush;
                    return Fed::up_to(input.len(), 0);
                }
            }
        }
    }

    /// Before a command: whether it may begin.
    fn enter_memcached(
        &mut self,
        slot: usize,
        parsed: &Result<Command<'a>, Rejection<'a>>,
    ) -> bool {
        let needs_auth = self.core.connections[slot].memcached().needs_auth;
        let is_routed = is_on_one_key(parsed) || (self.core.cluster.is_some() && is_read(parsed));
        self.enter(slot, !needs_auth && is_routed)
    }

    /// Skips the body of a command that was refused.
    fn swallow(&mut self, slot: usize, input: &[u8]) -> usize {
        let ours = &mut self.core.connections[slot].input;
        let skipped = usize::try_from(ours.skip_bytes).unwrap_or(usize::MAX).min(input.len());
        ours.skip_bytes -= skipped as u64;
        ours.has_skipped |= skipped > 0;
        skipped
    }

    fn memcached_command(&mut self, slot: usize, parsed: Result<Command<'a>, Rejection<'a>>) {
        if self.core.connections[slot].memcached().needs_auth {
            return self.authenticate(slot, parsed);
        }
        match parsed {
            Ok(command) => self.run_memcached(slot, command),
            Err(rejection) => self.reject(slot, &rejection),
        }
    }

    fn reject(&mut self, slot: usize, rejection: &Rejection<'a>) {
        let caller = self.caller(slot, MemcachedCommand::Unknown, rejection.reply.is_none());
        self.core.counters().command(caller.index).errors.add(1);
        self.core.charge(Work::command());
        if let Some(reply) = rejection.reply {
            let is_too_large = reply == Reply::TooLarge;
            self.core.counters().oversized_commands.add(u64::from(is_too_large));
            self.say_line(caller, reply);
        }
        self.delete_refused(caller, rejection);
        self.core.connections[slot].input.skip_bytes += rejection.swallow_bytes;
    }

    fn caller(&mut self, slot: usize, command: MemcachedCommand, is_quiet: bool) -> Caller {
        let index = CommandIndex::memcached(command);
        self.core.counters().called(index);
        Caller { slot, index, is_quiet }
    }

    /// A reply that does not come from the batch.
    fn say_line(&mut self, caller: Caller, reply: Reply) {
        if caller.is_quiet {
            self.settle(caller.slot);
        } else {
            self.reply_to(caller.slot, |out| Encoder::new(out).reply(reply));
        }
    }

    #[inline]
    fn request(&mut self, caller: Caller, key: &'a [u8], op: Op<'a, Rmw<'a>>, shape: Shape) {
        let hash = self.core.hash(key);
        self.push(key, hash, op, caller.answer(shape));
    }

    /// An update that may copy the whole value, as a request of the batch.
    fn request_update(&mut self, caller: Caller, key: &'a [u8], op: Op<'a, Rmw<'a>>, shape: Shape) {
        let copies = copies_value(&op);
        self.request(caller, key, op, shape);
        if copies {
            self.weigh();
        }
    }

    #[inline]
    fn run_memcached(&mut self, slot: usize, command: Command<'a>) {
        match command {
            Command::Get(retrieve) => self.retrieve(slot, retrieve),
            Command::Store(store) => self.store(slot, &store),
            Command::Meta(meta) => self.meta(slot, meta),
            other => self.run_memcached_rare(slot, other),
        }
    }

    #[inline]
    fn retrieve(&mut self, slot: usize, retrieve: Retrieve<'a>) {
        let Retrieve { keys, with_cas } = retrieve;
        let command = if with_cas { MemcachedCommand::Gets } else { MemcachedCommand::Get };
        let caller = self.caller(slot, command, false);
        let mut ahead = keys;
        match (ahead.next(), ahead.next()) {
            (Some(key), None) => {
                let shape = Shape::McValue { with_cas, is_last: true };
                self.request(caller, key, Op::Get, shape);
            }
            _ => self.read_each(caller, keys, with_cas, None),
        }
    }

    fn run_memcached_rare(&mut self, slot: usize, command: Command<'a>) {
        match command {
            Command::Get(retrieve) => self.retrieve(slot, retrieve),
            Command::Store(store) => self.store(slot, &store),
            Command::Meta(meta) => self.meta(slot, meta),
            Command::GetAndTouch { exptime, retrieve } => {
                let Retrieve { keys, with_cas } = retrieve;
                let verb = if with_cas { MemcachedCommand::Gats } else { MemcachedCommand::Gat };
                let caller = self.caller(slot, verb, false);
                let expires_at = expiry_from_exptime(exptime, self.core.now);
                self.read_each(caller, keys, with_cas, Some(expires_at));
            }
            Command::Delete(delete) => {
                let caller = self.caller(slot, MemcachedCommand::Delete, delete.noreply);
                self.request(caller, delete.key, Op::Delete, Shape::McDeleted);
            }
            Command::Arithmetic(arithmetic) => self.arithmetic(slot, arithmetic),
            Command::Touch(touch) => self.touch_key(slot, touch),
            Command::FlushAll { delay, noreply } => {
                self.on_the_clock(|gather| gather.flush_later(slot, delay, noreply));
            }
            Command::Version => {
                let caller = self.caller(slot, MemcachedCommand::Version, false);
                self.reply_to(caller.slot, |out| Encoder::new(out).version(MEMCACHED_VERSION));
            }
            Command::Verbosity { noreply } => {
                let caller = self.caller(slot, MemcachedCommand::Verbosity, noreply);
                self.say_line(caller, Reply::Ok);
            }
            Command::Quit => {
                self.caller(slot, MemcachedCommand::Quit, true);
                self.settle(slot);
                self.core.connections[slot].ending = Ending::AfterFlush;
            }
            Command::Stats(StatsKind::Connections) => self.dump_connections(slot),
            Command::Stats(kind) => self.on_the_clock(|gather| gather.stats(slot, kind)),
            Command::Dump(kind) => self.dump(slot, kind),
            Command::ConfigGetCluster => self.cluster_config(slot),
            Command::Shutdown { is_valid } => self.shut_down(slot, is_valid),
            Command::RefreshCertificates { noreply } => self.refresh_certificates(slot, noreply),
            Command::MemoryLimit { mib, noreply } => {
                self.on_the_clock(|gather| gather.limit_memory(slot, mib, noreply));
            }
            Command::Watch { topics, noreply } => self.stream_events(slot, topics, noreply),
            Command::MetaNoop => {
                let caller = self.caller(slot, MemcachedCommand::Mn, false);
                self.say_line(caller, Reply::MetaNoop);
            }
        }
    }

    /// config get cluster: lists the members that speak memcached. A server without a cluster names
    /// the address by which the client reached it.
    fn cluster_config(&mut self, slot: usize) {
        let caller = self.caller(slot, MemcachedCommand::Config, false);
        let Some(view) = &self.core.cluster else {
            // A Unix socket has no address: the one of the settings is used.
            let local = match self.core.connections[slot].client.local {
                End::Ip(local) => Some(local),
                End::Unix(_) => self.core.shared.config().memcached,
            };
            let Some(local) = local else { return self.say_line(caller, Reply::Error) };
            let host = local.ip().to_canonical().to_string();
            // A client that asks by datagram gets the address for connections.
            let is_datagram = self.core.connections[slot].exchange.is_some();
            let configured = self.core.shared.config().memcached.filter(|_| is_datagram);
            let port = configured.map_or(0, |it| it.port());
            let nodes = [(host.as_str(), if port == 0 { local.port() } else { port })];
            return self.reply_to(slot, |out| Encoder::new(out).cluster_config(1, nodes));
        };
        let configuration = view.configuration();
        let version = configuration.as_ref().map_or(0, |it| it.term.0);
        let all = configuration.iter().flat_map(|it| it.addresses.values());
        let is_tls = self.core.connections[slot].tls.is_some();
        let nodes = all.filter_map(|it| Some((it.host.as_str(), it.memcached_port(is_tls)?)));
        self.reply_to(slot, |out| Encoder::new(out).cluster_config(version, nodes));
    }

    fn arithmetic(&mut self, slot: usize, arithmetic: Arithmetic<'a>) {
        let Arithmetic { key, delta, is_decrement, noreply } = arithmetic;
        let (command, update) = if is_decrement {
            (MemcachedCommand::Decr, Rmw::Decrease(delta))
        } else {
            (MemcachedCommand::Incr, Rmw::Increase(delta))
        };
        let caller = self.caller(slot, command, noreply);
        self.request(caller, key, Op::Update(update), Shape::McNumber);
    }

    fn touch_key(&mut self, slot: usize, touch: Touch<'a>) {
        let caller = self.caller(slot, MemcachedCommand::Touch, touch.noreply);
        let expires_at = expiry_from_exptime(touch.exptime, self.core.now);
        let update = Op::Update(Rmw::SetExpiry(expires_at));
        self.request(caller, touch.key, update, Shape::McTouched);
        self.weigh();
    }

    /// flush_all, at once or at a later time. In a cluster it flushes all shards, because memcached
    /// clients do not know which node serves what; a later flush is known only to this server.
    fn flush_later(&mut self, slot: usize, delay: i64, noreply: bool) {
        let caller = self.caller(slot, MemcachedCommand::FlushAll, noreply);
        let flushed = self.flush_at(slot, delay);
        self.say_line(caller, flushed.err().unwrap_or(Reply::Ok));
    }

    /// Whether everything was flushed, or will be; or why not.
    fn flush_at(&mut self, slot: usize, delay: i64) -> Result<(), Reply> {
        self.settle(slot);
        self.core.connections[slot].has_written = true;
        let at = expiry_from_exptime(delay.max(0), self.core.now);
        match at.filter(|at: &UnixMillis| *at > self.core.now) {
            Some(at) => self.core.shared.set_flush_at(Some(at)),
            None => {
                self.core.shared.set_flush_at(None);
                match self.engine.flush_shards(true) {
                    None if self.flush_store(slot) => {}
                    None => return Err(Reply::LogFailed),
                    Some(GroupAnswer::Good) => {}
                    Some(_) => return Err(Reply::NotFlushed),
                }
            }
        }
        Ok(())
    }
}

/// Whether a command reads: where several nodes have the keys, each key is routed (`several`).
fn is_read(parsed: &Result<Command<'_>, Rejection<'_>>) -> bool {
    matches!(parsed, Ok(Command::Get(_) | Command::GetAndTouch { .. }))
}

/// Whether a command changes nothing, so that it may run twice.
fn is_plain_read(parsed: &Result<Command<'_>, Rejection<'_>>) -> bool {
    match parsed {
        Ok(Command::Get(_)) => true,
        Ok(Command::Meta(meta)) => meta.verb == MetaVerb::Get && !pace::may_copy(meta),
        _ => false,
    }
}

/// Whether a command is one request on one key: such commands are routed. Everything else is a
/// barrier for its connection (K10).
fn is_on_one_key(parsed: &Result<Command<'_>, Rejection<'_>>) -> bool {
    match parsed {
        Ok(Command::Get(retrieve) | Command::GetAndTouch { retrieve, .. }) => {
            let mut keys = retrieve.keys;
            keys.next().is_some() && keys.next().is_none()
        }
        Ok(Command::Store(_) | Command::Delete(_) | Command::Arithmetic(_) | Command::Touch(_)) => {
            true
        }
        Ok(Command::Meta(_)) => true,
        _ => false,
    }
}
