//! CLIENT PAUSE, as one worker sees it.
//!
//! ```text
//!  CLIENT PAUSE ──▶ current ──▶ a command waits: its connection is held, the pause is noted
//!  next round: the noted pause is over, lifted or replaced ──▶ all connections go on
//! ```
//!
//! # Invariants
//! P1: each worker that holds a connection has noted a pause, until it has let all go on. So a
//! pause that began and ended within one round leaves no connection behind.

use base::UnixMillis;

/// A pause: until when commands wait, and whether only writes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The end.
    pub until: UnixMillis,
    /// Whether commands that only read go on.
    pub writes_only: bool,
}

/// The pause of this round, and the one that connections of this worker wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    current: Option<Pause>,
    held_under: Option<Pause>,
}

impl Pauses {
    /// The pause that lasts.
    #[inline]
    pub fn current(&self) -> Option<Pause> {
        self.current
    }

    /// Whether all commands wait.
    pub fn is_for_all(&self) -> bool {
        self.current.is_some_and(|pause| !pause.writes_only)
    }

    /// Takes the pause of this moment; `None`: there is none.
    pub fn set(&mut self, current: Option<Pause>) {
        self.current = current;
    }

    /// Notes that a connection waits for the end of the pause (P1).
    pub fn hold(&mut self) {
        self.held_under = self.held_under.or(self.current);
    }

    /// Whether connections wait.
    pub fn holds(&self) -> bool {
        self.held_under.is_some()
    }

    /// Whether the pause that connections wait for is over: they may go on now (P1). Another pause
    /// may hold fewer of them.
    pub fn take_over(&mut self) -> bool {
        let is_over = self.held_under.is_some() && self.held_under != self.current;
        if is_over {
            self.held_under = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn pause(until_ms: u64, writes_only: bool) -> Option<Pause> {
        Some(Pause { until: UnixMillis(until_ms), writes_only })
    }

    #[test]
    fn connections_go_on_once_their_pause_is_over() {
        let mut pauses = Pauses::default();
        pauses.set(pause(5, false));
        assert!(!pauses.take_over(), "none waits");
        pauses.hold();
        assert!(pauses.holds() && pauses.is_for_all() && !pauses.take_over());
        pauses.set(None);
        assert!(pauses.take_over() && !pauses.holds() && !pauses.take_over());
    }

    #[test]
    fn connections_go_on_if_their_pause_ended_before_another_look() {
        let mut pauses = Pauses::default();
        pauses.set(pause(5, true));
        pauses.hold();
        pauses.set(None);
        pauses.set(None);
        assert!(pauses.take_over());
    }

    #[test]
    fn a_pause_that_replaces_another_lets_all_try_again() {
        let mut pauses = Pauses::default();
        pauses.set(pause(5, false));
        pauses.hold();
        pauses.set(pause(5, true));
        pauses.hold();
        assert!(pauses.take_over(), "some wait for the first");
        pauses.hold();
        assert!(!pauses.take_over());
    }
}
