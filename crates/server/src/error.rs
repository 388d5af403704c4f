//! Start errors: one line that says what is wrong, where, and what would be right.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why [`crate::Server::start`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another process listens there.
    #[error(
        "{address} is in use: stop the other server or choose another address with --{setting}"
    )]
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
        /// The flag that names it, e.g. `resp`.
        setting: &'static str,
    },
    /// The kernel refused the address for another reason.
    #[error("cannot listen on {address}: {source}; choose another address with --{setting}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The flag that names it.
        setting: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The memory does not divide into an index, a log and buffers.
    #[error("--memory {given} is too small: give at least {least}")]
    MemoryTooSmall {
        /// As asked for.
        given: base::ByteSize,
        /// The least that works with these threads.
        least: base::ByteSize,
    },
    /// A number is outside of what works.
    #[error("--{setting} {given} is out of range: give {least} to {most}")]
    OutOfRange {
        /// The flag.
        setting: &'static str,
        /// As asked for.
        given: u64,
        /// Smallest value that works.
        least: u64,
        /// Largest value that works.
        most: u64,
    },
    /// An objective that no server keeps, or that every server does.
    #[error("--slo is out of range: give off or a time from 1us to 60s")]
    SloOutOfRange,
    /// A write policy and a dispatch that contradict each other.
    #[error("{reason}")]
    Policies {
        /// The policy's own words.
        reason: policy::routers::NotTogether,
    },
    /// The threads that receive are named twice.
    #[error(
        "--cr-threads {given} contradicts --dispatch hand-off:{workers}: give --cr-threads auto \
         or {workers}"
    )]
    HandOffThreads {
        /// As asked for.
        given: usize,
        /// As the dispatch says.
        workers: u16,
    },
    /// More threads are to keep to a core each than there are cores.
    #[error(
        "--pin on needs a core for each of {threads} threads and there are {core_count}: give \
         --threads 1 to {core_count}, or --pin auto"
    )]
    PinnedThreads {
        /// As asked for.
        threads: usize,
        /// That this process may use.
        core_count: usize,
    },
    /// The tuner was asked for, and everything is fixed.
    #[error("--tuner on: {reason}")]
    NothingToTune {
        /// What is in the way, and what would be right.
        reason: String,
    },
    /// Cache ways that were asked for cannot be had.
    #[error("--cat {cat}: {reason}")]
    Cat {
        /// As asked for.
        cat: crate::config::Cat,
        /// Why not, and what would be right.
        reason: String,
    },
    /// Cache ways were asked for, and by the settings no thread could have them.
    #[error("--cat {cat}: {reason}")]
    CatWithoutLayers {
        /// As asked for.
        cat: crate::config::Cat,
        /// What would be right.
        reason: String,
    },
    /// No thread is left to execute what is handed over.
    #[error(
        "--dispatch hand-off:{workers} leaves none of {threads} threads to execute: give --threads \
         {} or more",
        usize::from(*workers) + 1
    )]
    HandOffTakesAll {
        /// As the dispatch says.
        workers: u16,
        /// As asked for.
        threads: usize,
    },
    /// Buckets that drop keys were asked of an index that has no buckets.
    #[error("--lossy-index on needs --index hash: a tree drops no keys")]
    LossyTree,
    /// The key of the native protocol could not be read.
    #[error("--native-key-file {}: {reason}", path.display())]
    KeyFile {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The users of the RESP port could not be read.
    #[error("--acl-file {}: {reason}", path.display())]
    AclFile {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificates that cannot be had.
    #[error("{reason}")]
    Tls {
        /// The setting, and what is wrong.
        reason: String,
    },
    /// The users of memcached's port could not be read.
    #[error("--auth-file {}: {reason}", path.display())]
    AuthFile {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// AF_XDP cannot be had on a device.
    #[error("--native-xdp {device}: {reason}")]
    Xdp {
        /// The device's name.
        device: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A Unix socket cannot be listened at.
    #[error("--{setting} {}: {reason}", path.display())]
    Unix {
        /// The setting that named it.
        setting: &'static str,
        /// As it was given.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Clients in shared memory cannot be taken.
    #[error("--shm {}: {reason}", path.display())]
    Shm {
        /// As it was given.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The store could not be opened.
    #[error("cannot open the store: {reason}")]
    Store {
        /// The store's own words.
        reason: String,
    },
    /// The data directory cannot be used.
    #[error("--data-dir {}: {reason}", path.display())]
    Data {
        /// As it was given.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A cache forgets what a disk would have to keep.
    #[error("--data-dir needs --mode store, and an index that is not lossy: a cache drops items")]
    DataOfCache,
    /// The warm file cannot be used.
    #[error("--warm-file {}: {reason}", path.display())]
    Warm {
        /// As given.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The cluster that this server is to be a node of.
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
    /// Whether the settings are wrong by themselves, on whatever machine and at whatever time.
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
            | StartError::System { .. } => false,
        }
    }
}
