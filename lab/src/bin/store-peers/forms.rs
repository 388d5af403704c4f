//! The representation of keys and values in a peer: owned, in allocations of the map, or inline.
//!
//! Owned is what the store does: any length, bytes that belong to the map. Inline is the best case
//! for a peer: a compile-time length, no allocation, a hash of one or two words; it can hold
//! nothing else.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

use workload::keys::{DECIMAL_LEN_MAX_BYTES, binary_key};
use workload::{KeyFormat, values};

/// A key or a value in the form of a map.
pub trait Form: Borrow<Self::Query> + Clone + Eq + Ord + Hash + Send + Sync + 'static {
    /// The query type of a lookup.
    type Query: ?Sized + Eq + Ord + Hash;

    /// A copy for the map to keep.
    fn of(bytes: &[u8]) -> Self;
    /// Calls `with` with a query for these bytes.
    fn query<R>(bytes: &[u8], with: impl FnOnce(&Self::Query) -> R) -> R;
    /// Its bytes, including an inline form's trailing zeros.
    fn bytes(&self) -> &[u8];
}

impl Form for Box<[u8]> {
    type Query = [u8];

    #[inline(always)]
    fn of(bytes: &[u8]) -> Box<[u8]> {
        bytes.into()
    }

    #[inline(always)]
    fn query<R>(bytes: &[u8], with: impl FnOnce(&[u8]) -> R) -> R {
        with(bytes)
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Bytes of one length, padded with zeros, which no key here ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inline<const LEN: usize>([u8; LEN]);

impl<const LEN: usize> Hash for Inline<LEN> {
    /// Whole words: every length here is a multiple of eight.
    #[inline(always)]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for word in self.0.as_chunks::<8>().0 {
            hasher.write_u64(u64::from_le_bytes(*word));
        }
    }
}

impl<const LEN: usize> Form for Inline<LEN> {
    type Query = Inline<LEN>;

    #[inline(always)]
    fn of(bytes: &[u8]) -> Inline<LEN> {
        if let Ok(whole) = <[u8; LEN]>::try_from(bytes) {
            return Inline(whole);
        }
        let mut padded = [0; LEN];
        padded[..bytes.len()].copy_from_slice(bytes);
        Inline(padded)
    }

    #[inline(always)]
    fn query<R>(bytes: &[u8], with: impl FnOnce(&Inline<LEN>) -> R) -> R {
        with(&Inline::of(bytes))
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The items of a run: keys and values as `dovetail bench` forms them.
pub trait Items: Copy + Send + Sync {
    /// Calls `with` with the key of `id`.
    fn key<R>(&self, id: u64, with: impl FnOnce(&[u8]) -> R) -> R;
    /// The id of a key that a scan met.
    fn id_of(&self, key: &[u8]) -> Option<u64>;
}

/// Binary keys of a known length.
#[derive(Clone, Copy)]
pub struct Binary<const LEN: usize>;

impl<const LEN: usize> Items for Binary<LEN> {
    #[inline(always)]
    fn key<R>(&self, id: u64, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&binary_key::<LEN>(id))
    }

    #[inline(always)]
    fn id_of(&self, key: &[u8]) -> Option<u64> {
        key.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Decimal keys.
#[derive(Clone, Copy)]
pub struct Decimal(pub KeyFormat);

impl Items for Decimal {
    #[inline(always)]
    fn key<R>(&self, id: u64, with: impl FnOnce(&[u8]) -> R) -> R {
        let mut key = [0; DECIMAL_LEN_MAX_BYTES];
        let len = self.0.write(id, &mut key);
        with(&key[..len])
    }

    fn id_of(&self, key: &[u8]) -> Option<u64> {
        let len = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
        self.0.id_of(&key[..len])
    }
}

/// Whether `value` is one of `id`, every byte of it.
#[inline(always)]
pub fn is_right<const VALUE: usize>(id: u64, value: &[u8]) -> bool {
    values::is_of::<VALUE>(id, value)
}

#[cfg(test)]
mod tests {
    use workload::KeyStyle;

    use super::*;

    #[test]
    fn inline_keys_have_the_order_of_their_bytes() {
        let inline = |text: &str| Inline::<16>::of(text.as_bytes());
        for (low, high) in [("1", "10"), ("10", "2"), ("1", "2"), ("99", "999")] {
            assert!(inline(low) < inline(high) && low < high);
        }
    }

    #[test]
    fn ids_are_found_in_keys_of_either_form() {
        let items = Decimal(KeyFormat::new(KeyStyle::Decimal, 0, 1000).unwrap());
        for id in 0..1000 {
            let (owned, inline) =
                items.key(id, |key| (<Box<[u8]>>::of(key), Inline::<16>::of(key)));
            assert_eq!(items.id_of(owned.bytes()), Some(id));
            assert_eq!(items.id_of(inline.bytes()), Some(id));
            assert_eq!(Binary::<8>.key(id, |key| Binary::<8>.id_of(key)), Some(id));
        }
    }
}
