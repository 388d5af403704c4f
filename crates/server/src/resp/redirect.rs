//! In a cluster, before a command runs: whether its keys are served here, and if not, by whom.
//!
//! ```text
//!  keys ─▶ one slot? ─ no ─▶ CROSSSLOT
//!            │ yes
//!            ▼ View::place
//!  Here, ThroughControl ─▶ go on          Elsewhere ─▶ MOVED; READONLY and a copy here: go on
//!                                         Nowhere ───▶ CLUSTERDOWN
//! ```
//!
//! # Invariants
//! I1: a server without a cluster pays one branch per command.
//! I2: a command that is refused inside MULTI spoils the transaction, as any other refusal.

use cluster::Slot;
use wire::Parsed;
use wire::resp::{
    Command, CommandError, CommandId, Elsewhere, ErrorReply, Flags, Keys, Limits, Parser,
};

use super::Caller;
use crate::cluster::{Place, Told};
use crate::engine::Engine;
use crate::gather::Gather;

/// What a node of a cluster answers to writes that are more than one write of one key.
const NOT_IN_CLUSTER: ErrorReply<'static> = ErrorReply::Other(
    "writes of several keys, transactions that write and FLUSHALL are not supported in a cluster",
);

/// Where the keys of a command are.
enum Keyed {
    Nothing,
    One(Slot),
    Several,
}

/// The slot of all keys.
fn slot_of<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> Keyed {
    let Some(slot) = keys.next().map(Slot::of) else { return Keyed::Nothing };
    if keys.all(|key| Slot::of(key) == slot) { Keyed::One(slot) } else { Keyed::Several }
}

/// The keys of a whole command, where its row in the table says they stand.
pub(super) fn keys_in(id: CommandId, raw: &[u8]) -> Option<Keys<'_>> {
    let spec = id.spec().keys;
    if spec.first == 0 {
        return None;
    }
    // Limits were checked when the command was framed.
    let limits = Limits::new(usize::MAX);
    match Parser::default().parse(raw, &limits) {
        Parsed::Done { value: args, .. } => Some(spec.of(args.iter())),
        _ => None,
    }
}

/// Commands that a node of a cluster cannot do yet: each is more than one write of one key, and a
/// primary replicates writes of one key alone.
fn is_refused_in_cluster(parsed: &Result<Command<'_>, CommandError<'_>>) -> bool {
    match parsed {
        Ok(Command::Del { keys, .. }) => keys.len() > 1,
        Ok(
            Command::MSet { .. }
            | Command::MSetNx { .. }
            | Command::Rename { .. }
            | Command::RenameNx { .. }
            | Command::Copy(_)
            | Command::Flush { .. },
        ) => true,
        _ => false,
    }
}

impl<E: Engine> Gather<'_, '_, E> {
    /// Whether a plain GET or SET of the key may take the short way (I1).
    #[inline]
    pub(super) fn is_served_here(&self, key: &[u8]) -> bool {
        self.core.cluster.as_ref().is_none_or(|view| view.is_own(Slot::of(key)))
    }

    /// Whether a command may not run here; answers the error itself.
    pub(super) fn is_redirected(
        &mut self,
        caller: Caller,
        parsed: &Result<Command<'_>, CommandError<'_>>,
        raw: &[u8],
    ) -> bool {
        let id = match parsed {
            Ok(command) => command.id(),
            // Redis looks at the keys before it looks at the options.
            Err(CommandError::Argument { id, .. }) => Some(*id),
            Err(_) => None,
        };
        let Some(id) = id.filter(|_| self.core.cluster.is_some()) else { return false };
        let keyed = slot_of(keys_in(id, raw).into_iter().flatten());
        let is_read = id.spec().flags.contains(Flags::READONLY);
        if self.is_elsewhere(caller, keyed, is_read) {
            return true;
        }
        let is_refused = is_refused_in_cluster(parsed);
        if is_refused {
            self.fail(caller, &NOT_IN_CLUSTER);
        }
        is_refused
    }

    /// The same of EXEC: the keys of all its commands together.
    pub(super) fn is_exec_redirected<'k>(
        &mut self,
        caller: Caller,
        keys: impl Iterator<Item = &'k [u8]>,
        writes: bool,
    ) -> bool {
        if self.core.cluster.is_none() {
            return false;
        }
        if self.is_elsewhere(caller, slot_of(keys), !writes) {
            return true;
        }
        if writes {
            self.fail(caller, &NOT_IN_CLUSTER);
        }
        writes
    }

    fn is_elsewhere(&mut self, caller: Caller, keyed: Keyed, is_read: bool) -> bool {
        let slot = match keyed {
            Keyed::Nothing => return false,
            Keyed::Several => {
                self.fail(caller, &ErrorReply::CrossSlot);
                return true;
            }
            Keyed::One(slot) => slot,
        };
        let Some(view) = &self.core.cluster else { return false };
        match view.place(slot) {
            Place::Here | Place::ThroughControl => return false,
            Place::Elsewhere => {
                let has_copy = is_read && view.has_copy(slot);
                if has_copy && self.core.connections[caller.slot].resp().reads_copies {
                    return false;
                }
                self.move_on(caller, slot);
            }
            Place::Nowhere => self.fail(caller, &ErrorReply::SlotNotServed),
        }
        true
    }

    /// MOVED to whoever is the primary.
    #[cold]
    fn move_on(&mut self, caller: Caller, slot: Slot) {
        let Some((own, configuration)) = self.installed() else {
            return self.fail(caller, &ErrorReply::SlotNotServed);
        };
        let shard = configuration.shard(configuration.shard_of_slot(slot));
        let told = Told::new(&configuration, own);
        match shard.filter(|shard| shard.primary != own).and_then(|it| told.resp_of(it.primary)) {
            Some((host, port)) => {
                self.fail(caller, &ErrorReply::Moved(Elsewhere { slot: slot.0, host, port }));
            }
            None => self.fail(caller, &ErrorReply::SlotNotServed),
        }
    }
}
