//! A thread that writes the records that a node keeps beside its log, so that a slow or busy disk
//! delays neither requests nor the lease.
//!
//! ```text
//!  control thread: replica store ─ give ─▶ this thread ─ write, sync, rename
//!                  replica store ◀─ done, wake ───────────────────────┘
//! ```

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use host::poller::Waker;

use super::replica_store::Keep;

/// See the module's page.
pub struct Keeper {
    bytes: Option<Sender<Vec<u8>>>,
    done: Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread; `waker` wakes the control thread.
    pub fn start(
        mut write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
        waker: Waker,
    ) -> io::Result<Keeper> {
        let (bytes, given) = bounded::<Vec<u8>>(1);
        let (told, done) = bounded(1);
        let thread = std::thread::Builder::new().name("keep".to_owned()).spawn(move || {
            for bytes in given {
                if told.send(write(&bytes)).is_err() {
                    return;
                }
                waker.wake();
            }
        })?;
        Ok(Keeper { bytes: Some(bytes), done, thread: Some(thread) })
    }
}

impl Keep for Keeper {
    fn give(&mut self, bytes: Vec<u8>) {
        // One at a time: there is room. Without the thread no write ever completes.
        if let Some(to) = &self.bytes {
            let _ = to.try_send(bytes);
        }
    }

    fn done(&mut self) -> Option<io::Result<()>> {
        self.done.try_recv().ok()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.bytes = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes NODE panicked");
        }
    }
}
