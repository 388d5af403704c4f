//! Connections by lane, from the greeting to the last receive.
//!
//! ```text
//!   Opening ──greeting──▶ Open ──error, hang-up, close──▶ Stopping ──drained──▶ Closed
//! ```
//!
//! A lane's number is not given to another connection.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use landing::Lane;

use crate::handshake::Fence;
use crate::sends::Outbox;
use crate::verbs::QueuePair;

/// A stopped connection may have taken a receive that it has not completed. Devices report when it
/// has no more; soft-RoCE before Linux 6.5 does not, and gets this time.
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The peer has not answered.
    Opening,
    /// Messages go both ways.
    Open,
    /// Broken: its receives are being returned.
    Stopping,
    /// Gone.
    Closed,
}

/// One connection.
pub struct Connection {
    pub stage: Stage,
    /// `None` once it is closed.
    pub pair: Option<QueuePair>,
    /// The socket for setting it up, whose hang-up means that the peer has gone. `None` once the
    /// connection is stopped.
    pub control: Option<TcpStream>,
    /// The first packet number that this end sends.
    pub packet: u32,
    /// The longest frame that the peer has room for.
    pub frame_bytes_max: usize,
    /// The bytes to READ after a batch.
    pub fence: Fence,
    pub outbox: Outbox,
    /// The time when it was stopped.
    pub stopped_at: Option<Instant>,
    /// The device has reported that it takes no more receives.
    pub is_drained: bool,
}

impl Connection {
    /// Whether its queue pair may be closed, once all completions have been taken.
    pub fn may_close(&self) -> bool {
        let is_late = self.stopped_at.is_some_and(|since| since.elapsed() > DRAIN_MAX);
        self.stage == Stage::Stopping && (self.is_drained || is_late)
    }
}

/// All connections.
#[derive(Default)]
pub struct Lanes {
    connections: Vec<Connection>,
    by_number: HashMap<u32, Lane, BuildHasherDefault<NumberHasher>>,
    /// The number of connections that are not closed.
    live_count: usize,
}

impl Lanes {
    /// A new connection's lane.
    pub fn add(&mut self, connection: Connection) -> Lane {
        let lane = Lane(u32::try_from(self.connections.len()).expect("connections are fewer"));
        if let Some(pair) = &connection.pair {
            self.by_number.insert(pair.number(), lane);
        }
        self.connections.push(connection);
        self.live_count += 1;
        lane
    }

    /// The connection of that lane, if there ever was one.
    pub fn get(&self, lane: Lane) -> Option<&Connection> {
        self.connections.get(lane.0 as usize)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, lane: Lane) -> Option<&mut Connection> {
        self.connections.get_mut(lane.0 as usize)
    }

    /// The lane that has, or last had, the queue pair of that number.
    pub fn by_number(&self, number: u32) -> Option<Lane> {
        self.by_number.get(&number).copied()
    }

    /// A lane whose queue pair may be closed.
    pub fn next_to_close(&self) -> Option<Lane> {
        let index = self.connections.iter().position(Connection::may_close)?;
        Some(Lane(index as u32))
    }

    /// Closes a connection's queue pair; its number may be reused from now on.
    pub fn close(&mut self, lane: Lane) {
        let Some(connection) = self.connections.get_mut(lane.0 as usize) else { return };
        if connection.stage == Stage::Closed {
            return;
        }
        connection.stage = Stage::Closed;
        connection.control = None;
        self.live_count -= 1;
        if let Some(pair) = connection.pair.take()
            && self.by_number.get(&pair.number()) == Some(&lane)
        {
            self.by_number.remove(&pair.number());
        }
    }

    /// The number of connections that are not closed.
    pub fn live_count(&self) -> usize {
        self.live_count
    }
}

/// A hasher for numbers that a device counts up: one multiplication distributes them over a table.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
