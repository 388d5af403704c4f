//! The bytes that users take of the client buffers, and those that a change of users may take,
//! booked before it is made.

use super::selector::Selector;
use super::user::User;

/// The maximum memory of a rule besides two copies of its bytes: patterns and words in vectors that
/// have just grown, or the digest of a password.
const RULE_BYTES: u64 = 320;

/// The same for the word that begins a selector.
const SELECTOR_BYTES: u64 = RULE_BYTES + 4 * size_of::<Selector>() as u64;

/// The memory of a user without rules: itself, and its entries in the maps of two tables.
pub(super) const USER_BYTES: u64 = size_of::<User>() as u64 + 160;

/// The users fill their part of the client buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "users and their rules have no more room: their part of the client buffers is {limit_bytes} \
     bytes, and a larger --memory has more"
)]
pub struct NoRoom {
    /// The limit of the kind.
    pub limit_bytes: u64,
}

/// The maximum memory that rules add to a user.
pub(super) fn rules_bytes_max<'r>(rules: impl Iterator<Item = &'r [u8]>) -> u64 {
    let words = rules.flat_map(|rule| rule.split(u8::is_ascii_whitespace));
    let bytes_max = |word: &[u8]| {
        let own_bytes = if word.starts_with(b"(") { SELECTOR_BYTES } else { RULE_BYTES };
        let may_name_keys = matches!(word.first(), Some(b'~' | b'%' | b'(')) || word == b"allkeys";
        let keys_bytes = if may_name_keys { Selector::keys_bytes_max(word) } else { 0 };
        own_bytes + (2 * word.len() + keys_bytes) as u64
    };
    words.map(bytes_max).sum()
}

/// The maximum memory of the users of a file.
pub(super) fn file_bytes_max(text: &[u8]) -> u64 {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let line_bytes_max = |line| USER_BYTES + rules_bytes_max(std::iter::once(line));
    lines.map(line_bytes_max).sum()
}

impl User {
    /// The memory it takes.
    pub fn held_bytes(&self) -> u64 {
        let passwords = self.passwords.capacity() * size_of::<String>()
            + self.passwords.iter().map(|digest| 16 + digest.len()).sum::<usize>();
        let selectors = self.selectors.capacity() * size_of::<Selector>()
            + self.selectors.iter().map(Selector::held_bytes).sum::<usize>();
        let own = 2 * self.name.len() + passwords + selectors + self.root.held_bytes();
        USER_BYTES + own as u64
    }
}
