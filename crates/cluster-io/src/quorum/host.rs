//! A member in its server: the state machine with a clock, a file and links.
//!
//! ```text
//!  links ── Ask: another member, a client ─▶ ┌────────┐ ── Persist, Replace ─▶ FOLDER/quorum
//!        ── operator's or node's ─▶ manager  │ Member │ ── Send, Respond ────▶ links
//!  clock ── tick ──────────────────────────▶ └────────┘
//! ```
//!
//! # Invariants
//! N1: actions are carried out in their order, so what was promised is on the disk before it is
//!     sent (Q1 of `config-store-quorum`).
//! N2: a member whose file could not be written once gets no further input; the server goes on,
//!     and the line that says so names the file.
//! N3: one process at a time has a folder: it holds the lock of `FOLDER/lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::Peer;
use config_store_quorum::{Action, Event, Member, Settings};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use tracing::{error, info, warn};

use crate::links::{Endpoint, LinkEvent, LinkId, Links};
use crate::quorum::place::QuorumPlace;
use crate::quorum::word::{self, Reply, Word};
use crate::{Key, clock};

/// The time between two ticks. Another leader is elected after some ten of them.
const TICK: Duration = Duration::from_millis(50);

/// The most messages that wait for the member or the manager. What is dropped is sent again.
const EVENTS_MAX: usize = 16_384;

/// The longest request. The configuration of a large cluster has some 300 KB.
const REQUEST_BYTES_MAX: usize = 2 << 20;

/// The number of messages handled before the next tick.
const BATCH: usize = 256;

/// The description of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The quorum.
    pub place: QuorumPlace,
    /// The index of the member.
    pub own: usize,
    /// The folder for its file.
    pub folder: PathBuf,
}

/// A running member. Dropping it ends it.
#[derive(Debug)]
pub struct Host {
    links: Arc<Links>,
    heard: Receiver<LinkEvent>,
    has_manager: Arc<AtomicBool>,
    address: SocketAddr,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Reads the member's file, binds its address, and starts its thread.
    ///
    /// # Errors
    /// If the file is another's or damaged, the folder is in use, or the address is.
    pub fn start(membership: &Membership, key: Key) -> io::Result<Host> {
        let Membership { place, own, folder } = membership;
        let folder = Folder::open(folder)?;
        let settings = Settings {
            name: place.name.clone(),
            members: place.members.clone(),
            own: *own,
            start: random()?,
            tick_ns: TICK.as_nanos() as u64,
        };
        let file = folder.read()?;
        let (member, whole_bytes) = Member::start(&settings, file.as_deref(), clock::now())
            .map_err(|error| io::Error::other(format!("{}: {error}", folder.path.display())))?;
        let file = file.is_some().then(|| folder.append_from(whole_bytes)).transpose()?;
        let listen = place.listen(*own).ok_or_else(|| {
            let name = place.members.get(*own).cloned().unwrap_or_default();
            io::Error::other(format!("{name} has no address: is its name right?"))
        })?;
        let (told, events) = bounded(EVENTS_MAX);
        let mark = place.mark(&key);
        let links = Arc::new(Links::start(Peer::Manager(0), Some(listen), key, told, || {})?);
        let (to_manager, heard) = bounded(EVENTS_MAX);
        let has_manager = Arc::new(AtomicBool::new(false));
        let driver = Driver {
            has_manager: Arc::clone(&has_manager),
            member,
            place: place.clone(),
            own: *own,
            mark,
            folder,
            file,
            links: Arc::clone(&links),
            to_manager,
            from: BTreeMap::new(),
            others: BTreeSet::new(),
            reported: None,
        };
        let (stop, stopped) = bounded(0);
        let builder = std::thread::Builder::new().name("dovetail-quorum".to_owned());
        let thread = Some(builder.spawn(move || driver.run(&events, &stopped))?);
        Ok(Host { links, heard, has_manager, address: listen, stop: Some(stop), thread })
    }

    /// The links and messages of a manager that uses the member's port.
    pub(crate) fn manager_ends(&self) -> (Arc<Links>, Receiver<LinkEvent>, SocketAddr) {
        // Relaxed: it guards no other memory.
        self.has_manager.store(true, Ordering::Relaxed);
        (Arc::clone(&self.links), self.heard.clone(), self.address)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

struct Driver {
    /// Whether a manager takes messages; until then they are dropped, for they would hold up all
    /// links.
    has_manager: Arc<AtomicBool>,
    member: Member,
    place: QuorumPlace,
    own: usize,
    mark: u64,
    folder: Folder,
    /// The member's file; none before it takes part for the first time.
    file: Option<File>,
    links: Arc<Links>,
    to_manager: Sender<LinkEvent>,
    /// The link on which each member's last message came.
    from: BTreeMap<usize, LinkId>,
    /// The places of other lists whose servers were reported.
    others: BTreeSet<usize>,
    /// What was last logged: the reason to wait, or none for taking part.
    reported: Option<Option<String>>,
}

impl Driver {
    fn run(mut self, events: &Receiver<LinkEvent>, stopped: &Receiver<()>) {
        loop {
            match self.turn(events, stopped) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let path = self.folder.path.display();
                    error!(
                        "{path}: {error}: this server takes no part in the config store until it \
                         is started again"
                    );
                    return self.pass_all_on(events, stopped);
                }
            }
        }
    }

    /// One tick, and the messages until the next. False: it is to end.
    fn turn(&mut self, events: &Receiver<LinkEvent>, stopped: &Receiver<()>) -> io::Result<bool> {
        self.input(Event::Tick)?;
        self.report();
        let now = clock::now();
        let need = self.member.next_need(now);
        let pause = Duration::from_nanos(need.ns.saturating_sub(now.ns)).min(TICK);
        let first = select! {
            recv(events) -> event => event.ok(),
            recv(stopped) -> _ => return Ok(false),
            default(pause) => None,
        };
        let more = std::iter::from_fn(|| events.try_recv().ok());
        for event in first.into_iter().chain(more).take(BATCH) {
            self.take(event)?;
        }
        Ok(true)
    }

    /// Serves the manager alone (N2).
    fn pass_all_on(&self, events: &Receiver<LinkEvent>, stopped: &Receiver<()>) {
        loop {
            select! {
                recv(events) -> event => match event {
                    Ok(event) => self.pass_on(event),
                    Err(_) => return,
                },
                recv(stopped) -> _ => return,
            }
        }
    }

    /// Logs what it waits for when that changes, and that it takes part.
    fn report(&mut self) {
        let reason = self.reason_to_settle();
        if self.reported.as_ref() == Some(&reason) {
            return;
        }
        match &reason {
            None => info!(place = %self.place, "config store: a member"),
            Some(reason) => info!("config store: {reason}"),
        }
        self.reported = Some(reason);
    }

    /// The reason why this member does not take part yet.
    fn reason_to_settle(&self) -> Option<String> {
        if self.member.is_active() {
            return None;
        }
        let own = self.names(&[self.own]);
        Some(match self.member.files() {
            None => {
                let missing = self.names(&self.member.waits_for());
                format!("{own} waits for {missing} to start with the same --join")
            }
            Some(files) => format!(
                "{own} waits: only {files} of {} servers have their copy of the configuration; \
                 bring another one back, or, if this cluster is new, remove the --cluster-dir of \
                 all and start again",
                self.place.members.len()
            ),
        })
    }

    fn names(&self, members: &[usize]) -> String {
        let names = members.iter().filter_map(|at| self.place.members.get(*at));
        names.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    fn take(&mut self, event: LinkEvent) -> io::Result<()> {
        let LinkEvent::Ask { link, id, bytes } = &event else {
            self.pass_on(event);
            return Ok(());
        };
        if bytes.first() == Some(&b'{') {
            self.pass_on(event);
            return Ok(());
        }
        match word::decode(bytes) {
            Some(Word::Member { from, quorum, bytes }) => {
                let from = usize::from(from);
                if quorum != self.mark {
                    self.report_other(from);
                    return Ok(());
                }
                if self.from.insert(from, *link) != Some(*link) {
                    self.input(Event::Reconnected { to: from })?;
                }
                self.input(Event::Message { from, bytes: &bytes })
            }
            Some(Word::Request { quorum, request }) if quorum == self.mark => {
                let obstacle = match bytes.len() {
                    0..=REQUEST_BYTES_MAX => self.obstacle(),
                    len => Some(format!("a request of {len} bytes is too long")),
                };
                match obstacle {
                    Some(line) => {
                        let asked = Some((request.session, request.id));
                        let reply = Reply::Waits { asked, line };
                        self.links.answer(*link, *id, word::encode(&reply));
                        Ok(())
                    }
                    None => self.input(Event::Request { client: link.0, request }),
                }
            }
            Some(Word::Close { quorum, session }) if quorum == self.mark => {
                self.input(Event::Close { client: link.0, session })
            }
            Some(Word::Request { .. } | Word::Close { .. }) => {
                let line = format!("this server is of {}: write the same list", self.place);
                let reply = Reply::Waits { asked: None, line };
                self.links.answer(*link, *id, word::encode(&reply));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn pass_on(&self, event: LinkEvent) {
        if self.has_manager.load(Ordering::Relaxed) {
            // Full: it is sent again.
            let _ = self.to_manager.try_send(event);
        }
    }

    fn report_other(&mut self, from: usize) {
        if self.others.insert(from) {
            warn!(
                "config store: the server at place {} of another list than {} wants to take part: \
                 write the same --cluster and --join on all servers",
                from + 1,
                self.place,
            );
        }
    }

    /// The reason why requests would wait: one line.
    fn obstacle(&self) -> Option<String> {
        if let Some(reason) = self.reason_to_settle() {
            return Some(reason);
        }
        let is_led = self.member.leader().is_some() && !self.member.is_stalled(clock::now());
        let own = self.names(&[self.own]);
        (!is_led).then(|| format!("{own} waits for a majority of the servers"))
    }

    fn input(&mut self, event: Event<'_>) -> io::Result<()> {
        let mut actions = Vec::new();
        self.member.input(event, clock::now(), &mut actions);
        for action in actions {
            match action {
                Action::Persist { bytes, is_synced } => {
                    let missing = || io::Error::other("the file is not open");
                    let file = self.file.as_mut().ok_or_else(missing)?;
                    file.write_all(&bytes)?;
                    if is_synced {
                        file.sync_data()?;
                    }
                }
                Action::Replace { bytes } => self.file = Some(self.folder.replace(&bytes)?),
                Action::Send { to, bytes } => {
                    let Some(address) = self.place.members.get(to) else { continue };
                    let word = Word::Member { from: self.own as u8, quorum: self.mark, bytes };
                    self.links.ask(&Endpoint::address(address), 0, word::encode(&word));
                }
                Action::Respond { client, response } => {
                    let bytes = word::encode(&Reply::Response(response));
                    self.links.answer(LinkId(client), 0, bytes);
                }
            }
        }
        Ok(())
    }
}

fn random() -> io::Result<u64> {
    let bytes = crate::key::random_bytes()?;
    Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// The folder of a member.
struct Folder {
    path: PathBuf,
    /// Locked for as long as this lives (N3).
    _lock: File,
}

impl Folder {
    fn open(path: &Path) -> io::Result<Folder> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // A folder that is gone after a power cut would be a lost file.
        for folder in path.ancestors().skip(1).take(3) {
            if let Ok(folder) = File::open(folder) {
                // Some file systems cannot: their folders need no sync.
                let _ = folder.sync_all();
            }
        }
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(io::Error::other(format!(
                "{} is in use by another server: give this one another --cluster-dir",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn file(&self) -> PathBuf {
        self.path.join("quorum")
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.file()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file to append behind its whole records.
    fn append_from(&self, whole_bytes: usize) -> io::Result<File> {
        let file = OpenOptions::new().append(true).open(self.file())?;
        file.set_len(whole_bytes as u64)?;
        file.sync_all()?;
        Ok(file)
    }

    /// Replaces the file as a whole.
    fn replace(&self, bytes: &[u8]) -> io::Result<File> {
        let new = self.path.join("quorum.new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.file())?;
        File::open(&self.path)?.sync_all()?;
        Ok(file)
    }
}
