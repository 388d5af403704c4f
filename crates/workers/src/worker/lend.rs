//! Lent sockets: those that this worker lends to the workers of large items, and those that other
//! workers lend to it (`forwarding::loans`).

use std::os::fd::AsFd;

use base::PartitionId;
use commands::output::Sent;
use dispatch::lanes::{Loan, LoanEnd, Returned, TOKEN_LOAN};
use dispatch::sizes::LENT_BYTES_MIN;
use host::poller::{Poller, Ready};
use runtime::connection::{Connection, Ending};
use runtime::engine::Home;
use runtime::mailbox::Control;
use rustix::net::{Shutdown, shutdown};

use super::{Due, TOKEN_PORT, Worker};

/// The worker that sends a connection's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// This worker.
    Own,
    /// This worker, whose socket is full for now.
    OwnBlocked,
    /// Another worker, to which it is lent already.
    Lent,
}

/// Lends the output if it holds a large value, after sending the part before that.
#[inline]
pub(super) fn sender_of<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) -> Sender {
    let Some(connection) = worker.core.connections.get_mut(slot) else { return Sender::Own };
    if connection.ending == Ending::Now {
        return Sender::Own;
    }
    if connection.is_lent {
        return Sender::Lent;
    }
    let large_bytes = connection.output.pinned_bytes_max();
    if large_bytes < LENT_BYTES_MIN { Sender::Own } else { lend(worker, slot, large_bytes) }
}

#[cold]
fn lend<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize, large_bytes: usize) -> Sender {
    let Some(plan) = worker.engine.size_plan() else { return Sender::Own };
    // Any worker of a range will do: the key is not known here.
    let Some(borrower) = plan.core_for(large_bytes as u64, PartitionId(slot as u32)) else {
        return Sender::Own;
    };
    let connection = &mut worker.core.connections[slot];
    if connection.tls.is_some() {
        return Sender::Own; // Sealed bytes have one order.
    }
    let mut sent_bytes = 0;
    let sent = connection.output.send_front(connection.socket.as_fd(), &mut sent_bytes);
    let sender = match sent {
        Ok(Sent::Blocked) => Sender::OwnBlocked,
        // The error shows again when this worker sends.
        Err(_) => Sender::Own,
        Ok(Sent::All | Sent::Part) => match connection.socket.as_fd().try_clone_to_owned() {
            // Without a spare descriptor, this worker sends it all.
            Err(_) => Sender::Own,
            Ok(socket) => {
                connection.is_lent = true;
                connection.lent_held_bytes = connection.output.held_bytes();
                let (output, lent_bytes) = connection.output.lend();
                let client_id = connection.client.id;
                let lender = worker.core.worker.index();
                let loan = Loan { lender, slot, client_id, socket, output, lent_bytes };
                worker.engine.lend(&worker.core, borrower, loan);
                Sender::Lent
            }
        },
    };
    worker.core.counters().output_bytes.add(sent_bytes);
    sender
}

/// Takes back a lent socket: its connection continues with the output added meanwhile.
pub(super) fn take_back<E: Home, P: Poller>(worker: &mut Worker<E, P>, returned: Returned) {
    let Returned { slot, client_id, lent_bytes, end } = returned;
    let is_it = |connection: &Connection| connection.client.id == client_id;
    let slot = match worker.core.connections.get_mut(slot) {
        Some(connection) if is_it(connection) => Some(slot),
        _ => worker.core.connections.slots().into_iter().find(|slot| {
            is_it(&worker.core.connections[*slot]) // It came from another worker.
        }),
    };
    let connection = match slot {
        Some(slot) => &mut worker.core.connections[slot],
        None => {
            let mut arrivals = worker.roles.arrivals.iter_mut();
            match arrivals.find(|moving| is_it(&moving.connection)) {
                Some(moving) => &mut moving.connection,
                None => return send_after(worker, returned),
            }
        }
    };
    debug_assert!(connection.is_lent, "I3 of `loan`: it comes back once");
    connection.is_lent = false;
    connection.lent_held_bytes = 0;
    connection.output.end_loan(lent_bytes);
    match end {
        LoanEnd::Broken => connection.ending = Ending::Now,
        // A client that reads its replies at once may request several large ones at a time.
        LoanEnd::Sent { has_blocked: false } => connection.is_large_reader = false,
        LoanEnd::Sent { has_blocked: true } => {}
    }
    if let Some(slot) = slot {
        worker.core.touch(slot);
    }
}

/// Handles a loan whose connection is closed, or with another worker, or moving to one; in the
/// last case its client still names the worker that it left.
#[cold]
fn send_after<E: Home, P: Poller>(worker: &mut Worker<E, P>, returned: Returned) {
    let shared = &worker.core.shared;
    let Some(client) = shared.clients().get(returned.client_id) else { return };
    match client.worker() {
        // It has left here and not arrived. The worker that takes it in may wait for other work
        // of this one, so this one continues and looks again in its next round.
        own if own == worker.core.worker => worker.due.push(Due::TakeBack(returned)),
        other => shared.send(other.index(), Control::Return(returned)),
    }
}

/// Ends a loan before its connection is closed.
#[cold]
pub(super) fn cut<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let connection = &worker.core.connections[slot];
    // Otherwise the loan's descriptor would stay in the poller, and the client would wait in
    // doubt.
    let _ = worker.poller.remove(connection.socket.as_fd());
    let _ = shutdown(&connection.socket, Shutdown::Both);
}

/// Notes which sockets that were lent to this worker are ready again.
pub(super) fn wake<E: Home, P: Poller>(worker: &mut Worker<E, P>, ready: &[Ready]) {
    for event in ready.iter().filter(|event| (TOKEN_LOAN..TOKEN_PORT).contains(&event.token)) {
        worker.engine.wake_loan(event.token);
    }
}

/// Sends slices of large replies, at most about so many bytes in all; returns how many are left.
pub(super) fn send_slices<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    mut left_bytes: usize,
) -> usize {
    if worker.engine.has_loans() {
        let core = &worker.core;
        for returned in worker.engine.send_loans(core, &mut worker.poller, &mut left_bytes) {
            take_back(worker, returned);
        }
        super::finish::finish_touched(worker);
    }
    left_bytes
}
