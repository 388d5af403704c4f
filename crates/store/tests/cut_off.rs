//! A log whose end is missing.

use store::IndexKind;
use store::durable::{DataError, NewData, Opened};
use store::medium::MemoryMedium;

use crate::durable::{MEMORY_BYTES, config, filled, new_data, open};

#[test]
fn a_file_that_is_cut_off_is_refused_or_opened_with_what_is_left() {
    let whole = filled(1000);
    let whole_bytes = whole.bytes().len();
    // Within the second of the segments with entries.
    let left = &whole.bytes()[..(64 << 10) + 2 * 4096 + (64 << 10) + 20_000];
    let disk = MemoryMedium::new(left.to_vec());
    let config = config(IndexKind::Hash, MEMORY_BYTES);
    let refused = open(disk.clone(), config.clone(), new_data()).map(drop).unwrap_err();
    assert!(matches!(refused, DataError::Truncated { .. }), "{refused}");
    let new = NewData { recovers_damaged: true, ..new_data() };
    let opened = open(disk, config.clone(), new).expect("with what is left");
    let Opened { store, mut committer, recovery } = opened;
    assert!((250..700).contains(&recovery.items), "{}", recovery.items);
    assert!(recovery.damage.iter().any(|damage| damage.reason.contains("cut off")));
    store.validate();
    for _ in 0..3 {
        committer.commit(|| unreachable!("there is no session")).expect("a good disk");
    }
    let medium = committer.into_medium();
    assert_eq!(medium.bytes().len(), whole_bytes);
    let again = open(medium, config, new_data()).expect("no damage is left");
    assert_eq!(again.recovery.items, recovery.items);
}
