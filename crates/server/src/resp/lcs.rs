//! LCS: the longest common subsequence of two values.
//!
//! ```text
//!          o  h  m  y  t  e  x  t          table[i][j]: how long it is in the first i bytes of one
//!       0  0  0  0  0  0  0  0  0          and the first j of the other; the way back through it
//!  m    0  0  0  1  1  1  1  1  1          is the subsequence
//!  y    0  0  0  1  2  2  2  2  2
//! ```

use base::KeyHash;
use store::{Op, Request};
use wire::resp::{Command, Encoder, ErrorReply, LcsRequest, LcsWants};

use super::Caller;
use super::locked::Observed;
use super::several::TOO_MANY_PARTS;
use crate::budget::Kind;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::rmw::Rmw;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs `command` if it is this one.
    pub(super) fn run_lcs(&mut self, caller: Caller, command: Command<'a>) -> Option<Command<'a>> {
        match command {
            Command::Lcs(request) => self.lcs(caller, &request),
            other => return Some(other),
        }
        None
    }

    fn lcs(&mut self, caller: Caller, request: &LcsRequest<'a>) {
        if self.refuse_long_key(caller, [request.left, request.right].into_iter()) {
            return;
        }
        self.settle(caller.slot);
        let values = self.values_of([request.left, request.right]);
        let found = values.iter().flatten().count() as u64;
        self.count_lookups(caller, found, 2 - found);
        // An absent key is empty.
        let [left, right] = values.map(Option::unwrap_or_default);
        let table_bytes = (left.len() as u64 + 1)
            .saturating_mul(right.len() as u64 + 1)
            .saturating_mul(size_of::<u32>() as u64);
        if table_bytes > self.core.value_max_bytes {
            return self.fail(caller, &ErrorReply::LcsMemory);
        }
        if !self.core.ledger.try_reserve(Kind::Groups, table_bytes) {
            return self.fail(caller, &TOO_MANY_PARTS);
        }
        let table = Table::new(&left, &right);
        self.say(caller, |encoder| answer(encoder, &table, request));
        self.core.ledger.release(Kind::Groups, table_bytes);
    }

    /// Both values as of one moment.
    fn values_of(&mut self, keys: [&[u8]; 2]) -> [Option<Vec<u8>>; 2] {
        let now = self.core.now;
        let hashed: [(KeyHash, &[u8]); 2] = keys.map(|key| (self.core.hash(key), key));
        let mut values = Values::default();
        match self.engine.session() {
            Some(session) => session.read_snapshot(now, &hashed, &mut values),
            None => {
                self.flush();
                for (index, (hash, key)) in hashed.into_iter().enumerate() {
                    let mut seen = Observed { keeps_item: true, ..Observed::default() };
                    let request = Request { key, hash, op: Op::<Rmw<'_>>::Get };
                    self.engine.execute(now, &[request], &mut seen);
                    values.0[index] = seen.item.map(|item| item.value);
                }
            }
        }
        values.0
    }
}

/// Copies what a snapshot found.
#[derive(Default)]
struct Values([Option<Vec<u8>>; 2]);

impl store::Sink<crate::rmw::Refusal> for Values {
    fn outcome(
        &mut self,
        request_index: usize,
        outcome: store::Outcome<'_, crate::rmw::Refusal>,
        _: store::Pins<'_>,
    ) {
        if let store::Outcome::Hit(item) = outcome {
            self.0[request_index] = Some(item.value.to_vec());
        }
    }
}

/// The lengths of the subsequences of all beginnings of the two.
struct Table<'v> {
    left: &'v [u8],
    right: &'v [u8],
    lengths: Vec<u32>,
}

/// A part that both have in one piece: where it begins in each, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    left: usize,
    right: usize,
    len_bytes: usize,
}

impl<'v> Table<'v> {
    fn new(left: &'v [u8], right: &'v [u8]) -> Table<'v> {
        let width = right.len() + 1;
        let mut lengths = vec![0; width * (left.len() + 1)];
        for (row, byte) in left.iter().enumerate() {
            let (above, below) = lengths.split_at_mut((row + 1) * width);
            let above = &above[row * width..];
            for (column, other) in right.iter().enumerate() {
                below[column + 1] = if byte == other {
                    above[column] + 1
                } else {
                    above[column + 1].max(below[column])
                };
            }
        }
        Table { left, right, lengths }
    }

    fn length(&self, left: usize, right: usize) -> u32 {
        self.lengths[left * (self.right.len() + 1) + right]
    }

    /// The way back: the places of the bytes of the subsequence, the last first.
    fn steps(&self) -> impl Iterator<Item = (usize, usize)> {
        let (mut left, mut right) = (self.left.len(), self.right.len());
        std::iter::from_fn(move || {
            while left > 0 && right > 0 {
                if self.left[left - 1] == self.right[right - 1] {
                    left -= 1;
                    right -= 1;
                    return Some((left, right));
                }
                if self.length(left - 1, right) > self.length(left, right - 1) {
                    left -= 1;
                } else {
                    right -= 1;
                }
            }
            None
        })
    }

    fn text(&self) -> Vec<u8> {
        let mut text: Vec<u8> = self.steps().map(|(left, _)| self.left[left]).collect();
        text.reverse();
        text
    }

    /// The last first, as Redis lists them.
    fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        for (left, right) in self.steps() {
            match matches.last_mut() {
                Some(last) if last.left == left + 1 && last.right == right + 1 => {
                    *last = Match { left, right, len_bytes: last.len_bytes + 1 };
                }
                _ => matches.push(Match { left, right, len_bytes: 1 }),
            }
        }
        matches
    }
}

fn answer(encoder: &mut Encoder<'_>, table: &Table<'_>, request: &LcsRequest<'_>) {
    let length = i64::from(table.length(table.left.len(), table.right.len()));
    match request.wants {
        LcsWants::Text => encoder.bulk(&table.text()),
        LcsWants::Length => encoder.integer(length),
        LcsWants::Matches => {
            let mut matches = table.matches();
            matches.retain(|found| found.len_bytes as u64 >= request.match_min_bytes);
            encoder.map_header(2);
            encoder.bulk(b"matches");
            encoder.array_header(matches.len());
            for found in matches {
                encoder.array_header(2 + usize::from(request.with_lengths));
                for start in [found.left, found.right] {
                    encoder.array_header(2);
                    encoder.integer(start as i64);
                    encoder.integer((start + found.len_bytes - 1) as i64);
                }
                if request.with_lengths {
                    encoder.integer(found.len_bytes as i64);
                }
            }
            encoder.bulk(b"len");
            encoder.integer(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left: &str, right: &str, text: &str, matches: &[(usize, usize, usize)]) {
        let table = Table::new(left.as_bytes(), right.as_bytes());
        assert_eq!(String::from_utf8_lossy(&table.text()), text);
        assert_eq!(table.length(left.len(), right.len()) as usize, text.len());
        let found: Vec<_> =
            table.matches().iter().map(|it| (it.left, it.right, it.len_bytes)).collect();
        assert_eq!(found, matches);
    }

    #[test]
    fn subsequences_are_those_of_redis() {
        check("ohmytext", "mynewtext", "mytext", &[(4, 5, 4), (2, 0, 2)]);
        check("", "abc", "", &[]);
        check("abc", "abc", "abc", &[(0, 0, 3)]);
        check("abc", "xyz", "", &[]);
        check("axbxc", "aybyc", "abc", &[(4, 4, 1), (2, 2, 1), (0, 0, 1)]);
    }
}
