//! The reminder of `--insecure`: a line in the log each minute while it holds a door open to
//! strangers.

use std::time::Duration;

use base::Instant;
use config::Config;

use super::start::address;
use super::{Access, Door, State, answer};
use crate::end::is_loopback;

/// The interval of the lines.
const REMIND_EVERY: Duration = Duration::from_secs(60);

/// The doors that are open beyond loopback only because of `--insecure`, each with its address.
pub fn exposed(config: &Config, state: &State) -> Vec<String> {
    let careful = State { is_insecure: false, ..*state };
    let is_exposed = |door: &Door| {
        answer(*door, state) == Access::Open && answer(*door, &careful) != Access::Open
    };
    let doors = Door::ALL.into_iter().filter(is_exposed);
    let reachable = |door: Door| Some((door, address(config, door)?));
    doors
        .filter_map(reachable)
        .filter(|(_, at)| !is_loopback(at.ip()))
        .map(|(door, at)| format!("{} {at}", door.setting()))
        .collect()
}

/// When the next line is due.
#[derive(Debug, Default)]
pub struct Reminder {
    due_at: Option<Instant>,
}

impl Reminder {
    /// Whether a line is due: at once, and then each minute.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if self.due_at.is_some_and(|at| now < at) {
            return false;
        }
        self.due_at = Some(Instant { ns: now.ns + REMIND_EVERY.as_nanos() as u64 });
        true
    }
}
