//! One client connection: its socket, its unparsed input and its unsent output.
//!
//! ```text
//!  socket ──read──▶ input (only incomplete commands) ──parse──▶ requests
//!  socket ◀─write── output ◀──────────────────────── replies, in order
//! ```
//!
//! # Invariants
//! I1: an idle connection holds no buffer: both are empty vectors without capacity.
//! I2: replies are put into `output` in the order of the commands (K10).

pub mod exchange;

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use budget::{Books, Kind};
use commands::output::Output;
use dispatch::lanes::Awaiting;
use host::poller::Interest;
use replication::replicate::PendingGroup;
use sessions::acl::Pass;
use sessions::clients::{Client, NAMES_IN_RECORD_BYTES};
use sessions::doors::Door;
use sessions::tls;
use sessions::tracking::Tracker;
use wire::{memcached, resp};

use crate::walks::{DumpWalk, Reading, Slices};

pub use crate::transaction::Transaction;
pub use exchange::Exchange;

/// The memory of a connection without buffers: its records, their places in maps and lists, and
/// short names.
pub const RECORD_BYTES: u64 =
    (size_of::<Connection>() + size_of::<Client>() + 256) as u64 + NAMES_IN_RECORD_BYTES;

/// Longer input belongs to a large command.
const SMALL_INPUT_BYTES_MAX: usize = 48 << 10;

/// Longer replies are those of large commands.
const SMALL_OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Transactions that hold more are large commands.
const SMALL_GROUP_BYTES_MAX: u64 = 4 << 10;

/// The kind under which a reply of that length is booked.
pub fn reply_kind(output_bytes: usize) -> Kind {
    if output_bytes <= SMALL_OUTPUT_BYTES_MAX { Kind::Small } else { Kind::Replies }
}

/// The kind under which a transaction or a walk of that size is booked: a small one has room even
/// if large ones fill theirs.
pub fn group_kind(held_bytes: u64) -> Kind {
    if held_bytes <= SMALL_GROUP_BYTES_MAX { Kind::Small } else { Kind::Groups }
}

/// A connection of one worker.
pub struct Connection {
    /// The socket, which is not blocking.
    pub socket: TcpStream,
    /// The TLS stream over the socket, at a TLS port.
    pub tls: Option<Box<tls::Stream>>,
    /// The sender of a request that arrived by datagram; the socket is then shared.
    pub exchange: Option<Box<Exchange>>,
    /// The client as other threads see it.
    pub client: Arc<Client>,
    /// Bytes that have arrived and are not executed.
    pub input: Input,
    /// Bytes that have not been sent.
    pub output: Output,
    /// Its requests that other workers execute.
    pub awaiting: Awaiting,
    /// The protocol's own state.
    pub protocol_state: ProtocolState,
    /// Whether it continues.
    pub ending: Ending,
    /// The client has ended its sending half.
    pub input_ended: bool,
    /// The events for which the poller waits.
    pub interest: Interest,
    /// Whether it is in its worker's queue of long replies and commands.
    pub in_bulk: InBulk,
    /// The batch that holds its latest request.
    pub batch_id: u64,
    /// Some of its replies were too large to be copied: its requests are no longer gathered, so
    /// that the output limit is checked after each (K12).
    pub is_large_reader: bool,
    /// Rounds in which it could not begin a command, because their work was spent before (W1).
    pub rounds_waited: u32,
    /// The turn in which it had its last slice.
    pub sliced_in_turn: u64,
    /// At a node of a cluster: the value of `Core::reads_checked` when a read was last executed
    /// here for it. If that is the present one, it is not known yet whether its reply may leave.
    pub read_here_at: Option<u64>,
    /// Connections with small requests go before it (W4).
    pub is_slow: bool,
    /// A large worker sends its output: no other worker may.
    pub is_lent: bool,
    /// Bytes of the buffers that were lent with it.
    pub lent_held_bytes: usize,
    /// Its bookings in the buffer budget.
    pub booked: Books,
    /// A command of it may have written since its last reply was known to be on the disk.
    pub has_written: bool,
    /// A door has turned its client away since it was let in.
    pub turned_away: Option<TurnedAway>,
    /// CLIENT PAUSE holds its next command. What it holds when the server ends is not run: the
    /// client may ask another server for it.
    pub is_held: bool,
    /// It is in the worker's list of connections to finish in this round.
    pub is_touched: bool,
    /// It is in the worker's list of connections that wait for buffer room.
    pub is_starved: bool,
    /// It has waited long for less of the log to be pinned: its next command goes before.
    pub goes_past_pins: bool,
    /// Since when, over all attempts to get room.
    pub starved_at: Option<Instant>,
    /// How long the command that has an own buffer waited for parts of it before.
    pub waited: Duration,
}

/// What a connection moves in turn with others (worker/bulk.rs of `workers`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InBulk {
    /// A long reply.
    pub sends: bool,
    /// More of a long command.
    pub receives: bool,
    /// Whether its socket's unsent bytes are limited, as they are from its first long reply on.
    pub is_limited: bool,
}

/// Whether a connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It continues.
    Open,
    /// It continues once its reply no longer has to wait (core/resting.rs); until then it is not
    /// read.
    Resting,
    /// It is not read any more; its output is sent, then it is closed.
    AfterFlush,
    /// It is broken or killed.
    Now,
}

/// A client that a door has turned away: no more of its commands begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// The line that tells it goes behind all replies that are under way.
    Untold(&'static [u8]),
    /// The line was sent, or its connection ended within another reply.
    Told,
}

/// Bytes that have arrived and are not executed yet.
#[derive(Default)]
pub struct Input {
    /// From the start of a command on.
    pub held: Vec<u8>,
    /// Parsing again makes sense once `held` and new bytes are this long together.
    pub need_bytes: usize,
    /// Bytes to be thrown away before the next command.
    pub skip_bytes: u64,
    /// Whether any were skipped: its bytes are then no longer read again for samples of keys, which
    /// could not tell skipped bytes from commands.
    pub has_skipped: bool,
}

impl Input {
    /// Whether a command has begun and is not here as a whole.
    pub fn is_unfinished(&self) -> bool {
        !self.held.is_empty() && self.need_bytes > self.held.len()
    }

    /// Holds the rest of `bytes` from `start` on.
    pub fn keep_from(&mut self, start: usize, mut bytes: Vec<u8>) {
        if start < bytes.len() {
            bytes.drain(..start);
            self.held = bytes;
        }
    }
}

/// A protocol's state between commands.
pub enum ProtocolState {
    /// A Redis client.
    Resp(Resp),
    /// A memcached client.
    Memcached(Memcached),
}

/// A Redis client's state.
#[derive(Default)]
pub struct Resp {
    /// Where the next command starts and how far it was parsed.
    pub parser: resp::Parser,
    /// The rest of a refused command.
    pub discard: Option<resp::Discard>,
    /// RESP2 or RESP3.
    pub protocol: resp::Protocol,
    /// Its user, and that user's rights.
    pub pass: Pass,
    /// CLIENT REPLY.
    pub replies: Replies,
    /// MULTI and WATCH.
    pub transaction: Option<Box<Transaction>>,
    /// READONLY: reads are served of other nodes' slots of which this node has a copy.
    pub reads_copies: bool,
    /// CLIENT TRACKING: how.
    pub tracker: Option<Arc<Tracker>>,
    /// CLIENT CACHING, for the next command.
    pub is_caching_asked: bool,
    /// SUBSCRIBE, to the channel of invalidations: the only one there is.
    pub is_subscribed: bool,
    /// A command that has begun and is answered in slices: it is still the first of the input.
    pub slices: Option<Box<Slices>>,
}

impl Resp {
    /// Between MULTI and EXEC.
    pub fn is_queueing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.is_queueing())
    }
}

/// CLIENT REPLY: whether commands are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    /// All are answered.
    #[default]
    On,
    /// None is answered.
    Off,
    /// The next one is not answered.
    SkipNext,
}

/// A memcached client's state.
#[derive(Default)]
pub struct Memcached {
    /// How far the line was parsed.
    pub parser: memcached::Parser,
    /// Whether a password is still to be given.
    pub needs_auth: bool,
    /// A get of several keys that has begun in a cluster: the input starts behind its finished
    /// part.
    pub reading: Option<Reading>,
    /// The error for a key of it that was not read, sent at its end.
    pub failed_read: Option<Box<[u8]>>,
    /// A list of keys that has begun: its line is still the first of the input.
    pub dump: Option<Box<DumpWalk>>,
    /// The framing; the first byte decides.
    pub framing: Framing,
    /// Lines of its event stream that had no room.
    pub skipped_lines: u64,
    /// Its bytes were no request.
    pub is_garbled: bool,
    /// A SASL mechanism has been named and waits for its message.
    pub is_sasl_begun: bool,
}

/// The framings of memcached clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// No byte has arrived yet.
    #[default]
    Undecided,
    /// Lines: text and meta.
    Text,
    /// Headers and bodies.
    Binary,
}

impl Connection {
    /// Whether no more replies are made for it.
    pub fn is_closing(&self) -> bool {
        matches!(self.ending, Ending::AfterFlush | Ending::Now)
    }

    /// A connection that has just been accepted.
    pub fn new(
        socket: TcpStream,
        client: Arc<Client>,
        protocol_state: ProtocolState,
    ) -> Connection {
        Connection {
            socket,
            tls: None,
            exchange: None,
            client,
            input: Input::default(),
            output: Output::default(),
            awaiting: Awaiting::default(),
            protocol_state,
            ending: Ending::Open,
            input_ended: false,
            interest: Interest::READ,
            in_bulk: InBulk::default(),
            batch_id: 0,
            is_large_reader: false,
            rounds_waited: 0,
            sliced_in_turn: 0,
            read_here_at: None,
            is_slow: false,
            is_lent: false,
            lent_held_bytes: 0,
            booked: Books::default(),
            has_written: false,
            turned_away: None,
            is_held: false,
            is_touched: false,
            is_starved: false,
            goes_past_pins: false,
            starved_at: None,
            waited: Duration::ZERO,
        }
    }

    /// The line for a client that was turned away and is not told yet, if it is not told later.
    pub fn take_denial(&mut self) -> Option<&'static [u8]> {
        if !self.is_closing() {
            return None;
        }
        let Some(TurnedAway::Untold(line)) = self.turned_away else { return None };
        self.turned_away = Some(TurnedAway::Told);
        self.is_between_replies().then_some(line)
    }

    /// Gives its user up: nothing more is done for it.
    fn log_out(&mut self) {
        match &mut self.protocol_state {
            ProtocolState::Resp(resp) => resp.pass.log_out(),
            ProtocolState::Memcached(memcached) => memcached.needs_auth = true,
        }
    }

    /// Ends it behind the replies that are under way, and `line` after them.
    pub fn turn_away(&mut self, line: &'static [u8]) {
        self.log_out();
        self.turned_away = Some(TurnedAway::Untold(line));
        self.end_turned_away();
    }

    /// Ends it if it was turned away, but not within a reply: a command that is answered in parts
    /// may have written, and a reply that waits comes first. Called before a next command could
    /// begin.
    pub fn end_turned_away(&mut self) {
        let ends =
            self.turned_away.is_some() && self.ending == Ending::Open && self.is_between_replies();
        if ends {
            self.ending = Ending::AfterFlush;
        }
    }

    /// Its MULTI and WATCH, if there are some.
    pub fn transaction(&self) -> Option<&Transaction> {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.transaction.as_deref(),
            ProtocolState::Memcached(_) => None,
        }
    }

    /// Whether its client still has to log in.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.pass.needs_auth(),
            ProtocolState::Memcached(memcached) => memcached.needs_auth,
        }
    }

    /// Whether it surely has nothing to book, which mostly means that it is between two requests.
    #[inline]
    pub fn holds_nothing(&self) -> bool {
        let has_queued = match &self.protocol_state {
            ProtocolState::Resp(Resp { transaction, slices, .. }) => {
                transaction.is_some() || slices.is_some()
            }
            ProtocolState::Memcached(_) => false,
        };
        self.input.held.capacity() == 0
            && !self.output.has_buffer()
            && self.output.is_empty()
            && self.tls.is_none()
            && self.lent_held_bytes == 0
            && !has_queued
    }

    /// The buffers that it holds and that count against the budget, by kind.
    #[inline]
    pub fn books(&self) -> Books {
        let mut books = Books::default();
        let (input, output) = (self.input.held.capacity(), self.output.held_bytes());
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.sealed_bytes());
        let sent = output + sealed + self.lent_held_bytes;
        let kinds = match self.exchange {
            Some(_) => (Kind::Udp, Kind::Udp),
            None => (self.input_kind(input), reply_kind(sent)),
        };
        books.add(kinds.0, input as u64);
        if let Some(tls) = &self.tls {
            let kind = if self.is_stranger() { Kind::Strangers } else { Kind::Small };
            books.add(kind, tls.unfinished_bytes() as u64);
        }
        books.add(kinds.1, sent as u64);
        let queued_bytes = self.queued_bytes() as u64;
        books.add(group_kind(queued_bytes), queued_bytes);
        books
    }

    fn input_kind(&self, input_bytes: usize) -> Kind {
        match input_bytes {
            0 => Kind::Small,
            _ if self.is_stranger() => Kind::Strangers,
            SMALL_INPUT_BYTES_MAX.. => Kind::Bodies,
            _ => Kind::Small,
        }
    }

    /// Bytes that its commands keep between two rounds.
    fn queued_bytes(&self) -> usize {
        match &self.protocol_state {
            ProtocolState::Resp(Resp { transaction, slices, .. }) => {
                transaction.as_ref().map_or(0, |transaction| transaction.held_bytes())
                    + slices.as_ref().map_or(0, |slices| slices.held_bytes())
            }
            ProtocolState::Memcached(Memcached { dump, .. }) => {
                dump.as_ref().map_or(0, |walk| walk.held_bytes())
            }
        }
    }

    /// The door by which it arrived.
    pub fn door(&self) -> Door {
        Door::of(self.client.protocol, self.tls.is_some(), &self.client.peer)
    }

    /// Whether it may stay when its door is no longer open to strangers: it has logged in with a
    /// password.
    pub fn is_known(&self) -> bool {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.pass.has_shown_password(),
            ProtocolState::Memcached(memcached) => !memcached.needs_auth,
        }
    }

    /// The RESP version its replies are encoded in.
    #[inline]
    pub fn protocol(&self) -> resp::Protocol {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.protocol,
            ProtocolState::Memcached(_) => resp::Protocol::Resp2,
        }
    }

    /// The Redis client's state; called only while one of its commands runs.
    #[inline]
    pub fn resp(&mut self) -> &mut Resp {
        match &mut self.protocol_state {
            ProtocolState::Resp(resp) => resp,
            ProtocolState::Memcached(_) => unreachable!("a RESP command on a memcached connection"),
        }
    }

    /// Whether no command is under way that later replies belong to.
    pub fn has_whole_replies(&self) -> bool {
        self.is_between_replies()
            && match &self.protocol_state {
                ProtocolState::Resp(resp) => {
                    resp.transaction.is_none() && resp.replies == Replies::On
                }
                ProtocolState::Memcached(_) => true,
            }
    }

    /// The group whose answer it waits for.
    pub fn pending_group(&self) -> Option<&PendingGroup> {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.slices.as_ref()?.source.pending_group(),
            ProtocolState::Memcached(_) => None,
        }
    }

    /// Whether no command is answered in parts.
    pub fn is_between_replies(&self) -> bool {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.slices.is_none(),
            ProtocolState::Memcached(memcached) => {
                memcached.reading.is_none() && memcached.dump.is_none()
            }
        }
    }

    /// Whether no reply waits, and the next one will be the first that its client gets.
    pub fn says_nothing(&self) -> bool {
        self.output.is_empty() && self.awaiting.is_empty() && self.exchange.is_none()
    }

    /// Forgets what was parsed of its input since its replies were whole: these bytes come again.
    pub fn parse_anew(&mut self) {
        match &mut self.protocol_state {
            ProtocolState::Resp(resp) => {
                resp.parser = Default::default();
                (resp.transaction, resp.slices) = (None, None);
                self.client.set_queued(None);
            }
            ProtocolState::Memcached(memcached) => {
                memcached.parser = Default::default();
                (memcached.reading, memcached.dump) = (None, None);
            }
        }
        self.end_turned_away();
    }

    /// What MULTI lacks for the copy that it keeps of the large command on its way; it may take so
    /// many bytes.
    pub fn copy_bytes(&self, group_bytes_max: u64) -> usize {
        match &self.protocol_state {
            ProtocolState::Resp(Resp { transaction: Some(transaction), .. }) => {
                transaction.lacks_for_next(self.input.need_bytes, group_bytes_max)
            }
            _ => 0,
        }
    }

    /// Makes room of that many bytes for the copy.
    pub fn reserve_copy(&mut self, copy_bytes: usize) {
        if let Some(transaction) = &mut self.resp().transaction {
            let spare_bytes = transaction.queued.capacity() - transaction.queued.len();
            transaction.queued.reserve_exact(spare_bytes + copy_bytes);
        }
    }

    /// Whether a memcached command may not wait: the rest of a datagram is not kept, and a login
    /// touches no value.
    pub fn must_run_now(&mut self) -> bool {
        self.exchange.is_some() || self.memcached().needs_auth
    }

    /// The memcached client's state; called only while one of its commands runs.
    #[inline]
    pub fn memcached(&mut self) -> &mut Memcached {
        match &mut self.protocol_state {
            ProtocolState::Memcached(memcached) => memcached,
            ProtocolState::Resp(_) => unreachable!("a memcached command on a RESP connection"),
        }
    }
}
