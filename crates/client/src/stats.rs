//! The counters of a connection.

use crate::rtt::RttHistogram;

/// Counts since the connection was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that were taken.
    pub requests: u64,
    /// Requests that ended, with an answer or without.
    pub completions: u64,
    /// Of these, without one in time.
    pub timeouts: u64,
    /// Of these, writes of which it is not known whether they happened.
    pub unknowns: u64,
    /// Messages that were sent again.
    pub retries: u64,
    /// Messages and frames that the server was too busy for.
    pub busy: u64,
    /// Frames sent, hellos among them.
    pub frames_sent: u64,
    /// Frames that were not answered, or not wholly.
    pub frames_lost: u64,
    /// Frames taken.
    pub frames_received: u64,
    /// Datagrams that are no frame of the server's, or of a session that is over.
    pub frames_dropped: u64,
    /// Replies that no request waits for: answers to what was sent twice.
    pub replies_late: u64,
    /// Sessions begun.
    pub sessions: u64,
    /// From a frame's sending to its first answer.
    pub rtt: RttHistogram,
}
