//! The mailboxes of the workers: any thread may put a message into one.
//!
//! ```text
//!  any thread ──Control──▶ mailbox (channel + eventfd) ──▶ worker, between two rounds
//! ```

use std::sync::Arc;

use config::StartError;
use crossbeam_channel::{Receiver, Sender};
use dispatch::lanes::{Lane, Loan, Returned};
use host::poller::Waker;
use sessions::tracking::message::Messages;

use crate::moving::Moving;
use crate::shm_client::{ShmClient, ShmGuest};

/// A message to a worker, handled between two rounds.
#[derive(Debug)]
pub enum Control {
    /// Store and read back a value; answer whether that succeeded.
    Probe(Sender<bool>),
    /// Draw some items for [`dispatch::sizes::StoredSizes`].
    Draw,
    /// Close this client.
    Kill {
        /// [`sessions::clients::Client::id`].
        client_id: u64,
    },
    /// Send these lines of MONITOR to this client.
    Feed {
        /// [`sessions::clients::Client::id`].
        client_id: u64,
        /// Whole lines.
        lines: Arc<str>,
    },
    /// Send these lines to a subscriber or a monitoring client.
    Events {
        /// [`sessions::clients::Client::id`].
        client_id: u64,
        /// Whole lines.
        lines: Box<sessions::event_stream::EventLines>,
    },
    /// Send these messages to clients that track.
    Track(Messages),
    /// Serve this client in shared memory.
    Adopt(Box<ShmGuest>),
    /// Serve a client in shared memory that another worker has given away.
    MoveShm(Box<ShmClient>),
    /// Execute the requests that come through this lane.
    Serve(Box<Lane>),
    /// Serve this connection.
    Move(Box<Moving>),
    /// Check which roles were published.
    Roles,
    /// Send this for another worker's connection.
    Lend(Box<Loan>),
    /// The lent output is sent, or the connection is broken.
    Return(Returned),
}

/// The sending end of a worker's mailbox.
#[derive(Debug)]
pub struct Mailbox {
    /// Takes messages to the worker.
    pub sender: Sender<Control>,
    /// Wakes it for them.
    pub waker: Waker,
}

/// Both ends of a mailbox.
pub fn open_mailbox() -> Result<(Mailbox, Receiver<Control>), StartError> {
    let (sender, receiver) = crossbeam_channel::unbounded();
    let waker =
        Waker::new().map_err(|source| StartError::System { what: "open an eventfd", source })?;
    Ok((Mailbox { sender, waker }, receiver))
}
