//! Tests: when the manager asks which controller, in virtual time.

use std::sync::Mutex;

use super::*;

/// Records when it was asked.
struct Clocked {
    period: Duration,
    asked_ms: Arc<Mutex<Vec<u64>>>,
}

impl Controller for Clocked {
    fn name(&self) -> &'static str {
        "clocked"
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn tick(&mut self, now: Instant, observed: &Observed) -> Option<Decision> {
        self.asked_ms.lock().unwrap().push(now.ns / 1_000_000);
        Some(Decision {
            what: vec!["asked"],
            change: observed.request_count.to_string(),
            reason: "it is due".to_owned(),
            inputs: Vec::new(),
        })
    }
}

/// Runs a manager up to `until_ms`; `requests_at` is the number of requests served by a time.
/// Returns when the manager woke, when the controller was asked, and the decision log.
fn run(
    period_ms: u64,
    until_ms: u64,
    requests_at: impl Fn(u64) -> u64,
) -> (Vec<u64>, Vec<u64>, DecisionLog) {
    let asked_ms = Arc::new(Mutex::new(Vec::new()));
    let clocked =
        Clocked { period: Duration::from_millis(period_ms), asked_ms: Arc::clone(&asked_ms) };
    let mut manager = Manager::new(vec![Box::new(clocked)], Instant { ns: 0 });
    let (mut now, decision_log, mut woken_ms) =
        (Instant { ns: 0 }, DecisionLog::default(), Vec::new());
    while now.ns < until_ms * 1_000_000 {
        let request_count = requests_at(now.ns / 1_000_000);
        let observed = Observed { request_count, ..Observed::default() };
        let sleep = manager.step(now, &observed, &decision_log);
        woken_ms.push(now.ns / 1_000_000);
        now.ns += sleep.as_nanos() as u64;
    }
    let asked_ms = asked_ms.lock().unwrap().clone();
    (woken_ms, asked_ms, decision_log)
}

#[test]
fn an_idle_server_is_looked_at_once_a_second_and_no_worker_is_asked() {
    let (woken_ms, asked_ms, decision_log) = run(10, 5_000, |_| 0);
    assert_eq!(woken_ms, [0, 1_000, 2_000, 3_000, 4_000]);
    assert!(asked_ms.is_empty() && decision_log.entries().is_empty());
}

#[test]
fn under_traffic_a_controller_is_asked_once_a_period() {
    let (_, asked_ms, decision_log) = run(10, 100, |now_ms| now_ms + 1);
    assert_eq!(asked_ms, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    assert_eq!(decision_log.counts()["asked"], 10);
}

#[test]
fn traffic_that_ends_leaves_the_server_idle_a_second_later() {
    let (woken_ms, asked_ms, _) = run(100, 10_000, |now_ms| now_ms.min(2_000) + 1);
    assert_eq!(asked_ms.last(), Some(&2_900));
    assert_eq!(woken_ms.iter().filter(|at| **at > 3_000).count(), 6);
}

/// Counts the calls of `rest`.
struct Resting(Arc<Mutex<usize>>);

impl Controller for Resting {
    fn name(&self) -> &'static str {
        "resting"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn tick(&mut self, _: Instant, _: &Observed) -> Option<Decision> {
        None
    }

    fn rest(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[test]
fn a_server_that_turns_idle_tells_its_controllers_once() {
    let rests = Arc::new(Mutex::new(0));
    let mut manager = Manager::new(vec![Box::new(Resting(Arc::clone(&rests)))], Instant { ns: 0 });
    let mut rests_after = |second: u64, request_count| {
        let observed = Observed { request_count, ..Observed::default() };
        manager.step(Instant { ns: second * 1_000_000_000 }, &observed, &DecisionLog::default());
        *rests.lock().unwrap()
    };
    assert_eq!([rests_after(0, 0), rests_after(1, 9)], [0, 0]);
    assert_eq!([rests_after(2, 9), rests_after(3, 9), rests_after(4, 10)], [1, 1, 1]);
    assert_eq!(rests_after(5, 10), 2);
}

#[test]
fn traffic_that_begins_is_seen_within_a_second() {
    let (_, asked_ms, _) = run(10, 4_000, |now_ms| now_ms.saturating_sub(1_500));
    assert_eq!(asked_ms.first(), Some(&2_000));
}

#[test]
fn the_thread_of_a_server_ends_with_it() {
    let shared = Arc::new(Shared::new(config::Config::default()));
    drop(ManagerThread::start(&shared).unwrap());
    assert_eq!(Arc::strong_count(&shared), 1);
}
