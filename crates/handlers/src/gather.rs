//! Gathering: the commands of all ready connections become one batch of store requests.
//!
//! ```text
//!  connection 3: GET a, GET b ─┐
//!  connection 7: SET c 1 ──────┼──▶ requests [a][b][c][d]...   (at most 128)
//!  connection 9: get d ────────┘    pendings [3][3][7][9]...
//!                                        │ flush: full, or a barrier, or nothing more is ready
//!                                        ▼
//!                        Engine::execute_batch ──▶ ReplySink ──▶ each connection's output
//! ```
//!
//! A handler calls [`Gather::single`] for a request on one key, `weigh` if that may cost much;
//! `say`, `fail` or `reply_to` for a reply of its own; `settle` or `flush` before it reads what
//! came before; `glimpse` for a look at a key; `apart` for requests on bytes of its own; and
//! `on_the_clock` for work without units. `Worker::gather` and `worker/udp.rs` call the rest.
//!
//! # Invariants
//! I1: a connection's replies are appended in the order of its commands (K10): code that writes a
//!     reply without the batch calls [`Gather::reply_to`], which flushes the connection's requests
//!     first.
//! I2: `requests` and `pendings` have equal lengths.
//! I3: where requests are routed, a request of the batch whose connection awaits earlier replies
//!     has a place behind those, and its reply goes there. Before a request is sent away, the batch
//!     is flushed if it holds one of the same connection on the same key.
//! I4: the router's `finish` is called once for each request that it left here, after its reply
//!     (K6).
//! I5: an engine that routes remembers one batch: another on the same engine begins when this one
//!     is executed ([`Gather::apart`]).

mod flushing;
pub mod glimpse;
pub mod pace;
mod replies;

use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use base::KeyHash;
use commands::output::PIN_VALUE_BYTES_MIN_OVER_LIMIT;
use commands::reply::{Answer, Pending};
use commands::rmw::Rmw;
use commands::work::{BATCH_REQUESTS_MAX, Work};
use runtime::core::Core;
use runtime::engine::{Asked, Asking, Engine, HEAVY_REQUESTS_MAX, Sending};
use runtime::reply_sink::ReplySink;
use store::request::{Op, Request};

/// The assumed size of a reply without a larger value, until replies are counted.
const SMALL_REPLY_BYTES: usize = PIN_VALUE_BYTES_MIN_OVER_LIMIT;

/// Shorter replies outside of the batch are not counted: a connection's output limit is no less.
const LONG_REPLY_BYTES: usize = 16 << 10;

/// Bytes of notes that a worker keeps between two batches.
const NOTES_KEPT_BYTES_MAX: usize = 16 << 10;

/// The batch of one worker in the making. `'a` is the lifetime of the bytes that were read.
pub struct Gather<'g, 'a> {
    /// Executes the batch.
    pub engine: &'g mut (dyn Engine + 'g),
    /// What [`Engine::routes`] returns.
    routes: bool,
    /// Connections and counters.
    pub core: &'g mut Core,
    /// The buffer that holds the commands, if it may be kept beyond the round.
    pub receive_buffer: Option<&'a Arc<Vec<u8>>>,
    /// The bytes of the command that was admitted last, for errors that repeat it.
    pub raw: &'a [u8],
    /// Whether the command's request goes where the router decides.
    is_routing: bool,
    /// Whether the requests include reads of tracking clients: no other worker may execute those.
    pub holds_tracked: bool,
    /// Whether the connection that is being fed has asked for nothing but plain reads, in a server
    /// whose requests may go elsewhere.
    pub only_reads: bool,
    /// The number of its Redis commands that were run, or of memcached's text commands; each has
    /// one reply.
    pub command_count: usize,
    /// Requests that may read or copy whole values.
    heavy_count: usize,
    requests: ArrayVec<Request<'a, Rmw<'a>>, BATCH_REQUESTS_MAX>,
    pendings: ArrayVec<Pending, BATCH_REQUESTS_MAX>,
}

/// How far the parsing of one input came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes at the front of `consumed_bytes` that belong to a refused command.
    pub skipped_bytes: usize,
    /// Bytes of whole commands.
    pub consumed_bytes: usize,
    /// The least input length that makes another attempt worthwhile; 0: it stopped for another
    /// reason and can go on with the present input.
    pub need_bytes: usize,
}

impl Fed {
    /// Only whole commands were consumed.
    pub fn up_to(consumed_bytes: usize, need_bytes: usize) -> Fed {
        Fed { skipped_bytes: 0, consumed_bytes, need_bytes }
    }
}

impl<'g, 'a> Gather<'g, 'a> {
    /// An empty batch.
    pub fn new(engine: &'g mut (dyn Engine + 'g), core: &'g mut Core) -> Gather<'g, 'a> {
        Gather {
            routes: engine.routes(),
            engine,
            core,
            receive_buffer: None,
            raw: b"",
            is_routing: false,
            holds_tracked: false,
            only_reads: true,
            command_count: 0,
            heavy_count: 0,
            requests: ArrayVec::new(),
            pendings: ArrayVec::new(),
        }
    }

    /// Adds a request; a full batch is executed first.
    #[inline]
    pub fn push(&mut self, key: &'a [u8], hash: KeyHash, op: Op<'a, Rmw<'a>>, answer: Answer) {
        if self.requests.is_full() {
            self.flush();
            self.core.made(BATCH_REQUESTS_MAX * SMALL_REPLY_BYTES);
        }
        if !matches!(op, Op::Get) {
            self.core.connections[answer.slot].has_written = true;
        }
        if self.routes {
            if !self.is_routing {
                self.engine.join(hash, key);
            } else if !self.stays(&Request { key, hash, op }, answer) {
                return;
            }
        }
        self.engine.prefetch(hash);
        let connection = &mut self.core.connections[answer.slot];
        connection.batch_id = self.core.batch_id;
        let is_large_reader = connection.is_large_reader;
        self.requests.push(Request { key, hash, op });
        self.pendings.push(Pending {
            slot: answer.slot as u32,
            command: answer.command,
            is_quiet: answer.is_quiet,
            is_special: answer.is_quiet,
            shape: answer.shape,
        });
        if is_large_reader {
            self.flush();
        }
    }

    /// Whether a request is to join the batch; if not, it is sent to the worker that executes it.
    #[inline]
    fn stays(&mut self, request: &Request<'a, Rmw<'a>>, answer: Answer) -> bool {
        let asking = Asking { request, answer, batch_len: self.requests.len() };
        let away = match self.engine.ask(self.core, asking) {
            Asked::Here => return true,
            Asked::Away(away) => away,
        };
        if away.settles {
            self.flush();
        }
        let sending = Sending { request: *request, receive_buffer: self.receive_buffer, answer };
        self.engine.send(self.core, sending, away);
        false
    }

    /// Notes that the request added last may read or copy a whole value: few of those are gathered.
    pub fn weigh(&mut self) {
        self.heavy_count += 1;
        if self.heavy_count >= HEAVY_REQUESTS_MAX {
            self.flush();
        }
    }

    /// Executes what was gathered if the connection that was just fed has requests on large values
    /// in it: their cost is its own, and known before the next connection is fed.
    #[inline]
    pub fn settle_heavy(&mut self, slot: usize) {
        if self.heavy_count > 0 && self.core.connections[slot].is_large_reader {
            self.settle(slot);
        }
    }

    /// Called before a command: whether it may begin. A command that is not routable is a barrier:
    /// it begins when all earlier ones are answered, and is then parsed again (K10).
    #[inline]
    pub fn enter(&mut self, slot: usize, is_routable: bool) -> bool {
        // Items of an event stream are executed where their lines are made.
        let is_routable = is_routable && !self.core.shows_items;
        self.is_routing = is_routable && self.engine.is_routing();
        let awaiting = &mut self.core.connections[slot].awaiting;
        let may_begin = is_routable || awaiting.is_empty();
        if !may_begin {
            awaiting.wait_for_all();
        }
        may_begin
    }

    /// Called before a command that is a barrier goes on: its requests are executed here, whatever
    /// the command of another connection was before it.
    pub fn stay_here(&mut self) {
        self.is_routing = false;
    }

    /// Whether requests may go to other workers.
    #[inline]
    pub fn routes(&self) -> bool {
        self.routes
    }

    /// Whether requests of the command that has begun are routed; others run here.
    pub fn is_routed(&self) -> bool {
        self.is_routing
    }

    /// Whether another command of the connection may be parsed.
    #[inline]
    pub fn may_parse(&mut self, slot: usize) -> bool {
        self.core.may_parse(slot) && (!self.routes || self.engine.may_send(self.core, slot))
    }

    /// A separate batch behind this one, for requests on bytes that are gone before the round ends;
    /// its caller flushes it.
    pub fn apart<'i>(&mut self) -> Gather<'_, 'i> {
        self.flush();
        Gather { is_routing: self.is_routing, ..Gather::new(self.engine, self.core) }
    }

    /// The buffer for the bytes that the reply to the next request repeats.
    pub fn fresh_notes(&mut self) -> &mut Vec<u8> {
        if self.requests.is_empty() {
            self.core.notes.clear();
            self.core.notes.shrink_to(NOTES_KEPT_BYTES_MAX);
        }
        &mut self.core.notes
    }

    /// Executes the gathered requests.
    #[inline]
    pub fn flush(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        self.holds_tracked = false;
        let shows_items = self.core.shows_items;
        if shows_items {
            self.pendings.iter_mut().for_each(|pending| pending.is_special = true);
        }
        let sink = ReplySink::new(self.core, &self.pendings);
        sink.counters.batches.add(1);
        sink.counters.batch_requests.add(self.requests.len() as u64);
        let counters = sink.counters;
        self.engine.execute_batch(&self.requests, sink);
        counters.compaction.add(self.engine.take_compacted());
        self.heavy_count = 0;
        let touched = Work::bytes(std::mem::take(&mut self.core.touched_bytes));
        self.core.charge(Work::keys(self.requests.len()));
        self.core.charge(touched);
        if shows_items {
            self.show_items();
        }
        self.requests.clear();
        self.pendings.clear();
        if self.routes {
            self.engine.finish(self.core);
        }
        self.core.batch_id += 1;
    }

    /// Writes the event lines of the executed requests.
    #[cold]
    fn show_items(&mut self) {
        let Core { shared, connections, lines, now, .. } = &mut *self.core;
        let mut seen = std::mem::take(&mut lines.seen);
        let executed = self.requests.iter().zip(&self.pendings);
        for ((request, pending), seen) in executed.zip(&seen) {
            let client = &connections[pending.slot as usize].client;
            lines.add_request(&shared.observations().event_stream, *now, (request, *seen), client);
        }
        seen.clear();
        lines.seen = seen;
    }

    /// Executes the gathered requests at the end of a gathering: other workers may take a part of
    /// them.
    #[inline]
    pub fn finish(&mut self) {
        if self.routes && !self.core.shows_items && !self.holds_tracked {
            let (requests, pendings) = (&self.requests, &self.pendings);
            let tail = self.engine.offer_tail(self.core, requests, pendings);
            self.requests.truncate(requests.len() - tail);
            self.pendings.truncate(self.requests.len());
        }
        self.flush();
    }

    /// Executes the gathered requests if the connection has one among them.
    #[inline]
    pub fn settle(&mut self, slot: usize) {
        if self.core.connections[slot].batch_id == self.core.batch_id {
            self.flush();
        }
    }

    /// Runs code that counts no work: the turn is charged its time.
    pub fn on_the_clock(&mut self, run: impl FnOnce(&mut Self)) {
        let began = Instant::now();
        run(self);
        self.core.charge(Work::elapsed(began.elapsed()));
    }

    /// Appends a reply that does not come from the batch (I1).
    #[inline]
    pub fn reply_to<T>(&mut self, slot: usize, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.settle(slot);
        if self.routes && !self.core.connections[slot].awaiting.is_empty() {
            return self.say_behind(slot, encode);
        }
        let output = &mut self.core.connections[slot].output;
        let unsent_bytes = output.unsent_bytes();
        let result = output.append(encode);
        let reply_bytes = output.unsent_bytes() - unsent_bytes;
        let encoded_bytes = output.encoded_bytes();
        self.core.charge(Work::reply(reply_bytes as u64));
        if encoded_bytes > LONG_REPLY_BYTES {
            self.core.made(encoded_bytes);
        }
        result
    }

    /// Appends a reply behind those that the connection awaits.
    #[cold]
    fn say_behind<T>(&mut self, slot: usize, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let (mut encode, mut said) = (Some(encode), None);
        self.engine.say(self.core, slot, &mut |out| {
            said = encode.take().map(|encode| encode(out));
        });
        said.expect("the engine encodes each reply once")
    }
}
