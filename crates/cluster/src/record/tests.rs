//! Tests of records: they survive a round trip, and damaged ones are refused.

use super::*;

fn entry(value_len_bytes: usize) -> Entry {
    Entry {
        shard: ShardId(9),
        version: Version::before_epoch(3).next().unwrap(),
        client: ClientId(77),
        sequence: 5,
        answered: Answered::Deleted(true),
        key: (*b"key").into(),
        value: Some((0..value_len_bytes).map(|at| at as u8).collect()),
        is_flush: false,
        client_flags: 0x03_dead_beef,
        expires_at: Some(UnixMillis(1_800_000_000_123)),
    }
}

fn joined(entry: &Entry, block_max_bytes: usize) -> (usize, Entry) {
    let blocks = entry.blocks(block_max_bytes);
    let mut body = Vec::new();
    let mut first = None;
    for (index, bytes) in blocks.iter().enumerate() {
        assert!(bytes.len() <= block_max_bytes && bytes.len().is_multiple_of(ALIGN_BYTES));
        let (header, piece) = block(bytes, Check::Checksum).unwrap();
        assert_eq!((header.block as usize, header.block_count as usize), (index, blocks.len()));
        body.extend(piece);
        first = first.or(Some(header));
    }
    (blocks.len(), Entry::from_body(&first.unwrap(), &body).unwrap())
}

#[test]
fn an_entry_comes_back_from_one_block_or_many() {
    for (value_len_bytes, want) in [(0, 1), (61, 1), (189, 1), (190, 2), (1000, 6)] {
        let entry = entry(value_len_bytes);
        assert_eq!(joined(&entry, 256 + 63), (want, entry), "{value_len_bytes}");
    }
    let deleted = Entry { value: None, ..entry(0) };
    let flush = Entry { is_flush: true, ..deleted.clone() };
    assert_eq!(joined(&flush, 128), (1, flush));
    assert_eq!(joined(&deleted, 128), (1, deleted));
    let plain = Entry { client_flags: 0, expires_at: None, ..entry(5) };
    assert_eq!(plain.blocks(128)[0][52..64], [0; 12]);
    assert_eq!(joined(&plain, 128), (1, plain));
}

#[test]
fn one_flipped_bit_or_a_cut_makes_no_record() {
    let mut bytes = Vec::new();
    entry(20).append(&mut bytes);
    let covered = HEADER_BYTES + 23;
    for at in 0..covered {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(block(&damaged, Check::Checksum), None, "byte {at}");
        assert_eq!(block(&bytes[..at], Check::Checksum), None, "cut at {at}");
    }
}

#[test]
fn a_scan_steps_over_damage_and_ends_at_a_torn_tail() {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for len in [10, 100, 1000] {
        starts.push(bytes.len());
        entry(len).append(&mut bytes);
    }
    append_mark(Kind::CommitVersion, ShardId(1), Version::before_epoch(2), &mut bytes);
    let kinds = |bytes: &[u8]| {
        let mut kinds = Vec::new();
        let scanned = scan(bytes, Check::Checksum, |_, header, _| kinds.push(header.kind));
        (kinds, scanned.skipped_bytes)
    };
    let all = vec![Kind::Put, Kind::Put, Kind::Put, Kind::CommitVersion];
    assert_eq!(kinds(&bytes), (all.clone(), 0));
    assert_eq!(kinds(&bytes[..bytes.len() - 64]), (all[..3].to_vec(), 0));
    bytes[starts[1] + 70] ^= 4;
    assert_eq!(kinds(&bytes), ([&all[..1], &all[2..]].concat(), starts[2] - starts[1]));
}
