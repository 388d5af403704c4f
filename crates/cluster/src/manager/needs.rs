//! The time at which a manager next has work if no input arrives: a driver may sleep until then.

use base::Instant;

use crate::manager::{Leadership, Manager, Phase, Role};
use crate::settings::{Settings, after};

/// The shortest time to the next tick.
const TICK_NS: u64 = 1_000_000;

impl Manager {
    /// The next time at which a tick has something new to do.
    pub fn next_need(&self, now: Instant) -> Instant {
        let soonest = after(now, TICK_NS);
        let pause_ns = self.settings.session_ns / 8;
        let in_two = |at: Option<Instant>| at.map_or(soonest, |at| after(at, 2 * pause_ns));
        let beat_at = self.beat_at.map_or(soonest, |at| after(at, pause_ns));
        let has_session = self.session.is_some() && now < self.session_until;
        let by_role = match &self.role {
            Role::Standby { .. } if !has_session => beat_at,
            Role::Standby { claimed_at: at } | Role::Reading { asked_at: at } => in_two(*at),
            Role::Leading(leadership) => {
                let asked_at = leadership.proposal.as_ref().map(|proposal| proposal.asked_at);
                let proposed = asked_at.map_or(beat_at, |at| in_two(Some(at)));
                let by_leader = leadership.next_need(&self.settings, now);
                proposed.min(by_leader.unwrap_or(beat_at))
            }
        };
        let ends_at = if has_session { self.session_until } else { beat_at };
        beat_at.min(by_role).min(ends_at).max(soonest)
    }
}

impl Leadership {
    /// The first event caused by time alone: silence of a node, a fence, a repeated message, the
    /// end of the grace period.
    fn next_need(&self, settings: &Settings, now: Instant) -> Option<Instant> {
        let silent = self.nodes.values().map(|seen| after(seen.heard_at, settings.silence_ns()));
        let told = match self.phase {
            Phase::Installing { ref fence, .. } => {
                Some([fence.until(), after(self.told_at, 2 * settings.retry_ns)])
            }
            Phase::Committed => None,
        };
        let grace = after(self.since, settings.grace_ns);
        let timed = told.into_iter().flatten().chain(self.backing_off.ends());
        let all = silent.chain(timed).chain([grace]);
        all.filter(|at| *at > now).min()
    }
}
