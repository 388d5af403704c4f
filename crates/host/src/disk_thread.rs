//! The disk thread: does the disk work that clients request, so that no worker waits for the disk
//! (K28).
//!
//! ```text
//!  ACL SAVE, CONFIG REWRITE, SAVE ─▶ run ─▶ queue ─▶ "disk" thread, one job after the other
//!      the connection rests, and looks every millisecond ◀── Pending, filled
//! ```
//!
//! # Invariants
//! I1: jobs run one at a time, in the order of their requests: of two jobs that write one file, the
//!     later one wins.
//! I2: at most [`JOBS_MAX`] wait.
//! I3: a job that has begun is finished, even while the server shuts down. The thread ends once no
//!     handle is left that could submit a job.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_channel::Sender;

/// The outcome of a job, once it is done.
#[derive(Clone, Debug)]
pub struct Pending(Arc<OnceLock<io::Result<()>>>);

impl Pending {
    /// The outcome, once the job is over.
    pub fn outcome(&self) -> Option<&io::Result<()>> {
        self.0.get()
    }
}

/// The maximum number of waiting jobs, including those of clients that have disconnected.
const JOBS_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The handle of the disk thread, which starts with the first job.
#[derive(Debug, Default)]
pub struct DiskThread {
    queue: Mutex<Option<Sender<Job>>>,
}

impl DiskThread {
    /// Submits a job.
    ///
    /// # Errors
    ///
    /// The thread cannot be made, or too many jobs wait: nothing is done.
    pub fn run(
        &self,
        job: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Pending> {
        let pending = Pending(Arc::default());
        let filled = pending.clone();
        let job: Job = Box::new(move || {
            // This is the only place that fills it.
            let _ = filled.0.set(job());
        });
        let refused = |_| io::Error::other("too many commands wait for the disk");
        self.queue()?.try_send(job).map_err(refused)?;
        Ok(pending)
    }

    fn queue(&self) -> io::Result<Sender<Job>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let (sender, jobs) = crossbeam_channel::bounded::<Job>(JOBS_MAX);
        std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || jobs.into_iter().for_each(|job| job()))?;
        Ok(queue.insert(sender).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pending: &Pending) -> &io::Result<()> {
        loop {
            match pending.outcome() {
                Some(outcome) => return outcome,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn jobs_run_in_order_and_tell_what_they_came_to() {
        let thread = DiskThread::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let job = |number: u32| {
            let told = Arc::clone(&told);
            move || {
                told.lock().unwrap().push(number);
                if number == 2 { Err(io::Error::other("full")) } else { Ok(()) }
            }
        };
        let pending: Vec<Pending> = (0..4).map(|number| thread.run(job(number)).unwrap()).collect();
        let is_good: Vec<bool> = pending.iter().map(|pending| wait(pending).is_ok()).collect();
        assert_eq!(is_good, [true, true, false, true]);
        assert_eq!(*told.lock().unwrap(), [0, 1, 2, 3]);
    }
}
