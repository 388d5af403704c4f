//! The control thread's part of the inbound logs (`cluster::inbound_log`).

use base::Instant;
use cluster::Message;
use replication::cluster::inbound_log::empty;

use super::control::Control;

impl Control {
    /// Gives the node the entries that workers have received.
    pub(super) fn empty_inbound_logs(&mut self, now: Instant) {
        let Control { node, state, inbound_logs, .. } = self;
        if let Some(inbound_logs) = inbound_logs {
            empty(inbound_logs, node, &mut state.taken, now, &mut state.actions);
            if node.has_backlog() {
                inbound_logs.close(); // W2 of cluster::node::backlog
            }
        }
    }

    /// Before a message: a configuration has to find the inbound logs closed (D1).
    pub(super) fn ready_inbound_logs(&mut self, message: &Message, now: Instant) {
        if let (Some(inbound_logs), Message::Install(_)) = (&self.inbound_logs, message) {
            inbound_logs.close();
        }
        self.empty_inbound_logs(now);
        self.perform(now);
    }

    /// Opens the inbound logs again, after the message.
    pub(super) fn open_inbound_logs(&self) {
        if let Some(inbound_logs) = self.inbound_logs.as_ref().filter(|_| !self.node.has_backlog())
        {
            inbound_logs.open(self.node.term());
        }
    }
}
