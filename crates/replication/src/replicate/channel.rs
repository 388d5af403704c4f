//! The channel between dispatchers and the control thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use dispatch::lanes::fabric::Fabric;
use host::poller::Waker;

use super::{ControlRequest, GroupAnswer, GroupCall, PendingGroup};
use crate::cluster::Receiver as EntryReceiver;

/// The dispatchers' end of the channel. The number of messages in it is bounded by the dispatchers'
/// request slots.
pub struct ControlChannel {
    control_requests: Sender<ControlRequest>,
    groups: Sender<(u64, GroupCall)>,
    group_count: AtomicU64,
    waker: Waker,
    is_asleep: Arc<AtomicBool>,
    /// By dispatcher: request slots that come back.
    returned: Vec<Receiver<u32>>,
    awaited: Awaited,
}

/// Where the answers to a group's calls go.
pub struct AnswerTo {
    pub(super) dispatcher: usize,
    pub(super) sender: Sender<GroupAnswer>,
    /// Counts the answers to all groups of the worker.
    pub(super) answered: Arc<AtomicU64>,
}

impl AnswerTo {
    /// The connection has moved to another worker: that one is woken from now on.
    pub fn follow(&mut self, worker: WokenWorker) {
        (self.dispatcher, self.answered) = (worker.dispatcher, worker.answered);
    }
}

/// The worker that is woken for a group's answers.
pub struct WokenWorker {
    pub(super) dispatcher: usize,
    pub(super) answered: Arc<AtomicU64>,
}

/// By dispatcher: the waker of one that receives entries while it waits for an answer.
type Awaited = Arc<[OnceLock<Waker>]>;

/// The control thread's end.
pub struct Ends {
    /// Requests from the dispatchers.
    pub control_requests: Receiver<ControlRequest>,
    /// Calls about their groups, with the group's number.
    pub groups: Receiver<(u64, GroupCall)>,
    awaited: Awaited,
    /// Readable when another thread has called.
    pub waker: Waker,
    is_asleep: Arc<AtomicBool>,
    returns: Vec<Sender<u32>>,
    /// Dispatchers that have something returned, or answered, since they were last woken.
    has_returned: Vec<bool>,
}

impl ControlChannel {
    /// A channel for that many dispatchers.
    ///
    /// # Errors
    /// If the system gives no descriptor.
    pub fn new(dispatcher_count: usize) -> std::io::Result<(ControlChannel, Ends)> {
        let (control_requests, received) = unbounded();
        let (groups, groups_received) = unbounded();
        let (returns, returned) = (0..dispatcher_count).map(|_| unbounded()).unzip();
        let awaited: Awaited = (0..dispatcher_count).map(|_| OnceLock::new()).collect();
        let waker = Waker::new()?;
        let is_asleep = Arc::new(AtomicBool::new(false));
        let ends = Ends {
            control_requests: received,
            groups: groups_received,
            awaited: Arc::clone(&awaited),
            waker: waker.clone(),
            is_asleep: is_asleep.clone(),
            returns,
            has_returned: vec![false; dispatcher_count],
        };
        let channel = ControlChannel {
            control_requests,
            groups,
            group_count: AtomicU64::new(0),
            waker,
            is_asleep,
            returned,
            awaited,
        };
        Ok((channel, ends))
    }

    /// Sends a request slot in. Returns false if the control thread has ended.
    pub fn send(&self, control_request: ControlRequest) -> bool {
        self.control_requests.send(control_request).is_ok()
    }

    /// The number of a new group.
    pub(super) fn next_group(&self) -> u64 {
        self.group_count.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a call about a group. Returns false if the control thread has ended.
    pub(super) fn send_group(&self, group: u64, call: GroupCall) -> bool {
        let is_sent = self.groups.send((group, call)).is_ok();
        self.call();
        is_sent
    }

    /// Makes a call about a group, and waits for the answer for so long; `None`: it is still to
    /// come. The worker's session must be parked. A worker that receives entries for the node goes
    /// on to do so (D4 of `cluster::inbound_log`).
    pub fn ask(
        &self,
        group: &PendingGroup,
        call: GroupCall,
        receiver: Option<&mut EntryReceiver>,
        patience: Duration,
    ) -> Option<GroupAnswer> {
        if let Some(receiver) = &receiver {
            self.awaited[group.dispatcher].get_or_init(|| receiver.awaited().clone());
        }
        if !self.send_group(group.id, call) {
            return Some(GroupAnswer::Bad);
        }
        let deadline = Instant::now() + patience;
        match receiver {
            Some(receiver) => receiver.serve_until(deadline, || group.answer()),
            None => match group.answers.recv_deadline(deadline) {
                Ok(answer) => Some(group.checked(answer)),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(GroupAnswer::Bad),
            },
        }
    }

    /// Wakes the control thread for the messages that were sent.
    pub fn call(&self) {
        call(&self.is_asleep, &self.waker);
    }

    /// Takes a request slot that came back to this dispatcher.
    pub fn take(&self, dispatcher: usize) -> Option<u32> {
        self.returned[dispatcher].try_recv().ok()
    }

    /// Whether one is there.
    pub fn has_any(&self, dispatcher: usize) -> bool {
        !self.returned[dispatcher].is_empty()
    }
}

fn call(is_asleep: &AtomicBool, waker: &Waker) {
    // SeqCst, as in `Ends::may_sleep`: one of the two sees what the other did.
    if is_asleep.swap(false, Ordering::SeqCst) {
        waker.wake();
    }
}

impl Ends {
    /// A function that wakes the control thread, for threads that are no dispatcher.
    pub fn caller(&self) -> impl Fn() + Send + Sync + 'static {
        let (is_asleep, waker) = (self.is_asleep.clone(), self.waker.clone());
        move || call(&is_asleep, &waker)
    }

    /// Gives the request slot of a completed control request back to its dispatcher.
    pub fn give_back(&mut self, control_request: &ControlRequest) {
        let dispatcher = usize::from(control_request.dispatcher);
        // A dispatcher that has ended needs nothing back.
        let _ = self.returns[dispatcher].send(control_request.index);
        self.has_returned[dispatcher] = true;
    }

    /// Answers a group's call.
    pub fn answer(&mut self, to: &AnswerTo, answer: GroupAnswer) {
        // A group that was given up needs no answer.
        let _ = to.sender.send(answer);
        // SeqCst: a worker that lies down sees this, or its bell is seen raised.
        to.answered.fetch_add(1, Ordering::SeqCst);
        self.has_returned[to.dispatcher] = true;
        if let Some(waker) = self.awaited[to.dispatcher].get() {
            waker.wake();
        }
    }

    /// Wakes sleeping dispatchers that have something returned.
    pub fn wake_dispatchers(&mut self, fabric: &Fabric, wake: impl Fn(usize)) {
        for (dispatcher, has_any) in self.has_returned.iter_mut().enumerate() {
            if std::mem::take(has_any) && fabric.bells[dispatcher].must_ring() {
                wake(dispatcher);
            }
        }
    }

    /// Before a wait: whether the channel is empty. From then on each sender wakes this thread.
    pub fn may_sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        if self.control_requests.is_empty() && self.groups.is_empty() {
            return true;
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        false
    }

    /// After the wait.
    pub fn get_up(&self, was_woken: bool) {
        self.is_asleep.store(false, Ordering::SeqCst);
        if was_woken {
            self.waker.reset();
        }
    }
}
