//! Warm restart: a server keeps its store across a restart of the program (`--warm-file`).
//!
//! ```text
//!  start: file ─▶ store with what was kept, or an empty one ─▶ serve
//!  stop:  clients drained ─▶ every session ended ─▶ table behind the memory ─▶ exit
//! ```
//!
//! # Invariants
//! I1: a store (`--mode store`) never discards the kept data; a cache may, with a line in the log
//!     that says why.
//! I2: the store is not kept while a thread may still write, nor after SHUTDOWN NOSAVE.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::UnixMillis;
use config::StartError;
use host::process::unix_now;
use store::warm::{self, Found, Misfit, Opened, WarmError, WarmFile};
use store::{Mode, NeededMemory, NodeShare, Store, StoreConfig, Tuning};

/// The warm file, and its contents at the start.
#[derive(Debug)]
pub struct Warm {
    path: PathBuf,
    file: WarmFile,
    found: Found,
    attach_time: Duration,
    is_dropped: AtomicBool,
    has_failed: AtomicBool,
}

/// The data taken over at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Items that were kept.
    pub items: u64,
    /// Items whose bytes had changed in the file.
    pub lost_items: u64,
    /// The duration of the takeover.
    pub attach_time: Duration,
}

impl Warm {
    /// Opens a store in a file; `advise` says which memory would do for what was kept.
    pub fn open(
        path: &Path,
        config: StoreConfig,
        shares: &[NodeShare],
        advise: &dyn Fn(&NeededMemory) -> String,
    ) -> Result<(Arc<Store>, Warm), StartError> {
        let tuning = (Tuning::default(), shares);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (mode, began) = (config.mode, Instant::now());
        let refused = |error: WarmError| StartError::Warm {
            path: path.to_owned(),
            reason: explain(error, advise),
        };
        let opened = match warm::open(path, config.clone(), tuning, (threads, unix_now())) {
            Err(WarmError::Misfit(misfit)) if mode == Mode::Evict => {
                let reason = match &misfit {
                    Misfit::Room(needed) => advise(needed),
                    misfit => misfit.to_string(),
                };
                tracing::warn!("{}: {reason}; the cache begins empty", path.display());
                warm::open_empty(path, config, tuning)
            }
            opened => opened,
        };
        let Opened { store, file, found } = opened.map_err(refused)?;
        let attach_time = began.elapsed();
        announce(path, found, attach_time);
        let path = path.to_owned();
        let (is_dropped, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let warm = Warm { path, file, found, attach_time, is_dropped, has_failed };
        Ok((store, warm))
    }

    /// The data taken over at the start.
    pub fn kept(&self) -> Kept {
        let (items, lost_items) = match self.found {
            Found::Kept(kept) => (kept.items, kept.damaged),
            Found::Nothing | Found::NotEnded => (0, 0),
        };
        Kept { items, lost_items, attach_time: self.attach_time }
    }

    /// A pending `flush_all` of the previous server.
    pub fn flush_at(&self) -> Option<UnixMillis> {
        match self.found {
            Found::Kept(kept) if kept.note > 0 => Some(UnixMillis(kept.note)),
            _ => None,
        }
    }

    /// Called before clients may connect: until here a failed start has lost nothing.
    pub fn begin(&self, store: &Store) -> Result<(), StartError> {
        let failed = |error: WarmError| StartError::Warm {
            path: self.path.clone(),
            reason: error.to_string(),
        };
        self.file.begin(store).map_err(failed)
    }

    /// Whether the data that should have been kept could not be.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// SHUTDOWN NOSAVE.
    pub fn drop_at_end(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// Keeps the store; called after every worker and every other thread with a session has ended.
    pub fn keep(&self, store: &Store, flush_at: Option<UnixMillis>) {
        let path = self.path.display();
        if self.is_dropped.load(Ordering::Acquire) {
            tracing::info!("{path}: nothing is kept, as SHUTDOWN NOSAVE has asked");
            if let Err(error) = self.file.end_empty() {
                tracing::warn!("{path}: the next start will report a crash: {error}");
            }
            return;
        }
        let (began, note) = (Instant::now(), flush_at.map_or(0, |at| at.0));
        match self.file.keep(store, unix_now(), note) {
            Ok(written) => tracing::info!(
                items = written.items,
                table_bytes = written.table_bytes,
                ms = began.elapsed().as_millis() as u64,
                path = %path,
                "kept",
            ),
            Err(error) => {
                self.has_failed.store(true, Ordering::Release);
                tracing::error!("{path}: nothing is kept: {error}");
            }
        }
    }
}

fn announce(path: &Path, found: Found, time: Duration) {
    let path = path.display();
    let kept = match found {
        Found::Nothing => return,
        Found::NotEnded => {
            tracing::warn!("{path}: its server did not end as it should; it begins empty");
            return;
        }
        Found::Kept(kept) => kept,
    };
    let away_s = unix_now().0.saturating_sub(kept.saved_at_ms) / 1000;
    let ms = time.as_millis() as u64;
    tracing::info!(items = kept.items, ms, away_s, path = %path, "taken over");
    if kept.damaged > 0 {
        tracing::error!(items = kept.damaged, "lost: their bytes have changed in the file");
    }
}

fn explain(error: WarmError, advise: &dyn Fn(&NeededMemory) -> String) -> String {
    match error {
        WarmError::Misfit(Misfit::Room(needed)) => format!("{}; nothing is lost", advise(&needed)),
        WarmError::Misfit(misfit) => format!(
            "{misfit}; nothing is lost. Start the program and the settings that wrote it, or \
             remove it to begin empty"
        ),
        error => error.to_string(),
    }
}
