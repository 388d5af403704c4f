//! A second reading of a gathering's bytes: for MONITOR, for a HOTKEYS session, and for the
//! permanent samples.
//!
//! # Invariants
//! W1: for a gathering that no client observes this is one branch on two loads.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::{KeyHasher, Slot};
use commands::rmw::meta::MetaGet;
use commands::rmw::{Refusal, Rmw};
use commands::work::Work;
use dispatch::hot::key_sampler::KeySampler;
use dispatch::hot::session::{Part, Ran, Wanted};
use host::poller::Poller;
use runtime::connection::ProtocolState;
use runtime::core::Core;
use runtime::engine::Home;
use runtime::mailbox::Control;
use sessions::acl::Standing;
use sessions::monitor::Feed;
use sessions::slow_log::is_timed_alone;
use store::request::{Outcome, Sink};
use store::{Op, Pins, Request};
use wire::Parsed;
use wire::resp::{Args, CommandId, Flags, Limits, Parser, Spec, asked_command};

use super::regions::Regions;
use super::{Worker, slow};

/// Of a command with more keys, a session of HOTKEYS counts these: the whole would hold the worker
/// for longer than the command, which runs in slices.
const COUNTED_KEYS_MAX: usize = 4096;

/// `:0`, `+OK` and similar replies, with the end of the line.
const SHORT_REPLY_BYTES: u64 = 5;

/// The permanent samples of keys, unless the engine takes them.
pub(super) struct KeySamples {
    sampler: Option<KeySampler>,
    /// Whether the next gathering is sampled.
    is_due: bool,
}

impl KeySamples {
    /// Samples by this sampler, if there is one.
    pub fn new(sampler: Option<KeySampler>) -> KeySamples {
        KeySamples { sampler, is_due: false }
    }

    /// Checks whether the next gathering is sampled.
    #[inline]
    pub fn tick(&mut self, now: Instant) {
        self.is_due = self.sampler.as_mut().is_some_and(|sampler| sampler.is_due(now));
    }

    /// Samples a gathering, if it is its turn.
    fn look(&mut self, core: &Core, regions: &Regions) {
        if !std::mem::take(&mut self.is_due) {
            return;
        }
        let Some(sampler) = &mut self.sampler else { return };
        let mut taken = Vec::with_capacity(regions.all.len());
        for (slot, bytes) in regions.taken() {
            let connection = core.connections.get(slot);
            if let Some(connection) = connection.filter(|open| !open.input.has_skipped) {
                taken.push((connection.client.protocol, bytes));
            }
        }
        sampler.look(&taken);
    }
}

/// Reads a gathering again for the clients that monitor. Called behind the gathering; `took` is
/// the time of its batches, if known.
#[inline]
pub(super) fn feed<E: Home, P: Poller>(worker: &mut Worker<E, P>, took: Option<Duration>) {
    if worker.core.shared.observations().monitors.is_any() | worker.key_samples.is_due {
        show_gathering(worker, took);
    }
}

#[cold]
fn show_gathering<E: Home, P: Poller>(worker: &mut Worker<E, P>, took: Option<Duration>) {
    if worker.core.shared.observations().monitors.has_any() {
        show_monitors(worker);
    }
    if worker.core.shared.observations().monitors.counts_keys() {
        count_keys(worker, took);
    }
    worker.key_samples.look(&worker.core, &worker.regions);
}

fn show_monitors<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut feed = Feed::new(worker.core.shared.buffer_budget());
    let mut read_bytes = 0;
    for (slot, taken) in worker.regions.taken() {
        let Some(connection) = worker.core.connections.get(slot) else { continue };
        let ProtocolState::Resp(resp) = &connection.protocol_state else { continue };
        if !resp.pass.needs_auth() {
            read_bytes += taken.len();
            feed.add(&connection.client, since, taken);
        }
    }
    read_bytes += feed.len_bytes();
    let shared = Arc::clone(&worker.core.shared);
    worker.core.charge(Work::bytes(read_bytes as u64));
    feed.send(
        (&shared.observations().monitors, shared.buffer_budget()),
        |client, lines| match lines {
            Some(lines) => {
                let feed = Control::Feed { client_id: client.id, lines };
                shared.send(client.worker().index(), feed);
            }
            None => shared.kill_client(client),
        },
    );
}

fn count_keys<E: Home, P: Poller>(worker: &mut Worker<E, P>, took: Option<Duration>) {
    let took = took.unwrap_or_else(|| slow::time_batches(worker));
    let (core, shared) = (&worker.core, &worker.core.shared);
    let session = shared.observations().hot_sessions.latest();
    let Some(session) = session.filter(|session| session.is_active(core.now)) else {
        return shared.observations().monitors.count_keys(false);
    };
    let (mut commands, mut read) = (Vec::new(), Vec::new());
    for (slot, taken) in worker.regions.taken() {
        let Some(connection) = core.connections.get(slot) else { continue };
        let ProtocolState::Resp(resp) = &connection.protocol_state else { continue };
        if !resp.pass.needs_auth() {
            read_commands(taken, &mut read);
            // A command that the user may not run is not executed.
            if resp.pass.standing == Standing::Restricted {
                let user = resp.pass.user(&core.acl);
                read.retain(|it| user.check(it.spec, it.args.iter()).is_ok());
            }
            commands.append(&mut read);
        }
    }
    let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let share_ns = took_ns / commands.len().max(1) as u64;
    let (hasher, now, own) = (&core.hasher, core.now, core.worker.index());
    let store = worker.engine.own_session();
    let value_len = |key: &[u8]| {
        // Does not count as a use of the item.
        let op = Op::Update(Rmw::MetaGet(MetaGet::LOOK));
        let request = Request { key, hash: hasher.hash(key), op };
        let mut found = Length(None);
        store.execute(now, &[request], &mut found);
        found.0
    };
    if let Some(mut part) = session.part(own) {
        count(&mut part, &session.wanted, (share_ns, hasher), &commands, value_len);
    }
}

/// A command that was read again.
struct Command<'b> {
    spec: &'static Spec,
    args: Args<'b>,
    in_bytes: u64,
}

fn read_commands<'b>(mut bytes: &'b [u8], commands: &mut Vec<Command<'b>>) {
    let limits = Limits::new(usize::MAX);
    while !bytes.is_empty() {
        let parsed = Parser::default().parse(bytes, &limits);
        let Parsed::Done { value: args, consumed_bytes } = parsed else { return };
        bytes = &bytes[consumed_bytes..];
        let spec = asked_command(args.iter()).filter(|spec| !is_timed_alone(spec));
        if let Some(spec) = spec.filter(|spec| spec.accepts_count(args.len())) {
            commands.push(Command { spec, args, in_bytes: consumed_bytes as u64 });
        }
    }
}

/// Counts the commands that have keys for the session.
fn count(
    part: &mut Part,
    wanted: &Wanted,
    (share_ns, hasher): (u64, &KeyHasher),
    commands: &[Command<'_>],
    mut value_len: impl FnMut(&[u8]) -> Option<u64>,
) {
    for Command { spec, args, in_bytes } in commands {
        let mut keys = spec.keys.of(args.iter());
        let Some(first) = keys.next().filter(|_| spec.keys.first > 0) else { continue };
        let keys = || spec.keys.of(args.iter());
        let reply_bytes = part.begin().then(|| match spec.id {
            CommandId::MGet => {
                let seen = keys().take(COUNTED_KEYS_MAX);
                let seen_count = seen.len().max(1) as u64;
                let seen_bytes: u64 = seen.map(|key| bulk_bytes(value_len(key))).sum();
                seen_bytes / seen_count * keys().len() as u64
            }
            _ => reply_bytes(spec.id, args, || value_len(first)),
        });
        let ran = Ran {
            time_ns: share_ns,
            in_bytes: *in_bytes,
            slot: Slot::of(first),
            is_read: spec.flags.contains(Flags::READONLY),
            key_count: keys().len() as u64,
            reply_bytes,
        };
        let counted = keys().take(COUNTED_KEYS_MAX);
        part.add(wanted, &ran, counted.map(|key| (hasher.hash(key), key)));
    }
}

/// The length of a reply: that of the value as it is now, if the reply carries it.
fn reply_bytes(id: CommandId, args: &Args<'_>, value_len: impl FnOnce() -> Option<u64>) -> u64 {
    match id {
        CommandId::Get | CommandId::GetEx | CommandId::GetSet | CommandId::Dump => {
            bulk_bytes(value_len())
        }
        CommandId::Set if args.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get")) => {
            bulk_bytes(value_len())
        }
        CommandId::GetRange | CommandId::Substr => {
            let len = i64::try_from(value_len().unwrap_or(0)).unwrap_or(i64::MAX);
            let place = |at| {
                let place = args.get(at).and_then(wire::resp::number::parse_i64).unwrap_or(0);
                if place < 0 { len.saturating_add(place).max(0) } else { place }
            };
            let (start, end) = (place(2), place(3).min(len - 1));
            bulk_bytes(Some(end.saturating_sub(start).saturating_add(1).max(0).cast_unsigned()))
        }
        _ => SHORT_REPLY_BYTES,
    }
}

/// `$5` and the value, each with the end of its line; without a value `$-1`.
fn bulk_bytes(len_bytes: Option<u64>) -> u64 {
    let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    len_bytes.map_or(SHORT_REPLY_BYTES, |len| 1 + digits(len) + 2 + len + 2)
}

/// A sink that takes the length of the value found.
struct Length(Option<u64>);

impl Sink<Refusal> for Length {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.0 = Some(item.value.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_as_long_as_they_are_on_the_wire() {
        let check = |line: &str, len: Option<u64>, want: &str| {
            let bytes = format!("{line}\r\n");
            let mut commands = Vec::new();
            read_commands(bytes.as_bytes(), &mut commands);
            let [command] = &commands[..] else { panic!("one command: {line}") };
            let found = reply_bytes(command.spec.id, &command.args, || len);
            assert_eq!(found, want.len() as u64, "{line}");
        };
        check("GET a", Some(5), "$5\r\nhello\r\n");
        check("GET a", Some(12), "$12\r\nhello, world\r\n");
        check("GET a", None, "$-1\r\n");
        check("SET a 1", Some(1), "+OK\r\n");
        check("SET a 1 EX 5 get", Some(1), "$1\r\n1\r\n");
        check("GETRANGE a 1 2", Some(5), "$2\r\nel\r\n");
        check("GETRANGE a 0 -1", Some(5), "$5\r\nhello\r\n");
        check("GETRANGE a 7 9", Some(5), "$0\r\n\r\n");
    }

    #[test]
    fn what_runs_by_itself_or_is_no_command_has_no_part_in_a_batch() {
        let mut commands = Vec::new();
        read_commands(b"GET a\r\nPING\r\nKEYS *\r\nGET\r\nnonsense\r\n", &mut commands);
        let names: Vec<_> = commands.iter().map(|command| command.spec.name).collect();
        assert_eq!(names, ["get", "ping"]);
    }
}
