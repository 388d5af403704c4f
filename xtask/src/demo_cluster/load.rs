//! Runs concurrent clients, and the judge beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::history::History;
use super::judge::{Findings, Judge};
use super::user::{Addresses, User};

/// Pause between two requests of a client: histories must stay short enough to be judged.
const THINKING: Duration = Duration::from_micros(1500);
/// Pause after a refusal.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest time between two deliveries of a client's records.
const HAND_OVER: Duration = Duration::from_secs(1);

/// All clients.
pub struct Load {
    is_over: Arc<AtomicBool>,
    is_judged: Arc<AtomicBool>,
    history: Arc<Mutex<History>>,
    findings: Arc<Mutex<Findings>>,
    clients: Vec<JoinHandle<()>>,
    judge: JoinHandle<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    /// Starts the clients; times count from `started`. `is_durable`: servers keep logs.
    pub fn start(
        addresses: &Addresses,
        clients: u64,
        seed: u64,
        (started, is_durable): (Instant, bool),
    ) -> Load {
        let (is_over, is_judged) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let history: Arc<Mutex<History>> = Arc::default();
        let findings: Arc<Mutex<Findings>> = Arc::default();
        let client = |index| {
            let (is_over, history) = (Arc::clone(&is_over), Arc::clone(&history));
            let mut user = User::new(index, seed, addresses, started);
            std::thread::spawn(move || serve(&mut user, &is_over, &history))
        };
        let threads = (0..clients).map(client).collect();
        // Its index differs from every client's, and it uses RESP.
        let user = User::new(u64::from(u32::MAX) * 3, seed, addresses, started);
        let (judged, told) = (Arc::clone(&history), Arc::clone(&findings));
        let judge = Judge::new(user, judged, told, (started, is_durable));
        let is_last = Arc::clone(&is_judged);
        let judge = std::thread::spawn(move || judge.run(&is_last));
        Load { is_over, is_judged, history, findings, clients: threads, judge }
    }

    /// The number of answers so far.
    pub fn answered(&self) -> u64 {
        lock(&self.history).answered()
    }

    /// The results so far.
    pub fn findings(&self) -> Findings {
        let mut findings = lock(&self.findings).clone();
        if let Some(line) = lock(&self.history).complaints.first() {
            let line = format!("an impossible answer: {line}");
            findings.violation.get_or_insert((line, String::new()));
        }
        findings
    }

    /// Ends the clients, waits for the judge, and returns the record. A broken cluster is not read
    /// for long.
    pub fn end(self, is_broken: bool) -> (History, Findings) {
        lock(&self.findings).is_broken = is_broken;
        self.is_over.store(true, Ordering::Relaxed);
        let (history, findings) = (Arc::clone(&self.history), Arc::clone(&self.findings));
        for thread in self.clients {
            if thread.join().is_err() {
                lock(&history).complaints.push("a client panicked".to_owned());
            }
        }
        // The judge's last reads do not count as throughput.
        let length = lock(&history).windows.len();
        self.is_judged.store(true, Ordering::Relaxed);
        if self.judge.join().is_err() {
            lock(&history).complaints.push("the judge panicked".to_owned());
        }
        let mut findings = std::mem::take(&mut *lock(&findings));
        let mut history = std::mem::take(&mut *lock(&history));
        history.windows.truncate(length);
        if let Some(line) = history.complaints.first() {
            let line = format!("an impossible answer: {line}");
            findings.violation.get_or_insert((line, String::new()));
        }
        (history, findings)
    }
}

fn serve(user: &mut User, is_over: &AtomicBool, history: &Mutex<History>) {
    let mut handed_over = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let was_answered = user.turn();
        if handed_over.elapsed() > HAND_OVER || user.own.records.len() >= 256 {
            lock(history).take(&mut user.own);
            handed_over = Instant::now();
        }
        std::thread::sleep(if was_answered { THINKING } else { PAUSE });
    }
    lock(history).take(&mut user.own);
}
