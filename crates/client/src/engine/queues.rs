//! The queues of requests to be sent: one for each owner, and one for reads that any worker serves.
//!
//! ```text
//!  routes[0]  w w r         entries are numbers of slots: one whose request was answered
//!  routes[1]  w             meanwhile is found out when its turn comes (S1)
//!  reads      r r r r       fills the rest of any frame
//! ```
//!
//! # Invariants
//! U1: `len` counts the entries of all queues.

use std::collections::VecDeque;

/// The number of queues for owners; further workers share them.
pub(super) const ROUTES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Queues {
    /// The queues for owners; with a single route, one for everything.
    pub routes: Vec<VecDeque<u32>>,
    /// The queue for any worker.
    pub reads: VecDeque<u32>,
    pub len: usize,
    next_route: usize,
}

impl Queues {
    /// One queue for everything, and memory for `request_count` requests.
    pub fn new(request_count: usize) -> Queues {
        Queues {
            routes: vec![VecDeque::with_capacity(request_count)],
            reads: VecDeque::with_capacity(request_count),
            len: 0,
            next_route: 0,
        }
    }

    pub fn route_count(&self) -> usize {
        self.routes.len()
    }

    /// Changes the number of queues for owners. What they hold has to be sorted again.
    pub fn set_route_count(&mut self, count: usize) {
        self.routes.resize_with(count, Default::default);
    }

    pub fn push_back(&mut self, route: Option<usize>, number: u32) {
        self.queue(route).push_back(number);
        self.len += 1;
    }

    pub fn push_front(&mut self, route: Option<usize>, number: u32) {
        self.queue(route).push_front(number);
        self.len += 1;
    }

    pub fn front(&self, route: Option<usize>) -> Option<u32> {
        match route {
            Some(route) => self.routes[route].front().copied(),
            None => self.reads.front().copied(),
        }
    }

    pub fn pop_front(&mut self, route: Option<usize>) {
        if self.queue(route).pop_front().is_some() {
            self.len -= 1;
        }
    }

    /// The next non-empty owner's queue, in turn; `None`: only reads are left.
    pub fn next_route(&mut self) -> Option<usize> {
        let count = self.routes.len();
        let mut places = (0..count).map(|step| (self.next_route + step) % count);
        let found = places.find(|route| !self.routes[*route].is_empty())?;
        self.next_route = (found + 1) % count;
        Some(found)
    }

    pub fn clear(&mut self) {
        self.routes.iter_mut().for_each(VecDeque::clear);
        self.reads.clear();
        self.len = 0;
    }

    fn queue(&mut self, route: Option<usize>) -> &mut VecDeque<u32> {
        match route {
            Some(route) => &mut self.routes[route],
            None => &mut self.reads,
        }
    }
}
