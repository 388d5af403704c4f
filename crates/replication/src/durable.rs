//! Durability: the data directory, the thread that commits, and the gate at which replies wait.
//!
//! ```text
//!  --data-dir PATH:  PATH/LOCK  PATH/log ──recovery──▶ store
//!  worker: requests ─▶ Gate: is all that was seen on the disk? ─no─▶ sleep ─▶ replies leave
//!  log thread: wait for a wish, or a second ─▶ commit ─▶ wake workers
//! ```
//!
//! # Invariants
//! I1: with `--durability fsync`, no byte of a reply leaves before everything that its request has
//!     seen is on the disk. If the commit of a write fails, its reply never leaves: its bytes are
//!     already encoded, so its connection is closed, or its datagram dropped.
//! I2: a worker that waits at the gate has parked its session: no commit waits for that worker.
//! I3: while the log cannot be written, new writes are refused before they change anything. So once
//!     a worker has closed the connections that waited when that began, all its replies are true:
//!     replies to reads may leave, even of values that are only in memory.

mod checkpoints;
mod directory;
mod kept;
mod node_file;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::StartError;
use config::{DataConfig, Durability};
use store::Session;
use store::durable::{Committer, Durable, Health, Recovery};
use store::medium::LogFile;

use checkpoints::CheckpointThread;

pub use directory::{backup_data, check_data, check_node, open_store};
pub use kept::{Kept, Owner};
pub use node_file::{Tenancy, Tenant};

/// The interval of commits that no worker asks for.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// The maximum time that the last commit waits for workers that do not end.
const LAST_COMMIT_MAX: Duration = Duration::from_secs(2);
/// The number of times that a commit yields the core while it waits for sessions; then it sleeps.
const YIELDS_MAX: u32 = 64;
const COMMIT_REST: Duration = Duration::from_micros(50);

/// The data directory, as all threads share it.
pub struct Data {
    durable: Arc<Durable>,
    /// The configuration.
    pub config: DataConfig,
    /// The result of recovery at the start.
    pub recovery: Recovery,
    /// The duration of recovery.
    pub recovery_time: Duration,
    /// The way by which the log is written: `file`, `dax`.
    pub medium_name: &'static str,
    /// On a node of a cluster, until its replica store takes it.
    tenancy: Mutex<Option<Tenancy>>,
    committer: Mutex<Option<Committer<LogFile>>>,
    /// Bytes of clients' writes, as last reported: copies of cleaning are counted before they are
    /// written, and a counter never falls.
    client_bytes: AtomicU64,
    /// Held as long as the server lives: a second server is refused.
    _lock: std::fs::File,
}

impl Data {
    /// The state that the store shares with the committer.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.durable
    }

    /// The number, but not less than reported before.
    pub fn client_bytes(&self, now_bytes: u64) -> u64 {
        // Relaxed: a count for people.
        self.client_bytes.fetch_max(now_bytes, Ordering::Relaxed).max(now_bytes)
    }

    /// The state with which a node of a cluster begins; can be taken once.
    pub fn take_tenancy(&self) -> Option<Tenancy> {
        self.tenancy.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// When writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.config.durability
    }

    /// A gate for one worker, where replies wait.
    pub fn gate(&self) -> Option<Gate> {
        (self.config.durability == Durability::Fsync).then(|| Gate::new(Arc::clone(&self.durable)))
    }
}

/// The gate at which one worker waits until everything it has seen is durable.
pub struct Gate {
    durable: Arc<Durable>,
    mark: Vec<u64>,
    /// The last seen [`Durable::refusal_count`]: replies that waited then were given up.
    pub refusals_seen: u64,
}

/// The replies that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// All: everything seen is on the disk.
    Durable,
    /// All: writes are refused (I3).
    Refusing,
    /// The log has just failed: replies to executed writes may not leave, including those
    /// outstanding at other workers.
    Failed,
}

impl Gate {
    fn new(durable: Arc<Durable>) -> Gate {
        Gate { durable, mark: Vec::new(), refusals_seen: 0 }
    }

    /// Returns once everything that was seen is on the disk, or will never be.
    pub fn pass(&mut self, session: &mut Session) -> Passage {
        if self.durable.is_settled() {
            return Passage::Durable;
        }
        self.durable.mark(&mut self.mark);
        session.park(); // I2
        let waited = self.durable.wait_covered(&self.mark);
        session.unpark();
        match waited {
            Ok(()) => Passage::Durable,
            Err(_) if self.is_new_refusal() => Passage::Failed,
            Err(_) => Passage::Refusing,
        }
    }

    /// Called before anything is executed: whether writes are refused now that were not at the last
    /// call. Then outstanding replies are given up, but none of the following ones.
    pub fn has_failed(&mut self) -> bool {
        self.is_refusing() && self.is_new_refusal()
    }

    fn is_new_refusal(&mut self) -> bool {
        let refusals = self.durable.refusal_count();
        std::mem::replace(&mut self.refusals_seen, refusals) != refusals
    }

    /// Whether writes are refused.
    pub fn is_refusing(&self) -> bool {
        self.durable.is_refusing()
    }
}

/// The thread that commits.
pub struct LogThread {
    checkpoints: Option<CheckpointThread>,
    durable: Arc<Durable>,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LogThread {
    /// Starts it.
    pub fn start(data: &Data) -> Result<Option<LogThread>, StartError> {
        let mut place = data.committer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut committer) = place.take() else { return Ok(None) };
        let durable = Arc::clone(&data.durable);
        durable.drive();
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_ended);
        let (directory, every) = (data.config.path.clone(), data.config.checkpoint_every);
        let checkpoints = every.map(|every| {
            let checkpointer = committer.checkpointer();
            let durable = Arc::clone(&durable);
            CheckpointThread::start(directory.clone(), checkpointer, durable, every)
        });
        let checkpoints = checkpoints.transpose()?.flatten();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                if run(&mut committer, &ended) && every.is_some() {
                    checkpoints::at_end(&directory, committer.checkpointer());
                }
            })
            .map_err(|source| StartError::System { what: "start the log's thread", source })?;
        Ok(Some(LogThread { checkpoints, durable, is_ended, thread: Some(thread) }))
    }

    /// Commits the rest and ends; called after the workers have ended.
    pub fn stop(&mut self) {
        if let Some(mut checkpoints) = self.checkpoints.take() {
            checkpoints.stop();
        }
        self.is_ended.store(true, Ordering::Release);
        self.durable.want();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the log's thread panicked");
        }
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Commits until the end; returns whether everything is on the disk then.
fn run(committer: &mut Committer<LogFile>, ended: &AtomicBool) -> bool {
    let durable = Arc::clone(committer.durable());
    let mut last_health = Health::Good;
    while !ended.load(Ordering::Acquire) {
        durable.wait_wanted(COMMIT_EVERY);
        let began = Instant::now();
        let mut yields = 0;
        let result = committer.commit(|| rest(&mut yields));
        if let Ok(committed) = &result
            && !committed.is_empty
        {
            committer.count_time(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        let health = durable.health();
        tell(&last_health, &health);
        last_health = health;
        if result.is_err() {
            // A request to commit would come at once, because all workers wait.
            std::thread::sleep(COMMIT_EVERY.min(Duration::from_millis(200)));
        }
    }
    end(committer)
}

fn rest(yields: &mut u32) {
    *yields += 1;
    if *yields < YIELDS_MAX {
        std::thread::yield_now();
    } else {
        std::thread::sleep(COMMIT_REST);
    }
}

/// Makes the last commits, unless a worker is still busy; returns whether all succeeded.
fn end(committer: &mut Committer<LogFile>) -> bool {
    let deadline = Instant::now() + LAST_COMMIT_MAX;
    // More than one: some wait for a sync to become free, and some write rows that say what is
    // synced.
    for _ in 0..3 {
        committer.begin();
        while !committer.is_ready() {
            if Instant::now() > deadline {
                tracing::warn!("the log is left as after a crash: a worker has not ended");
                return false;
            }
            std::thread::sleep(COMMIT_REST);
        }
        if committer.write().is_err() || committer.sync().is_err() {
            return false;
        }
    }
    let ended = committer.end_clean();
    match &ended {
        Ok(()) => tracing::info!("the log is closed"),
        Err(error) => tracing::error!("the log is left as after a crash: {error}"),
    }
    ended.is_ok()
}

/// Logs each change once.
fn tell(before: &Health, now: &Health) {
    match now {
        _ if before == now => {}
        Health::Good => tracing::info!("the log can be written again: writes are accepted"),
        Health::Stalled(error) => {
            tracing::error!("the log cannot be written, writes are refused until it can: {error}");
        }
        Health::Failed(error) => tracing::error!(
            "the log cannot be written, writes are refused: {error}; repair the disk, restart"
        ),
    }
}
