//! Workers without threads: the caller of a [`Drive`] chooses which of them runs a round next. A
//! test hook, in no shipped binary (feature `drive`).
//!
//! ```text
//!  worker 0 ─ round ─┐
//!  worker 1 ─ round ─┼─ in any order, one at a time: rings, slots, mailboxes, roles between them
//!  worker 2 ─ round ─┘
//! ```
//!
//! # Invariants
//! I1: nothing happens between two calls of [`Drive::turn`]: no thread runs, so an order of calls
//!     is an order of events.
//!
//! # Limits
//! Only servers that route. Times of day are the machine's.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use base::WorkerId;
use config::StartError;
use config::{Config, Poll};
use counters::Dialect;
use dispatch::lanes::Fabric;
use host::poller::{Interest, Poller, READY_MAX, Ready};
use replication::cluster::View;
use replication::replicate::ControlChannel;
use runtime::engine::RunToCompletion;
use runtime::shared::Shared;
use workers::forwarding::Routed;
use workers::worker::{Worker, WorkerSockets};

/// A poller that reports every socket as ready: a worker learns from the kernel that there is
/// nothing to read.
#[derive(Default)]
struct Everything {
    polled: Vec<(RawFd, u64, Interest)>,
}

impl Poller for Everything {
    fn add(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        // A socket that was closed without a call had this token before.
        self.polled.retain(|(_, known, _)| *known != token);
        self.polled.push((socket.as_raw_fd(), token, interest));
        Ok(())
    }

    fn modify(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.add(socket, token, interest)
    }

    fn remove(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.polled.retain(|(descriptor, _, _)| *descriptor != socket.as_raw_fd());
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, _timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let event = |(_, token, interest): &(RawFd, u64, Interest)| Ready {
            token: *token,
            read: interest.read,
            write: interest.write,
            broken: false,
        };
        ready.extend(self.polled.iter().take(READY_MAX).map(event));
        Ok(())
    }
}

/// The workers of a server that routes, without threads of their own.
pub struct Drive {
    shared: Arc<Shared>,
    #[cfg(test)]
    fabric: Arc<Fabric>,
    workers: Vec<Worker<Routed, Everything>>,
}

impl Drive {
    /// Opens the store and creates the workers. They never sleep.
    ///
    /// # Errors
    /// As for [`crate::server::Server::start`]; and if the settings route nothing.
    pub fn new(config: Config) -> Result<Drive, StartError> {
        Drive::of_cluster(config, None)
    }

    /// The same for a node of a cluster.
    ///
    /// # Errors
    /// As for [`Drive::new`].
    pub fn of_cluster(config: Config, view: Option<Arc<View>>) -> Result<Drive, StartError> {
        Drive::of_node(config, view, None)
    }

    /// The same with the channel to a control thread, whose other end the caller has.
    pub(crate) fn of_node(
        config: Config,
        view: Option<Arc<View>>,
        channel: Option<ControlChannel>,
    ) -> Result<Drive, StartError> {
        let failed = |source| StartError::System { what: "make a worker", source };
        let shared = Arc::new(Shared::open(Config { poll: Poll::Busy, ..config }, None)?);
        if let Some(view) = view {
            shared.set_cluster(view, channel.map(Arc::new));
        }
        if !shared.roles().layers().is_routed {
            return Err(failed(io::Error::other("the settings route nothing")));
        }
        let threads = shared.config().threads;
        let kept_bytes_max = shared.memory().plan().request_slot_kept_bytes_max;
        let stealing = shared.roles().layers().stealing();
        let has_help = shared.roles().layers().has_help(shared.config());
        let fabric = Arc::new(Fabric::new(threads, kept_bytes_max, stealing, has_help));
        let roles = shared.roles().latest();
        let mut workers = Vec::with_capacity(threads);
        for index in 0..threads {
            let session = shared
                .store()
                .session()
                .map_err(|error| StartError::Store { reason: error.to_string() })?;
            let id = WorkerId(index as u16);
            let home = RunToCompletion::new(session, shared.config());
            let turn = roles.turn_of(index);
            let engine = Routed::new(home, Arc::clone(&fabric), id, turn, &shared);
            let sockets = WorkerSockets::default();
            let poller = Everything::default();
            let worker = Worker::new(Arc::clone(&shared), id, engine, poller, sockets);
            workers.push(worker.map_err(failed)?);
        }
        Ok(Drive {
            shared,
            #[cfg(test)]
            fabric,
            workers,
        })
    }

    /// The state that all workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Admits a client's connection, as if that worker had accepted it.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking.
    pub fn admit(&mut self, worker: usize, socket: TcpStream, protocol: Dialect) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        self.workers[worker].admit(socket, protocol, false);
        Ok(())
    }

    /// Runs one round of one worker.
    ///
    /// # Errors
    /// Never, as long as nothing is asked of the kernel.
    pub fn turn(&mut self, worker: usize) -> io::Result<()> {
        self.workers[worker].step()
    }
}

#[cfg(test)]
mod tests;
