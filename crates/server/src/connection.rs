//! One client connection: its socket, its unparsed input and its unsent output.
//!
//! ```text
//!  socket ──read──▶ input (only what is incomplete) ──parse──▶ requests
//!  socket ◀─write── output ◀──────────────────────── replies, in order
//! ```
//!
//! # Invariants
//! I1: an idle connection holds no buffer: both are empty vectors without capacity.
//! I2: replies are put into `output` in the order of the commands (K10).

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use wire::{memcached, resp};

use crate::acl::Pass;
use crate::budget::{Books, Kind};
use crate::clients::Client;
use crate::doors::Door;
use crate::forwarding::Awaiting;
use crate::memcached::udp::Exchange;
use crate::memcached::{DumpWalk, Reading};
use crate::output::Output;
use crate::poller::Interest;
use crate::resp::slices::Slices;
use crate::resp::transaction::Transaction;
use crate::tls;
use crate::tracking::Tracker;

/// What a connection takes whatever it sends: its records and their places in maps and lists.
pub const RECORD_BYTES: u64 = (size_of::<Connection>() + size_of::<Client>() + 256) as u64;

/// Input of this length belongs to a large command.
const SMALL_INPUT_BYTES_MAX: usize = 48 << 10;

/// Replies up to this length are those of small commands.
const SMALL_OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Transactions that hold no more are small commands.
const SMALL_GROUP_BYTES_MAX: u64 = 4 << 10;

/// What a reply of that length is booked as.
pub fn reply_kind(output_bytes: usize) -> Kind {
    if output_bytes <= SMALL_OUTPUT_BYTES_MAX { Kind::Small } else { Kind::Replies }
}

/// What a transaction or a walk that holds so much is booked as: a few words have their room also
/// where others fill theirs.
pub fn group_kind(held_bytes: u64) -> Kind {
    if held_bytes <= SMALL_GROUP_BYTES_MAX { Kind::Small } else { Kind::Groups }
}

/// A connection of one worker.
pub struct Connection {
    /// Not blocking.
    pub socket: TcpStream,
    /// What lies between it and everything else, at a port of TLS.
    pub tls: Option<Box<tls::Stream>>,
    /// What asked, of a request that came by datagram: then the socket is not its own.
    pub exchange: Option<Box<Exchange>>,
    /// As other threads see it.
    pub client: Arc<Client>,
    /// What has arrived and is not executed.
    pub input: Input,
    /// What has not left.
    pub output: Output,
    /// What other workers execute for it.
    pub awaiting: Awaiting,
    /// The protocol's own state.
    pub protocol_state: ProtocolState,
    /// Whether it goes on.
    pub ending: Ending,
    /// The client has said that nothing more comes.
    pub input_ended: bool,
    /// What the poller waits for.
    pub interest: Interest,
    /// The batch that holds its latest request.
    pub batch_id: u64,
    /// Some of its replies were too large to be copied: its requests are no longer gathered, so
    /// that the output limit is looked at after each (K12).
    pub is_large_reader: bool,
    /// Rounds in which it could not begin a command, for their work was spent before (W1).
    pub rounds_waited: u32,
    /// The turn that its last slice was a part of.
    pub sliced_in_turn: u64,
    /// Connections that ask for little go before it (W4).
    pub is_slow: bool,
    /// A large worker sends what it has to send: no other worker may.
    pub is_lent: bool,
    /// Buffers that went with that.
    pub lent_held_bytes: usize,
    /// Of the buffer budget.
    pub booked: Books,
    /// A command of it may have written something since what it was told last was on the disk.
    pub has_written: bool,
    /// Is in the worker's list of connections to finish in this round.
    pub is_touched: bool,
    /// Is in the worker's list of connections that wait for buffer room.
    pub is_starved: bool,
    /// Since when, over all tries to get room.
    pub starved_at: Option<Instant>,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It does.
    Open,
    /// It does, once what its answer waits for has come (worker/resting.rs): until then it is not
    /// read.
    Resting,
    /// Nothing more is read; what has to leave leaves, then it is closed.
    AfterFlush,
    /// It is broken or killed.
    Now,
}

/// What has arrived and is not executed yet.
#[derive(Default)]
pub struct Input {
    /// From the start of a command on.
    pub held: Vec<u8>,
    /// Parsing again makes sense once `held` and new bytes are this long together.
    pub need_bytes: usize,
    /// Bytes to be thrown away before the next command.
    pub skip_bytes: u64,
    /// Whether any were skipped: what it sends is no longer read again for samples of keys, which
    /// could not tell such bytes from commands.
    pub has_skipped: bool,
}

impl Input {
    /// Holds what is left of `bytes` from there on.
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
    /// Where the next command starts and how far it was looked at.
    pub parser: resp::Parser,
    /// What is still to come of a refused command.
    pub discard: Option<resp::Discard>,
    /// RESP2 or RESP3.
    pub protocol: resp::Protocol,
    /// Its user, and what that user may do.
    pub pass: Pass,
    /// CLIENT REPLY.
    pub replies: Replies,
    /// MULTI and WATCH.
    pub transaction: Option<Box<Transaction>>,
    /// READONLY: reads of other nodes' slots that this node has a copy of are served.
    pub reads_copies: bool,
    /// CLIENT TRACKING: how.
    pub tracker: Option<Arc<Tracker>>,
    /// CLIENT CACHING, of the next command.
    pub is_caching_asked: bool,
    /// SUBSCRIBE, to the channel of invalidations: the only one there is.
    pub is_subscribed: bool,
    /// A command that is answered in slices and has begun: it is still the first of the input.
    pub slices: Option<Box<Slices>>,
}

impl Resp {
    /// Between MULTI and EXEC.
    pub fn is_queueing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.is_queueing())
    }
}

/// CLIENT REPLY: whether a command is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    /// All are.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    SkipNext,
}

/// A memcached client's state.
#[derive(Default)]
pub struct Memcached {
    /// How far the line was looked at.
    pub parser: memcached::Parser,
    /// Whether a password is still to be given.
    pub needs_auth: bool,
    /// A get of several keys that has begun in a cluster: the input starts behind what is done.
    pub reading: Option<Reading>,
    /// Why some key of it was not read: what is told at its end.
    pub failed_read: Option<Box<[u8]>>,
    /// A list of keys that has begun: its line is still the first of the input.
    pub dump: Option<Box<DumpWalk>>,
    /// Its first byte decides.
    pub framing: Framing,
    /// Lines of its event stream that had no room.
    pub skipped_lines: u64,
    /// What it sent was no request.
    pub is_garbled: bool,
    /// A mechanism of SASL has been named and wants its message.
    pub is_sasl_begun: bool,
}

/// What memcached's clients may speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Nothing has come yet.
    #[default]
    Undecided,
    /// Lines: text and meta.
    Text,
    /// Headers and bodies.
    Binary,
}

impl Connection {
    /// Whether nothing is made for it any more.
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
            batch_id: 0,
            is_large_reader: false,
            rounds_waited: 0,
            sliced_in_turn: 0,
            is_slow: false,
            is_lent: false,
            lent_held_bytes: 0,
            booked: Books::default(),
            has_written: false,
            is_touched: false,
            is_starved: false,
            starved_at: None,
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

    /// Whether it certainly has nothing to book: so it is between two requests, mostly.
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

    /// Buffers that it holds and that count against the budget, by kind.
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

    /// What its commands keep between two rounds.
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

    /// Through which door it came.
    pub fn door(&self) -> Door {
        Door::of(self.client.protocol, self.tls.is_some(), &self.client.peer)
    }

    /// Whether it came before its door asked for a login, or has logged in.
    pub fn is_known(&self) -> bool {
        match &self.protocol_state {
            ProtocolState::Resp(resp) => resp.pass.is_logged_in(),
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

    /// The Redis client's state; only called while one of its commands runs.
    #[inline]
    pub fn resp(&mut self) -> &mut Resp {
        match &mut self.protocol_state {
            ProtocolState::Resp(resp) => resp,
            ProtocolState::Memcached(_) => unreachable!("a RESP command on a memcached connection"),
        }
    }

    /// The memcached client's state; only called while one of its commands runs.
    #[inline]
    pub fn memcached(&mut self) -> &mut Memcached {
        match &mut self.protocol_state {
            ProtocolState::Memcached(memcached) => memcached,
            ProtocolState::Resp(_) => unreachable!("a memcached command on a RESP connection"),
        }
    }
}
