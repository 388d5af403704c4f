//! The state of each send buffer: free, or holding the frame of a lane. Numbers only.

/// No buffer: the end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    next: u32,
    len_bytes: u32,
}

/// A lane's frames, oldest first: those on the way, then the queued ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbox {
    oldest: u32,
    unposted: u32,
    youngest: u32,
    /// The number of frames queued but not posted.
    queued: u32,
    /// The number of frames posted but not acknowledged.
    under_way: u32,
    /// The number of frames posted since the last one that requested a completion.
    pub unsignalled: u32,
    /// The number of frames ever posted.
    pub posted: u64,
    /// The number of frames ever acknowledged.
    pub acknowledged: u64,
}

impl Outbox {
    /// An outbox without frames.
    pub const EMPTY: Outbox = Outbox {
        oldest: NONE,
        unposted: NONE,
        youngest: NONE,
        queued: 0,
        under_way: 0,
        unsignalled: 0,
        posted: 0,
        acknowledged: 0,
    };

    /// The number of frames that are queued or on the way.
    pub fn len(&self) -> usize {
        (self.queued + self.under_way) as usize
    }

    /// The number of queued frames.
    pub fn queued(&self) -> usize {
        self.queued as usize
    }

    /// The outbox with all queued frames counted as on the way: whether they were posted is not
    /// known.
    pub fn all_under_way(self) -> Outbox {
        Outbox { unposted: NONE, queued: 0, under_way: self.queued + self.under_way, ..self }
    }
}

/// Buffers by index. F1: each is free (and the first of those may be reserved), or in the list of
/// one lane.
pub struct Slots {
    slots: Box<[Slot]>,
    free: u32,
    is_reserved: bool,
}

impl Slots {
    /// So many buffers, all free.
    pub fn new(count: usize) -> Slots {
        assert!(count > 0 && count < NONE as usize, "there are buffers, and they can be numbered");
        let next = |index: usize| if index + 1 < count { index as u32 + 1 } else { NONE };
        let slots = (0..count).map(|index| Slot { next: next(index), len_bytes: 0 }).collect();
        Slots { slots, free: 0, is_reserved: false }
    }

    /// The number of buffers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is free.
    pub fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Reserves the first free buffer; the same one until it is pushed.
    pub fn reserve(&mut self) -> Option<usize> {
        self.is_reserved = !self.is_full();
        self.is_reserved.then_some(self.free as usize)
    }

    /// Cancels the reservation.
    pub fn cancel(&mut self) {
        self.is_reserved = false;
    }

    /// Makes the reserved buffer the lane's youngest frame.
    pub fn push(&mut self, outbox: &mut Outbox, len_bytes: u32) {
        assert!(std::mem::take(&mut self.is_reserved), "what is pushed was reserved");
        let index = self.free;
        self.free = self.slots[index as usize].next;
        self.slots[index as usize] = Slot { next: NONE, len_bytes };
        match outbox.youngest {
            NONE => outbox.oldest = index,
            youngest => self.slots[youngest as usize].next = index,
        }
        if outbox.unposted == NONE {
            outbox.unposted = index;
        }
        outbox.youngest = index;
        outbox.queued += 1;
    }

    /// Moves the oldest queued frame to those on the way: returns its buffer and length.
    pub fn take_queued(&mut self, outbox: &mut Outbox) -> Option<(usize, u32)> {
        if outbox.queued == 0 {
            return None;
        }
        let index = outbox.unposted as usize;
        let Slot { next, len_bytes } = self.slots[index];
        outbox.unposted = next;
        outbox.queued -= 1;
        outbox.under_way += 1;
        outbox.posted += 1;
        Some((index, len_bytes))
    }

    /// Frees all frames up to the one posted under that number, which have been acknowledged.
    pub fn acknowledge(&mut self, outbox: &mut Outbox, posted: u32) {
        let done = posted.wrapping_sub(outbox.acknowledged as u32);
        assert!(done <= outbox.under_way, "F2: what is acknowledged was posted");
        for _ in 0..done {
            self.free_oldest(outbox);
        }
        outbox.under_way -= done;
        outbox.acknowledged += u64::from(done);
    }

    /// Frees all of a lane's buffers; returns their number.
    pub fn forget(&mut self, outbox: &mut Outbox) -> usize {
        let count = outbox.len();
        while outbox.oldest != NONE {
            self.free_oldest(outbox);
        }
        let Outbox { posted, acknowledged, .. } = *outbox;
        *outbox = Outbox { posted, acknowledged, ..Outbox::EMPTY };
        count
    }

    fn free_oldest(&mut self, outbox: &mut Outbox) {
        let index = outbox.oldest;
        outbox.oldest = self.slots[index as usize].next;
        if outbox.oldest == NONE {
            outbox.youngest = NONE;
        }
        // The reserved buffer is the first: it stays in front.
        let before = if self.is_reserved {
            &mut self.slots[self.free as usize].next
        } else {
            &mut self.free
        };
        let second = std::mem::replace(before, index);
        self.slots[index as usize].next = second;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// F1, counted from scratch.
    fn validate(slots: &Slots, outboxes: &[Outbox]) {
        let mut seen = vec![0; slots.len()];
        let mut walk = |mut index: u32| {
            let mut count = 0;
            while index != NONE {
                seen[index as usize] += 1;
                index = slots.slots[index as usize].next;
                count += 1;
            }
            count
        };
        walk(slots.free);
        for outbox in outboxes {
            assert_eq!(walk(outbox.oldest), outbox.len());
        }
        assert!(seen.iter().all(|times| *times == 1), "F1: {seen:?}");
    }

    #[test]
    fn every_buffer_is_in_one_list_whatever_happens() {
        let mut slots = Slots::new(7);
        let mut outboxes = [Outbox::EMPTY; 3];
        // By lane, the expected lists: lengths of frames queued, and on the way.
        let mut queued = vec![VecDeque::new(); 3];
        let mut under_way = vec![VecDeque::new(); 3];
        let mut state = 1_u32;
        for step in 0..20_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lane = (state >> 16) as usize % 3;
            let outbox = &mut outboxes[lane];
            match (state >> 24) % 8 {
                0..3 => {
                    if slots.reserve().is_some() {
                        // Other buffers may be freed while the reserved one is written.
                        if state & 1 == 0 && !under_way[lane].is_empty() {
                            under_way[lane].pop_front();
                            slots.acknowledge(outbox, outbox.acknowledged as u32 + 1);
                        }
                        slots.push(outbox, step);
                        queued[lane].push_back(step);
                    } else {
                        let held = |lists: &[VecDeque<u32>]| lists.iter().map(VecDeque::len).sum();
                        let held: [usize; 2] = [held(&queued), held(&under_way)];
                        assert_eq!(held[0] + held[1], 7, "only then is none free");
                    }
                }
                3 => drop(slots.reserve()),
                4 => slots.cancel(),
                5 => {
                    let taken = slots.take_queued(outbox).map(|(_, len_bytes)| len_bytes);
                    assert_eq!(taken, queued[lane].pop_front(), "in the order of their commit");
                    under_way[lane].extend(taken);
                }
                6 => {
                    let done = under_way[lane].len() / 2;
                    under_way[lane].drain(..done);
                    slots.acknowledge(outbox, (outbox.acknowledged as u32) + done as u32);
                }
                _ if step % 50 == 0 => {
                    let want = queued[lane].len() + under_way[lane].len();
                    assert_eq!(slots.forget(outbox), want);
                    outbox.acknowledged = outbox.posted;
                    queued[lane].clear();
                    under_way[lane].clear();
                }
                _ => {}
            }
            assert_eq!(outboxes[lane].queued(), queued[lane].len());
            validate(&slots, &outboxes);
        }
        assert!(outboxes.iter().all(|outbox| outbox.posted > 100));
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let mut slots = Slots::new(2);
        let start = u64::from(u32::MAX);
        let mut outbox = Outbox { posted: start, acknowledged: start, ..Outbox::EMPTY };
        for _ in 0..2 {
            slots.reserve();
            slots.push(&mut outbox, 1);
            slots.take_queued(&mut outbox);
        }
        slots.acknowledge(&mut outbox, 1);
        assert_eq!((outbox.acknowledged, outbox.len()), (start + 2, 0));
        assert!(!slots.is_full());
    }

    #[test]
    #[should_panic(expected = "was posted")]
    fn what_was_not_posted_is_not_acknowledged() {
        let mut slots = Slots::new(2);
        let mut outbox = Outbox::EMPTY;
        slots.reserve();
        slots.push(&mut outbox, 1);
        slots.acknowledge(&mut outbox, 1);
    }
}
