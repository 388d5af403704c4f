//! Values that clients push in parts, assembled on the server in bounded memory.
//!
//! ```text
//!  set part (session, sequence, offset, total) ──▶ PartsIn::accept ──▶ Taken    answer, wait
//!                                                              ├──▶ Complete  execute the set
//!                                                              └──▶ Refused   answer the status
//! ```
//!
//! The first part of a transfer reserves memory for the whole value, so every transfer that has
//! begun can finish.
//!
//! # Invariants
//! I1: the costs of all transfers together are `held_bytes`, at most `budget_bytes`.
//! I2: one session has at most its share of the budget.
//!
//! # Limits
//! A transfer beyond these limits is answered `Busy` (the sender tries again) or `TooLarge` (it
//! does not).

use std::collections::HashMap;

use base::Instant;

use super::assembly::{Assembly, check_part};
use super::header::SessionId;
use super::reply::Status;
use super::request::Part;

/// The limits of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartLimits {
    /// For all transfers together.
    pub budget_bytes: u64,
    /// For one session's transfers.
    pub session_max_bytes: u64,
    /// For one value.
    pub value_max_bytes: u64,
    /// The maximum number of transfers, however small.
    pub transfer_count_max: usize,
    /// A transfer without a part for so long is dropped.
    pub idle_ns: u64,
}

/// The unfinished transfers.
#[derive(Debug)]
pub struct PartsIn {
    limits: PartLimits,
    held_bytes: u64,
    transfers: HashMap<(SessionId, u32), Transfer>,
}

#[derive(Debug)]
struct Transfer {
    assembly: Assembly,
    last_part: Instant,
}

/// The result of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartOutcome {
    /// Answer [`Status::PartTaken`] with this number.
    Taken {
        /// The missing bytes of the value.
        missing_bytes: u64,
    },
    /// The whole value: execute the request that this part came with.
    Complete(Vec<u8>),
    /// Answer this status.
    Refused(Status),
}

impl PartsIn {
    /// No transfers yet.
    pub fn new(limits: PartLimits) -> PartsIn {
        PartsIn { limits, held_bytes: 0, transfers: HashMap::new() }
    }

    /// Accepts a part of the value of the session's write `sequence`, which [`super::Once::look`]
    /// has reported as new.
    pub fn accept(
        &mut self,
        now: Instant,
        (session, sequence): (SessionId, u32),
        part: Part,
        value: &[u8],
    ) -> PartOutcome {
        if check_part(part, value.len()).is_err() {
            return PartOutcome::Refused(Status::Malformed);
        }
        let name = (session, sequence);
        if !self.transfers.contains_key(&name)
            && let Err(status) = self.begin(now, name, part.total)
        {
            return PartOutcome::Refused(status);
        }
        let Some(transfer) = self.transfers.get_mut(&name) else {
            return PartOutcome::Refused(Status::Busy);
        };
        if transfer.assembly.put(part, value).is_err() {
            return PartOutcome::Refused(Status::Malformed);
        }
        transfer.last_part = now;
        if !transfer.assembly.is_complete() {
            return PartOutcome::Taken { missing_bytes: transfer.assembly.missing_bytes() };
        }
        match self.remove(name) {
            Some(assembly) => PartOutcome::Complete(assembly.into_bytes()),
            None => PartOutcome::Refused(Status::Busy),
        }
    }

    /// Whether parts of this write have arrived already.
    pub fn is_under_way(&self, name: (SessionId, u32)) -> bool {
        self.transfers.contains_key(&name)
    }

    /// Drops transfers without a part for too long; returns their number. Looks at each once.
    pub fn expire(&mut self, now: Instant) -> usize {
        let idle_ns = self.limits.idle_ns;
        self.drop_where(|_, transfer| now.ns.saturating_sub(transfer.last_part.ns) > idle_ns)
    }

    /// Drops the transfers of a session that ended; returns their number.
    pub fn end_session(&mut self, session: SessionId) -> usize {
        self.drop_where(|name, _| name.0 == session)
    }

    /// Memory that is reserved for transfers.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Recounts everything (I1, I2); for tests.
    pub fn validate(&self) {
        let mut sessions = HashMap::new();
        for ((session, _), transfer) in &self.transfers {
            *sessions.entry(session).or_insert(0) += transfer.cost_bytes();
            assert!(!transfer.assembly.is_complete(), "what is complete is gone");
        }
        assert_eq!(sessions.values().sum::<u64>(), self.held_bytes, "I1");
        assert!(self.held_bytes <= self.limits.budget_bytes, "I1");
        assert!(sessions.values().all(|bytes| *bytes <= self.limits.session_max_bytes), "I2");
        assert!(self.transfers.len() <= self.limits.transfer_count_max);
    }

    fn begin(&mut self, now: Instant, name: (SessionId, u32), total: u32) -> Result<(), Status> {
        let cost_bytes = Assembly::cost_bytes(total);
        let limits = &self.limits;
        if u64::from(total) > limits.value_max_bytes || cost_bytes > limits.session_max_bytes {
            return Err(Status::TooLarge);
        }
        let session_bytes = self.session_bytes(name.0);
        if self.transfers.len() >= limits.transfer_count_max
            || self.held_bytes + cost_bytes > limits.budget_bytes
            || session_bytes + cost_bytes > limits.session_max_bytes
        {
            return Err(Status::Busy);
        }
        let transfer = Transfer { assembly: Assembly::new(total), last_part: now };
        self.transfers.insert(name, transfer);
        self.held_bytes += cost_bytes;
        Ok(())
    }

    /// Looks at every transfer: there are few, and only a transfer's first part needs it.
    fn session_bytes(&self, session: SessionId) -> u64 {
        let of_session = self.transfers.iter().filter(|(name, _)| name.0 == session);
        of_session.map(|(_, transfer)| transfer.cost_bytes()).sum()
    }

    fn remove(&mut self, name: (SessionId, u32)) -> Option<Assembly> {
        let transfer = self.transfers.remove(&name)?;
        self.held_bytes -= transfer.cost_bytes();
        Some(transfer.assembly)
    }

    fn drop_where(&mut self, is_over: impl Fn(&(SessionId, u32), &Transfer) -> bool) -> usize {
        let count_before = self.transfers.len();
        let held_bytes = &mut self.held_bytes;
        self.transfers.retain(|name, transfer| {
            let stays = !is_over(name, transfer);
            if !stays {
                *held_bytes -= transfer.cost_bytes();
            }
            stays
        });
        count_before - self.transfers.len()
    }
}

impl Transfer {
    fn cost_bytes(&self) -> u64 {
        Assembly::cost_bytes(self.assembly.total())
    }
}

#[cfg(test)]
mod tests;
