//! A log whose end is missing.

use base::UnixMillis;
use store::durable::{DataError, NewData, Opened};
use store::medium::MemoryMedium;
use store::{Condition, Expiry, IndexKind, NoUpdate, Op, Outcome, Pins, Request, Set, Sink};

use crate::durable::{MEMORY_BYTES, filled, new_data};
use crate::support::{durable_config, open_durable};

#[test]
fn a_file_that_is_cut_off_is_refused_or_opened_with_what_is_left() {
    let whole = filled(1000);
    let whole_bytes = whole.bytes().len();
    // Within the second of the segments with entries.
    let left = &whole.bytes()[..(64 << 10) + 2 * 4096 + (64 << 10) + 20_000];
    let disk = MemoryMedium::new(left.to_vec());
    let config = durable_config(IndexKind::Hash, MEMORY_BYTES);
    let refused = open_durable(disk.clone(), config.clone(), new_data()).map(drop).unwrap_err();
    assert!(matches!(refused, DataError::Truncated { .. }), "{refused}");
    let new = NewData { recovers_damaged: true, ..new_data() };
    let opened = open_durable(disk, config.clone(), new).expect("with what is left");
    let Opened { store, mut committer, recovery } = opened;
    assert!((250..700).contains(&recovery.items), "{}", recovery.items);
    assert!(recovery.damage.iter().any(|damage| damage.reason.contains("cut off")));
    store.validate();
    for _ in 0..3 {
        committer.commit(|| unreachable!("there is no session")).expect("a good disk");
    }
    let medium = committer.into_medium();
    assert_eq!(medium.bytes().len(), whole_bytes);
    let again = open_durable(medium, config, new_data()).expect("no damage is left");
    assert_eq!(again.recovery.items, recovery.items);
}

struct Stored(usize);

impl Sink<NoUpdate> for Stored {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, NoUpdate>, _: Pins<'_>) {
        self.0 += usize::from(matches!(outcome, Outcome::Stored { .. }));
    }
}

/// A log whose only commit has a short and a long entry, in two segments: its rows are those of
/// the first two segments.
fn one_commit() -> Vec<u8> {
    let config = durable_config(IndexKind::Hash, MEMORY_BYTES);
    let opened =
        open_durable(MemoryMedium::default(), config, new_data()).expect("an empty medium");
    let Opened { store, mut committer, .. } = opened;
    let mut session = store.session().expect("a place is free");
    let mut stored = Stored(0);
    for (key, value) in [(&b"short"[..], &[1; 200][..]), (b"long", &[2; 30_000])] {
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let op: Op<'_, NoUpdate> = Op::Set(Set { value, client_flags: 0, expiry, condition });
        let request = Request { key, hash: store.key_hasher().hash(key), op };
        session.execute(UnixMillis(new_data().now_ms), &[request], &mut stored);
    }
    drop(session);
    assert_eq!(stored.0, 2);
    committer.commit(|| unreachable!("there is no session")).expect("a good disk");
    committer.into_medium().bytes().to_vec()
}

#[test]
fn the_missing_end_of_a_file_is_no_row_of_a_commit_that_lacks_one() {
    let row_page = |segment: usize| 2 * 4096 + segment * (4096 + (64 << 10));
    let config = durable_config(IndexKind::Hash, MEMORY_BYTES);
    let new = NewData { recovers_damaged: true, ..new_data() };
    // Only the end of the last segment is missing: no row, and no entry.
    let mut left = one_commit();
    left.truncate(left.len() - 100);
    let opened =
        open_durable(MemoryMedium::new(left.clone()), config.clone(), new).expect("cut off");
    assert_eq!(opened.recovery.items, 2);
    drop(opened);
    // The disk has kept one of the commit's rows, and not the other.
    left[row_page(1)..row_page(2)].fill(0);
    let new = NewData { recovers_damaged: true, ..new_data() };
    let opened = open_durable(MemoryMedium::new(left), config, new).expect("cut off");
    assert_eq!(opened.recovery.items, 0, "half of a commit");
}
