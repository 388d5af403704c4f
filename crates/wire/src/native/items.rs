//! The items of a range, inside a reply's value.
//!
//! ```text
//!  0         2       4           8
//!  +---------+-------+-----------+-----+-------+-------------+
//!  | key len | flags | value len | key | value | pad to 8    |   one item after another
//!  +---------+-------+-----------+-----+-------+-------------+
//!              1: the value was left out, since no reply has room for it
//! ```

use super::layout::{KEY_MAX_BYTES, read_u16, read_u32};

const ITEM_HEAD_BYTES: usize = 8;
const LEFT_OUT: u16 = 1;

/// One item of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value, or the length if it was left out.
    pub value: ItemValue<'a>,
}

/// The value of an [`Item`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemValue<'a> {
    /// The value. Empty if only keys were requested.
    Here(&'a [u8]),
    /// Too long for a reply: the client gets it by its key.
    LeftOut {
        /// Its length.
        len_bytes: u32,
    },
}

/// Writes items into a caller's buffer.
#[derive(Debug)]
pub struct ItemWriter<'b> {
    buffer: &'b mut [u8],
    len_bytes: usize,
}

impl<'b> ItemWriter<'b> {
    /// Writes from the buffer's front.
    pub fn new(buffer: &'b mut [u8]) -> ItemWriter<'b> {
        ItemWriter { buffer, len_bytes: 0 }
    }

    /// Writes an item, completely or not at all; returns whether there was room.
    #[must_use]
    pub fn push(&mut self, item: &Item<'_>) -> bool {
        let (value, value_len_bytes, flags) = match item.value {
            ItemValue::Here(value) => (value, value.len() as u32, 0),
            ItemValue::LeftOut { len_bytes } => (&[][..], len_bytes, LEFT_OUT),
        };
        let len_bytes = item_len_bytes(item.key.len(), value.len());
        let place = self.buffer.get_mut(self.len_bytes..self.len_bytes + len_bytes);
        let Some(place) = place.filter(|_| item.key.len() <= KEY_MAX_BYTES) else {
            return false;
        };
        let (head, rest) = place.split_at_mut(ITEM_HEAD_BYTES);
        head[..2].copy_from_slice(&(item.key.len() as u16).to_le_bytes());
        head[2..4].copy_from_slice(&flags.to_le_bytes());
        head[4..8].copy_from_slice(&value_len_bytes.to_le_bytes());
        let (key, rest) = rest.split_at_mut(item.key.len());
        key.copy_from_slice(item.key);
        let (value_place, padding) = rest.split_at_mut(value.len());
        value_place.copy_from_slice(value);
        padding.fill(0);
        self.len_bytes += len_bytes;
        true
    }

    /// The bytes written so far.
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.len_bytes]
    }

    /// The written bytes: the value of the reply.
    pub fn finish(self) -> &'b [u8] {
        &self.buffer[..self.len_bytes]
    }
}

/// The length of an item in the reply.
pub const fn item_len_bytes(key_len_bytes: usize, value_len_bytes: usize) -> usize {
    ITEM_HEAD_BYTES + (key_len_bytes + value_len_bytes).next_multiple_of(8)
}

/// Walks the items of a range's reply; ends early if they are cut or malformed.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    /// The items of [`super::Reply::value`].
    pub fn new(value: &'a [u8]) -> Items<'a> {
        Items { rest: value }
    }

    /// Whether bytes are left that are not an item.
    pub fn is_broken(&self) -> bool {
        let mut walk = *self;
        while walk.next().is_some() {}
        !walk.rest.is_empty()
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<ITEM_HEAD_BYTES>()?;
        let key_len_bytes = usize::from(read_u16(head, 0));
        let value_len_bytes = read_u32(head, 4);
        let here_bytes = match read_u16(head, 2) {
            0 => value_len_bytes as usize,
            LEFT_OUT => 0,
            _ => return None,
        };
        let (key, after_key) = rest.split_at_checked(key_len_bytes)?;
        let value = after_key.get(..here_bytes)?;
        self.rest = rest.get((key_len_bytes + here_bytes).next_multiple_of(8)..)?;
        let value = if here_bytes == value_len_bytes as usize {
            ItemValue::Here(value)
        } else {
            ItemValue::LeftOut { len_bytes: value_len_bytes }
        };
        Some(Item { key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: [Item<'static>; 4] = [
        Item { key: b"a", value: ItemValue::Here(b"one") },
        Item { key: b"", value: ItemValue::Here(b"") },
        Item { key: b"long", value: ItemValue::LeftOut { len_bytes: 1 << 20 } },
        Item { key: b"nine bytes", value: ItemValue::Here(&[7; 100]) },
    ];

    #[test]
    fn items_come_out_as_they_went_in() {
        let mut buffer = [0xaa; 200];
        let mut writer = ItemWriter::new(&mut buffer);
        assert!(ITEMS.iter().all(|item| writer.push(item)));
        let value = writer.finish();
        assert_eq!(value.len(), 16 + 8 + 16 + 8 + 112);
        assert!(Items::new(value).eq(ITEMS));
        assert!(!Items::new(value).is_broken());
    }

    #[test]
    fn an_item_fits_whole_or_not_at_all() {
        let mut buffer = [0; 39];
        let mut writer = ItemWriter::new(&mut buffer);
        assert!(writer.push(&ITEMS[0]));
        assert!(!writer.push(&ITEMS[3]));
        assert!(writer.push(&ITEMS[2]));
        assert!(!writer.push(&ITEMS[1]));
        assert!(Items::new(writer.finish()).eq([ITEMS[0], ITEMS[2]]));
    }

    #[test]
    fn a_cut_or_strange_item_ends_the_walk() {
        let mut buffer = [0; 200];
        let mut writer = ItemWriter::new(&mut buffer);
        assert!(writer.push(&ITEMS[0]) && writer.push(&ITEMS[3]));
        let len_bytes = writer.finish().len();
        for cut in 17..len_bytes {
            let items = Items::new(&buffer[..cut]);
            assert_eq!((items.count(), items.is_broken()), (1, true), "{cut}");
        }
        buffer[2] = 2;
        assert_eq!(Items::new(&buffer[..len_bytes]).count(), 0);
    }
}
