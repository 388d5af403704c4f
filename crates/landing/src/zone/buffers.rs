//! The states of a zone's buffers (posted, being filled, reusable): numbers only.

/// The buffers of a zone by sequence number, in the order in which they were posted.
///
/// ```text
///        reclaimed        filling            posted
///            │               │                  │
///   ... free │ closed closed │▒▒▒▒▒▒░░░░│ open open │ not posted yet
///                             filled ──▶
/// ```
///
/// B1: `reclaimed <= filling <= posted`, and `posted - reclaimed` is at most the ring's length.
/// B2: bytes land in buffer `filling` only, front to back, and a closed buffer is never filled.
/// B3: a buffer is reclaimed when it is closed and all that landed in it is released, oldest first.
#[derive(Debug)]
pub(crate) struct Buffers {
    buffer_bytes: usize,
    /// By sequence number modulo its length.
    ring: Box<[Buffer]>,
    reclaimed: u64,
    filling: u64,
    posted: u64,
    /// The filled bytes of buffer `filling`.
    filled_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// Its offset in the region.
    offset_bytes: usize,
    /// Once closed: the filled length.
    filled_bytes: usize,
    /// Once closed: the number of the first completion after it.
    end_number: u64,
}

impl Buffers {
    pub(crate) fn new(buffer_bytes: usize, posted_max: usize) -> Buffers {
        assert!(buffer_bytes > 0 && posted_max > 0, "a zone has buffers, and they have bytes");
        let ring = vec![Buffer::default(); posted_max].into_boxed_slice();
        Buffers { buffer_bytes, ring, reclaimed: 0, filling: 0, posted: 0, filled_bytes: 0 }
    }

    /// Posts a buffer after the others, unless the maximum is posted.
    pub(crate) fn post(&mut self, offset_bytes: usize) -> bool {
        if self.posted - self.reclaimed == self.ring.len() as u64 {
            return false;
        }
        let index = self.index(self.posted);
        self.ring[index] = Buffer { offset_bytes, filled_bytes: 0, end_number: 0 };
        self.posted += 1;
        true
    }

    /// The room for the next bytes: offset and length of the rest of the buffer being filled.
    pub(crate) fn room(&self) -> Option<(usize, usize)> {
        let buffer = self.ring[self.index(self.filling)];
        let left_bytes = self.buffer_bytes - self.filled_bytes;
        let is_posted = self.filling < self.posted;
        is_posted.then(|| (buffer.offset_bytes + self.filled_bytes, left_bytes))
    }

    /// Counts bytes as filled; a full buffer is closed. Returns whether it was.
    pub(crate) fn fill(&mut self, bytes: usize, next_number: u64) -> bool {
        assert!(self.filling < self.posted, "B2: a posted buffer is filled");
        assert!(bytes <= self.buffer_bytes - self.filled_bytes, "B2: not beyond its end");
        self.filled_bytes += bytes;
        let is_full = self.filled_bytes == self.buffer_bytes;
        if is_full {
            self.close(next_number);
        }
        is_full
    }

    /// Closes the buffer being filled and continues with the next.
    pub(crate) fn close(&mut self, next_number: u64) {
        assert!(self.filling < self.posted, "B2: a posted buffer is closed");
        let index = self.index(self.filling);
        self.ring[index].filled_bytes = self.filled_bytes;
        self.ring[index].end_number = next_number;
        self.filling += 1;
        self.filled_bytes = 0;
    }

    /// Takes back the oldest buffer that no message needs: its offset and filled length.
    pub(crate) fn reclaim(&mut self, released: u64) -> Option<(usize, usize)> {
        let oldest = self.ring[self.index(self.reclaimed)];
        if self.reclaimed == self.filling || oldest.end_number > released {
            return None;
        }
        self.reclaimed += 1;
        Some((oldest.offset_bytes, oldest.filled_bytes))
    }

    /// The offset of the buffer with that sequence number, if it is posted and not reclaimed.
    pub(crate) fn offset_of(&self, sequence: u64) -> Option<usize> {
        let is_here = (self.reclaimed..self.posted).contains(&sequence);
        is_here.then(|| self.ring[self.index(sequence)].offset_bytes)
    }

    /// The sequence number of the buffer that is being filled.
    pub(crate) fn filling(&self) -> u64 {
        self.filling
    }

    fn index(&self, sequence: u64) -> usize {
        (sequence % self.ring.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_land_front_to_back_and_buffers_in_posting_order() {
        let mut buffers = Buffers::new(100, 4);
        assert_eq!(buffers.room(), None);
        assert!(buffers.post(300) && buffers.post(0));
        assert_eq!(buffers.room(), Some((300, 100)));
        assert!(!buffers.fill(60, 1));
        assert_eq!(buffers.room(), Some((360, 40)));
        assert!(buffers.fill(40, 2), "a full buffer is closed");
        assert_eq!(buffers.room(), Some((0, 100)));
        buffers.close(2);
        assert_eq!(buffers.room(), None);
    }

    #[test]
    fn a_buffer_comes_back_when_all_of_it_is_released() {
        let mut buffers = Buffers::new(100, 2);
        assert!(buffers.post(0) && buffers.post(100));
        assert!(!buffers.post(200), "B1: as many as the ring holds");
        buffers.fill(100, 2);
        assert_eq!(buffers.reclaim(1), None);
        assert_eq!(buffers.reclaim(2), Some((0, 100)));
        assert_eq!(buffers.reclaim(9), None, "a buffer being filled is not free");
        assert!(buffers.post(0));
        buffers.fill(30, 3);
        buffers.close(3);
        assert_eq!(buffers.reclaim(3), Some((100, 30)));
    }

    #[test]
    fn an_empty_buffer_may_be_closed() {
        let mut buffers = Buffers::new(100, 2);
        buffers.post(0);
        buffers.close(0);
        assert_eq!(buffers.reclaim(0), Some((0, 0)));
        assert_eq!(buffers.room(), None);
    }
}
