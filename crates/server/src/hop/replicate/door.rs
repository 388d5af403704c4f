//! The door between fronts and the control thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::Errand;
use crate::hop::fabric::Fabric;
use crate::poller::Waker;
use crate::shared::Shared;

/// What fronts hold of the door. How much is on its way is bounded by the fronts' cells.
pub struct Door {
    errands: Sender<Errand>,
    waker: Waker,
    is_asleep: Arc<AtomicBool>,
    /// By front: cells that come back.
    returned: Vec<Receiver<u32>>,
}

/// What the control thread holds of it.
pub struct Ends {
    /// What fronts have sent.
    pub errands: Receiver<Errand>,
    /// Readable when somebody has called.
    pub waker: Waker,
    is_asleep: Arc<AtomicBool>,
    returns: Vec<Sender<u32>>,
    /// Fronts that have got something since they were last woken.
    has_returned: Vec<bool>,
}

impl Door {
    /// A door for so many fronts.
    ///
    /// # Errors
    /// If the system gives no descriptor.
    pub fn new(front_count: usize) -> std::io::Result<(Door, Ends)> {
        let (errands, received) = unbounded();
        let (returns, returned) = (0..front_count).map(|_| unbounded()).unzip();
        let waker = Waker::new()?;
        let is_asleep = Arc::new(AtomicBool::new(false));
        let ends = Ends {
            errands: received,
            waker: waker.clone(),
            is_asleep: is_asleep.clone(),
            returns,
            has_returned: vec![false; front_count],
        };
        Ok((Door { errands, waker, is_asleep, returned }, ends))
    }

    /// Sends a cell in. False: the control thread has ended.
    pub(in crate::hop) fn send(&self, errand: Errand) -> bool {
        self.errands.send(errand).is_ok()
    }

    /// What was sent is to be looked at.
    pub fn call(&self) {
        // SeqCst, as in `Ends::may_sleep`: one of the two sees what the other did.
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// A cell that comes back to this front.
    pub(in crate::hop) fn take(&self, front: usize) -> Option<u32> {
        self.returned[front].try_recv().ok()
    }

    /// Whether one is there.
    pub(in crate::hop) fn has_any(&self, front: usize) -> bool {
        !self.returned[front].is_empty()
    }
}

impl Ends {
    /// The errand is done: its front gets the cell back.
    pub fn give_back(&mut self, errand: &Errand) {
        let front = usize::from(errand.front);
        // A front that has ended wants nothing back.
        let _ = self.returns[front].send(errand.index);
        self.has_returned[front] = true;
    }

    /// Wakes the fronts that got something and sleep.
    pub fn wake_fronts(&mut self, fabric: &Fabric, shared: &Shared) {
        for (front, has_any) in self.has_returned.iter_mut().enumerate() {
            if std::mem::take(has_any) && fabric.bells[front].must_ring() {
                shared.wake(front);
            }
        }
    }

    /// Before a wait: whether nothing has come. From then on whoever sends wakes.
    pub fn may_sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        if self.errands.is_empty() {
            return true;
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        false
    }

    /// After it.
    pub fn get_up(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
        self.waker.reset();
    }
}
