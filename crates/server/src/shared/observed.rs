//! The observations of clients: MONITOR, HOTKEYS, `watch` and client-side caching.

use super::Shared;
use crate::event_stream::EventStream;
use crate::hot::session::HotSessions;
use crate::monitor::Monitors;
use crate::tracking::Tracking;

impl Shared {
    /// The clients that monitor all commands of the RESP port.
    pub(crate) fn monitors(&self) -> &Monitors {
        &self.observations.monitors
    }

    /// The session that HOTKEYS START has begun.
    pub(crate) fn hot_sessions(&self) -> &HotSessions {
        &self.observations.hot_sessions
    }

    /// The clients that keep copies of values they have read.
    pub(crate) fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// The subscribers to items and connections on the memcached port.
    pub(crate) fn event_stream(&self) -> &EventStream {
        &self.observations.event_stream
    }
}
