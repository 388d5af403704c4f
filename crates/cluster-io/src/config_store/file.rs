//! A config store in a directory, shared by all processes of one machine: for tests and single
//! machines.
//!
//! ```text
//!  DIR/lock           held by the asker, for as long as one answer takes: one after the other
//!  DIR/configuration  `STAMP\n` and the value; replaced by a rename
//!  DIR/settings       the same
//!  DIR/leader         the same; counts only while a process holds DIR/leader.lock
//! ```
//!
//! A session is a process and lasts as long. Its claim is a lock that the operating system releases
//! when the process ends, however it ends (decision 0057).
//!
//! # Invariants
//! F1 (Z1, Z2): everything happens under `lock`; a value is replaced as a whole.
//! F2 (Z3): a claim is an exclusive lock on `leader.lock`, requested under `lock` only.
//! F3 (Z5): no session ends before its handle. A stopped process keeps its claim.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::config_store::{Answer, Ask, Path, Request, Response, SessionId, Stamp};
use config_store_zookeeper::Event;

/// The time between two checks of watched values.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Values are small; a longer one was not written by a config store.
const VALUE_MAX_BYTES: u64 = 16 << 20;

/// The config store's thread; dropping it ends its sessions.
#[derive(Debug)]
pub struct FileConfigStore {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl FileConfigStore {
    /// Starts the thread; the directory is created when a session is opened.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start(
        folder: &FilePath,
        told: impl Fn(Event) + Send + 'static,
    ) -> io::Result<FileConfigStore> {
        FileConfigStore::begin(Folder { makes_folder: true, ..Folder::at(folder) }, told)
    }

    /// Like `start`, but creates no directory: a mistyped path should not become one.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn look(
        folder: &FilePath,
        told: impl Fn(Event) + Send + 'static,
    ) -> io::Result<FileConfigStore> {
        FileConfigStore::begin(Folder::at(folder), told)
    }

    fn begin(
        mut replica_store: Folder,
        told: impl Fn(Event) + Send + 'static,
    ) -> io::Result<FileConfigStore> {
        let (requests, asked) = mpsc::channel();
        let run = move || serve(&mut replica_store, &asked, &told);
        let builder = std::thread::Builder::new().name("dovetail-conf".to_owned());
        Ok(FileConfigStore { requests: Some(requests), thread: Some(builder.spawn(run)?) })
    }

    /// Sends a request; the answer is an event.
    pub fn ask(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // The thread ends only with this handle.
            let _ = requests.send(request);
        }
    }
}

impl Drop for FileConfigStore {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own message.
            let _ = thread.join();
        }
    }
}

fn serve(folder: &mut Folder, asked: &mpsc::Receiver<Request>, told: &impl Fn(Event)) {
    let place = folder.folder.display().to_string();
    let trouble =
        |what: io::Error| told(Event::Trouble(format!("config store file://{place}: {what}")));
    loop {
        let request = if folder.watches.is_empty() {
            asked.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            asked.recv_timeout(LOOK_PAUSE)
        };
        match request {
            Ok(Request { session, id, ask }) => match folder.answer(session, id, ask) {
                Ok(answer) => told_answer(told, session, id, answer),
                Err(error) => trouble(error),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        match folder.look() {
            Ok(changed) => changed.into_iter().for_each(|watch| {
                told_answer(told, watch.session, watch.id, Some(Answer::Changed(watch.path)));
            }),
            Err(error) => {
                // Each change is reported once. A watching session checks again by itself from time
                // to time.
                folder.watches.clear();
                trouble(error);
            }
        }
    }
}

fn told_answer(told: &impl Fn(Event), session: Option<SessionId>, id: u64, answer: Option<Answer>) {
    if let Some(answer) = answer {
        told(Event::Response(Response { session, id, answer }));
    }
}

/// The state of one handle.
#[derive(Debug, Default)]
struct Folder {
    folder: PathBuf,
    /// Whether it creates its directory.
    makes_folder: bool,
    /// The sessions, each with the lock of the claim if it holds that.
    sessions: BTreeMap<SessionId, Option<File>>,
    session_count: u64,
    watches: Vec<Watch>,
}

#[derive(Debug)]
struct Watch {
    session: Option<SessionId>,
    id: u64,
    path: Path,
    seen: Seen,
}

/// The part of a value's state that changes with it: its stamp, and whether the value exists.
type Seen = (Stamp, bool);

impl Folder {
    fn at(folder: &FilePath) -> Folder {
        Folder { folder: folder.to_owned(), ..Folder::default() }
    }

    /// Answers a request; none if the answer comes later.
    fn answer(
        &mut self,
        session: Option<SessionId>,
        id: u64,
        ask: Ask,
    ) -> io::Result<Option<Answer>> {
        if let Ask::Open { .. } = ask {
            return self.open().map(Some);
        }
        let Some(session) = session.filter(|session| self.sessions.contains_key(session)) else {
            return Ok(Some(Answer::Expired));
        };
        let _guard = self.lock()?;
        match ask {
            Ask::Open { .. } | Ask::Beat => Ok(Some(Answer::Alive)),
            Ask::Read(path) => {
                let (stamp, value) = self.read(path)?;
                Ok(Some(Answer::Value(stamp, value.map(Into::into))))
            }
            Ask::Write { path, expected, value } => {
                let (stamp, _) = self.read(path)?;
                if stamp != expected {
                    return Ok(Some(Answer::Conflict(stamp))); // Z2
                }
                self.replace(path, stamp, &value).map(|stamp| Some(Answer::Written(stamp)))
            }
            Ask::Claim { path, value } => self.claim(session, path, &value).map(Some),
            Ask::Watch(path) => {
                let (stamp, value) = self.read(path)?;
                let seen = (stamp, value.is_some());
                self.watches.push(Watch { session: Some(session), id, path, seen });
                Ok(None)
            }
        }
    }

    fn open(&mut self) -> io::Result<Answer> {
        if self.makes_folder {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        } else if !self.folder.is_dir() {
            let line = "no such folder: `dovetail cm` makes it; is this the one that it was given?";
            return Err(io::Error::new(io::ErrorKind::NotFound, line));
        }
        drop(self.lock()?);
        self.session_count += 1;
        let session = SessionId(self.session_count);
        self.sessions.insert(session, None);
        Ok(Answer::Opened(session))
    }

    /// Takes the lock (F1). It is released when the file is closed.
    fn lock(&self) -> io::Result<File> {
        let file = self.opened("lock")?;
        file.lock()?;
        Ok(file)
    }

    fn opened(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // Readable by its owner only: the settings have the cluster's key (K25).
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let path = self.folder.join(name);
        options.open(&path).map_err(|error| said(&error, "open", &path))
    }

    fn read(&self, path: Path) -> io::Result<(Stamp, Option<Vec<u8>>)> {
        let name = self.folder.join(name_of(path));
        let mut bytes = Vec::new();
        match File::open(&name) {
            Ok(file) => file.take(VALUE_MAX_BYTES).read_to_end(&mut bytes).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Stamp(0), None));
            }
            Err(error) => Err(error),
        }
        .map_err(|error| said(&error, "read", &name))?;
        let stamp_bytes = bytes.iter().position(|byte| *byte == b'\n');
        let stamp = stamp_bytes
            .and_then(|end| std::str::from_utf8(&bytes[..end]).ok()?.parse::<u64>().ok())
            .ok_or_else(|| {
                let text = format!("{} does not begin with its stamp", name.display());
                io::Error::other(text)
            })?;
        let is_there = path != Path::Leader || self.is_claimed()?;
        let value = is_there.then(|| bytes.split_off(stamp_bytes.map_or(0, |end| end + 1)));
        Ok((Stamp(stamp), value))
    }

    /// Whether any session holds the claim; called under `lock`, so that this check makes no claim
    /// fail.
    fn is_claimed(&self) -> io::Result<bool> {
        match self.opened("leader.lock")?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn replace(&self, path: Path, stamp: Stamp, value: &[u8]) -> io::Result<Stamp> {
        let stamp = Stamp(stamp.0 + 1);
        let (name, new) = (name_of(path), format!("{}.new", name_of(path)));
        let mut file = self.opened(&new)?;
        file.set_len(0)?;
        file.write_all(format!("{}\n", stamp.0).as_bytes())?;
        file.write_all(value)?;
        file.sync_all()?;
        fs::rename(self.folder.join(new), self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()?;
        Ok(stamp)
    }

    fn claim(&mut self, session: SessionId, path: Path, value: &[u8]) -> io::Result<Answer> {
        if self.sessions.get(&session).is_some_and(Option::is_some) {
            return Ok(Answer::Claimed);
        }
        let lock = self.opened("leader.lock")?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Answer::Held), // Z3
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let (stamp, _) = self.read(path)?;
        self.replace(path, stamp, value)?;
        self.sessions.insert(session, Some(lock));
        Ok(Answer::Claimed)
    }

    /// Returns the watches whose values have changed, and removes them (Z4).
    fn look(&mut self) -> io::Result<Vec<Watch>> {
        if self.watches.is_empty() {
            return Ok(Vec::new());
        }
        let _guard = self.lock()?;
        let mut now = BTreeMap::<Path, Seen>::new();
        for watch in &self.watches {
            let (stamp, value) = self.read(watch.path)?;
            now.insert(watch.path, (stamp, value.is_some()));
        }
        let is_changed = |watch: &mut Watch| now.get(&watch.path) != Some(&watch.seen);
        Ok(self.watches.extract_if(.., is_changed).collect())
    }
}

fn name_of(path: Path) -> &'static str {
    match path {
        Path::Configuration => "configuration",
        Path::Leader => "leader",
        Path::Settings => "settings",
    }
}

fn said(error: &io::Error, what: &str, path: &FilePath) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
