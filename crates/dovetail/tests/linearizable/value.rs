//! Values in the model: a length and a digest, so that 8 MiB cost as much as one byte.

/// The largest prime below 2^64.
const PRIME: u64 = u64::MAX - 58;

/// What a value is, told by its length and by itself, read as one big-endian number, modulo a
/// prime. Up to seven bytes the digest is the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value {
    len_bytes: u64,
    digest: u64,
}

impl Value {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Value {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut digest = 0;
        for word in words {
            digest = shifted(digest, 64, u64::from_be_bytes(*word));
        }
        for byte in rest {
            digest = shifted(digest, 8, u64::from(*byte));
        }
        Value { len_bytes: bytes.len() as u64, digest }
    }

    /// A number's digits.
    pub fn number(number: u64) -> Value {
        Value::of(number.to_string().as_bytes())
    }

    /// The number whose digits these are, if they are few.
    pub fn as_number(self) -> Option<u64> {
        self.short_text()?.parse().ok()
    }

    /// With these bytes behind it.
    pub fn followed_by(self, tail: Value) -> Value {
        let digest = multiplied(self.digest, power_of_256(tail.len_bytes));
        Value {
            len_bytes: self.len_bytes + tail.len_bytes,
            digest: ((u128::from(digest) + u128::from(tail.digest)) % u128::from(PRIME)) as u64,
        }
    }

    pub fn len_bytes(self) -> u64 {
        self.len_bytes
    }

    fn short_text(self) -> Option<String> {
        let len_bytes = usize::try_from(self.len_bytes).ok().filter(|len_bytes| *len_bytes < 8)?;
        let bytes = self.digest.to_be_bytes();
        String::from_utf8(bytes[8 - len_bytes..].to_vec()).ok()
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.short_text() {
            Some(text) => write!(formatter, "{text:?}"),
            None => write!(formatter, "<{} B {:016x}>", self.len_bytes, self.digest),
        }
    }
}

/// The digest with `bits` more behind it.
fn shifted(digest: u64, bits: u32, tail: u64) -> u64 {
    ((u128::from(digest) << bits | u128::from(tail)) % u128::from(PRIME)) as u64
}

fn multiplied(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(PRIME)) as u64
}

fn power_of_256(mut exponent: u64) -> u64 {
    let (mut power, mut base) = (1, 256);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = multiplied(power, base);
        }
        base = multiplied(base, base);
        exponent >>= 1;
    }
    power
}

#[test]
fn a_value_put_together_is_the_value_of_the_whole() {
    let whole: Vec<u8> = (0..1000_u32).map(|index| (index * index % 251) as u8).collect();
    for cut in [0, 1, 7, 8, 9, 500, 999, 1000] {
        let (head, tail) = whole.split_at(cut);
        assert_eq!(Value::of(head).followed_by(Value::of(tail)), Value::of(&whole));
    }
}

#[test]
fn values_that_differ_are_told_apart() {
    let whole = b"v0123456789".repeat(100);
    let mut swapped = whole.clone();
    swapped.swap(8, 16);
    let mut moved = whole.clone();
    moved.rotate_left(11 * 8);
    moved[0] ^= 1;
    for other in [&whole[1..], &swapped, &moved] {
        assert_ne!(Value::of(other), Value::of(&whole));
    }
    assert_eq!(Value::number(1_000_000).as_number(), Some(1_000_000));
    assert_eq!(Value::of(b"x12").as_number(), None);
    assert_eq!(format!("{:?}", Value::of(b"x12")), "\"x12\"");
}
