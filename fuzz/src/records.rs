//! Entries read out of any bytes: the scan ends, and what it found is written as it was read.

use store::record::{Scan, Seal, decode};

/// An input is `seal (1 byte) | bytes of a segment`.
pub fn records(data: &[u8]) {
    let Some((seal, bytes)) = data.split_first() else { return };
    let seal = Seal(u32::from(*seal));
    let mut scan = Scan::new(bytes, seal);
    let mut last_end = 0;
    loop {
        match scan.next() {
            Some(Ok(located)) => {
                assert!(located.offset >= last_end && located.offset.is_multiple_of(8));
                last_end = located.offset + located.len_bytes;
                assert!(last_end <= bytes.len(), "nothing beyond the end");
                let mut again = Vec::new();
                located.record.encode(seal, &mut again).expect("what was read can be written");
                let read = decode(&again, seal).expect("what was written can be read");
                assert_eq!(read.0, located.record);
            }
            Some(Err(damaged)) => {
                assert!(damaged.offset >= last_end && damaged.offset <= bytes.len());
                if !scan.resume() {
                    break;
                }
            }
            None => break,
        }
    }
    assert!(scan.next().is_none());
}
