//! A page: the items of one reply to a range, and the key at which the range continues.
//!
//! ```text
//!  room of a reply   | item | item | item | resume key |
//!                                    └ may be the last item's own: then it is left out
//! ```
//!
//! # Invariants
//! P1: the page's items and the resume key that [`Page::resume`] returns fit the room together.
//! P2: each page continues behind the one before, so a client that follows resume keys reaches the
//!     end. Keys that are too long for any reply are skipped.

use std::mem::size_of;

use base::UnixMillis;
use store::{NoOrder, Session, request};
use wire::native::{Item, ItemValue, ItemWriter, item_len_bytes};

/// Walks for one reply, at most: each skips keys that are too long for any reply.
const WALKS_MAX: usize = 16;

/// The items of one reply in the making.
pub struct Page<'b> {
    writer: ItemWriter<'b>,
    room_bytes: usize,
    is_keys_only: bool,
    item_limit: usize,
    used_bytes: usize,
    item_count: usize,
    /// The key that was added or skipped last.
    last_key: Vec<u8>,
    is_full: bool,
}

/// The range continues behind a key that is too long for any reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTooLong;

impl<'b> Page<'b> {
    /// An empty page that may fill the buffer.
    pub fn new(buffer: &'b mut [u8], item_limit: usize, is_keys_only: bool) -> Page<'b> {
        Page {
            room_bytes: buffer.len(),
            writer: ItemWriter::new(buffer),
            is_keys_only,
            item_limit,
            used_bytes: 0,
            item_count: 0,
            last_key: Vec::new(),
            is_full: false,
        }
    }

    /// Walks a range until the room or the range is used up. Returns the key at which the walk
    /// ended, for [`Page::resume`].
    pub fn fill(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        range: &store::Range<'_>,
    ) -> Result<Option<Vec<u8>>, NoOrder> {
        let mut ended = session.range(now, range, |item| self.push(item))?.resume_key;
        for _ in 1..WALKS_MAX {
            let Some(key) = ended.as_deref().filter(|key| self.resume(Some(key)).is_err()) else {
                break;
            };
            // One such key is mostly followed by more.
            let rest = store::Range { item_limit: usize::MAX, ..range.after(key) };
            ended = session.range(now, &rest, |item| self.push(item))?.resume_key;
        }
        Ok(ended)
    }

    /// Adds the next item of the range, if there is room.
    fn push(&mut self, item: &request::Item<'_>) {
        self.is_full |= self.item_count == self.item_limit;
        if self.is_full {
            return;
        }
        let key = item.key;
        let mut value = ItemValue::Here(if self.is_keys_only { &[] } else { item.value });
        // A value that fits no reply is read by its key.
        if !self.fits_an_empty_page(key, &value) {
            value = ItemValue::LeftOut { len_bytes: item.value.len() as u32 };
        }
        let len_bytes = item_len_bytes(key.len(), here_bytes(&value));
        let with_resume_bytes = self.used_bytes + len_bytes + key.len();
        if with_resume_bytes > self.room_bytes && self.item_count > 0 {
            self.is_full = true;
            return;
        }
        // An item that does not fit even an empty page is skipped: its key fits no frame.
        if self.writer.push(&Item { key, value }) {
            self.used_bytes += len_bytes;
            self.item_count += 1;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    fn fits_an_empty_page(&self, key: &[u8], value: &ItemValue<'_>) -> bool {
        item_len_bytes(key.len(), here_bytes(value)) + key.len() <= self.room_bytes
    }

    /// The key at which the range continues, if a walk ended at `walked_key`; `None`: the range is
    /// finished. The empty key stands for the last item's.
    pub fn resume<'k>(
        &'k self,
        walked_key: Option<&'k [u8]>,
    ) -> Result<Option<&'k [u8]>, KeyTooLong> {
        let key = if self.is_full { Some(&self.last_key[..]) } else { walked_key };
        let Some(key) = key else { return Ok(None) };
        let len_bytes = key.len().next_multiple_of(size_of::<u64>());
        match self.item_count {
            _ if self.used_bytes + len_bytes <= self.room_bytes => Ok(Some(key)),
            0 => Err(KeyTooLong),
            // The next walk meets the keys again that were skipped behind the last item.
            _ => Ok(Some(&[])),
        }
    }

    /// The value of the reply.
    pub fn items(&self) -> &[u8] {
        self.writer.written()
    }
}

fn here_bytes(value: &ItemValue<'_>) -> usize {
    match value {
        ItemValue::Here(bytes) => bytes.len(),
        ItemValue::LeftOut { .. } => 0,
    }
}
