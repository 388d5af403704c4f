//! Checkpoints of an index with any damage: they are read or refused, and a start with what was
//! read never shows more than the log has.

use std::sync::OnceLock;

use store::Tuning;
use store::durable::checkpoint::Checkpoint;
use store::durable::{Beside, Opened, UsedCheckpoint, open_with};
use store::medium::MemoryMedium;

use crate::data_files::{NEW, config, good_file, open_file};

/// An input is `settings (1 byte) | damage ...`. With the lowest bit of the settings the damage is
/// the checkpoint's bytes; else each nine bytes are `which word (1) | what to flip (8)` in a good
/// one, whose checksum then holds.
pub fn checkpoints(data: &[u8]) {
    let Some((settings, damage)) = data.split_first() else { return };
    let checkpoint = match settings & 1 {
        0 => Ok(damaged(damage)),
        _ => Checkpoint::read_from(&mut &*damage),
    };
    if let Ok(read) = &checkpoint {
        let mut bytes = Vec::new();
        read.write_to(&mut bytes).expect("memory");
        assert_eq!(Checkpoint::read_from(&mut &bytes[..]).as_ref(), Ok(read));
    }
    let was_read = checkpoint.is_ok();
    let disk = MemoryMedium::new(good_file().to_vec());
    let beside = Beside { is_gone: &|_| false, checkpoint: Some(checkpoint) };
    let opened = open_with(disk, config(), (Tuning::default(), &[]), NEW, beside, &mut |_, _| {});
    let Opened { recovery, .. } = opened.expect("the log is good");
    let (items, entries) = good();
    assert_eq!(recovery.entries, entries);
    match recovery.checkpoint {
        UsedCheckpoint::Used { items } => assert!(was_read && items <= entries),
        UsedCheckpoint::Ignored(_) => assert_eq!(recovery.items, items),
        UsedCheckpoint::None => panic!("there was one"),
    }
}

/// Items and entries of the log.
fn good() -> (u64, u64) {
    static COUNTS: OnceLock<(u64, u64)> = OnceLock::new();
    *COUNTS.get_or_init(|| {
        let disk = MemoryMedium::new(good_file().to_vec());
        let recovery = open_file(disk, false).expect("the log is good").recovery;
        (recovery.items, recovery.entries)
    })
}

fn damaged(damage: &[u8]) -> Checkpoint {
    static GOOD: OnceLock<Checkpoint> = OnceLock::new();
    let good = GOOD.get_or_init(|| {
        let disk = MemoryMedium::new(good_file().to_vec());
        let committer = open_file(disk, false).expect("the log is good").committer;
        let mut checkpointer = committer.checkpointer();
        checkpointer.begin();
        checkpointer.collect().expect("there is no other user")
    });
    let mut checkpoint = good.clone();
    for [which, flip @ ..] in damage.as_chunks::<9>().0 {
        let (at, flip) = (usize::from(*which), u64::from_le_bytes(*flip));
        let covered_count = checkpoint.covered.len();
        match at {
            0 => checkpoint.data_id ^= flip,
            1 => checkpoint.generation ^= flip,
            2..=9 if covered_count > 0 => {
                checkpoint.covered[at % covered_count].end_bytes ^= flip;
            }
            10..=17 if covered_count > 0 => {
                checkpoint.covered[at % covered_count].sequence ^= flip;
            }
            _ => {
                let count = checkpoint.words.len();
                checkpoint.words[at % count] ^= flip;
            }
        }
    }
    checkpoint
}
