//! Members under simulated faults: lost messages, cuts, crashes that lose what was not synced, and
//! lost files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Instant;
use cluster::config_store::{Answer, Ask, Path, Request, Response, SessionId, Stamp};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

const TICK_NS: u64 = 50_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A defect that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// A disk that forgets what it has synced.
    ForgetfulDisk,
    /// A member without a file takes part at once.
    NoSettling,
    /// Sessions end after half of their timeouts.
    HastyEnds,
}

#[derive(Debug, Default)]
struct Disk {
    file: Option<Vec<u8>>,
    /// The length that a crash leaves.
    synced_bytes: usize,
    /// The length when it was written as a whole.
    first_bytes: usize,
}

struct Host {
    member: Option<Member>,
    disk: Disk,
    starts: u64,
    /// Its clock runs ahead of the world's by this much.
    ahead_ns: u64,
}

struct Parcel {
    at_ns: u64,
    bytes: Vec<u8>,
}

/// One client: a session, and the request that it waits for.
#[derive(Default)]
struct Client {
    session: Option<SessionId>,
    asked: BTreeMap<u64, Asked>,
    next_id: u64,
    /// Watches of the leader's claim that have not been told of a change.
    watches: BTreeSet<u64>,
}

/// A request under way.
struct Asked {
    at_ns: u64,
    path: usize,
    /// The newest stamp of the path that any client knew.
    known: u64,
}

struct World {
    dice: Pcg64Mcg,
    plant: Plant,
    now_ns: u64,
    hosts: Vec<Host>,
    links: BTreeMap<(usize, usize), VecDeque<Parcel>>,
    /// Pairs that are cut, by direction.
    cuts: Vec<(usize, usize)>,
    loss: f64,
    clients: Vec<Client>,
    /// The newest stamp that any client was told, by path.
    stamps: [u64; 2],
    /// The stamps of successful writes.
    written: BTreeSet<(usize, u64)>,
    /// The sessions that were told that they have the claim, and are not known to have ended.
    holder: Option<SessionId>,
    /// The contents after so many entries, as the first member that applied them had them (Q2).
    applied: BTreeMap<usize, Vec<u8>>,
    /// When the last answered request of a session was sent, and its timeout.
    kept: BTreeMap<SessionId, (u64, u64)>,
    answers: u64,
    faults: Vec<String>,
}

const PATHS: [Path; 2] = [Path::Configuration, Path::Settings];

impl World {
    fn new(seed: u64, members: usize, plant: Plant) -> World {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut host = || Host {
            member: None,
            disk: Disk::default(),
            starts: 0,
            ahead_ns: dice.random_range(0..100 * SECOND_NS),
        };
        let hosts = (0..members).map(|_| host()).collect();
        let clients = (0..4).map(|_| Client::default()).collect();
        let mut world = World {
            dice,
            plant,
            now_ns: 0,
            hosts,
            links: BTreeMap::new(),
            cuts: Vec::new(),
            loss: 0.0,
            clients,
            stamps: [0; 2],
            written: BTreeSet::new(),
            holder: None,
            applied: BTreeMap::new(),
            kept: BTreeMap::new(),
            answers: 0,
            faults: Vec::new(),
        };
        (0..members).for_each(|host| world.start(host));
        world
    }

    fn settings(&self, own: usize) -> Settings {
        let members = (0..self.hosts.len()).map(|at| format!("host{at}:7600")).collect();
        let start = self.hosts[own].starts * 100 + own as u64;
        Settings { name: "sim".to_owned(), members, own, start, tick_ns: TICK_NS }
    }

    fn clock(&self, host: usize) -> Instant {
        Instant { ns: self.now_ns + self.hosts[host].ahead_ns }
    }

    fn start(&mut self, host: usize) {
        self.hosts[host].starts += 1;
        let settings = self.settings(host);
        let now = self.clock(host);
        if self.plant == Plant::NoSettling && self.hosts[host].disk.file.is_none() {
            let identity = Identity {
                name: settings.name.clone(),
                members: settings.members.clone(),
                own: host,
            };
            let mut bytes = journal::head(&identity);
            journal::record(&State::founded(vec![0]).changes(), &mut bytes);
            self.hosts[host].disk.file = Some(bytes);
        }
        let disk = &mut self.hosts[host].disk;
        let started = Member::start(&settings, disk.file.as_deref(), now);
        let (member, whole_bytes) = started.expect("its own file");
        if let Some(file) = &mut disk.file {
            file.truncate(whole_bytes);
            disk.synced_bytes = whole_bytes;
        }
        self.hosts[host].member = Some(member);
        for other in 0..self.hosts.len() {
            self.reconnect(host, other);
        }
    }

    fn crash(&mut self, host: usize) {
        let Host { member, disk, .. } = &mut self.hosts[host];
        if member.take().is_none() {
            return;
        }
        if let Some(file) = &mut disk.file {
            let kept = match self.plant {
                // As after a sync that did nothing; what a member wrote first stays.
                Plant::ForgetfulDisk => disk.first_bytes.min(file.len()),
                // What was written and not synced may be there in part.
                _ => self.dice.random_range(disk.synced_bytes..=file.len()),
            };
            file.truncate(kept);
        }
        // What was sent to it is lost; what it sent is on its way.
        for ((_, to), parcels) in &mut self.links {
            if *to == host {
                parcels.clear();
            }
        }
        for client in &mut self.clients {
            client.asked.clear(); // All of them may have been its.
        }
    }

    fn reconnect(&mut self, host: usize, other: usize) {
        if self.hosts[host].member.is_none() || self.hosts[other].member.is_none() {
            return;
        }
        self.input(host, Event::Reconnected { to: other });
        self.input(other, Event::Reconnected { to: host });
    }

    fn input(&mut self, host: usize, event: Event<'_>) {
        let now = self.clock(host);
        let Some(member) = &mut self.hosts[host].member else { return };
        let mut actions = Vec::new();
        if self.plant == Plant::HastyEnds && matches!(event, Event::Tick) {
            // Each millisecond of silence counts as two.
            let twice = |heard: &mut Instant| heard.ns = heard.ns.saturating_sub(1_000_000);
            member.heard.values_mut().for_each(twice);
        }
        member.input(event, now, &mut actions);
        self.check_contents(host);
        for action in actions {
            let disk = &mut self.hosts[host].disk;
            match action {
                Action::Persist { bytes, is_synced } => {
                    let file = disk.file.as_mut().expect("a file was written before");
                    file.extend(bytes);
                    if is_synced {
                        disk.synced_bytes = file.len();
                    }
                }
                Action::Replace { bytes } => {
                    disk.synced_bytes = bytes.len();
                    disk.first_bytes = bytes.len();
                    disk.file = Some(bytes);
                }
                Action::Send { to, bytes } => self.send(host, to, bytes),
                Action::Respond { client, response } => self.hear(client as usize, response),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        if self.cuts.contains(&(from, to)) || self.dice.random_bool(self.loss) {
            return;
        }
        let delay_ns = self.dice.random_range(50_000..20_000_000);
        let link = self.links.entry((from, to)).or_default();
        let behind_ns = link.back().map_or(0, |parcel| parcel.at_ns);
        link.push_back(Parcel { at_ns: behind_ns.max(self.now_ns + delay_ns), bytes });
    }

    /// Q2: after as many entries all members have the same contents.
    fn check_contents(&mut self, host: usize) {
        let Some(member) = &self.hosts[host].member else { return };
        let bytes = postcard::to_stdvec(&member.contents).unwrap();
        let first = self.applied.entry(member.applied).or_insert_with(|| bytes.clone());
        if *first != bytes {
            self.faults.push(format!("member {host} has other contents at {}", member.applied));
        }
    }

    fn ask(&mut self, client: usize) {
        let roll = self.dice.random_range(0..100);
        let path = self.dice.random_range(0..PATHS.len());
        let one = &mut self.clients[client];
        let (session, ask) = match one.session {
            None => (None, Ask::Open { timeout_ns: SECOND_NS }),
            Some(_) => {
                let value: std::sync::Arc<[u8]> = vec![roll as u8; 40].into();
                let expected = Stamp(self.stamps[path] + u64::from(roll == 0));
                let ask = match roll {
                    0..30 => Ask::Write { path: PATHS[path], expected, value },
                    30..60 => Ask::Read(PATHS[path]),
                    60..70 => Ask::Claim { path: Path::Leader, value },
                    70..74 => Ask::Watch(Path::Leader),
                    74 => return self.close(client),
                    75..77 => return, // Silent for a while.
                    _ => Ask::Beat,
                };
                (one.session, ask)
            }
        };
        one.next_id += 1;
        let id = one.next_id;
        if matches!(ask, Ask::Watch(_)) {
            one.watches.insert(id);
        }
        one.asked.insert(id, Asked { at_ns: self.now_ns, path, known: self.stamps[path] });
        let host = self.dice.random_range(0..self.hosts.len());
        let request = Request { session, id, ask };
        self.input(host, Event::Request { client: client as u64, request });
    }

    /// Closes a client's session, which it does not use any more.
    fn close(&mut self, client: usize) {
        let Some(session) = self.clients[client].session.take() else { return };
        self.kept.remove(&session);
        self.clients[client].watches.clear();
        self.clients[client].asked.clear();
        if self.holder == Some(session) {
            self.holder = None;
        }
        let host = self.dice.random_range(0..self.hosts.len());
        self.input(host, Event::Close { client: client as u64, session });
    }

    fn hear(&mut self, client: usize, response: Response) {
        let Response { session, id, answer } = response;
        let one = &mut self.clients[client];
        if let Answer::Changed(path) = answer {
            // Z4: once for each watch; a watch of a client that was forgotten may be told, too.
            if path != Path::Leader || (one.session == session && !one.watches.remove(&id)) {
                self.faults.push(format!("Z4: {session:?} was told {id} of {path:?}"));
            }
            return;
        }
        let Some(asked) = one.asked.remove(&id) else { return };
        self.answers += 1;
        let mut kept = session;
        match answer {
            Answer::Opened(session) => {
                one.session = Some(session);
                kept = Some(session);
            }
            Answer::Expired => {
                let ended = session.and_then(|session| self.kept.remove(&session));
                if let Some((sent_ns, timeout_ns)) = ended
                    && self.now_ns < sent_ns + timeout_ns
                {
                    self.faults.push(format!("Z5: {session:?} was ended early"));
                }
                if one.session == session {
                    one.session = None;
                    one.watches.clear();
                }
                return;
            }
            Answer::Value(stamp, _) | Answer::Conflict(stamp) => {
                if stamp.0 < asked.known {
                    self.faults.push(format!("Z1: {stamp:?} is older than {}", asked.known));
                }
                self.stamps[asked.path] = self.stamps[asked.path].max(stamp.0);
            }
            Answer::Written(stamp) => {
                if stamp.0 <= asked.known || !self.written.insert((asked.path, stamp.0)) {
                    self.faults.push(format!("Z2: {stamp:?} was written twice"));
                }
                self.stamps[asked.path] = self.stamps[asked.path].max(stamp.0);
            }
            Answer::Claimed => {
                // Z3: another that has the claim was silent for its timeout, or has closed.
                let other = self.holder.filter(|holder| Some(*holder) != session);
                let is_kept = |holder: &SessionId| {
                    self.kept
                        .get(holder)
                        .is_some_and(|(sent_ns, timeout_ns)| self.now_ns < sent_ns + timeout_ns)
                };
                if other.as_ref().is_some_and(is_kept) {
                    self.faults.push(format!("Z3: {session:?} has the claim of {other:?}"));
                }
                self.holder = session;
            }
            _ => {}
        }
        if let Some(session) = kept {
            let entry = self.kept.entry(session).or_insert((0, SECOND_NS));
            entry.0 = entry.0.max(asked.at_ns);
        }
    }

    /// Runs the world for so long.
    fn run(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns && self.faults.is_empty() {
            self.now_ns += 1_000_000;
            for host in 0..self.hosts.len() {
                self.input(host, Event::Tick);
            }
            for pair in self.links.keys().copied().collect::<Vec<_>>() {
                while let Some(parcel) = self
                    .links
                    .get_mut(&pair)
                    .and_then(|link| link.pop_front_if(|parcel| parcel.at_ns <= self.now_ns))
                {
                    let event = Event::Message { from: pair.0, bytes: &parcel.bytes };
                    self.input(pair.1, event);
                }
            }
            for client in 0..self.clients.len() {
                if self.dice.random_bool(0.02) {
                    self.ask(client);
                }
            }
        }
    }

    fn fault(&mut self, may_lose_file: bool) {
        let host = self.dice.random_range(0..self.hosts.len());
        let other = self.dice.random_range(0..self.hosts.len());
        match self.dice.random_range(0..10) {
            0..3 => {
                self.crash(host);
                let are_there = self.hosts.iter().filter(|one| one.disk.file.is_some()).count();
                if may_lose_file && are_there == self.hosts.len() {
                    self.hosts[host].disk = Disk::default();
                }
            }
            3..6 => {
                if let Some(down) = self.hosts.iter().position(|one| one.member.is_none()) {
                    self.start(down);
                }
            }
            6 => self.cuts.push((host, other)),
            7 => self.cuts.extend([(host, other), (other, host)]),
            8 => {
                for (from, to) in std::mem::take(&mut self.cuts) {
                    self.reconnect(from, to);
                }
            }
            _ => self.loss = if self.loss > 0.0 { 0.0 } else { 0.02 },
        }
    }

    fn heal(&mut self) {
        self.loss = 0.0;
        for (from, to) in std::mem::take(&mut self.cuts) {
            self.reconnect(from, to);
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].member.is_none() {
                self.start(host);
            }
        }
    }
}

/// One run; the first fault that was seen.
fn run(seed: u64, members: usize, plant: Plant) -> Result<u64, String> {
    let mut world = World::new(seed, members, plant);
    world.run(3 * SECOND_NS);
    if world.answers == 0 {
        return Err("no answer within 3 s of the first start".to_owned());
    }
    for _ in 0..40 {
        let pause_ns = world.dice.random_range(0..SECOND_NS);
        world.run(pause_ns);
        let may_lose_file = world.dice.random_bool(0.3);
        world.fault(may_lose_file);
    }
    world.heal();
    world.run(5 * SECOND_NS);
    let answers = world.answers;
    world.run(2 * SECOND_NS);
    match world.faults.first() {
        Some(fault) => Err(fault.clone()),
        None if world.answers == answers => Err("no answer after all was healed".to_owned()),
        None => Ok(world.answers),
    }
}

fn runs() -> u64 {
    std::env::var("QUORUM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

#[test]
fn no_fault_breaks_what_members_promise() {
    for seed in 0..runs() {
        for members in [3, 5] {
            let found = run(seed, members, Plant::Nothing);
            assert!(found.is_ok(), "seed {seed}, {members} members: {found:?}");
        }
    }
}

#[test]
fn planted_defects_are_found() {
    let plants = [
        (Plant::ForgetfulDisk, "has other contents"),
        (Plant::NoSettling, "has other contents"),
        (Plant::HastyEnds, "Z5"),
    ];
    for (plant, want) in plants {
        let is_found = |seed: &u64| run(*seed, 3, plant).is_err_and(|fault| fault.contains(want));
        assert!((0..200).any(|seed| is_found(&seed)), "{plant:?}");
    }
}
