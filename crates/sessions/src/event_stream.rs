//! The event stream of memcached's `watch`: lines about items and connections for its subscribers.
//!
//! ```text
//!  a batch ── any subscriber? (one flag a round) ── no ─▶ nothing
//!               │ yes
//!               └▶ requests, outcomes ─▶ lines of the round ─▶ each subscriber's worker
//! ```
//!
//! # Invariants
//! W1: without a subscriber a batch costs one look at a flag of the worker's own, a round two
//!     relaxed loads, and a reply nothing.
//! W2: a round makes at most [`LINES_BYTES_MAX`] of lines. A subscriber that has not read earlier
//!     lines gets no more than its output may hold: further lines are left out, counted and
//!     reported as `skipped=`. Lines that wait in an output are part of the client buffers; lines
//!     on their way to a worker are at most a thirty-second of them ([`UnderWay`]).
//! W3: no worker waits for a subscriber.
//!
//! # Limits
//! Lines of several workers are not sorted; their numbers (gid) give the order in which they were
//! made. While a client subscribes to items, workers that route execute each request where it came
//! in. In a cluster no client can subscribe to items, because other nodes have some of them.

mod prefixes;

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base::UnixMillis;
use budget::{BufferBudget, UnderWay};
use commands::rmw::meta::Guard;
use commands::rmw::{Refusal, Rmw, Side};
use store::request::{Condition, Evicted, Expiry, Item, Op, Outcome, Request};
use wire::memcached::{EventTopics, push_uri_encoded};

use crate::clients::Client;
use crate::end::End;
use prefixes::{Prefixes, Use};

/// The maximum for one round of one worker.
pub const LINES_BYTES_MAX: usize = 256 << 10;

/// The subscribers, and the topics of each.
#[derive(Debug, Default)]
pub struct EventStream {
    /// All topics that some client subscribes to.
    topics: AtomicU8,
    last_line: AtomicU64,
    /// Lines on their way to subscribers' workers.
    pub under_way: UnderWay,
    /// For `stats`.
    pub counts: LineCounts,
    /// `stats detail`.
    pub prefixes: Prefixes,
    clients: Mutex<Vec<(Arc<Client>, EventTopics)>>,
}

/// The counts of lines since the start, by what happened to them.
#[derive(Debug, Default)]
pub struct LineCounts {
    made: AtomicU64,
    /// Lines without room where they were made.
    dropped: AtomicU64,
    /// Lines sent to subscribers, counted for each.
    sent: AtomicU64,
    /// Lines left out because a subscriber had not taken earlier ones.
    skipped: AtomicU64,
}

impl LineCounts {
    /// Counts lines that a subscriber does not get.
    pub fn skip(&self, count: u64) {
        self.skipped.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts lines that were sent but do not reach the subscriber.
    pub fn skip_sent(&self, count: u64) {
        self.sent.fetch_sub(count, Ordering::Relaxed);
        self.skip(count);
    }

    /// The counts with their names in memcached.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("log_worker_dropped", &self.dropped),
            ("log_worker_written", &self.made),
            ("log_watcher_skipped", &self.skipped),
            ("log_watcher_sent", &self.sent),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

impl EventStream {
    /// How many subscribe.
    pub fn subscriber_count(&self) -> usize {
        self.lock().len()
    }

    /// The topics that clients subscribe to.
    #[inline]
    pub fn topics(&self) -> EventTopics {
        // Relaxed: a change may take effect a moment later.
        EventTopics(self.topics.load(Ordering::Relaxed))
    }

    /// The client subscribes from now on.
    pub fn add(&self, client: &Arc<Client>, topics: EventTopics) {
        let mut clients = self.lock();
        clients.push((Arc::clone(client), topics));
        self.publish(&clients);
    }

    /// Ends the client's subscription, if it has one.
    pub fn remove(&self, client_id: u64) {
        if self.topics() == EventTopics::NONE {
            return;
        }
        let mut clients = self.lock();
        clients.retain(|(client, _)| client.id != client_id);
        self.publish(&clients);
    }

    /// Whether that client subscribes.
    pub fn has(&self, client_id: u64) -> bool {
        let is_any = self.topics() != EventTopics::NONE;
        is_any && self.lock().iter().any(|(client, _)| client.id == client_id)
    }

    /// `stats detail on` and `off`.
    pub fn count_prefixes(&self, is_on: bool) {
        let clients = self.lock();
        self.prefixes.switch(is_on);
        self.publish(&clients);
    }

    fn publish(&self, clients: &[(Arc<Client>, EventTopics)]) {
        // A client whose topics never occur here counts as a subscriber all the same.
        let none = if clients.is_empty() { EventTopics::NONE } else { EventTopics::OTHERS };
        let none = if self.prefixes.is_on() { none.with(EventTopics::PREFIXES) } else { none };
        let all = clients.iter().fold(none, |all, (_, topics)| all.with(*topics));
        self.topics.store(all.0, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Client>, EventTopics)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a request, for its lines.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Whether the old item is known: a write that was merged with others has version 0.
    is_known: bool,
    /// The length of the old value.
    found: Option<usize>,
    /// memcached's status of a write.
    status: &'static str,
    /// The length of the new value, for a write that reports it.
    written: Option<usize>,
    /// The expiry of the new value.
    expires_at: Option<UnixMillis>,
}

impl Seen {
    /// The result from an outcome.
    pub fn of(outcome: &Outcome<'_, Refusal>) -> Seen {
        let len = |item: &Item<'_>| item.value.len();
        let (found, status, written) = match outcome {
            Outcome::Hit(item) => (Some(len(item)), "stored", None),
            Outcome::Miss => (None, "not_found", None),
            Outcome::Stored { old, .. } => (old.as_ref().map(len), "stored", None),
            Outcome::NotStored { old } => (old.as_ref().map(len), "not_stored", None),
            Outcome::VersionMismatch { old } => (Some(len(old)), "exists", None),
            Outcome::Deleted { old } => (old.as_ref().map(len), "stored", None),
            Outcome::Updated { old, new } => {
                (old.as_ref().map(len), "stored", new.as_ref().map(len))
            }
            Outcome::Refused(Refusal::OtherVersion(_)) => (Some(0), "exists", None),
            // The length is not reported.
            Outcome::Refused(Refusal::NotNumeric | Refusal::Present) => {
                (Some(0), "not_stored", None)
            }
            Outcome::Refused(_) => (None, "not_stored", None),
            Outcome::OutOfMemory | Outcome::Untold | Outcome::Unwritable => {
                (None, "no_memory", None)
            }
            Outcome::TooLarge { .. } => (None, "too_large", None),
        };
        let is_known = !matches!(outcome, Outcome::Stored { version: 0, old: None });
        let expires_at = match outcome {
            Outcome::Updated { new: Some(new), .. } => new.expires_at,
            _ => None,
        };
        Seen { is_known, found, status, written, expires_at }
    }
}

/// One worker's lines in the making.
#[derive(Debug, Default)]
pub struct Lines {
    /// The results of the batch's requests.
    pub seen: Vec<Seen>,
    text: String,
    /// The topic and the end of each line.
    ends: Vec<(EventTopics, usize)>,
    /// Lines that had no room.
    lost: u64,
}

impl Lines {
    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds the lines of a request and its result.
    pub fn add_request(
        &mut self,
        stream: &EventStream,
        now: UnixMillis,
        (request, seen): (&Request<'_, Rmw<'_>>, Seen),
        client: &Client,
    ) {
        let (key, cfd) = (request.key, client.descriptor);
        let (status, class, size) = match seen.found {
            // An item whose expiry changes is reported as it is now.
            Some(size) if matches!(request.op, Op::Update(Rmw::SetExpiry(_))) => {
                ("found", 1, seen.written.unwrap_or(size))
            }
            Some(size) => ("found", 1, size),
            None => ("not_found", 0, 0),
        };
        if seen.is_known {
            self.add(stream, EventTopics::FETCHERS, "item_get", key, |line| {
                let _ = write!(line, "status={status} clsid={class} cfd={cfd} size={size}");
            });
        }
        let written = match &request.op {
            Op::Set(set) => Some((command_of(set.condition), set.expiry, set.value.len())),
            Op::Update(update) => joined(update, seen),
            Op::Get | Op::Delete => None,
        };
        let prefixes = &stream.prefixes;
        if prefixes.is_on() {
            let used = match (&request.op, &written) {
                (Op::Delete, _) => Some(Use::Delete),
                (_, Some(_)) => Some(Use::Set),
                (Op::Get | Op::Update(Rmw::MetaGet(_)), None) => {
                    Some(Use::Get { is_hit: seen.found.is_some() })
                }
                _ => None,
            };
            used.into_iter().for_each(|used| prefixes.count(key, used));
        }
        if let Some((command, expiry, size)) = written {
            let ttl = match expiry {
                Expiry::At(at) => at.0.saturating_sub(now.0).div_ceil(1000),
                Expiry::Never | Expiry::Keep => 0,
            };
            let status = seen.status;
            self.add(stream, EventTopics::MUTATIONS, "item_store", key, |line| {
                let _ = write!(
                    line,
                    "status={status} cmd={command} ttl={ttl} clsid=1 cfd={cfd} size={size}"
                );
            });
        }
        if let (Op::Delete, Some(size)) = (&request.op, seen.found) {
            self.add(stream, EventTopics::DELETIONS, "deleted", key, |line| {
                let _ = write!(line, "cmd=delete clsid=1 size={size}");
            });
        }
    }

    /// Adds the line of an evicted entry.
    pub fn add_eviction(&mut self, stream: &EventStream, now: UnixMillis, evicted: &Evicted) {
        let fetch = if evicted.last_use.is_read() { "yes" } else { "no" };
        let ttl = evicted.expires_at.map_or(-1, |at| {
            i64::try_from(at.0.saturating_sub(now.0).div_ceil(1000)).unwrap_or(i64::MAX)
        });
        let (ago, size) = (evicted.last_use.seconds_ago(now), evicted.value_len_bytes);
        self.add(stream, EventTopics::EVICTIONS, "eviction", &evicted.key, |line| {
            let _ = write!(line, "fetch={fetch} ttl={ttl} la={ago} clsid=1 size={size}");
        });
    }

    /// Counts evicted entries without a line.
    pub fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    /// Adds the line of a connection that was opened, or closed for a reason.
    pub fn add_connection(&mut self, stream: &EventStream, client: &Client, closed: Option<&str>) {
        let kind = if closed.is_some() { "conn_close" } else { "conn_new" };
        let cfd = client.descriptor;
        self.begin(stream, kind, |line| {
            let _ = match &client.peer {
                End::Ip(peer) => {
                    write!(line, "rip={} rport={} transport=tcp ", peer.ip(), peer.port())
                }
                End::Unix(_) => write!(line, "rip=unix rport=0 transport=local "),
            };
            if let Some(reason) = closed {
                let _ = write!(line, "reason={reason} ");
            }
            let _ = write!(line, "cfd={cfd}");
        });
        self.end(EventTopics::CONNECTIONS);
    }

    fn add(
        &mut self,
        stream: &EventStream,
        topic: EventTopics,
        kind: &str,
        key: &[u8],
        facts: impl FnOnce(&mut String),
    ) {
        if !stream.topics().has(topic) {
            return;
        }
        self.begin(stream, kind, |line| {
            line.push_str("key=");
            push_uri_encoded(key, line);
            line.push(' ');
            facts(line);
        });
        self.end(topic);
    }

    fn begin(&mut self, stream: &EventStream, kind: &str, rest: impl FnOnce(&mut String)) {
        if self.text.len() >= LINES_BYTES_MAX {
            return; // W2; `end` counts it.
        }
        let gid = stream.last_line.fetch_add(1, Ordering::Relaxed) + 1;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, us) = (at.as_secs(), at.subsec_micros());
        let _ = write!(self.text, "ts={seconds}.{us:06} gid={gid} type={kind} ");
        rest(&mut self.text);
        self.text.push('\n');
    }

    fn end(&mut self, topic: EventTopics) {
        let begun = self.ends.last().map_or(0, |(_, end)| *end);
        if begun == self.text.len() {
            self.lost += 1;
        } else {
            self.ends.push((topic, self.text.len()));
        }
    }

    /// Hands the lines of each subscriber to `post`, and starts anew.
    #[cold]
    pub fn send(
        &mut self,
        (stream, budget): (&EventStream, &BufferBudget),
        mut post: impl FnMut(&Client, Box<EventLines>),
    ) {
        let counts = &stream.counts;
        counts.made.fetch_add(self.ends.len() as u64, Ordering::Relaxed);
        counts.dropped.fetch_add(self.lost, Ordering::Relaxed);
        for (client, topics) in stream.lock().iter() {
            let (mut text, mut count, mut start) = (String::new(), 0, 0);
            for (topic, end) in &self.ends {
                if topics.has(*topic) {
                    text.push_str(&self.text[start..*end]);
                    count += 1;
                }
                start = *end;
            }
            if count > 0 && !stream.under_way.try_add(budget, text.len()) {
                client.lose_lines(count + self.lost);
                counts.skip(count);
            } else if count > 0 {
                counts.sent.fetch_add(count, Ordering::Relaxed);
                post(client, Box::new(EventLines { text, count, lost: self.lost }));
            }
        }
        *self = Lines { seen: std::mem::take(&mut self.seen), ..Lines::default() };
    }
}

/// Lines on their way to subscribers.
#[derive(Debug)]
pub struct EventLines {
    /// Each ends in a line feed.
    pub text: String,
    /// How many.
    pub count: u64,
    /// Further lines that had no room where they were made.
    pub lost: u64,
}

fn command_of(condition: Condition) -> &'static str {
    match condition {
        Condition::Always => "set",
        Condition::IfAbsent => "add",
        Condition::IfPresent => "replace",
        Condition::IfVersion(_) | Condition::IfToken(_) => "cas",
    }
}

/// An update that stores a value as memcached understands it, with the length that is there now.
fn joined(update: &Rmw<'_>, seen: Seen) -> Option<(&'static str, Expiry, usize)> {
    let (command, len) = match update {
        Rmw::Join(part, Side::Behind) | Rmw::Append(part) => ("append", part.bytes.len()),
        Rmw::Join(part, Side::Before) | Rmw::Prepend(part) => ("prepend", part.bytes.len()),
        Rmw::MetaAppend(join) => ("append", join.bytes.len()),
        Rmw::MetaPrepend(join) => ("prepend", join.bytes.len()),
        Rmw::MetaStore(store) => (guarded(store.guard), store.value.len()),
        Rmw::MetaIncrease(_) | Rmw::MetaDecrease(_) if seen.found.is_none() => ("add", 0),
        Rmw::Named(named) => return joined(&named.update, seen),
        Rmw::SetIf { value, .. } => ("set", value.len()),
        _ => return None,
    };
    if command == "add" && seen.written.is_none() {
        return None;
    }
    let expiry = seen.expires_at.map_or(Expiry::Never, Expiry::At);
    Some((command, expiry, seen.written.unwrap_or(len)))
}

fn guarded(guard: Guard) -> &'static str {
    match guard {
        Guard::None => "set",
        Guard::Absent => "add",
        Guard::Present => "replace",
        Guard::SameToken | Guard::SameOrOlderToken => "cas",
    }
}
