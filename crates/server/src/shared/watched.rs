//! Who watches what the server does, by MONITOR, HOTKEYS or watch.

use super::Shared;
use crate::hot::session::HotSessions;
use crate::monitor::Monitors;
use crate::watchers::Watchers;

impl Shared {
    /// Who watches all commands of the RESP port.
    pub(crate) fn monitors(&self) -> &Monitors {
        &self.watching.monitors
    }

    /// What HOTKEYS START has begun.
    pub(crate) fn hot_sessions(&self) -> &HotSessions {
        &self.watching.hot_sessions
    }

    /// Who watches items and connections, at memcached's port.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watching.watchers
    }
}
