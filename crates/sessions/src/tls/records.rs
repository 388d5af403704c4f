//! Counts the bytes of a client's records that the TLS library keeps, because it does not tell.
//!
//! ```text
//!  header 5 | body ............ | header 5 | body ... ▏ arrived up to here
//!  whole: kept only if no plaintext came of it        └─ part: kept
//!         (a message of a handshake in fragments)
//! ```

/// Type, version and length.
const HEADER_BYTES: usize = 5;

/// Bytes of whole records without plaintext that a client may send after the handshake: it has only
/// new keys and the end to tell, in some dozens of bytes each.
pub(super) const MUTE_BYTES_MAX: usize = 16 << 10;

/// The place in a stream of records.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER_BYTES],
    /// Bytes of the unfinished record, its header included.
    part_bytes: usize,
    /// Bytes of whole records since the last plaintext.
    mute_bytes: usize,
}

impl Records {
    /// Follows bytes that the library was given; `gave_plaintext`: it made plaintext of them.
    pub(super) fn follow(&mut self, mut bytes: &[u8], gave_plaintext: bool) {
        while !bytes.is_empty() {
            let wanted_bytes = match self.part_bytes {
                0..HEADER_BYTES => HEADER_BYTES,
                _ => self.record_bytes(),
            };
            let taken = bytes.len().min(wanted_bytes - self.part_bytes);
            if let Some(header) = self.header.get_mut(self.part_bytes..self.part_bytes + taken) {
                header.copy_from_slice(&bytes[..taken]);
            }
            self.part_bytes += taken;
            bytes = &bytes[taken..];
            if self.part_bytes >= HEADER_BYTES && self.part_bytes == self.record_bytes() {
                self.mute_bytes += std::mem::take(&mut self.part_bytes);
            }
        }
        if gave_plaintext {
            self.mute_bytes = 0;
        }
    }

    /// The bytes that the library keeps, at most.
    pub(super) fn kept_bytes(&self) -> usize {
        self.part_bytes + self.mute_bytes
    }

    /// Whether the client sends records that hold nothing for the server.
    pub(super) fn is_mute(&self) -> bool {
        self.mute_bytes > MUTE_BYTES_MAX
    }

    /// The length of the record whose header has arrived.
    fn record_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(u16::from_be_bytes([self.header[3], self.header[4]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(body_bytes: u16) -> Vec<u8> {
        let mut record = vec![23, 3, 3];
        record.extend(body_bytes.to_be_bytes());
        record.resize(HEADER_BYTES + usize::from(body_bytes), 7);
        record
    }

    #[test]
    fn the_part_of_a_record_is_counted_wherever_it_is_cut() {
        let stream = [record(0), record(300), record(1)].concat();
        for cut in 0..stream.len() {
            let mut records = Records::default();
            records.follow(&stream[..cut], true);
            let whole = match cut {
                0..5 => 0,
                5..310 => 5,
                _ => 310,
            };
            assert_eq!(records.kept_bytes(), cut - whole, "cut at {cut}");
            records.follow(&stream[cut..], true);
            assert_eq!(records.kept_bytes(), 0, "cut at {cut}");
        }
    }

    #[test]
    fn records_without_plaintext_are_kept_until_some_comes() {
        let mut records = Records::default();
        for count in 1..=4 {
            records.follow(&record(4091), false);
            assert_eq!((records.kept_bytes(), records.is_mute()), (count * 4096, false));
        }
        records.follow(&record(0), false);
        assert!(records.is_mute());
        records.follow(&record(10), true);
        assert_eq!((records.kept_bytes(), records.is_mute()), (0, false));
    }
}
