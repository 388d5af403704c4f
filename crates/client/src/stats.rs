//! The counters of a connection.

use crate::rtt::RttHistogram;

/// Counts since the connection was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accepted requests.
    pub requests: u64,
    /// Ended requests, with an answer or without.
    pub completions: u64,
    /// Of the ended ones, those without an answer in time.
    pub timeouts: u64,
    /// Of the ended ones, writes with an unknown outcome.
    pub unknowns: u64,
    /// Retransmitted messages.
    pub retries: u64,
    /// Messages and frames that a busy server refused.
    pub busy: u64,
    /// Frames sent, hellos among them.
    pub frames_sent: u64,
    /// Frames that were not, or not fully, answered.
    pub frames_lost: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Datagrams that are not a frame of the server, or belong to an ended session.
    pub frames_dropped: u64,
    /// Replies without a waiting request: answers to duplicates.
    pub replies_late: u64,
    /// Sessions begun.
    pub sessions: u64,
    /// The time from sending a frame to its first answer.
    pub rtt: RttHistogram,
}
