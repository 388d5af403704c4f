//! Lengths and compressed bytes of RDB files, also for readers of streams.
//!
//! ```text
//!  LZF: 000nnnnn                        n + 1 literal bytes
//!       nnnddddd dddddddd               n + 2 bytes from d + 1 bytes back
//!       111ddddd nnnnnnnn dddddddd      n + 9 of them
//! ```

/// The maximum ratio of a text to its compressed form, however well it was compressed.
const LZF_FACTOR_MAX: u64 = 264;

/// A count to which another byte is added.
const LONG_COUNT: usize = 9;

/// A length, or the special encoding of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many bytes or elements follow.
    Bytes(u64),
    /// 0, 1, 2: an integer of 1, 2 or 4 bytes; 3: compressed; there are no others.
    Special(u8),
}

/// The meaning of the first byte of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthForm {
    /// The whole length.
    Whole(Length),
    /// The low byte follows.
    OneMore {
        /// The bits above it.
        high: u64,
    },
    /// Four bytes follow, big-endian.
    Four,
    /// Eight bytes follow, big-endian.
    Eight,
}

impl LengthForm {
    /// `None`: no length begins with this byte.
    pub fn of(first: u8) -> Option<LengthForm> {
        let low = first & 0x3f;
        Some(match first >> 6 {
            0 => LengthForm::Whole(Length::Bytes(u64::from(low))),
            1 => LengthForm::OneMore { high: u64::from(low) },
            2 if first == 0x80 => LengthForm::Four,
            2 if first == 0x81 => LengthForm::Eight,
            3 => LengthForm::Whole(Length::Special(low)),
            _ => return None,
        })
    }
}

/// The maximum length that so many compressed bytes can unpack to.
pub(super) fn unpacked_max_bytes(packed_len: u64) -> u64 {
    packed_len.saturating_mul(LZF_FACTOR_MAX)
}

/// Unpacks LZF. `None`: the result does not have exactly `len` bytes.
pub fn unpack(mut packed: &[u8], len: u64) -> Option<Vec<u8>> {
    if len > unpacked_max_bytes(packed.len() as u64) {
        return None;
    }
    let len = usize::try_from(len).ok()?;
    let mut out = Vec::with_capacity(len);
    while let Some((control, after)) = packed.split_first() {
        packed = after;
        let control = usize::from(*control);
        if control < 1 << 5 {
            let (literal, after) = packed.split_at_checked(control + 1)?;
            if literal.len() > len - out.len() {
                return None;
            }
            out.extend_from_slice(literal);
            packed = after;
        } else {
            let mut count = (control >> 5) + 2;
            if count == LONG_COUNT {
                count += usize::from(take_byte(&mut packed)?);
            }
            let low = usize::from(take_byte(&mut packed)?);
            let distance = ((control & 0x1f) << 8 | low) + 1;
            if distance > out.len() || count > len - out.len() {
                return None;
            }
            repeat(&mut out, distance, count);
        }
    }
    (out.len() == len).then_some(out)
}

/// Appends `count` bytes, each equal to the one `distance` before it.
#[inline]
fn repeat(out: &mut Vec<u8>, distance: usize, count: usize) {
    let from = out.len() - distance;
    if distance >= count {
        out.extend_from_within(from..from + count);
    } else if distance == 1 {
        let byte = out[from];
        out.resize(out.len() + count, byte);
    } else {
        // The source overlaps the target: bytes that exist are repeated, twice as many each time.
        let end = out.len() + count;
        while out.len() < end {
            let ready = (out.len() - from).min(end - out.len());
            out.extend_from_within(from..from + ready);
        }
    }
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    Some(*first)
}
