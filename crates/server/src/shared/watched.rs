//! The clients that watch what the server does, by MONITOR, HOTKEYS, watch or client-side caching.

use super::Shared;
use crate::hot::session::HotSessions;
use crate::monitor::Monitors;
use crate::tracking::Tracking;
use crate::watchers::Watchers;

impl Shared {
    /// The clients that watch all commands of the RESP port.
    pub(crate) fn monitors(&self) -> &Monitors {
        &self.watching.monitors
    }

    /// What HOTKEYS START has begun.
    pub(crate) fn hot_sessions(&self) -> &HotSessions {
        &self.watching.hot_sessions
    }

    /// The clients that keep copies of what they read.
    pub(crate) fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// The clients that watch items and connections, at memcached's port.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watching.watchers
    }
}
