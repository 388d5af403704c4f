//! A loan: a connection's output and its socket, on their way to the worker that serves the size of
//! a large reply, and back. `forwarding::loans` states the rules.

use std::os::fd::OwnedFd;

use commands::output::Output;

/// Tokens of the poller: loans count from here.
pub const TOKEN_LOAN: u64 = 1 << 60;

/// A connection's output, and the socket by which it leaves.
pub struct Loan {
    /// The dispatcher's thread.
    pub lender: usize,
    /// The connection's slot at the dispatcher.
    pub slot: usize,
    /// Tells the connection from a later one in the same slot.
    pub client_id: u64,
    /// The loan's own descriptor.
    pub socket: OwnedFd,
    /// The output to be sent.
    pub output: Output,
    /// Its length when it was lent.
    pub lent_bytes: usize,
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (left_bytes, lent_bytes) = (self.output.unsent_bytes(), self.lent_bytes);
        write!(formatter, "client {}: {left_bytes} of {lent_bytes} bytes", self.client_id)
    }
}

/// A loan that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// As lent.
    pub slot: usize,
    /// As lent.
    pub client_id: u64,
    /// As lent.
    pub lent_bytes: usize,
    /// How it ended.
    pub end: LoanEnd,
}

/// How a loan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanEnd {
    /// Everything has left.
    Sent {
        /// The socket was full at least once.
        has_blocked: bool,
    },
    /// The connection is broken.
    Broken,
}
