//! Loans: the worker that serves a reply's size sends the large reply, on a socket that the
//! connection's dispatcher lends to it.
//!
//! ```text
//!  dispatcher                                  the large worker
//!  sends the output before the first large
//!  value, then lends the rest:        Loan ──▶ a slice per round
//!  new replies are kept, not sent                │ the socket is full: wait in its own poller
//!  continues with the kept ones   ◀── Returned ──┘ all sent, or broken
//! ```
//!
//! # Invariants
//! I1: while a socket is lent, its dispatcher sends nothing on it: bytes leave in the order in
//!     which they were written (K10).
//! I2: a loan has a descriptor of its own for the socket, so the dispatcher may close its own at
//!     any time; it then shuts the socket down, and the loan ends at its next slice.
//! I3: each loan comes back exactly once, unless the server's shutdown is cut short. Lent bytes
//!     count as unsent until then, so the output limit holds (K12).
//! I4: a round sends at most a slice of each loan, and of all together what the worker's bulk has
//!     left (worker/bulk.rs), so a stand-by worker continues to serve small requests, and a large
//!     reply progresses beside a larger one.
//! I5: a loan's descriptor is closed before the loan comes back: while it is open, the poller of
//!     the connection's own worker reports events of the socket, even after the socket was closed
//!     and another connection took its place.
//!
//! # Trade-offs
//! Lending costs the dispatcher about as much as sending 16 KiB (a descriptor and two messages); it
//! sends shorter replies itself.
//!
//! # References
//! Minos §3: "replies to the client by putting the item in its TX queue"; decision 0039.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use commands::output::{CALL_BYTES_MAX, Sent};
use dispatch::lanes::{Loan, LoanEnd, Returned, TOKEN_LOAN};
use host::poller::{Interest, Poller};
use runtime::core::Core;
use runtime::mailbox::Control;
use runtime::slab::Slab;

/// Bytes of one reply that one round sends, at most (I4).
const SLICE_BYTES_MAX: usize = CALL_BYTES_MAX;

/// The result of sending a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sent,
    More,
    Blocked,
    Broken,
}

/// The loans that one worker has taken.
pub struct Loans {
    held: Slab<Held>,
    /// Those whose sockets accept more bytes, in turn.
    ready: VecDeque<usize>,
    /// Ended loans of this worker's own dispatcher.
    returned_here: Vec<Returned>,
}

struct Held {
    loan: Loan,
    is_polled: bool,
    is_ready: bool,
}

impl Loans {
    pub fn new() -> Loans {
        Loans { held: Slab::default(), ready: VecDeque::new(), returned_here: Vec::new() }
    }

    pub fn take(&mut self, loan: Loan) {
        let slot = self.held.insert(Held { loan, is_polled: false, is_ready: true });
        self.ready.push_back(slot);
    }

    /// Whether there is a loan to send for.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes that the poller has reported room in a socket, or its end.
    pub fn set_ready(&mut self, slot: usize) {
        let Some(held) = self.held.get_mut(slot) else { return };
        if !held.is_ready {
            held.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Ended loans of this worker's own dispatcher.
    pub fn take_returned_here(&mut self) -> Vec<Returned> {
        std::mem::take(&mut self.returned_here)
    }

    /// Sends a slice of each reply whose socket accepts it, in turn, until none of `left_bytes` is
    /// left (I4).
    pub fn send<P: Poller>(&mut self, core: &Core, poller: &mut P, left_bytes: &mut usize) {
        for _ in 0..self.ready.len() {
            if *left_bytes == 0 {
                return;
            }
            let Some(slot) = self.ready.pop_front() else { return };
            let Held { loan, is_polled, is_ready } = &mut self.held[slot];
            let mut sent_bytes = 0;
            let sent =
                loan.output.send_slice(loan.socket.as_fd(), SLICE_BYTES_MAX, &mut sent_bytes);
            let counters = core.counters();
            counters.output_bytes.add(sent_bytes);
            counters.forwardings.lent_bytes.add(sent_bytes);
            *left_bytes = left_bytes.saturating_sub(sent_bytes as usize);
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
                    step = Step::Broken; // No event would report when it can continue.
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
            // The dispatcher's descriptor keeps the socket, and the poller's state of it, alive.
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
