//! Start errors: one line that says what is wrong, where, and what would be right.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use policy::routers::NotTogether;

/// Why [`crate::server::Server::start`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another process listens there.
    #[error(
        "{address} is in use: stop the other server or choose another address with --{setting}"
    )]
    AddressInUse {
        /// The requested address.
        address: SocketAddr,
        /// The flag that names it, e.g. `resp`.
        setting: &'static str,
    },
    /// The kernel refused the address for another reason.
    #[error("cannot listen on {address}: {source}; choose another address with --{setting}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The flag that names it.
        setting: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The memory does not divide into an index, a log and buffers.
    #[error("--memory {given} is too small: give at least {least}")]
    MemoryTooSmall {
        /// The requested value.
        given: base::ByteSize,
        /// The least memory that works with these threads.
        least: base::ByteSize,
    },
    /// The process may open too few files for some connections.
    #[error("the limit of open files ({limit}) is too small: give at least {least} (ulimit -n)")]
    TooFewDescriptors {
        /// The limit.
        limit: u64,
        /// The limit that a few connections take.
        least: u64,
    },
    /// A number is outside its valid range.
    #[error("--{setting} {given} is out of range: give {least} to {most}")]
    OutOfRange {
        /// The flag.
        setting: &'static str,
        /// The requested value.
        given: u64,
        /// The smallest valid value.
        least: u64,
        /// The largest valid value.
        most: u64,
    },
    /// A latency objective that no server meets, or that every server does.
    #[error("--slo is out of range: give off or a time from 1us to 60s")]
    SloOutOfRange,
    /// A write policy and a dispatch that contradict each other.
    #[error("{reason}")]
    Policies {
        /// The policy's own text.
        reason: policy::routers::NotTogether,
    },
    /// The threads that receive are named twice.
    #[error(
        "--cr-threads {given} contradicts --dispatch hand-off:{workers}: give --cr-threads auto \
         or {workers}"
    )]
    HandOffThreads {
        /// The value of `--cr-threads`.
        given: usize,
        /// The value in the dispatch.
        workers: u16,
    },
    /// More threads are to be pinned than there are cores.
    #[error(
        "--pin on needs a core for each of {threads} threads and there are {core_count}: give \
         --threads 1 to {core_count}, or --pin auto"
    )]
    PinnedThreads {
        /// The number of threads.
        threads: usize,
        /// The cores that this process may use.
        core_count: usize,
    },
    /// The tuner is on, but everything is fixed.
    #[error("--tuner on: {reason}")]
    NothingToTune {
        /// What prevents it, and what would be right.
        reason: String,
    },
    /// The requested cache ways are not available.
    #[error("--cat {cat}: {reason}")]
    Cat {
        /// The requested value.
        cat: host::resctrl::Cat,
        /// Why not, and what would be right.
        reason: String,
    },
    /// Cache ways are requested, but by the settings no thread could have them.
    #[error("--cat {cat}: {reason}")]
    CatWithoutLayers {
        /// The requested value.
        cat: host::resctrl::Cat,
        /// What would be right.
        reason: String,
    },
    /// No thread is left to execute the requests that are handed over.
    #[error(
        "--dispatch hand-off:{workers} leaves none of {threads} threads to execute: give --threads \
         {} or more",
        usize::from(*workers) + 1
    )]
    HandOffTakesAll {
        /// The value in the dispatch.
        workers: u16,
        /// The number of threads.
        threads: usize,
    },
    /// A lossy index is requested, but the kind of index has no buckets.
    #[error("--lossy-index on needs --index hash: a tree drops no keys")]
    LossyTree,
    /// The key of the native protocol could not be read.
    #[error("--native-key-file {}: {reason}", path.display())]
    KeyFile {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The users of the RESP port could not be read.
    #[error("--acl-file {}: {reason}", path.display())]
    AclFile {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificates cannot be used.
    #[error("{reason}")]
    Tls {
        /// The setting, and what is wrong.
        reason: String,
    },
    /// The users of memcached's port could not be read.
    #[error("--auth-file {}: {reason}", path.display())]
    AuthFile {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// AF_XDP does not work on a device.
    #[error("--native-xdp {device}: {reason}")]
    Xdp {
        /// The device's name.
        device: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The server cannot listen on a Unix socket.
    #[error("--{setting} {}: {reason}", path.display())]
    Unix {
        /// The setting that named it.
        setting: &'static str,
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Clients in shared memory cannot be accepted.
    #[error("--shm {}: {reason}", path.display())]
    Shm {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The store could not be opened.
    #[error("cannot open the store: {reason}")]
    Store {
        /// The store's own text.
        reason: String,
    },
    /// The data directory cannot be used.
    #[error("--data-dir {}: {reason}", path.display())]
    Data {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A data directory contradicts a cache, which forgets items that a disk would have to keep.
    #[error("--data-dir needs --mode store, and an index that is not lossy: a cache drops items")]
    DataOfCache,
    /// The warm file cannot be used.
    #[error("--warm-file {}: {reason}", path.display())]
    Warm {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// This server cannot be a node of its cluster.
    #[error("cannot join the cluster: {reason}")]
    Cluster {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The kernel refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, e.g. `start a worker thread`.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl StartError {
    /// Whether the settings are wrong by themselves, on any machine and at any time.
    pub fn is_of_settings(&self) -> bool {
        match self {
            StartError::MemoryTooSmall { .. }
            | StartError::OutOfRange { .. }
            | StartError::SloOutOfRange
            | StartError::Policies { .. }
            | StartError::HandOffThreads { .. }
            | StartError::HandOffTakesAll { .. }
            | StartError::PinnedThreads { .. }
            | StartError::NothingToTune { .. }
            | StartError::CatWithoutLayers { .. }
            | StartError::LossyTree
            | StartError::DataOfCache => true,
            StartError::AddressInUse { .. }
            | StartError::Listen { .. }
            | StartError::Cat { .. }
            | StartError::KeyFile { .. }
            | StartError::AclFile { .. }
            | StartError::AuthFile { .. }
            | StartError::Tls { .. }
            | StartError::Xdp { .. }
            | StartError::Shm { .. }
            | StartError::Unix { .. }
            | StartError::Store { .. }
            | StartError::Data { .. }
            | StartError::Warm { .. }
            | StartError::Cluster { .. }
            | StartError::TooFewDescriptors { .. }
            | StartError::System { .. } => false,
        }
    }
}

impl From<NotTogether> for StartError {
    fn from(reason: NotTogether) -> StartError {
        match reason {
            NotTogether::NoWorkerLeft { hand_off_workers, worker_count } => {
                StartError::HandOffTakesAll { workers: hand_off_workers, threads: worker_count }
            }
            reason => StartError::Policies { reason },
        }
    }
}
