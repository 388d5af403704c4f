//! The control thread's part of the inbound logs (`cluster::inbound_log`).

use base::Instant;
use cluster::Message;
use replication::cluster::inbound_log::empty;

use super::control::Control;

/// Gives the node the entries that workers have received.
pub(super) fn empty_logs(control: &mut Control, now: Instant) {
    let Control { node, state, inbound_logs, .. } = control;
    if let Some(inbound_logs) = inbound_logs {
        empty(inbound_logs, node, &mut state.taken, now, &mut state.actions);
        if node.has_backlog() {
            inbound_logs.close(); // W2 of cluster::node::backlog
        }
    }
}

/// Before a message: a configuration has to find the inbound logs closed (D1).
pub(super) fn close_for(control: &mut Control, message: &Message, now: Instant) {
    if let (Some(inbound_logs), Message::Install(_)) = (&control.inbound_logs, message) {
        inbound_logs.close();
    }
    empty_logs(control, now);
    control.perform(now);
}

/// Opens the inbound logs again, after the message.
pub(super) fn open(control: &Control) {
    if let Some(inbound_logs) =
        control.inbound_logs.as_ref().filter(|_| !control.node.has_backlog())
    {
        inbound_logs.open(control.node.term());
    }
}
