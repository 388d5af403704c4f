//! Work stealing: a request stays where it was received until an idle worker takes it (Minos §5.2,
//! "HKH+WS", after ZygOS).
//!
//! ```text
//!  network ──▶ receive queue ──batch──▶ software queue ──one by one──▶ execute
//!                   │ batch, last            │ one, if both own ones are empty
//!                   ▼                        ▼
//!                 an idle worker's software queue, or its hands
//! ```

use base::WorkerId;

use super::Balance;
use crate::depths::Depths;
use crate::route::RouteRequest;

/// One of a worker's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Filled by the network.
    Receive,
    /// Holds requests that its worker has read and not begun.
    Software,
}

/// The next source of requests for a worker that has finished one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// The worker whose queue it takes from.
    pub from: WorkerId,
    /// Which of that worker's two queues.
    pub queue: Queue,
    /// The most requests to take: requests from a receive queue go to the taker's own software
    /// queue, where they may be stolen again.
    pub count_max: u32,
}

/// Requests stay where they were received; idle workers steal.
#[derive(Clone, Copy, Debug)]
pub struct Steal {
    batch: u32,
}

impl Steal {
    /// Receive queues are read `batch` requests at a time.
    pub fn new(batch: u32) -> Steal {
        Steal { batch }
    }

    /// The workers whose queues `thief` checks, in turn: the next worker in a ring first, so that
    /// thieves spread.
    #[inline]
    pub fn victims(thief: WorkerId, worker_count: usize) -> impl Iterator<Item = WorkerId> {
        let own = thief.index();
        (1..worker_count).map(move |step| WorkerId(((own + step) % worker_count) as u16))
    }

    /// The source of `worker`'s next requests; `software` and `receive` give the lengths of each
    /// worker's queues. `None`: all are empty.
    ///
    /// The worker asks again after each request, so a thief stops as soon as it has requests of its
    /// own. From a software queue one request is taken at a time: in a batch, a short one might
    /// wait behind a long one. The victim is the next busy worker in a ring, so that thieves
    /// spread.
    #[inline]
    pub fn next(&self, worker: WorkerId, software: &Depths, receive: &Depths) -> Option<Take> {
        let own = |queue, count_max| Some(Take { from: worker, queue, count_max });
        if software.of(worker) > 0 {
            return own(Queue::Software, 1);
        }
        if receive.of(worker) > 0 {
            return own(Queue::Receive, self.batch);
        }
        let from_software = software.next_busy(worker).map(|from| (from, Queue::Software, 1));
        let victim = from_software
            .or_else(|| receive.next_busy(worker).map(|from| (from, Queue::Receive, self.batch)));
        victim.map(|(from, queue, count_max)| Take { from, queue, count_max })
    }
}

impl Balance for Steal {
    #[inline]
    fn pick(&self, request: &RouteRequest, _depths: &Depths) -> Option<WorkerId> {
        Some(request.received_by)
    }
}
