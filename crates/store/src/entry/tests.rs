//! Tests of the byte format of entries: what headers keep, and the effect of a flipped bit.

use super::*;

#[repr(C, align(8))]
struct Block([u8; 64]);

fn write_sample(meta: Meta) -> Block {
    let mut block = Block([0; 64]);
    let shape = Shape::new(3, 5, meta.client_flags, meta.expires_at.is_some());
    let header = Header::new(shape, meta, body_checksum(shape, b"key", b"value"));
    let mut bytes: Vec<u8> = header.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(bytes.len(), shape.header_bytes());
    bytes.extend_from_slice(b"keyvalue");
    block.0[..bytes.len()].copy_from_slice(&bytes);
    block
}

fn entry_of(block: &mut Block) -> Entry<'_> {
    // SAFETY: `write_sample` laid out a whole entry at an 8-aligned address.
    unsafe { Entry::at(block.0.as_mut_ptr()) }
}

#[track_caller]
fn check(client_flags: u64, expires_at_ms: Option<u64>, len_bytes: usize, checksum: u32) {
    let expires_at = expires_at_ms.map(UnixMillis);
    let mut block = write_sample(Meta { version: 9, client_flags, expires_at });
    let entry = entry_of(&mut block);
    let seen = entry.see();
    let item = seen.item();
    assert_eq!((item.key, item.value), (&b"key"[..], &b"value"[..]));
    assert_eq!((item.version, item.client_flags), (9, client_flags));
    assert_eq!((entry.len_bytes(), entry.expires_at()), (len_bytes, expires_at));
    assert!(entry.checksum_holds());
    assert_eq!(entry.word(0) as u32, checksum, "the examples of docs/formats");
    if let Some(at) = expires_at_ms {
        assert!(!entry.is_expired(UnixMillis(at - 1)) && entry.is_expired(UnixMillis(at)));
    }
}

#[test]
fn an_entry_reads_back_what_its_header_says() {
    check(0, None, 24, 0xe210_ca9b);
    check(5, None, 32, 0xcc29_44dd);
    check(0, Some(77), 32, 0x279a_babb);
    check(5, Some(77), 40, 0x9abd_f311);
}

#[test]
fn marks_lie_beside_the_flags() {
    for flags in [1 << 32, 5 | 3 << 32, u64::from(u32::MAX) | 0xff << 32] {
        let mut block = write_sample(Meta { version: 9, client_flags: flags, expires_at: None });
        let entry = entry_of(&mut block);
        // The third mark says that a token stands behind the value: it is not shown.
        assert_eq!(entry.see().item().client_flags, flags & !(1 << 34));
        assert!(entry.checksum_holds());
    }
}

#[test]
fn lengths_beyond_the_first_word_are_kept() {
    for (key_len, value_len) in
        [(0, 0), (255, 65_535), (256, 0), (0, 65_536), (65_535, (512 << 20) - 65_535)]
    {
        let shape = Shape::new(key_len, value_len, 0, false);
        let meta = Meta { version: 1, client_flags: 0, expires_at: None };
        let header = Header::new(shape, meta, body_checksum(shape, b"", b""));
        let mut block = Block([0; 64]);
        for (place, word) in block.0.as_chunks_mut::<8>().0.iter_mut().zip(header.words()) {
            *place = word.to_le_bytes();
        }
        assert_eq!(entry_of(&mut block).shape(), shape);
        let is_wide = key_len > 255 || value_len > 65_535;
        assert_eq!(shape.header_bytes(), if is_wide { 24 } else { 16 });
    }
}

#[test]
fn a_short_value_behind_a_whole_word_is_replaced_where_it_lies() {
    let shape = Shape::new(8, 3, 0, false);
    assert!(shape.is_in_place() && !Shape::new(7, 3, 0, false).is_in_place());
    assert!(!Shape::new(8, 9, 0, false).is_in_place());
    assert!(!Shape::new(8, 0, 0, false).is_in_place());
    assert!(!Shape::new(8, 3, 1, false).is_in_place());
    assert!(!Shape::new(8, 3, 0, true).is_in_place());
    let meta = Meta { version: 9, client_flags: 0, expires_at: None };
    let header = Header::new(shape, meta, body_checksum(shape, b"counters", b"123"));
    let mut block = Block([0; 64]);
    for (place, word) in block.0.as_chunks_mut::<8>().0.iter_mut().zip(header.words()) {
        *place = word.to_le_bytes();
    }
    block.0[16..27].copy_from_slice(b"counters123");
    // SAFETY: a whole entry was laid out at an 8-aligned address, which this test owns.
    let entry = unsafe { Entry::at(block.0.as_mut_ptr()) };
    let before = entry.see();
    assert!(entry.takes_in_place(shape) && !entry.takes_in_place(Shape::new(8, 4, 0, false)));
    entry.replace_value(b"124", 10);
    let after = entry.see();
    assert_eq!((before.item().value, before.item().version), (&b"123"[..], 9));
    assert_eq!((after.item().value, after.item().version), (&b"124"[..], 10));
    assert!(entry.checksum_holds() && entry.has_key(b"counters"));
}

#[test]
fn any_flipped_bit_breaks_the_checksum() {
    for bit in 0..40 * 8 {
        let expires_at = Some(UnixMillis(77));
        let mut block = write_sample(Meta { version: 9, client_flags: 5, expires_at });
        block.0[bit / 8] ^= 1 << (bit % 8);
        // Flips of kind and lengths may reach past the block; few of them stay inside.
        let is_length = (40..64).contains(&bit) || (160..184).contains(&bit);
        if is_length && !(40..44).contains(&bit) && !(48..52).contains(&bit) {
            continue;
        }
        assert!(!entry_of(&mut block).checksum_holds(), "bit {bit}");
    }
}
