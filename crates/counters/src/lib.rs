//! The counters of each worker, and their sums over all workers.
//!
//! ```text
//!  worker 0: [ cells ]──┐
//!  worker 1: [ cells ]──┼─ relaxed loads ─▶ Totals   (folded when they are read)
//!  worker 2: [ cells ]──┘
//! ```
//!
//! # Invariants
//! I1: a cell has one writer, its worker, which adds by a load and a store; nothing on the data
//!     path is an atomic read-modify-write.
//! I2: sums are exact once the workers are quiet; before that they may lag by a few operations.

#![forbid(unsafe_code)]

mod admin;
mod doors;
mod forwardings;
mod latency;
pub mod latency_monitor;
mod meta;
mod native;
mod tls;
mod totals;
mod udp;
mod verbs;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::size_class::WorkerSizes;
use totals::totals;
use wire::resp::{CommandId, ErrorCode, Flags, Spec};

pub use admin::AdminCounters;
pub use doors::{DoorCells, DoorTotals};
pub use forwardings::{ForwardingCells, ForwardingTotals};
pub use latency::{LatencyCells, LatencyCounts};
pub use meta::MetaForm;
pub use native::{DropReason, NativeCells, NativeTotals};
pub use tls::{TlsCells, TlsTotals};
pub use udp::{UdpCells, UdpDrop, UdpTotals};
pub use verbs::{MemcachedCommand, NativeCommand};

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Adds `amount`; only the owning worker calls this (I1).
    #[inline]
    pub fn add(&self, amount: u64) {
        // Relaxed: one writer, and readers only sum.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Publishes a number that is counted elsewhere; only the owning worker calls this (I1).
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value, as of some recent moment.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Groups that were written as one.
    pub windows: u64,
    /// Writes that the store never saw.
    pub writes_saved: u64,
    /// Groups that ran one by one after all.
    pub given_up: u64,
    /// Groups by the number of writes merged: 2 or less, up to 4, 8, 16, 32, 64, and more.
    pub by_writes: [u64; SIZE_CLASSES],
}

/// Classes of [`Compacted::by_writes`].
pub const SIZE_CLASSES: usize = 7;

/// The counts of compaction.
#[derive(Debug, Default)]
pub struct CompactionCells {
    /// Windows of the batch that is being executed.
    pub open: Cell,
    /// Groups that were written as one.
    pub windows: Cell,
    /// Writes that the store never saw.
    pub writes_saved: Cell,
    /// Groups that ran one by one after all.
    pub given_up: Cell,
    /// As in `Compacted::by_writes`.
    pub by_writes: [Cell; SIZE_CLASSES],
    /// Of `windows`, those whose key had more waiting requests than may be looked at (K8).
    pub closed_full: Cell,
    /// Requests that were executed early, with the window of their key.
    pub joined: Cell,
}

impl CompactionCells {
    /// Adds the counts of one batch.
    #[inline]
    pub fn add(&self, counted: Compacted) {
        if counted == Compacted::default() {
            return;
        }
        self.windows.add(counted.windows);
        self.writes_saved.add(counted.writes_saved);
        self.given_up.add(counted.given_up);
        for (cell, count) in self.by_writes.iter().zip(counted.by_writes) {
            cell.add(count);
        }
    }
}

/// What moved of long replies and commands at one go, in turns that other clients waited for.
#[derive(Debug, Default)]
pub struct BulkCells {
    /// Turns by the bytes: up to 16 KiB, 64 KiB, 256 KiB, 1 MiB, and more.
    pub by_bytes: [Cell; BULK_CLASSES],
    /// The sum of the bytes.
    pub bytes: Cell,
}

/// Classes of [`BulkCells::by_bytes`].
pub const BULK_CLASSES: usize = 5;

impl BulkCells {
    /// The upper bound of a class; `None`: it has none.
    pub fn class_max_bytes(class: usize) -> Option<u64> {
        (class + 1 < BULK_CLASSES).then_some((16 << 10) << (2 * class))
    }

    /// Adds one turn.
    pub fn add(&self, bytes: u64) {
        let is_in = |class: &usize| Self::class_max_bytes(*class).is_none_or(|max| bytes <= max);
        let class = (0..BULK_CLASSES).find(is_in).unwrap_or(BULK_CLASSES - 1);
        self.by_bytes[class].add(1);
        self.bytes.add(bytes);
    }
}

/// Which protocol a connection speaks; native clients have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// RESP2 or RESP3.
    Resp,
    /// memcached text, meta or binary.
    Memcached,
}

/// Which protocol a command came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2 or RESP3.
    Resp,
    /// memcached text, meta or binary.
    Memcached,
    /// The native protocol, over UDP or shared memory.
    Native,
}

impl Protocol {
    /// As in metric labels and settings.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Resp => "resp",
            Protocol::Memcached => "memcached",
            Protocol::Native => "native",
        }
    }
}

/// One command's counters.
#[derive(Debug, Default)]
pub struct CommandCells {
    /// Times it ran.
    pub calls: Cell,
    /// Keys that it found.
    pub hits: Cell,
    /// Keys that it did not find.
    pub misses: Cell,
    /// Error replies.
    pub errors: Cell,
}

/// Words of [`WorkerCounters::ran`].
const RAN_WORDS: usize = 8;

/// All counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// By [`CommandIndex`].
    pub commands: Box<[CommandCells]>,
    /// A bit for each command that ran in this round; `timing` takes them.
    ran: [Cell; RAN_WORDS],
    /// By [`CommandIndex`]: the worker's time spent on each command.
    pub spent_ns: Box<[Cell]>,
    /// By [`CommandIndex`]: the durations of each command; unset for those that never ran.
    pub durations: Box<[OnceLock<Box<LatencyCells>>]>,
    /// By [`CommandIndex`]: error replies of commands that were not begun.
    pub rejected_calls: Box<[Cell]>,
    /// By [`CommandIndex`]: writes whose condition did not hold.
    pub not_stored: Box<[Cell]>,
    /// Error replies of RESP, by their first word.
    pub errors_by_code: [Cell; ErrorCode::COUNT],
    /// Commands that a user has no right to run.
    pub denied_commands: Cell,
    /// Commands on keys that a user has no right to.
    pub denied_keys: Cell,
    /// Connections accepted.
    pub accepted: Cell,
    /// Connections refused: too many.
    pub rejected: Cell,
    /// Connections refused: too many of one address.
    pub rejected_of_address: Cell,
    /// Connections closed for having been idle.
    pub idle_closed: Cell,
    /// Values that could be neither pinned nor copied, and slow readers closed for what they pin.
    pub replies_refused: Cell,
    /// The largest cost of one turn.
    pub turn_work_units_max: Cell,
    /// Long replies and commands beside others.
    pub bulk: BulkCells,
    /// Atomic groups that were refused, or ended, for `--max-atomic-size`.
    pub atomic_refused: Cell,
    /// Bytes read.
    pub input_bytes: Cell,
    /// Bytes written.
    pub output_bytes: Cell,
    /// Batches executed.
    pub batches: Cell,
    /// Requests in them.
    pub batch_requests: Cell,
    /// Writes that were merged.
    pub compaction: CompactionCells,
    /// Wall time of rounds that found something to serve. It excludes polling, and includes time
    /// during which other threads had the core. A thread's CPU clock would cost a system call per
    /// round.
    pub busy_ns: Cell,
    /// How long sampled requests took; empty without `--slo`.
    pub latency: LatencyCells,
    /// Streams with broken framing.
    pub protocol_errors: Cell,
    /// Commands that were refused for their size and skipped.
    pub oversized_commands: Cell,
    /// Log-ins.
    pub auth_attempts: Cell,
    /// Of these, failed.
    pub auth_errors: Cell,
    /// Of connections that speak TLS.
    pub tls: TlsCells,
    /// Clients refused by a door.
    pub doors: DoorCells,
    /// Of memcached over UDP.
    pub udp: UdpCells,
    /// Of requests between workers.
    pub forwardings: ForwardingCells,
    /// Of native clients.
    pub native: NativeCells,
    /// Requests by the size of their item, where the dispatch looks at sizes.
    pub sizes: Option<WorkerSizes>,
}

impl WorkerCounters {
    /// All zero.
    pub fn new() -> WorkerCounters {
        let commands = (0..CommandIndex::COUNT).map(|_| CommandCells::default()).collect();
        let spent_ns = (0..CommandIndex::COUNT).map(|_| Cell::default()).collect();
        let rejected_calls = (0..CommandIndex::COUNT).map(|_| Cell::default()).collect();
        let not_stored = (0..CommandIndex::COUNT).map(|_| Cell::default()).collect();
        let durations = (0..CommandIndex::COUNT).map(|_| OnceLock::new()).collect();
        WorkerCounters {
            commands,
            spent_ns,
            rejected_calls,
            not_stored,
            durations,
            ..WorkerCounters::default()
        }
    }

    /// All zero; where sizes matter, one request in so many is counted.
    pub fn for_sizes(sample_every: Option<u32>) -> WorkerCounters {
        let sizes = sample_every.map(WorkerSizes::new);
        WorkerCounters { sizes, ..WorkerCounters::new() }
    }

    /// The counters of one command.
    #[inline]
    pub fn command(&self, index: CommandIndex) -> &CommandCells {
        &self.commands[usize::from(index.0)]
    }

    /// Counts the begin of a command.
    #[inline]
    pub fn called(&self, index: CommandIndex) {
        self.command(index).calls.add(1);
        let word = &self.ran[usize::from(index.0 / 64) % RAN_WORDS];
        word.set(word.get() | 1 << (index.0 % 64));
    }

    /// Counts an error reply of a command.
    #[cold]
    pub fn failed(&self, index: CommandIndex, code: ErrorCode) {
        self.command(index).errors.add(1);
        if !index.is_resp() {
            return;
        }
        self.errors_by_code[code as usize].add(1);
        if code.is_rejection() {
            self.rejected_calls[index.position()].add(1);
        }
    }

    /// Counts an error reply of a command that was not begun.
    #[cold]
    pub fn refused(&self, index: CommandIndex, code: ErrorCode) {
        self.failed(index, code);
        if index.is_resp() && !code.is_rejection() {
            self.rejected_calls[index.position()].add(1);
        }
    }

    /// Counts a write that does nothing because its condition does not hold.
    #[cold]
    pub fn kept(&self, index: CommandIndex) {
        self.not_stored[index.position()].add(1);
    }

    /// Calls `take` with the position of each command that has run since the last call.
    #[inline]
    pub fn take_ran(&self, mut take: impl FnMut(usize)) {
        for (at, word) in self.ran.iter().enumerate() {
            let mut bits = word.get();
            if bits == 0 {
                continue;
            }
            word.set(0);
            while bits != 0 {
                take(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// What a command does to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads.
    Read,
    /// May write.
    Write,
}

/// A command of either protocol, as a position in [`WorkerCounters::commands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandIndex(u16);

const _: () = assert!(CommandIndex::COUNT <= RAN_WORDS * 64);

impl CommandIndex {
    /// RESP commands, one for unknown ones, memcached commands, native ones, and forms of meta
    /// commands, which [`Totals`] adds to their commands.
    pub const COUNT: usize = CommandIndex::FORM_START + MetaForm::COUNT;

    const FORM_START: usize = CommandIndex::NATIVE_START + NativeCommand::COUNT;

    const NATIVE_START: usize = CommandId::COUNT + 1 + MemcachedCommand::COUNT;

    /// A RESP command that is in no table.
    pub const UNKNOWN_RESP: CommandIndex = CommandIndex(CommandId::COUNT as u16);

    /// As a number below [`CommandIndex::COUNT`].
    pub fn position(self) -> usize {
        usize::from(self.0)
    }

    /// Whether it is a RESP command.
    pub fn is_resp(self) -> bool {
        self.0 <= CommandIndex::UNKNOWN_RESP.0
    }

    /// The position of a RESP command.
    #[inline]
    pub fn resp(id: CommandId) -> CommandIndex {
        CommandIndex(id as u16)
    }

    /// The position of a memcached command.
    #[inline]
    pub fn memcached(command: MemcachedCommand) -> CommandIndex {
        CommandIndex(CommandIndex::UNKNOWN_RESP.0 + 1 + command as u16)
    }

    /// The position of a native op.
    #[inline]
    pub fn native(command: NativeCommand) -> CommandIndex {
        CommandIndex(CommandIndex::NATIVE_START as u16 + command as u16)
    }

    /// The position of a form of a meta command.
    pub fn form(form: MetaForm) -> CommandIndex {
        CommandIndex(CommandIndex::FORM_START as u16 + form as u16)
    }

    /// Whether the command at a position reads keys, may write them, or neither.
    pub fn access(index: usize) -> Option<Access> {
        match CommandIndex::verb(index) {
            Verb::Resp(None) => None,
            Verb::Resp(Some(spec)) => {
                let reads = spec.flags.contains(Flags::READONLY).then_some(Access::Read);
                if spec.flags.contains(Flags::WRITE) { Some(Access::Write) } else { reads }
            }
            Verb::Memcached(position) => MemcachedCommand::access_at(position),
            Verb::Native(position) => NativeCommand::access_at(position),
        }
    }

    /// Whether Redis counts hits and misses of the command at a position: it does for values read
    /// to be returned, not for those about to be written. Reads by other protocols count as GET
    /// does.
    fn is_lookup(index: usize) -> bool {
        match CommandIndex::describe(index) {
            (Protocol::Resp, "memory|usage") => false,
            (
                Protocol::Resp,
                "set" | "getset" | "getdel" | "getex" | "copy" | "bitop" | "bitfield",
            ) => true,
            _ => CommandIndex::access(index) == Some(Access::Read),
        }
    }

    /// The port and the name of the command at a position.
    pub fn describe(index: usize) -> (Protocol, &'static str) {
        match CommandIndex::verb(index) {
            Verb::Resp(spec) => (Protocol::Resp, spec.map_or("unknown", |spec| spec.name)),
            Verb::Memcached(at) => (Protocol::Memcached, MemcachedCommand::name_at(at)),
            Verb::Native(at) => (Protocol::Native, NativeCommand::name_at(at)),
        }
    }

    fn verb(index: usize) -> Verb {
        let unknown = usize::from(CommandIndex::UNKNOWN_RESP.0);
        match index {
            _ if index <= unknown => Verb::Resp(Spec::all().get(index)),
            _ if index >= CommandIndex::FORM_START => {
                let form = MetaForm::ALL[index - CommandIndex::FORM_START];
                Verb::Memcached(form.command() as usize)
            }
            _ if index >= CommandIndex::NATIVE_START => {
                Verb::Native(index - CommandIndex::NATIVE_START)
            }
            _ => Verb::Memcached(index - unknown - 1),
        }
    }
}

/// The row of a command; `None`: it is in no table.
enum Verb {
    Resp(Option<&'static Spec>),
    Memcached(usize),
    Native(usize),
}

/// One command's counts, summed over the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTotals {
    /// The port it came from.
    pub protocol: Protocol,
    /// In lower case.
    pub name: &'static str,
    /// Times it ran.
    pub calls: u64,
    /// Keys that it found.
    pub hits: u64,
    /// Keys that it did not find.
    pub misses: u64,
    /// Error replies.
    pub errors: u64,
    /// Of these, those of calls that were not begun.
    pub rejected: u64,
    /// Writes whose condition did not hold.
    pub not_stored: u64,
    /// The workers' time spent on them, in nanoseconds (`timing`).
    pub spent_ns: u64,
}

impl CommandTotals {
    /// The counts beyond those of `part`.
    pub fn less(&self, part: &CommandTotals) -> CommandTotals {
        CommandTotals {
            protocol: self.protocol,
            name: self.name,
            calls: self.calls.saturating_sub(part.calls),
            hits: self.hits.saturating_sub(part.hits),
            misses: self.misses.saturating_sub(part.misses),
            errors: self.errors.saturating_sub(part.errors),
            rejected: self.rejected.saturating_sub(part.rejected),
            not_stored: self.not_stored.saturating_sub(part.not_stored),
            spent_ns: self.spent_ns.saturating_sub(part.spent_ns),
        }
    }
}

totals! {
    /// Everything that the workers count, summed.
    pub struct Totals of WorkerCounters;
    counters {
        /// Commands that a user had no right to run.
        denied_commands = denied_commands,
        /// Commands on keys that a user had no right to.
        denied_keys = denied_keys,
        /// Connections accepted since the start.
        connections_total = accepted,
        /// Connections refused because there were `max_connections` already.
        connections_rejected = rejected,
        /// Connections refused for their address.
        connections_rejected_of_address = rejected_of_address,
        /// Connections closed for having been idle.
        connections_idle_closed = idle_closed,
        /// Values that could be neither pinned nor copied, and slow readers closed for what they
        /// pin.
        replies_refused = replies_refused,
        /// Atomic groups that were refused, or ended, for `--max-atomic-size`.
        atomic_refused = atomic_refused,
        /// Bytes read from clients.
        net_input_bytes = input_bytes,
        /// Bytes written to clients.
        net_output_bytes = output_bytes,
        /// Bytes of long replies and commands that others waited for.
        bulk_bytes = bulk.bytes,
        /// Batches that went to the store.
        batches = batches,
        /// Store requests in those batches.
        batch_requests = batch_requests,
        /// Groups of writes of one key that were written as one.
        compaction_windows = compaction.windows,
        /// Writes that the store never saw.
        compacted_writes = compaction.writes_saved,
        /// Groups that ran one by one after all.
        compaction_given_up = compaction.given_up,
        /// Of these, those that closed because no more of the queues may be looked at.
        compaction_closed_full = compaction.closed_full,
        /// Requests that were executed early, with the window of their key.
        compaction_joined = compaction.joined,
        /// Requests that broke the protocol.
        protocol_errors = protocol_errors,
        /// Commands that were refused for their size and skipped.
        oversized_commands = oversized_commands,
        /// Failed and successful attempts to log in.
        auth_attempts = auth_attempts,
        /// Of these, failed.
        auth_errors = auth_errors,
    }
    arrays {
        /// Error replies of RESP by [`ErrorCode`].
        errors_by_code = errors_by_code: ErrorCode::COUNT,
        /// Groups by how many writes they put together (`Compacted::by_writes`).
        compaction_by_writes = compaction.by_writes: SIZE_CLASSES,
        /// Turns by the bytes of these (`BulkCells::by_bytes`).
        bulk_by_bytes = bulk.by_bytes: BULK_CLASSES,
    }
    others {
        /// One entry for each command of each protocol, also those never called.
        commands: Vec<CommandTotals>,
        /// By [`MetaForm`]: counts that are already included in their commands.
        forms: Vec<CommandTotals>,
        /// Connections open now, Redis clients.
        connections_resp: u64,
        /// Connections open now, memcached clients.
        connections_memcached: u64,
        /// The most that one turn of a worker has cost, in units of [`commands::work`].
        turn_work_units_max: u64,
        /// Windows that are open now.
        compaction_open: u64,
        /// Of each worker: time in rounds that found something to serve, polling left out.
        worker_busy_ns: Vec<u64>,
        /// Of connections that speak TLS.
        tls: TlsTotals,
        /// Clients refused by a door.
        doors: DoorTotals,
        /// Of memcached over UDP.
        udp: UdpTotals,
        /// Of requests between workers.
        forwardings: ForwardingTotals,
        /// Of native clients.
        native: NativeTotals,
    }
}

impl Totals {
    /// Connections refused, for whatever reason.
    pub fn rejected(&self) -> u64 {
        let too_many = self.connections_rejected + self.connections_rejected_of_address;
        too_many + self.doors.protected + self.doors.closed
    }

    /// Sums over `workers`; connections open now are the caller's to fill in.
    pub fn sum<'a>(workers: impl Iterator<Item = &'a WorkerCounters> + Clone) -> Totals {
        let command = |index: usize| {
            let (protocol, name) = CommandIndex::describe(index);
            let sum = |pick: fn(&CommandCells) -> &Cell| {
                workers.clone().map(|worker| pick(&worker.commands[index]).get()).sum::<u64>()
            };
            CommandTotals {
                protocol,
                name,
                calls: sum(|cells| &cells.calls),
                hits: sum(|cells| &cells.hits),
                misses: sum(|cells| &cells.misses),
                errors: sum(|cells| &cells.errors),
                rejected: workers.clone().map(|worker| worker.rejected_calls[index].get()).sum(),
                not_stored: workers.clone().map(|worker| worker.not_stored[index].get()).sum(),
                spent_ns: workers.clone().map(|worker| worker.spent_ns[index].get()).sum(),
            }
        };
        let mut commands: Vec<CommandTotals> = (0..CommandIndex::COUNT).map(command).collect();
        let forms = commands.split_off(CommandIndex::FORM_START);
        meta::add_to_commands(&mut commands, &forms);
        let native = NativeTotals::of(&commands, workers.clone());
        let units = workers.clone().map(|worker| worker.turn_work_units_max.get());
        Totals {
            native,
            tls: TlsTotals::sum_rows(workers.clone().map(|worker| &worker.tls)),
            doors: DoorTotals::sum_rows(workers.clone().map(|worker| &worker.doors)),
            udp: UdpTotals::sum_rows(workers.clone().map(|worker| &worker.udp)),
            forwardings: ForwardingTotals::sum(workers.clone()),
            commands,
            forms,
            turn_work_units_max: units.max().unwrap_or(0),
            compaction_open: workers.clone().map(|worker| worker.compaction.open.get()).sum(),
            worker_busy_ns: workers.clone().map(|worker| worker.busy_ns.get()).collect(),
            ..Totals::sum_rows(workers)
        }
    }

    /// The counts since `baseline` was taken; the number of open connections stays.
    pub fn since(mut self, baseline: &Totals) -> Totals {
        let commands = self.commands.iter_mut().zip(&baseline.commands);
        for (now, then) in commands.chain(self.forms.iter_mut().zip(&baseline.forms)) {
            *now = now.less(then);
        }
        for (now, then) in self.worker_busy_ns.iter_mut().zip(&baseline.worker_busy_ns) {
            *now = now.saturating_sub(*then);
        }
        self.subtract(baseline);
        self.tls.subtract(&baseline.tls);
        self.doors.subtract(&baseline.doors);
        self.udp.subtract(&baseline.udp);
        self.native = self.native.since(&baseline.native);
        // The depths of queues are the present ones.
        self.forwardings.subtract(&baseline.forwardings);
        self
    }

    /// The counts of one command.
    pub fn command(&self, protocol: Protocol, name: &str) -> Option<&CommandTotals> {
        self.commands.iter().find(|command| command.protocol == protocol && command.name == name)
    }

    /// Calls of all commands.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls).sum()
    }

    /// Error replies of all commands.
    pub fn errors(&self) -> u64 {
        self.commands.iter().map(|command| command.errors).sum()
    }

    /// Hits and misses, over the commands for which Redis counts them.
    pub fn lookups(&self) -> (u64, u64) {
        let commands = self.commands.iter().enumerate();
        let looking = commands.filter(|(at, _)| CommandIndex::is_lookup(*at));
        looking.fold((0, 0), |(hits, misses), (_, it)| (hits + it.hits, misses + it.misses))
    }
}

#[cfg(test)]
mod tests;
