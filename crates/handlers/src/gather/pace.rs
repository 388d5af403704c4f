//! Decides before a command begins whether it waits until other connections have had their turn (W4
//! of `work`).
//!
//! The cost of a command on one key is known after its lookup. So where other connections wait, the
//! length of the value is looked up before a command that may read or copy all of it. A connection
//! that has waited counts as slow for a while, and its command is parsed again in its turn.
//!
//! Where another worker executes such commands, the connections of this worker together have one
//! under way at a time: that worker takes requests in their order, and more long ones would delay
//! the short ones behind them.

use commands::work::Work;

use crate::gather::Gather;

/// A value of so many bytes is read and copied within the part of a turn.
const SHORT_VALUE_BYTES_MAX: usize = 64 << 10;
/// A longer command, such as an MSET of many keys, is as much work as a long value.
pub const SHORT_COMMAND_BYTES_MAX: usize = 64 << 10;

impl Gather<'_, '_> {
    /// Whether a command waits until connections with short commands have had their turn. `is_long`
    /// looks at the values that the command may read or copy.
    pub fn waits_behind_others(
        &mut self,
        slot: usize,
        command_bytes: usize,
        is_long: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        ((self.routes || self.core.turn.is_beside_others()) && self.stands_back(slot, is_long))
            || self.long_command_waits(slot, command_bytes)
    }

    fn stands_back(&mut self, slot: usize, is_long: impl FnOnce(&mut Self) -> bool) -> bool {
        // A slow connection's cost is charged once the command has run; where another worker runs
        // it, the cost has to be known before.
        if (!self.routes && self.core.is_slow(slot)) || !is_long(self) {
            return false;
        }
        let has_stood_back = self.core.is_slow(slot);
        self.core.slow_down(slot);
        if self.core.turn.is_beside_others() && !has_stood_back {
            return true;
        }
        self.routes && !self.core.begin_long_elsewhere(slot)
    }

    /// The check for a command that is known by its length alone. One that continues is charged
    /// here: the values of several would be copied before the turn is charged for parsed commands.
    #[inline]
    pub fn long_command_waits(&mut self, slot: usize, command_bytes: usize) -> bool {
        command_bytes > SHORT_COMMAND_BYTES_MAX && self.weigh_long(slot, command_bytes)
    }

    #[cold]
    fn weigh_long(&mut self, slot: usize, command_bytes: usize) -> bool {
        let is_datagram = self.core.connections[slot].exchange.is_some();
        if self.core.turn.is_beside_others() && !self.core.is_slow(slot) && !is_datagram {
            self.core.slow_down(slot);
            return true;
        }
        self.core.charge_parsed(command_bytes as u64);
        false
    }

    /// Within a command on several keys: whether the rest of it waits, because the value of the
    /// next key is long.
    pub fn value_waits_behind_others(&mut self, slot: usize, key: &[u8]) -> bool {
        let waits = self.core.turn.is_beside_others()
            && !self.core.is_slow(slot)
            && self.has_long_value(slot, key);
        if waits {
            // What it did before does not make it quick.
            self.core.note_slice(slot);
        }
        waits
    }

    /// Whether a key has a long value.
    pub fn has_long_value(&mut self, slot: usize, key: &[u8]) -> bool {
        self.core.charge(Work::keys(1));
        let is_long = key.len() <= store::KEY_LEN_MAX_BYTES
            && self.glimpse(key).value_len_bytes > SHORT_VALUE_BYTES_MAX;
        if is_long {
            // No request is gathered with it: several such values would be the work of many turns.
            self.core.connections[slot].is_large_reader = true;
        }
        is_long
    }
}
