//! Messages to clients that track keys, on their way to the clients' workers.

use std::sync::Arc;

use wire::resp::Protocol;

use crate::clients::Client;

/// The channel of invalidations for RESP2 clients.
pub const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The memory of a message on its way, besides its keys.
pub const MESSAGE_BYTES: usize = 64;

/// Messages to one worker's clients, on their way.
pub type Messages = Vec<Message>;

/// A message to a client.
#[derive(Debug)]
pub struct Message {
    /// The client that gets it.
    pub client: Arc<Client>,
    /// It goes to the client named by REDIRECT.
    pub is_redirected: bool,
    /// What it says.
    pub what: What,
}

/// What a message says.
#[derive(Clone, Debug)]
pub enum What {
    /// A key that it has read.
    Key(Arc<[u8]>),
    /// Keys with a prefix that it has named.
    Keys(Arc<[Box<[u8]>]>),
    /// All keys; a null, in the protocol of the client that tracks.
    All(Protocol),
    /// All keys, in place of messages that had no room: each client has at most one of these.
    Sum,
    /// The client that should be notified in its place has disconnected.
    Broken(u64),
}

impl Message {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let keys = match &self.what {
            What::Key(key) => key.len(),
            What::Keys(keys) => keys.iter().map(|key| key.len()).sum(),
            What::All(_) | What::Broken(_) => 0,
            What::Sum => return 0, // There are as many as clients at most.
        };
        keys + MESSAGE_BYTES
    }

    /// Whether it stands for others.
    pub fn is_sum(&self) -> bool {
        matches!(self.what, What::Sum)
    }

    /// The message that replaces this one, that everything has changed; `None`: one is already on
    /// its way.
    pub fn summed_up(self) -> Option<Message> {
        self.client.sum_up().then_some(Message { what: What::Sum, ..self })
    }
}
