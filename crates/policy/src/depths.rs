//! How many requests each worker holds: sent to it and not yet acknowledged.

use base::WorkerId;

/// One dispatcher's view of its workers' queues.
#[derive(Clone, Debug)]
pub struct Depths {
    counts: Vec<u32>,
}

impl Depths {
    /// `worker_count` empty queues.
    pub fn new(worker_count: usize) -> Depths {
        Depths { counts: vec![0; worker_count] }
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.counts.len()
    }

    /// What `worker` holds.
    pub fn of(&self, worker: WorkerId) -> u32 {
        self.counts[worker.index()]
    }

    /// `worker` was sent one more.
    pub fn add(&mut self, worker: WorkerId) {
        self.counts[worker.index()] += 1;
    }

    /// `worker` has answered one.
    pub fn remove(&mut self, worker: WorkerId) {
        self.counts[worker.index()] -= 1;
    }

    /// The worker that holds least; of several the lowest id.
    pub fn shortest(&self) -> WorkerId {
        let (index, _) =
            self.counts.iter().enumerate().min_by_key(|(_, count)| **count).expect("I1");
        WorkerId(index as u16)
    }
}
