//! The fields of messages: numbers, ids, lists, and bounded reading of them.

use std::sync::Arc;

use base::Instant;

use crate::codec::DecodeError;
use crate::ids::{ClientId, NodeId, ShardId, Term, Version};

/// One part of a message.
pub(super) trait Field: Sized {
    /// The minimum encoded length (B2).
    const MIN_BYTES: usize;

    fn put(&self, out: &mut Vec<u8>);

    fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// The unread rest of a message.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    total_bytes: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, total_bytes: bytes.len() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An error at the present offset.
    pub(super) fn damaged(&self) -> DecodeError {
        DecodeError::Damaged { at_bytes: self.total_bytes - self.bytes.len() }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], DecodeError> {
        let (head, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.damaged())?;
        self.bytes = rest;
        Ok(*head)
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn take(&mut self, len_bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.bytes.split_at_checked(len_bytes).ok_or_else(|| self.damaged())?;
        self.bytes = rest;
        Ok(head)
    }

    pub(super) fn get<T: Field>(&mut self) -> Result<T, DecodeError> {
        T::get(self)
    }

    /// Reads the number of elements that follow (B2).
    fn count<T: Field>(&mut self) -> Result<usize, DecodeError> {
        let damaged = self.damaged();
        let count = self.get::<u32>()? as usize;
        if count > self.bytes.len() / T::MIN_BYTES { Err(damaged) } else { Ok(count) }
    }
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Field for $number {
            const MIN_BYTES: usize = size_of::<$number>();

            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.array().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i64);

/// Implements `Field` for a newtype of a number.
macro_rules! newtype {
    ($($name:ident: $number:ty),*) => {$(
        impl Field for $name {
            const MIN_BYTES: usize = <$number>::MIN_BYTES;

            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.get().map($name)
            }
        }
    )*};
}

newtype!(Term: u64, ShardId: u16, ClientId: u64);

impl Field for bool {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
        let damaged = reader.damaged();
        match reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damaged),
        }
    }
}

impl Field for Instant {
    const MIN_BYTES: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        self.ns.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Instant, DecodeError> {
        Ok(Instant { ns: reader.get()? })
    }
}

impl Field for NodeId {
    const MIN_BYTES: usize = 6;

    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        self.incarnation.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<NodeId, DecodeError> {
        Ok(NodeId { name: reader.get()?, incarnation: reader.get()? })
    }
}

impl Field for Version {
    const MIN_BYTES: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        self.bits().put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Version, DecodeError> {
        let damaged = reader.damaged();
        Version::from_bits(reader.get()?).ok_or(damaged)
    }
}

impl Field for Arc<[u8]> {
    const MIN_BYTES: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend(&self[..]);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Arc<[u8]>, DecodeError> {
        let len_bytes = reader.count::<u8>()?;
        reader.take(len_bytes).map(Arc::from)
    }
}

impl<T: Field> Field for Vec<T> {
    const MIN_BYTES: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        self.iter().for_each(|element| element.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Vec<T>, DecodeError> {
        let count = reader.count::<T>()?;
        (0..count).map(|_| reader.get()).collect()
    }
}

impl<T: Field> Field for Option<T> {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Option<T>, DecodeError> {
        if reader.get()? { reader.get().map(Some) } else { Ok(None) }
    }
}

impl<T: Field, U: Field> Field for (T, U) {
    const MIN_BYTES: usize = T::MIN_BYTES + U::MIN_BYTES;

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<(T, U), DecodeError> {
        Ok((reader.get()?, reader.get()?))
    }
}

/// Appends a count. No message has 2^32 elements.
pub(super) fn put_count(count: usize, out: &mut Vec<u8>) {
    debug_assert!(u32::try_from(count).is_ok());
    (count as u32).put(out);
}
