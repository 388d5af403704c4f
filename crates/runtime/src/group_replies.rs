//! The room for the replies of a transaction: booked before its first command, and never exceeded.
//!
//! ```text
//!  booked: [ a few words for each command ][ values, lists ]
//!                                           └ each reply draws what it takes ─ nothing left:
//!                                             more is booked, or an error stands in its place
//! ```
//!
//! # Invariants
//! G1: a reply of more than [`SHORT_REPLY_BYTES`] draws its bytes before it is made, or is made,
//!     measured and cut back. So the estimate of a transaction may be wrong, as when other clients
//!     change a value meanwhile: memory stays booked, and the connection stays open.

use budget::{Books, Kind, Ledger};

/// The maximum length of headers, numbers and errors, and of replies without keys that their rows
/// call short.
pub const SHORT_REPLY_BYTES: u64 = 256;
/// Values of this length and more are drawn; a shorter one has room beside its header.
pub const DRAWN_BYTES_MIN: usize = 128;

/// What is booked for the replies of the transaction that runs.
#[derive(Debug)]
pub struct GroupReplies {
    kind: Kind,
    booked_bytes: u64,
    left_bytes: u64,
}

impl GroupReplies {
    /// Books room for short replies and long ones; `None`: there is none.
    pub fn book(
        ledger: &mut Ledger,
        kind: Kind,
        (short_bytes, long_bytes): (u64, u64),
    ) -> Option<GroupReplies> {
        let booked_bytes = short_bytes + long_bytes;
        let has_room = ledger.try_reserve(kind, booked_bytes);
        has_room.then_some(GroupReplies { kind, booked_bytes, left_bytes: long_bytes })
    }

    /// Takes room for a value that is about to be copied: out of what is left, or by booking more
    /// for its connection; twice, because a buffer that grows beyond what was reserved doubles.
    pub fn draw(&mut self, ledger: &mut Ledger, books: &mut Books, bytes: u64) -> bool {
        let more_bytes = bytes.saturating_sub(self.left_bytes);
        self.take(ledger, books, bytes, 2 * more_bytes)
    }

    /// Takes room for a reply that has been made, in a buffer without slack.
    pub fn draw_made(&mut self, ledger: &mut Ledger, books: &mut Books, bytes: u64) -> bool {
        let more_bytes = bytes.saturating_sub(self.left_bytes);
        self.take(ledger, books, bytes, more_bytes)
    }

    fn take(
        &mut self,
        ledger: &mut Ledger,
        books: &mut Books,
        bytes: u64,
        more_bytes: u64,
    ) -> bool {
        let has_room = more_bytes == 0 || ledger.try_reserve(Kind::Replies, more_bytes);
        if has_room {
            books.add(Kind::Replies, more_bytes);
            self.left_bytes = self.left_bytes.saturating_sub(bytes);
        }
        has_room
    }

    /// Hands what is booked to the connection that the replies belong to.
    pub fn end(self, books: &mut Books) {
        books.add(self.kind, self.booked_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use budget::BufferBudget;

    use super::*;

    #[test]
    fn a_reply_beyond_the_estimate_is_booked_or_has_no_room() {
        let budget = Arc::new(BufferBudget::new(64 << 20));
        let mut ledger = Ledger::new(Arc::clone(&budget));
        let mut books = Books::default();
        let booked = GroupReplies::book(&mut ledger, Kind::Replies, (1_000, 5_000));
        let mut group = booked.expect("room in empty buffers");
        assert!(group.draw(&mut ledger, &mut books, 4_000));
        assert_eq!(books.of(Kind::Replies), 0, "out of the estimate");
        assert!(group.draw(&mut ledger, &mut books, 3_000));
        assert_eq!(books.of(Kind::Replies), 4_000);
        assert!(!group.draw(&mut ledger, &mut books, 64 << 20));
        assert_eq!(books.of(Kind::Replies), 4_000);
        group.end(&mut books);
        assert_eq!(books.of(Kind::Replies), 10_000);
        assert_eq!(budget.kind_bytes(Kind::Replies), budget.granted_bytes());
    }
}
