//! Loans: large replies leave by the worker that serves their size, on a socket that the dispatcher
//! of the connection lends for them.
//!
//! ```text
//!  dispatcher                                  the large worker
//!  what is before the first large value is
//!  sent; then the rest of the output: Loan ──▶ a slice per round
//!  new replies are kept, not sent                │ the socket is full: wait in its own poller
//!  goes on with what was kept     ◀── Returned ──┘ all sent, or broken
//! ```
//!
//! # Invariants
//! I1: while a socket is lent, its dispatcher sends nothing on it: bytes leave in the order in
//!     which they were put out (K10).
//! I2: a loan has a descriptor of its own for the socket, so that the dispatcher may close its own
//!     at any time; then the socket is shut down, and the loan ends at its next slice.
//! I3: each loan comes back exactly once, unless the server is being cut short. What is lent
//!     counts as unsent until then, so that the output limit holds (K12).
//! I4: a round sends at most a slice of each loan, so that a worker that stands by goes on serving
//!     small requests, and a large reply goes on beside a larger one.
//! I5: a loan's descriptor is closed before the loan comes back: while it is open, the poller of
//!     the connection's own worker tells of the socket, also when that has been closed and another
//!     connection is in its place.
//!
//! # Trade-offs
//! Lending costs the dispatcher about as much as sending 16 KiB (a descriptor and two messages);
//! shorter replies it sends itself.
//!
//! # References
//! Minos §3: "replies to the client by putting the item in its TX queue"; decision 0039.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use crate::core::Core;
use crate::output::{Output, Sent};
use crate::poller::{Interest, Poller};
use crate::shared::Control;
use crate::slab::Slab;

/// What one round sends of one reply (I4): some ten microseconds of copying.
const SLICE_BYTES_MAX: usize = 64 << 10;

/// Tokens of the poller: loans count from here.
pub const TOKEN_LOAN: u64 = 1 << 60;

/// What a connection has to send, and the socket that it is to leave by.
pub struct Loan {
    /// The dispatcher's thread.
    pub lender: usize,
    /// The dispatcher's.
    pub slot: usize,
    /// Tells it from a later connection in the same place.
    pub client_id: u64,
    /// The loan's own descriptor.
    pub socket: OwnedFd,
    /// To be sent.
    pub output: Output,
    /// Of it, when it was lent.
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
    /// What came of it.
    pub end: LoanEnd,
}

/// How a loan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanEnd {
    /// Everything has left.
    Sent {
        /// The client took its time.
        has_blocked: bool,
    },
    /// The connection is broken.
    Broken,
}

/// What a slice came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sent,
    More,
    Blocked,
    Broken,
}

/// The loans that one worker has.
pub(super) struct Loans {
    held: Slab<Held>,
    /// Those whose sockets take more, in turn.
    ready: VecDeque<usize>,
    /// Over, and lent by this worker's own dispatcher.
    returned_here: Vec<Returned>,
}

struct Held {
    loan: Loan,
    is_polled: bool,
    is_ready: bool,
}

impl Loans {
    pub fn new() -> Loans {
        Loans { held: Slab::new(), ready: VecDeque::new(), returned_here: Vec::new() }
    }

    pub fn take(&mut self, loan: Loan) {
        let slot = self.held.insert(Held { loan, is_polled: false, is_ready: true });
        self.ready.push_back(slot);
    }

    /// Whether something can be sent.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The poller has seen room in a socket, or its end.
    pub fn set_ready(&mut self, slot: usize) {
        let Some(held) = self.held.get_mut(slot) else { return };
        if !held.is_ready {
            held.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Loans of this worker's own dispatcher that are over.
    pub fn take_returned_here(&mut self) -> Vec<Returned> {
        std::mem::take(&mut self.returned_here)
    }

    /// Sends a slice of each reply whose socket takes it (I4).
    pub fn send<P: Poller>(&mut self, core: &Core, poller: &mut P) {
        for _ in 0..self.ready.len() {
            let Some(slot) = self.ready.pop_front() else { return };
            let Held { loan, is_polled, is_ready } = &mut self.held[slot];
            let mut sent_bytes = 0;
            let sent =
                loan.output.send_slice(loan.socket.as_fd(), SLICE_BYTES_MAX, &mut sent_bytes);
            let counters = core.counters();
            counters.output_bytes.add(sent_bytes);
            counters.forwardings.lent_bytes.add(sent_bytes);
            let mut step = match sent {
                Ok(Sent::All) => Step::Sent,
                Ok(Sent::Part) => Step::More,
                Ok(Sent::Blocked) => Step::Blocked,
                Err(_) => Step::Broken,
            };
            if step == Step::Blocked && !*is_polled {
                let interest = Interest { read: false, write: true };
                *is_polled = true;
                if poller.add(loan.socket.as_fd(), TOKEN_LOAN + slot as u64, interest).is_err() {
                    step = Step::Broken; // No event would tell when it goes on.
                }
            }
            match step {
                Step::More => self.ready.push_back(slot),
                Step::Blocked => *is_ready = false,
                Step::Sent => self.give_back(core, poller, slot, false),
                Step::Broken => self.give_back(core, poller, slot, true),
            }
        }
    }

    fn give_back<P: Poller>(&mut self, core: &Core, poller: &mut P, slot: usize, is_broken: bool) {
        let Some(Held { loan, is_polled, .. }) = self.held.remove(slot) else { return };
        if is_polled {
            // The dispatcher's descriptor keeps the socket, and what the poller has of it, alive.
            let _ = poller.remove(loan.socket.as_fd());
        }
        let end = match is_broken {
            true => LoanEnd::Broken,
            false => LoanEnd::Sent { has_blocked: is_polled },
        };
        let Loan { lender, slot, client_id, lent_bytes, socket, .. } = loan;
        drop(socket); // I5
        let returned = Returned { slot, client_id, lent_bytes, end };
        if lender == core.worker.index() {
            self.returned_here.push(returned);
        } else {
            core.shared.send(lender, Control::Return(returned));
        }
    }
}
