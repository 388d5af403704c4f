//! The half of the manager that uses the config store: session, claim, reading, writing.

use std::sync::Arc;

use base::Instant;

use crate::config_store::{Answer, Ask, Path, Request, Response, SessionId, Stamp};
use crate::configuration::Configuration;
use crate::manager::{Action, Leadership, Manager, Role};
use crate::settings::after;

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Asked {
    at: Instant,
    session: Option<SessionId>,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Open,
    Beat,
    Claim,
    Watch,
    Read,
    Write,
}

impl Manager {
    /// Opens, renews or gives up the session; claims the lead when no manager holds it.
    pub(super) fn keep_session(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let pause_ns = self.settings.session_ns / 8;
        if self.beat_at.is_none_or(|beat_at| now >= after(beat_at, pause_ns)) {
            self.beat_at = Some(now);
            // A request sent long ago is not awaited any more.
            let session_ns = self.settings.session_ns;
            self.asked.retain(|_, asked| now < after(asked.at, 4 * session_ns));
            match self.session {
                None => {
                    let timeout_ns = self.settings.session_ns;
                    self.ask(What::Open, Ask::Open { timeout_ns }, now, actions);
                }
                Some(_) => self.ask(What::Beat, Ask::Beat, now, actions),
            }
        }
        let has_session = self.session.is_some() && now < self.session_until;
        if !has_session {
            if !matches!(self.role, Role::Standby { .. }) {
                self.role = Role::Standby { claimed_at: None }; // V1
            }
            return;
        }
        let is_due = |asked_at: Option<Instant>| {
            asked_at.is_none_or(|asked_at| now >= after(asked_at, 2 * pause_ns))
        };
        match &mut self.role {
            Role::Standby { claimed_at } if is_due(*claimed_at) => {
                *claimed_at = Some(now);
                self.claim(now, actions);
            }
            Role::Reading { asked_at } if is_due(*asked_at) => {
                *asked_at = Some(now);
                self.ask(What::Read, Ask::Read(Path::Configuration), now, actions);
            }
            Role::Leading(leadership) => {
                let Some(proposal) = &mut leadership.proposal else { return };
                if is_due(Some(proposal.asked_at)) {
                    proposal.asked_at = now;
                    // Either the write or its answer was lost; reading tells which.
                    self.ask(What::Read, Ask::Read(Path::Configuration), now, actions);
                }
            }
            _ => {}
        }
    }

    fn claim(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let value = self.claim.clone();
        self.ask(What::Claim, Ask::Claim { path: Path::Leader, value }, now, actions);
    }

    /// Writes the proposal, if no other value was written meanwhile.
    pub(super) fn propose(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Role::Leading(leadership) = &mut self.role else { return };
        let Some(proposal) = &mut leadership.proposal else { return };
        proposal.asked_at = now;
        let (expected, value) = (leadership.stamp, proposal.bytes.clone());
        let path = Path::Configuration;
        self.ask(What::Write, Ask::Write { path, expected, value }, now, actions);
    }

    fn ask(&mut self, what: What, ask: Ask, now: Instant, actions: &mut Vec<Action>) {
        let id = self.next_id;
        self.next_id += 1;
        self.asked.insert(id, Asked { at: now, session: self.session, what });
        actions.push(Action::ConfigStore(Request { session: self.session, id, ask }));
    }

    pub(super) fn hear_config_store(
        &mut self,
        response: Response,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(asked) = self.asked.remove(&response.id) else { return };
        if asked.session != self.session {
            return; // Of a session that was given up.
        }
        match response.answer {
            Answer::Expired => {
                self.session = None;
                self.session_until = Instant::default();
                self.beat_at = None;
                self.role = Role::Standby { claimed_at: None };
                return;
            }
            Answer::Opened(session) => {
                self.session = Some(session);
                self.session_until = Instant::default();
            }
            _ => {}
        }
        if asked.what != What::Watch {
            let until = after(asked.at, self.settings.held_ns(self.settings.session_ns));
            self.session_until = self.session_until.max(until);
        }
        if now >= self.session_until {
            return;
        }
        self.heed(asked.what, response.answer, now, actions);
    }

    fn heed(&mut self, what: What, answer: Answer, now: Instant, actions: &mut Vec<Action>) {
        match (&mut self.role, answer) {
            (Role::Standby { .. }, Answer::Claimed) => {
                self.role = Role::Reading { asked_at: Some(now) };
                self.ask(What::Read, Ask::Read(Path::Configuration), now, actions);
            }
            (Role::Standby { .. }, Answer::Held) => {
                self.ask(What::Watch, Ask::Watch(Path::Leader), now, actions);
            }
            (Role::Standby { .. }, Answer::Changed(Path::Leader)) => self.claim(now, actions),
            (Role::Reading { .. }, Answer::Value(stamp, bytes)) => self.lead(stamp, bytes, now),
            (Role::Leading(_), Answer::Value(stamp, bytes)) => {
                self.compare(stamp, bytes, now, actions);
            }
            (Role::Leading(_), Answer::Conflict(_)) => {
                self.ask(What::Read, Ask::Read(Path::Configuration), now, actions);
            }
            (Role::Leading(leadership), Answer::Written(stamp)) if what == What::Write => {
                if stamp == Stamp(leadership.stamp.0 + 1)
                    && let Some(proposal) = leadership.proposal.take()
                {
                    let lapse_ns = self.settings.lapse_ns(self.settings.lease_ns);
                    leadership.adopt(stamp, proposal.configuration, lapse_ns);
                    leadership.tell_members(&self.settings, now, actions);
                }
            }
            _ => {}
        }
    }

    /// Leads from the config store's contents. Bytes that cannot be read stop the cluster rather
    /// than be overwritten: no manager leads, and the operator sees why.
    fn lead(&mut self, stamp: Stamp, bytes: Option<Arc<[u8]>>, now: Instant) {
        let found = match bytes.as_deref().map(Configuration::decode) {
            None => None,
            Some(Ok(configuration)) => Some(Arc::new(configuration)),
            Some(Err(_)) => return,
        };
        let lapse_ns = self.settings.lapse_ns(self.settings.lease_ns);
        self.role = Role::Leading(Box::new(Leadership::new(now, stamp, found, lapse_ns)));
    }

    /// Finds out the fate of a write after it was unknown: ours took effect, or none did, or
    /// another manager's (V4).
    fn compare(
        &mut self,
        stamp: Stamp,
        bytes: Option<Arc<[u8]>>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Role::Leading(leadership) = &mut self.role else { return };
        let Some(proposal) = &leadership.proposal else { return };
        if bytes.as_deref() == Some(&proposal.bytes[..]) {
            let new = proposal.configuration.clone();
            let lapse_ns = self.settings.lapse_ns(self.settings.lease_ns);
            leadership.adopt(stamp, new, lapse_ns);
            leadership.tell_members(&self.settings, now, actions);
        } else if stamp == leadership.stamp {
            self.propose(now, actions);
        } else {
            self.lead(stamp, bytes, now);
        }
    }
}
