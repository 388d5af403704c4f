//! Sent frames that are not fully answered, and the detection of lost ones.
//!
//! ```text
//!  numbers   first ............................ next
//!            | waits | answered | waits | waits |       ring of FRAMES_MAX
//! ```
//!
//! A frame counts as lost when it is older than the retransmission timeout. It also counts as lost
//! when it is older than round trips are, by their mean and their variation, and frames sent
//! [`REORDER_FRAMES`] later to the same worker are answered: one worker takes its frames in order,
//! and the network rarely reorders them that far. Other workers may answer a part of a frame later;
//! so the estimate takes the first and the last reply to each frame.
//!
//! # Invariants
//! F1: the frame `first` waits for its answer, or there is none (`first == next`).
//! F2: exactly `in_flight` frames wait.

/// The most numbers between the oldest unanswered frame and the next.
pub(super) const FRAMES_MAX: u32 = 1024;
/// After this many answered later frames, a frame is not merely late.
const REORDER_FRAMES: u32 = 3;

#[derive(Clone, Debug, Default)]
struct SentFrame {
    sent_at_ns: u64,
    /// Messages without an answer; 0: the frame does not wait.
    waiting: u32,
    is_measured: bool,
    route: u16,
    /// Its number among the frames of its route.
    route_number: u32,
    /// The numbers of the slots in it.
    slots: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Route {
    sent: u32,
    /// One above the newest answered frame.
    answered: u32,
}

#[derive(Debug)]
pub(super) struct Frames {
    ring: Vec<SentFrame>,
    first: u32,
    next: u32,
    in_flight: u32,
    routes: Vec<Route>,
    /// Whether an answer came since the last check for losses.
    has_news: bool,
}

/// The information in the first answer to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    /// The round-trip time.
    Measured { rtt_ns: u64 },
    /// Nothing new.
    Known,
    /// No such frame was sent.
    Never,
}

impl Frames {
    pub fn new(route_count: usize) -> Frames {
        Frames {
            ring: vec![SentFrame::default(); FRAMES_MAX as usize],
            first: 0,
            next: 0,
            in_flight: 0,
            routes: vec![Route::default(); route_count.max(1)],
            has_news: false,
        }
    }

    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub fn has_room(&self) -> bool {
        self.next.wrapping_sub(self.first) < FRAMES_MAX
    }

    fn at(&mut self, number: u32) -> &mut SentFrame {
        &mut self.ring[(number % FRAMES_MAX) as usize]
    }

    fn is_known(&self, number: u32) -> bool {
        number.wrapping_sub(self.first) < self.next.wrapping_sub(self.first)
    }

    /// The list for the slots of the next frame.
    pub fn take_list(&mut self) -> Vec<u32> {
        let next = self.next;
        let mut list = std::mem::take(&mut self.at(next).slots);
        list.clear();
        list
    }

    /// Records a sent frame; returns its number.
    pub fn sent(&mut self, now_ns: u64, route: u16, slots: Vec<u32>) -> u32 {
        debug_assert!(self.has_room() && !slots.is_empty());
        let number = self.next;
        let in_order = &mut self.routes[usize::from(route)].sent;
        let route_number = *in_order;
        *in_order = in_order.wrapping_add(1);
        let waiting = slots.len() as u32;
        let is_measured = false;
        *self.at(number) =
            SentFrame { sent_at_ns: now_ns, waiting, is_measured, route, route_number, slots };
        self.next = number.wrapping_add(1);
        self.in_flight += 1;
        number
    }

    /// Records an answer that names this frame.
    pub fn echo(&mut self, number: u32, now_ns: u64) -> Echo {
        if !self.is_known(number) {
            // The frame was answered long ago, or the number is nonsense; the number alone
            // identifies only the former.
            return if self.next.wrapping_sub(number) as i32 > 0 {
                Echo::Known
            } else {
                Echo::Never
            };
        }
        let frame = self.at(number);
        let (route, route_number) = (usize::from(frame.route), frame.route_number);
        let was_measured = std::mem::replace(&mut frame.is_measured, true);
        let rtt_ns = now_ns.saturating_sub(frame.sent_at_ns);
        let answered = &mut self.routes[route].answered;
        if route_number.wrapping_sub(*answered) as i32 >= 0 {
            *answered = route_number.wrapping_add(1);
            self.has_news = true;
        }
        if was_measured { Echo::Known } else { Echo::Measured { rtt_ns } }
    }

    /// Whether messages of a frame wait for answers. Only for a frame that was just answered: its
    /// place in the ring is its own until others are sent.
    pub fn waits(&mut self, number: u32) -> bool {
        self.at(number).waiting > 0
    }

    /// The time since a frame was sent; as for [`Frames::waits`].
    pub fn age_ns(&mut self, number: u32, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.at(number).sent_at_ns)
    }

    /// Records that one message of a frame needs no further answer; returns whether it was the
    /// last.
    pub fn settle(&mut self, number: u32) -> bool {
        if !self.is_known(number) {
            return false;
        }
        let frame = self.at(number);
        if frame.waiting == 0 {
            return false;
        }
        frame.waiting -= 1;
        let is_last = frame.waiting == 0;
        if is_last {
            self.in_flight -= 1;
            self.close();
        }
        is_last
    }

    /// Gives a frame up: returns the numbers of its slots, answered ones included; pass the list to
    /// [`Frames::give_back`].
    pub fn give_up(&mut self, number: u32) -> Option<Vec<u32>> {
        if !self.is_known(number) || self.at(number).waiting == 0 {
            return None;
        }
        self.at(number).waiting = 0;
        self.in_flight -= 1;
        Some(std::mem::take(&mut self.at(number).slots))
    }

    /// Reuses the list's memory, and moves on.
    pub fn give_back(&mut self, number: u32, slots: Vec<u32>) {
        self.at(number).slots = slots;
        self.close();
    }

    fn close(&mut self) {
        while self.first != self.next && self.ring[(self.first % FRAMES_MAX) as usize].waiting == 0
        {
            self.first = self.first.wrapping_add(1);
        }
    }

    /// The send time of the oldest frame.
    pub fn oldest_ns(&self) -> Option<u64> {
        (self.first != self.next).then(|| self.ring[(self.first % FRAMES_MAX) as usize].sent_at_ns)
    }

    /// The oldest frame, if it was sent before `before_ns`.
    pub fn silent(&self, before_ns: u64) -> Option<u32> {
        self.oldest_ns().is_some_and(|sent_ns| sent_ns < before_ns).then_some(self.first)
    }

    /// The next frame from `from` on that was sent before `before_ns` and was overtaken. Checks
    /// each frame once, and none if no answer came since the last check.
    pub fn overtaken(&mut self, from: Option<u32>, before_ns: u64) -> Option<u32> {
        if from.is_none() && !std::mem::take(&mut self.has_news) {
            return None;
        }
        let mut number = from.map_or(self.first, |from| from.wrapping_add(1));
        while number != self.next {
            let frame = &self.ring[(number % FRAMES_MAX) as usize];
            if frame.sent_at_ns >= before_ns {
                // Later frames are younger still; check again when they are old enough.
                self.has_news |= self.in_flight > 0;
                return None;
            }
            let later = self.routes[usize::from(frame.route)].answered;
            let is_overtaken =
                later.wrapping_sub(frame.route_number) as i32 > REORDER_FRAMES as i32;
            if frame.waiting > 0 && is_overtaken {
                return Some(number);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// Recounts everything; for tests.
    #[cfg(test)]
    pub fn validate(&self) {
        let numbers = (0..self.next.wrapping_sub(self.first)).map(|k| self.first.wrapping_add(k));
        let waits = |number: u32| self.ring[(number % FRAMES_MAX) as usize].waiting > 0;
        assert_eq!(numbers.filter(|number| waits(*number)).count() as u32, self.in_flight, "F2");
        assert!(self.first == self.next || waits(self.first), "F1");
    }
}
