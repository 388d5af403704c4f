//! Checkpoints of the index: the file `checkpoint` of a data directory, and the thread that renews
//! it.
//!
//! ```text
//!  so often, if much was written: begin ─▶ all sessions have passed ─▶ collect
//!     ─▶ all have passed again ─▶ a commit that begins then
//!     ─▶ checkpoint.new ─ sync ─▶ rename ─ sync of the directory
//! ```
//!
//! # Invariants
//! I1: `checkpoint` is complete or absent; the entries that it names were on the disk before it
//!     was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::StartError;
use store::durable::Durable;
use store::durable::checkpoint::{Checkpoint, CheckpointError, Checkpointer};
use store::medium::open_regular;

pub(super) const FILE: &str = "checkpoint";
const NEW_FILE: &str = "checkpoint.new";
const BUFFER_BYTES: usize = 1 << 20;
/// If less than this was written, reading it again is faster than writing a checkpoint.
const WRITTEN_MIN_BYTES: u64 = 64 << 20;
/// The interval at which a checkpoint looks whether all sessions have passed a quiescent point.
const REST: Duration = Duration::from_millis(1);

/// The checkpoint of a directory, if there is one.
pub(super) fn read(directory: &Path) -> Option<Result<Checkpoint, CheckpointError>> {
    match open_regular(&directory.join(FILE), OpenOptions::new().read(true)) {
        Ok(file) => Some(Checkpoint::read_from(&mut BufReader::with_capacity(BUFFER_BYTES, file))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Err(CheckpointError::Io(error.to_string()))),
    }
}

/// Removes a checkpoint that was not used: it will never be.
pub(super) fn remove(directory: &Path) {
    for name in [FILE, NEW_FILE] {
        let removed = fs::remove_file(directory.join(name));
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!("{name}: {error}");
        }
    }
}

fn write(directory: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    let new = directory.join(NEW_FILE);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, host::private::create_file(&new)?);
    checkpoint.write_to(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()?;
    fs::rename(&new, directory.join(FILE))?;
    File::open(directory)?.sync_all()
}

/// Writes a complete checkpoint, or logs why it failed.
fn keep(directory: &Path, checkpoint: &Checkpoint, began: Instant) {
    match write(directory, checkpoint) {
        Ok(()) => tracing::info!(
            items = checkpoint.items,
            ms = began.elapsed().as_millis() as u64,
            "the index is written down: checkpoint",
        ),
        Err(error) => {
            tracing::warn!("checkpoint: {error}; the next start does without");
            remove(directory);
        }
    }
}

/// Writes the checkpoint at the end, when everything is on the disk and no session is left.
pub(super) fn at_end(directory: &Path, mut checkpointer: Checkpointer) {
    if !checkpointer.is_possible() {
        return;
    }
    let began = Instant::now();
    checkpointer.begin();
    if checkpointer.is_ready()
        && let Some(checkpoint) = checkpointer.collect()
    {
        keep(directory, &checkpoint, began);
    }
}

/// The thread that renews the checkpoint.
pub(super) struct CheckpointThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_ended: AtomicBool,
    lock: Mutex<()>,
    ended: Condvar,
}

impl CheckpointThread {
    /// Starts it; `None`: this store has no checkpoints.
    pub(super) fn start(
        directory: PathBuf,
        checkpointer: Checkpointer,
        durable: Arc<Durable>,
        every: Duration,
    ) -> Result<Option<CheckpointThread>, StartError> {
        if !checkpointer.is_possible() {
            return Ok(None);
        }
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let mut work = Work { directory, checkpointer, durable };
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || work.run(&own, every))
            .map_err(|source| StartError::System {
                what: "start the checkpoint's thread",
                source,
            })?;
        Ok(Some(CheckpointThread { shared, thread: Some(thread) }))
    }

    pub(super) fn stop(&mut self) {
        let guard = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.is_ended.store(true, Ordering::Release);
        self.shared.ended.notify_all();
        drop(guard);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint's thread panicked");
        }
    }
}

impl Shared {
    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Waits so long, or until the end; returns whether the end has come.
    fn wait(&self, time: Duration) -> bool {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_timeout_while(guard, time, |()| !self.is_ended()));
        self.is_ended()
    }
}

struct Work {
    directory: PathBuf,
    checkpointer: Checkpointer,
    durable: Arc<Durable>,
}

impl Work {
    fn run(&mut self, shared: &Shared, every: Duration) {
        let mut written_bytes = 0;
        while !shared.wait(every) {
            let noted_bytes = self.durable.noted_bytes();
            if noted_bytes - written_bytes < WRITTEN_MIN_BYTES {
                continue;
            }
            let began = Instant::now();
            if let Some(checkpoint) = self.take(shared) {
                keep(&self.directory, &checkpoint, began);
                written_bytes = noted_bytes;
            }
        }
    }

    fn take(&mut self, shared: &Shared) -> Option<Checkpoint> {
        self.checkpointer.begin();
        self.await_sessions(shared)?;
        let checkpoint = self.checkpointer.collect()?;
        // I1: the entries that it names, and those that superseded older ones.
        self.await_sessions(shared)?;
        self.durable.wait_commit().ok()?;
        Some(checkpoint)
    }

    /// Waits until all sessions have passed a quiescent point; `None`: the server ends.
    fn await_sessions(&self, shared: &Shared) -> Option<()> {
        while !self.checkpointer.is_ready() {
            if shared.wait(REST) {
                return None;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_replaced_as_a_whole_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).is_none());
        let mut checkpoint = Checkpoint { data_id: 7, ..Checkpoint::default() };
        for items in [1, 2] {
            checkpoint.items = items;
            write(directory.path(), &checkpoint).unwrap();
            assert_eq!(read(directory.path()), Some(Ok(checkpoint.clone())));
        }
        fs::write(directory.path().join(FILE), b"nothing").unwrap();
        assert_eq!(read(directory.path()), Some(Err(CheckpointError::Damaged)));
        remove(directory.path());
        assert!(read(directory.path()).is_none());
    }
}
