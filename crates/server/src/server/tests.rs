//! The tuner on a server's threads.

use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use config::{Config, Poll, Tuning as Asked};
use control::manager::Manager;
use control::manager::knobs::ServerKnobs;
use control::manager::tuning::Tuning;
use dispatch::controller::Observed;
use dispatch::hot::HotEpochs;
use dispatch::published::DecisionLog;
use host::affinity::Pin;
use host::resctrl::Cat;
use policy::tuner::TunerRules;

use super::Server;

/// The whole path on real threads: only the measurements are made up, so that two layers serve
/// most. The search tries them, they win, and the threads have those roles.
#[test]
fn what_a_search_finds_is_what_the_threads_of_a_server_do() {
    let any = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let config = Config {
        resp: any,
        memcached: None,
        native: None,
        admin: None,
        memory_bytes: 128 << 20,
        threads: 4,
        // Its own manager leaves the threads alone.
        tuning: Asked::Off,
        cat: Cat::Off,
        pin: Pin::Off,
        poll: Poll::Block,
        ..Config::default()
    };
    let server = Server::start(config).unwrap();
    let shared = Arc::clone(server.shared());
    let keys = Arc::clone(shared.hot_keys().unwrap());
    let (mut now, decision_log) = (Instant { ns: 0 }, DecisionLog::default());
    let knobs = ServerKnobs::new(Arc::clone(&shared), None);
    let mut manager = Manager::new(
        vec![
            Box::new(HotEpochs::new(keys, now)),
            Box::new(Tuning::new(knobs, TunerRules::default(), |_| {})),
        ],
        now,
    );
    let mut observed = Observed { busy_ns: vec![0; 4], ..Observed::default() };
    let mut plans = std::collections::HashSet::new();
    let is_over = |decision_log: &DecisionLog| decision_log.counts().contains_key("threads");
    for _ in 0..100_000 {
        let sleep = manager.step(now, &observed, &decision_log);
        if is_over(&decision_log) {
            break;
        }
        let plan = shared.roles().plan();
        plans.insert((plan.threads, plan.dispatchers));
        let rps = if plan.dispatchers == 3 { 2_000_000 } else { 1_000_000 };
        observed.request_count += rps * sleep.as_micros() as u64 / 1_000_000;
        observed.busy_ns[0] += sleep.as_nanos() as u64;
        now.ns += sleep.as_nanos() as u64;
        // The threads are real, and take up their roles in real time.
        std::thread::park_timeout(Duration::from_micros(100));
    }
    let changes: Vec<_> =
        decision_log.entries().into_iter().map(|entry| entry.decision.change).collect();
    assert_eq!(changes[0], "a search begins");
    assert!(changes[1].starts_with("from run to completion"), "{changes:?}");
    assert!(changes[1].contains("to 1 memory-resident thread"), "{changes:?}");
    assert!(plans.len() >= 3, "only {plans:?} were tried");
    let plan = shared.roles().plan();
    assert_eq!((plan.threads, plan.dispatchers), (4, 3));
    assert!(shared.totals().forwardings.role_changes > 0);
}
