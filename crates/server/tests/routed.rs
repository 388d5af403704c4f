//! The suites of both protocols, of clients that misbehave and of full stores, where requests are
//! executed by other workers than the one that received them.
//!
//! What each module's servers are started with, `support::config` finds in the module's name.

#![allow(clippy::duplicate_mod, reason = "the same tests with another configuration")]

/// The modules of one configuration.
macro_rules! suites {
    () => {
        #[path = "full.rs"]
        mod full;
        #[path = "hardship.rs"]
        mod hardship;
        #[path = "memcached.rs"]
        mod memcached;
        #[path = "native.rs"]
        mod native;
        #[path = "native_shm.rs"]
        mod native_shm;
        #[path = "pause.rs"]
        mod pause;
        #[path = "resp.rs"]
        mod resp;
        #[path = "support/mod.rs"]
        mod support;
    };
}

/// One thread polls, two execute.
#[path = "."]
mod two_layers {
    suites!();

    #[test]
    fn requests_are_executed_by_other_workers() {
        super::check_forwardings(support::config());
    }
}

/// Three threads, and every key has one that reads and writes it.
#[path = "."]
mod erew {
    suites!();

    #[test]
    fn requests_are_executed_by_other_workers() {
        super::check_forwardings(support::config());
    }
}

/// Three threads and the tightest bound, so that requests wait for a worker all the time.
#[path = "."]
mod dcrew_jbsq {
    suites!();

    #[test]
    fn requests_are_executed_by_other_workers() {
        super::check_forwardings(support::config());
    }
}

/// Three threads, and items of a few dozen bytes are large already.
#[path = "."]
mod size_aware {
    suites!();

    #[test]
    fn large_requests_are_executed_by_other_workers() {
        let server = crate::support::TestServer::with(support::config());
        // Small ones stay where they were received, unless that is the large worker. One by one: in
        // a pipeline the small one follows the large one of its key.
        let value = "v".repeat(200);
        for _ in 0..12 {
            let mut client = server.resp();
            client.ask(format!("SET key {value}\r\n"), "+OK\r\n");
            client.ask("SET key v\r\n", "+OK\r\n");
        }
        let forwardings = server.server().shared().totals().forwardings;
        assert!(forwardings.sent > 0 && forwardings.direct > 0, "{forwardings:?}");
    }
}

/// Three threads that steal from one another.
#[path = "."]
mod stealing {
    suites!();

    #[test]
    fn requests_are_executed_by_other_workers() {
        super::check_forwardings(support::config());
    }
}

/// A suite whose servers routed nothing would prove nothing here.
fn check_forwardings(config: server::Config) {
    let server = crate::support::TestServer::with(config);
    let mut client = server.resp();
    // At once: one by one, the shortest queue could always be the receiver's own.
    let asks: String = (0..64).map(|key| format!("SET {key} 1\r\n")).collect();
    client.ask(asks, "+OK\r\n".repeat(64));
    let forwardings = server.server().shared().totals().forwardings;
    assert_eq!(forwardings.served + forwardings.direct, 64);
    assert!(forwardings.sent > 0, "{forwardings:?}");
}
