//! The counts of the admin port.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of refusals at the admin port.
#[derive(Debug, Default)]
pub struct AdminCounters {
    /// Requests for a name that is not this server's.
    pub wrong_host: AtomicU64,
    /// Requests with a wrong login.
    pub wrong_login: AtomicU64,
    /// Requests without a login that needed one, or of a user without the right.
    pub denied: AtomicU64,
    /// Connections that were closed to make room.
    pub made_room: AtomicU64,
}

impl AdminCounters {
    /// The counts with their reasons.
    pub fn by_reason(&self) -> [(&'static str, u64); 4] {
        [
            ("host", &self.wrong_host),
            ("login", &self.wrong_login),
            ("denied", &self.denied),
            ("room", &self.made_room),
        ]
        .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }
}
