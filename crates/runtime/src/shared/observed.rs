//! The observations of clients: MONITOR, HOTKEYS, `watch` and client-side caching.

use dispatch::hot::session::HotSessions;
use sessions::event_stream::EventStream;
use sessions::monitor::Monitors;
use sessions::tracking::Tracking;

use super::Shared;

impl Shared {
    /// The clients that monitor all commands of the RESP port.
    pub fn monitors(&self) -> &Monitors {
        &self.observations.monitors
    }

    /// The session that HOTKEYS START has begun.
    pub fn hot_sessions(&self) -> &HotSessions {
        &self.observations.hot_sessions
    }

    /// The clients that keep copies of values they have read.
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// The subscribers to items and connections on the memcached port.
    pub fn event_stream(&self) -> &EventStream {
        &self.observations.event_stream
    }
}
