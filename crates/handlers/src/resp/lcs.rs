//! LCS: the longest common subsequence of two values.
//!
//! ```text
//!          o  h  m  y  t  e  x  t          table[i][j]: how long it is in the first i bytes of one
//!       0  0  0  0  0  0  0  0  0          and the first j of the other; the way back through it
//!  m    0  0  0  1  1  1  1  1  1          is the subsequence
//!  y    0  0  0  1  2  2  2  2  2
//! ```

use base::KeyHash;
use budget::Kind;
use commands::rmw::Rmw;
use commands::work::{TURN_CELLS, Work};
use runtime::walks::lcs::{Asked, Table};
use runtime::walks::{Caller, LcsWalk, Slice, Source};
use store::{Op, Request};
use wire::resp::{Encoder, ErrorReply, LcsRequest, LcsWants};

use super::locked::Observed;
use super::several::NO_ROOM_FOR_VALUES;
use crate::gather::Gather;
use crate::resp::keys::refuse_long_key;
use crate::resp::locked::count_lookups;
use crate::resp::slices::begin_slices;

pub(super) fn lcs<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, request: &LcsRequest<'a>) {
    if refuse_long_key(gather, caller, [request.left, request.right].into_iter()) {
        return;
    }
    gather.settle(caller.slot);
    let keys = [request.left, request.right];
    // An absent key counts as empty.
    let seen = keys.map(|key| gather.glimpse(key));
    let found = seen.iter().filter(|it| it.version != 0).count() as u64;
    count_lookups(gather, caller, found, 2 - found);
    let lens = seen.map(|it| it.value_len_bytes as u64);
    let table_bytes =
        (lens[0] + 1).saturating_mul(lens[1] + 1).saturating_mul(size_of::<u32>() as u64);
    if table_bytes > gather.core.value_max_bytes {
        return gather.fail(caller, &ErrorReply::LcsMemory);
    }
    let scratch_bytes = table_bytes + lens[0] + lens[1];
    if !gather.core.try_scratch(Kind::Groups, scratch_bytes) {
        return gather.fail(caller, &NO_ROOM_FOR_VALUES);
    }
    gather.core.charge(Work::bytes(lens[0] + lens[1]));
    match values_of(gather, keys, lens) {
        Some([left, right]) => begin_lcs(gather, caller, request, left, right),
        None => gather.fail(caller, &GREW),
    }
    // Memory that is needed longer is booked with its connection.
    gather.core.end_scratch(Kind::Groups, scratch_bytes);
}

fn begin_lcs<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    request: &LcsRequest<'a>,
    left: Vec<u8>,
    right: Vec<u8>,
) {
    let table = Table::new(left, right);
    let (wants, match_min_bytes) = (request.wants, request.match_min_bytes);
    let with_lengths = request.with_lengths;
    let asked = Asked { wants, match_min_bytes, with_lengths };
    begin_slices(gather, caller, Source::Lcs(LcsWalk { table, asked }));
}

/// Computes some rows of the table; the last slice also replies.
pub(super) fn lcs_slice(gather: &mut Gather<'_, '_>, caller: Caller, walk: &mut LcsWalk) -> Slice {
    let cells = walk.table.fill(TURN_CELLS);
    gather.core.charge(Work::cells(cells));
    if !walk.table.is_full() {
        return Slice::More;
    }
    gather.say(caller, |encoder| answer(encoder, &walk.table, walk.asked));
    Slice::Last
}

/// Copies of both values at one moment, if they are not longer than `lens_max`.
fn values_of(
    gather: &mut Gather<'_, '_>,
    keys: [&[u8]; 2],
    lens_max: [u64; 2],
) -> Option<[Vec<u8>; 2]> {
    let now = gather.core.now;
    let hashed: [(KeyHash, &[u8]); 2] = keys.map(|key| (gather.core.hash(key), key));
    let mut values = Values { lens_max, ..Values::default() };
    match gather.engine.session() {
        Some(session) => session.read_snapshot(now, &hashed, &mut values),
        None => {
            // The keys are held, so their lengths have not changed.
            for (index, (hash, key)) in hashed.into_iter().enumerate() {
                let mut seen = Observed { keeps_item: true, ..Observed::default() };
                let request = Request { key, hash, op: Op::<Rmw<'_>>::Get };
                gather.engine.execute(now, &[request], &mut seen);
                values.copies[index] = seen.item.map(|item| item.value).unwrap_or_default();
            }
        }
    }
    (!values.have_grown).then_some(values.copies)
}

/// A value became longer between two looks at it.
const GREW: ErrorReply<'static> = ErrorReply::Other("a value has grown meanwhile: try again");

/// Copies the values of a snapshot, as far as they are booked.
#[derive(Default)]
struct Values {
    copies: [Vec<u8>; 2],
    lens_max: [u64; 2],
    have_grown: bool,
}

impl store::Sink<commands::rmw::Refusal> for Values {
    fn outcome(
        &mut self,
        request_index: usize,
        outcome: store::Outcome<'_, commands::rmw::Refusal>,
        _: store::Pins<'_>,
    ) {
        if let store::Outcome::Hit(item) = outcome {
            match item.value.len() as u64 <= self.lens_max[request_index] {
                true => self.copies[request_index] = item.value.to_vec(),
                false => self.have_grown = true,
            }
        }
    }
}

fn answer(encoder: &mut Encoder<'_>, table: &Table, asked: Asked) {
    let length = i64::from(table.length(table.left.len(), table.right.len()));
    match asked.wants {
        LcsWants::Text => encoder.bulk(&table.text()),
        LcsWants::Length => encoder.integer(length),
        LcsWants::Matches => {
            let mut matches = table.matches();
            matches.retain(|found| found.len_bytes as u64 >= asked.match_min_bytes);
            encoder.map_header(2);
            encoder.bulk(b"matches");
            encoder.array_header(matches.len());
            for found in matches {
                encoder.array_header(2 + usize::from(asked.with_lengths));
                for start in [found.left, found.right] {
                    encoder.array_header(2);
                    encoder.integer(start as i64);
                    encoder.integer((start + found.len_bytes - 1) as i64);
                }
                if asked.with_lengths {
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
        let mut table = Table::new(left.into(), right.into());
        // A row at a time.
        while !table.is_full() {
            assert_eq!(table.fill(1), right.len() as u64 + 1);
        }
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
