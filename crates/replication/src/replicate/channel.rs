//! The channel between dispatchers and the control thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use dispatch::lanes::fabric::Fabric;
use host::poller::Waker;

use super::{ControlRequest, GroupAnswer, GroupCall};
use crate::cluster::Receiver as EntryReceiver;

/// The dispatchers' end of the channel. The number of messages in it is bounded by the dispatchers'
/// request slots.
pub struct ControlChannel {
    control_requests: Sender<ControlRequest>,
    groups: Sender<(usize, GroupCall)>,
    waker: Waker,
    is_asleep: Arc<AtomicBool>,
    /// By dispatcher: request slots that come back.
    returned: Vec<Receiver<u32>>,
    /// By dispatcher: the answers to its groups.
    answers: Vec<Receiver<GroupAnswer>>,
    awaited: Awaited,
}

/// By dispatcher: the waker of one that receives entries while it waits for an answer.
type Awaited = Arc<[OnceLock<Waker>]>;

/// The control thread's end.
pub struct Ends {
    /// Requests from the dispatchers.
    pub control_requests: Receiver<ControlRequest>,
    /// Calls about their groups.
    pub groups: Receiver<(usize, GroupCall)>,
    answers: Vec<Sender<GroupAnswer>>,
    awaited: Awaited,
    /// Readable when another thread has called.
    pub waker: Waker,
    is_asleep: Arc<AtomicBool>,
    returns: Vec<Sender<u32>>,
    /// Dispatchers that have something returned since they were last woken.
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
        let (answers, answered) = (0..dispatcher_count).map(|_| unbounded()).unzip();
        let (returns, returned) = (0..dispatcher_count).map(|_| unbounded()).unzip();
        let awaited: Awaited = (0..dispatcher_count).map(|_| OnceLock::new()).collect();
        let waker = Waker::new()?;
        let is_asleep = Arc::new(AtomicBool::new(false));
        let ends = Ends {
            control_requests: received,
            groups: groups_received,
            answers,
            awaited: Arc::clone(&awaited),
            waker: waker.clone(),
            is_asleep: is_asleep.clone(),
            returns,
            has_returned: vec![false; dispatcher_count],
        };
        let channel = ControlChannel {
            control_requests,
            groups,
            waker,
            is_asleep,
            returned,
            answers: answered,
            awaited,
        };
        Ok((channel, ends))
    }

    /// Sends a request slot in. Returns false if the control thread has ended.
    pub fn send(&self, control_request: ControlRequest) -> bool {
        self.control_requests.send(control_request).is_ok()
    }

    /// Makes a call about a group, and waits for the answer. The worker's session must be parked. A
    /// worker that receives entries for the node goes on to do so (D4 of `cluster::inbound_log`).
    pub fn ask(
        &self,
        dispatcher: usize,
        call: GroupCall,
        receiver: Option<&mut EntryReceiver>,
    ) -> GroupAnswer {
        if let Some(receiver) = &receiver {
            self.awaited[dispatcher].get_or_init(|| receiver.awaited().clone());
        }
        if self.groups.send((dispatcher, call)).is_err() {
            return GroupAnswer::Bad;
        }
        self.call();
        let answers = &self.answers[dispatcher];
        let Some(receiver) = receiver else { return answers.recv().unwrap_or(GroupAnswer::Bad) };
        receiver.serve_until(|| match answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(GroupAnswer::Bad),
        })
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
    pub fn answer(&self, dispatcher: usize, answer: GroupAnswer) {
        // A dispatcher that has ended needs no answer.
        let _ = self.answers[dispatcher].send(answer);
        if let Some(waker) = self.awaited[dispatcher].get() {
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
