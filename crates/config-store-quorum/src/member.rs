//! One member: a copy of the log, the contents that its decided part makes, and the clients that
//! wait for answers.
//!
//! ```text
//!  Request{client} ── ticket ─▶ append or forward ─▶ decided ─▶ apply ── Respond{client}
//!  Message, Tick ─────────────▶ omnipaxos ─▶ Persist, Send
//!  leader only:   a session silent for its whole timeout ─▶ End{session, requests} into the log
//! ```
//!
//! # Invariants
//! M1: a client is answered by the member that it asked, for a command of this start of it. An
//!     answer may be lost, never invented: clients repeat requests and read what became of writes.
//! M2: silence is counted from when this member applied the session's last request, which is later
//!     than when the client sent it (Z5).
//! M3: a member without a file takes no part before it has settled (`settling`).
//! M4: whatever clients and peers do, requests that wait are bounded, and so is the log: its
//!     decided part is folded into a snapshot every [`COMPACT_ENTRIES`] entries.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::Instant;
use cluster::config_store::{Answer, Ask, Contents, Path, Request, Response, SessionId};
use omnipaxos::messages::Message;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::util::LogEntry;
use omnipaxos::{ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::command::{self, Change, Command, Entry, Origin};
use crate::journal::{self, Identity, JournalError, Recovered};
use crate::log::{Log, State};
use crate::settling::{Known, Settling};

/// The most requests that wait for their place in the log; the oldest is forgotten for a new one.
const WAITING_MAX: usize = 4096;

/// The most watches that wait for a change.
const WATCHES_MAX: usize = 4096;

/// The number of decided entries after which they become a snapshot.
pub const COMPACT_ENTRIES: usize = 256;

/// The most entries that may be undecided, before this member proposes no more.
const UNDECIDED_MAX: usize = 48;

/// The time without a decided entry after which requests wait in vain.
const STALL_NS: u64 = 1_000_000_000;

/// Ticks between two rounds of heartbeats; a leader is missed after up to two of them.
const ELECTION_TICKS: u64 = 4;

/// Ticks after which a message that was not answered is sent again.
const RESEND_TICKS: u64 = 4;

/// Ticks after which a member without a file asks all others again.
const REFRESH_TICKS: u64 = 20;

/// The most ticks made up for after a pause of the process.
const TICKS_MAX: u64 = 2;

/// The description of a quorum, the same at all its members but for `own`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The cluster's name.
    pub name: String,
    /// `HOST:PORT` of each member, the same list in the same order everywhere; three or more.
    pub members: Vec<String>,
    /// The index of this member.
    pub own: usize,
    /// A number that no earlier start of this member had.
    pub start: u64,
    /// The time between two ticks.
    pub tick_ns: u64,
}

/// A member's input.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Time has passed.
    Tick,
    /// A client's request. The client's number comes back with each response.
    Request {
        /// The driver's number for the client.
        client: u64,
        /// The request.
        request: Request,
    },
    /// A client's session ends now; the answer is `Expired`, with the id 0.
    Close {
        /// The driver's number for the client.
        client: u64,
        /// The session.
        session: SessionId,
    },
    /// Bytes of another member's `Send`.
    Message {
        /// The index of the member that sent them, as they say: the link proves the cluster's key.
        from: usize,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A link to a member is there again: what was sent meanwhile may be lost.
    Reconnected {
        /// The index of the member.
        to: usize,
    },
}

/// What the driver has to do, in this order, before the next input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Append to the file.
    Persist {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether they must be on the disk before the next action (Q1).
        is_synced: bool,
    },
    /// Replace the whole file by these bytes, on the disk before the next action.
    Replace {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Send to another member.
    Send {
        /// The index of the member.
        to: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Answer a client.
    Respond {
        /// The driver's number for the client.
        client: u64,
        /// The response.
        response: Response,
    },
}

/// What members send each other.
#[derive(Debug, Serialize, Deserialize)]
enum Sent {
    Paxos(Box<Message<Entry>>),
    /// Asks for the state, for this start of a member without a file.
    Ask {
        start: u64,
    },
    /// The answer to that start.
    Known {
        to_start: u64,
        known: Known,
    },
}

/// Whether a member takes part.
enum Part {
    Settling(Settling),
    Active { log: Log, paxos: Box<OmniPaxos<Entry, Log>> },
}

/// A request whose command is not applied.
#[derive(Debug)]
struct Waiting {
    client: u64,
    /// When it came.
    at: Instant,
    /// The session, id and path of a request to watch, which is answered later.
    watch: Option<(SessionId, u64, Path)>,
}

/// A member of a quorum.
pub struct Member {
    identity: Identity,
    origin: Origin,
    tick_ns: u64,
    part: Part,
    contents: Contents,
    /// The number of applied entries, and when the last one was applied.
    applied: usize,
    applied_at: Instant,
    next_ticket: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Watches that have taken effect: their clients and paths.
    watches: BTreeMap<(SessionId, u64), (u64, Path)>,
    /// When each session's last request was applied here (M2).
    heard: BTreeMap<SessionId, Instant>,
    ticked_at: Option<Instant>,
    ticks: u64,
    messages: Vec<Message<Entry>>,
    responses: Vec<Response>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = formatter.debug_struct("Member");
        fields.field("own", &self.identity.own).field("applied", &self.applied);
        fields.finish_non_exhaustive()
    }
}

impl Member {
    /// Starts a member from the bytes of its file; none if it has no file. Returns also the length
    /// of the file's whole records: the driver cuts it there.
    ///
    /// # Errors
    /// If the file is not this member's, or damaged.
    pub fn start(
        settings: &Settings,
        file: Option<&[u8]>,
        now: Instant,
    ) -> Result<(Member, usize), JournalError> {
        let Settings { name, members, own, start, tick_ns } = settings.clone();
        let identity = Identity { name, members, own };
        let members = identity.members.len();
        let (part, whole_bytes) = match file {
            Some(bytes) => {
                let Recovered { state, whole_bytes } = journal::read(bytes, &identity)?;
                (Part::active(&identity, state), whole_bytes)
            }
            None => (Part::Settling(Settling::new(own, start, members)), 0),
        };
        let mut member = Member {
            origin: Origin { member: own as u64, start },
            identity,
            tick_ns: tick_ns.max(1),
            part,
            contents: Contents::default(),
            applied: 0,
            applied_at: now,
            next_ticket: 1,
            waiting: BTreeMap::new(),
            watches: BTreeMap::new(),
            heard: BTreeMap::new(),
            ticked_at: None,
            ticks: 0,
            messages: Vec::new(),
            responses: Vec::new(),
        };
        member.apply(now, &mut Vec::new());
        Ok((member, whole_bytes))
    }

    /// Takes one input; appends what is to be done.
    pub fn input(&mut self, event: Event<'_>, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::Tick => self.tick(now, actions),
            Event::Request { client, request } => self.request(client, request, now),
            Event::Close { client, session } => {
                self.wait(client, Change::Close(session), None, now);
            }
            Event::Message { from, bytes } => self.message(from, bytes, actions),
            Event::Reconnected { to } if to != self.identity.own => {
                if let Part::Active { paxos, .. } = &mut self.part {
                    paxos.reconnected(to as u64 + 1);
                }
            }
            Event::Reconnected { .. } => {}
        }
        let mut responds = Vec::new();
        self.apply(now, &mut responds);
        self.compact();
        self.flush(actions);
        actions.append(&mut responds);
    }

    /// When the next tick is due.
    pub fn next_need(&self, now: Instant) -> Instant {
        self.ticked_at.map_or(now, |at| Instant { ns: at.ns.saturating_add(self.tick_ns) })
    }

    /// The index of the leading member, if this one follows it or leads.
    pub fn leader(&self) -> Option<usize> {
        let Part::Active { paxos, .. } = &self.part else { return None };
        let (leader, is_accepted) = paxos.get_current_leader()?;
        is_accepted.then(|| (leader as usize).checked_sub(1)).flatten()
    }

    /// The members whose answers this one needs before it takes part; empty if it does.
    pub fn waits_for(&self) -> Vec<usize> {
        match &self.part {
            Part::Settling(settling) => settling.missing().collect(),
            Part::Active { .. } => Vec::new(),
        }
    }

    /// How many of the other members have files, if that is what this one waits for (S3 of
    /// `settling`).
    pub fn files(&self) -> Option<usize> {
        match &self.part {
            Part::Settling(settling) => settling.files(),
            Part::Active { .. } => None,
        }
    }

    /// Whether requests wait in vain: no majority has been there for so long.
    pub fn is_stalled(&self, now: Instant) -> bool {
        let since = |at: Instant| now.ns.saturating_sub(at.ns) >= STALL_NS;
        let oldest = self.waiting.first_key_value().map(|(_, waiting)| waiting.at);
        oldest.is_some_and(since) && since(self.applied_at)
    }

    /// Whether it takes part (M3).
    pub fn is_active(&self) -> bool {
        matches!(self.part, Part::Active { .. })
    }

    /// The contents, as far as this member has applied the log: perhaps less than others have.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let due = match self.ticked_at {
            None => 1,
            Some(at) => (now.ns.saturating_sub(at.ns) / self.tick_ns).min(TICKS_MAX),
        };
        if due == 0 {
            return;
        }
        self.ticked_at = Some(now);
        self.ticks += 1;
        match &mut self.part {
            Part::Active { paxos, .. } => (0..due).for_each(|_| paxos.tick()),
            Part::Settling(settling) => {
                let ask = Sent::Ask { start: self.origin.start };
                let bytes = encoded(&ask);
                let send = |to| Action::Send { to, bytes: bytes.clone() };
                // An answer is a whole state: those that have answered are asked once in a while.
                match self.ticks % REFRESH_TICKS {
                    0 => actions.extend(settling.asked().map(send)),
                    _ => actions.extend(settling.missing().map(send)),
                }
            }
        }
        if self.leader() == Some(self.identity.own) {
            self.end_silent_sessions(now);
        }
    }

    /// Proposes the end of each session that was silent for its whole timeout (Q3, M2).
    fn end_silent_sessions(&mut self, now: Instant) {
        let silent: Vec<(SessionId, u64)> = self
            .contents
            .sessions()
            .filter(|(id, session)| {
                let heard = self.heard.get(id).copied().unwrap_or(now);
                now.ns.saturating_sub(heard.ns) > session.timeout_ns
            })
            .map(|(id, session)| (id, session.requests))
            .collect();
        for (session, requests) in silent {
            // If this one is lost with its leader, the next is proposed after as long again.
            self.heard.insert(session, now);
            self.propose(Change::End { session, requests });
        }
    }

    fn request(&mut self, client: u64, request: Request, now: Instant) {
        let watch = match (&request.ask, request.session) {
            (Ask::Watch(path), Some(session)) => Some((session, request.id, *path)),
            _ => None,
        };
        self.wait(client, Change::Request(request), watch, now);
    }

    /// Proposes a client's change, unless too much is undecided already (M4).
    fn wait(
        &mut self,
        client: u64,
        change: Change,
        watch: Option<(SessionId, u64, Path)>,
        now: Instant,
    ) {
        let Part::Active { paxos, .. } = &self.part else { return };
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_first();
        }
        let undecided = paxos.get_accepted_idx().saturating_sub(self.applied);
        let ticket = self.next_ticket;
        // Without a leader a proposal would wait in memory.
        if undecided < UNDECIDED_MAX && self.leader().is_some() {
            self.propose(change);
        }
        self.waiting.insert(ticket, Waiting { client, at: now, watch });
        self.next_ticket = ticket + 1;
    }

    fn propose(&mut self, change: Change) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let command = Command { origin: self.origin, ticket, change };
        if let Part::Active { paxos, .. } = &mut self.part {
            // Refused only while members change, which they do not.
            let _ = paxos.append(Entry::new(&command));
        }
        ticket
    }

    fn message(&mut self, from: usize, bytes: &[u8], actions: &mut Vec<Action>) {
        let own = self.identity.own;
        if from == own || from >= self.identity.members.len() {
            return;
        }
        let Ok(sent) = postcard::from_bytes::<Sent>(bytes) else { return }; // Q4
        match (sent, &mut self.part) {
            (Sent::Paxos(message), Part::Active { paxos, .. }) => {
                let is_theirs = message.get_sender() == from as u64 + 1
                    && message.get_receiver() == own as u64 + 1;
                if is_theirs && is_sent_by_members(&message) {
                    paxos.handle_incoming(*message);
                }
            }
            (Sent::Ask { start }, part) => {
                let changes = match part {
                    Part::Active { log, .. } => Some(log.whole()),
                    Part::Settling(_) => None,
                };
                let known = Known { start: self.origin.start, changes };
                let bytes = encoded(&Sent::Known { to_start: start, known });
                // What the answer shows is in the file: inputs are persisted before the next (Q1).
                actions.push(Action::Send { to: from, bytes });
            }
            (Sent::Known { to_start, known }, Part::Settling(settling))
                if to_start == self.origin.start =>
            {
                settling.hear(from, known);
                if let Some(state) = settling.settled() {
                    let mut bytes = journal::head(&self.identity);
                    journal::record(&state.changes(), &mut bytes);
                    actions.push(Action::Replace { bytes });
                    self.part = Part::active(&self.identity, state);
                }
            }
            (Sent::Paxos(_) | Sent::Known { .. }, _) => {}
        }
    }

    /// Applies what is decided, and answers the clients of this member (Q2, M1).
    fn apply(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Part::Active { paxos, .. } = &self.part else { return };
        let Some(decided) = paxos.read_decided_suffix(self.applied) else { return };
        for entry in decided {
            match entry {
                LogEntry::Decided(entry) => {
                    self.applied += 1;
                    self.applied_at = now;
                    if let Some(command) = entry.command() {
                        self.apply_one(command, now, actions);
                    }
                }
                LogEntry::Snapshotted(part) => {
                    self.applied = part.trimmed_idx;
                    self.applied_at = now;
                    let contents = part.snapshot.contents_at(part.trimmed_idx);
                    // Going on with other contents than the others have would be worse.
                    self.contents = contents.expect("the log checked it when it took it");
                    self.hear_all(now);
                    self.notify_missed(actions);
                }
                LogEntry::Undecided(_) | LogEntry::Trimmed(_) | LogEntry::StopSign(..) => return,
            }
        }
    }

    fn apply_one(&mut self, command: Command, now: Instant, actions: &mut Vec<Action>) {
        let Command { origin, ticket, change } = command;
        let asked = match &change {
            Change::Request(request) => Some((request.session, request.id)),
            Change::End { .. } | Change::Close(_) => None,
        };
        let waiting = if origin == self.origin { self.waiting.remove(&ticket) } else { None };
        let mut responses = std::mem::take(&mut self.responses);
        command::apply(&mut self.contents, change, &mut responses);
        if let Some((Some(session), _)) = asked
            && self.contents.session(session).is_some()
        {
            self.heard.insert(session, now);
        }
        for response in responses.drain(..) {
            if let Answer::Opened(session) = response.answer {
                self.heard.insert(session, now);
            }
            let client = match (&response.answer, response.session) {
                (Answer::Changed(_), Some(session)) => {
                    self.watches.remove(&(session, response.id)).map(|(client, _)| client)
                }
                _ => waiting.as_ref().map(|waiting| waiting.client),
            };
            actions.extend(client.map(|client| Action::Respond { client, response }));
        }
        self.responses = responses;
        if let Some(Waiting { client, watch: Some((session, id, path)), .. }) = waiting
            && self.contents.is_watching(session, id)
        {
            if self.watches.len() >= WATCHES_MAX {
                self.watches.pop_first(); // M4
            }
            self.watches.insert((session, id), (client, path));
        }
        self.watches.retain(|(session, id), _| self.contents.is_watching(*session, *id));
        self.heard.retain(|session, _| self.contents.session(*session).is_some());
    }

    /// All sessions of a snapshot count as heard now: their requests lie within it (M2).
    fn hear_all(&mut self, now: Instant) {
        self.heard = self.contents.sessions().map(|(session, _)| (session, now)).collect();
    }

    /// Notifies the watches whose change lies within a snapshot.
    fn notify_missed(&mut self, actions: &mut Vec<Action>) {
        let contents = &self.contents;
        let missed =
            self.watches.extract_if(.., |(session, id), _| !contents.is_watching(*session, *id));
        actions.extend(missed.map(|((session, id), (client, path))| {
            let answer = Answer::Changed(path);
            Action::Respond { client, response: Response { session: Some(session), id, answer } }
        }));
    }

    fn compact(&mut self) {
        let Part::Active { paxos, .. } = &mut self.part else { return };
        if self.applied.saturating_sub(paxos.get_compacted_idx()) >= COMPACT_ENTRIES {
            // It is decided, so the log has it.
            let _ = paxos.snapshot(Some(self.applied), true);
        }
    }

    /// Writes what changed, then sends (Q1).
    fn flush(&mut self, actions: &mut Vec<Action>) {
        let Part::Active { log, paxos } = &mut self.part else { return };
        let unwritten = log.take();
        if unwritten.is_compacted {
            let mut bytes = journal::head(&self.identity);
            journal::record(&log.whole(), &mut bytes);
            actions.push(Action::Replace { bytes });
        } else if !unwritten.changes.is_empty() {
            let mut bytes = Vec::new();
            journal::record(&unwritten.changes, &mut bytes);
            actions.push(Action::Persist { bytes, is_synced: unwritten.is_promise });
        }
        paxos.take_outgoing_messages(&mut self.messages);
        for message in self.messages.drain(..) {
            let Some(to) = (message.get_receiver() as usize).checked_sub(1) else { continue };
            actions.push(Action::Send { to, bytes: encoded(&Sent::Paxos(Box::new(message))) });
        }
    }
}

impl Part {
    fn active(identity: &Identity, state: State) -> Part {
        let log = Log::new(state);
        let nodes = (1..=identity.members.len() as u64).collect();
        let cluster_config = ClusterConfig { configuration_id: 1, nodes, flexible_quorum: None };
        let server_config = ServerConfig {
            pid: identity.own as u64 + 1,
            election_tick_timeout: ELECTION_TICKS,
            resend_message_tick_timeout: RESEND_TICKS,
            ..ServerConfig::default()
        };
        let config = OmniPaxosConfig { cluster_config, server_config };
        // It refuses less than two members, and zeros: neither can be (`Member::start`).
        let paxos = config.build(log.clone()).expect("two members or more, and no zeros");
        Part::Active { log, paxos: Box::new(paxos) }
    }
}

/// Whether members send such a message. They never change their list, and each folds its own log.
fn is_sent_by_members(message: &Message<Entry>) -> bool {
    let Message::SequencePaxos(message) = message else { return true };
    !matches!(
        message.msg,
        PaxosMsg::Compaction(_) | PaxosMsg::AcceptStopSign(_) | PaxosMsg::ForwardStopSign(_)
    )
}

/// The bytes of a message: numbers, lists, bytes and enums, which postcard can always represent.
fn encoded(sent: &Sent) -> Vec<u8> {
    postcard::to_stdvec(sent).unwrap_or_default()
}
