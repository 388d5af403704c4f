//! An objective of latency on a running server: sampled under every way of serving, changed while
//! it runs, refused in one line. What is too slow is chosen so that no clock decides a test.

use std::time::Duration;

use crate::support::{Client, PATIENCE, TestServer, config};
use server::{Config, Dispatch, Policies, SLO_MAX, SLO_MIN, Server, Slo, StartError, WritePolicy};

/// By these ways requests are served: run to completion, routed, through a write table, two layers.
fn all(slo: Option<Duration>) -> [Config; 4] {
    let plain = Config { slo, ..config() };
    let routed =
        Config { policies: Policies::new(WritePolicy::Erew, Dispatch::KeyHash), ..plain.clone() };
    let table =
        Config { policies: Policies::new(WritePolicy::DCrew, Dispatch::Jbsq(2)), ..plain.clone() };
    [plain.clone(), routed, table, Config { threads: 3, cr_threads: Some(1), ..plain }]
}

/// Samples, and how many of them were late.
fn sampled(server: &TestServer) -> (u64, u64) {
    let counts = Slo::counts(server.server().shared().all_counters());
    (counts.samples, counts.over)
}

/// Asks, in pipelines of eight, until so many more reads were sampled.
fn ask_until_sampled(server: &TestServer, client: &mut Client, samples: u64) {
    let (before, _) = sampled(server);
    let deadline = std::time::Instant::now() + PATIENCE;
    while sampled(server).0 < before + samples {
        assert!(std::time::Instant::now() < deadline, "nothing is sampled");
        client.ask("SET a 1\r\nGET a\r\n".repeat(4), "+OK\r\n$1\r\n1\r\n".repeat(4));
    }
}

#[test]
fn every_way_of_serving_is_sampled_and_what_is_late_is_counted() {
    for config in all(Some(SLO_MIN)) {
        let server = TestServer::with(config);
        let mut client = server.resp();
        ask_until_sampled(&server, &mut client, 50);
        let (samples, over) = sampled(&server);
        // A microsecond is less than what the system calls of a round take.
        assert!(over > samples / 2, "{over} of {samples} late");
        client.ask("CONFIG SET slo 60s\r\n", "+OK\r\n");
        ask_until_sampled(&server, &mut client, 2);
        let (samples_then, over_then) = sampled(&server);
        ask_until_sampled(&server, &mut client, 50);
        let (samples, over) = sampled(&server);
        assert!(samples >= samples_then + 50);
        assert_eq!(over, over_then, "nothing takes a minute");
    }
}

#[test]
fn without_an_objective_nothing_is_sampled_and_routed_servers_can_begin_to() {
    for (config, is_routed) in all(None).into_iter().zip([false, true, true, true]) {
        let server = TestServer::with(config);
        let mut client = server.resp();
        client.ask("CONFIG GET slo\r\n", "*2\r\n$3\r\nslo\r\n$3\r\noff\r\n");
        for _ in 0..50 {
            client.ask("SET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
        }
        assert_eq!(sampled(&server), (0, 0));
        let refused = "-ERR CONFIG SET failed (possibly related to argument 'slo') - start the \
                       server with --slo: its threads take no times without\r\n";
        client.ask("CONFIG SET slo 5ms\r\n", if is_routed { "+OK\r\n" } else { refused });
        if is_routed {
            client.ask("CONFIG GET slo\r\n", "*2\r\n$3\r\nslo\r\n$3\r\n5ms\r\n");
            ask_until_sampled(&server, &mut client, 5);
            client.ask("CONFIG SET slo off\r\n", "+OK\r\n");
        }
    }
}

#[test]
fn what_is_no_objective_is_refused_in_one_line_and_changes_nothing() {
    let server = TestServer::with(Config { slo: Some(SLO_MAX), ..config() });
    let mut client = server.resp();
    for value in ["soon", "0s", "61s", "-1ms", "\"\""] {
        let reason = "argument must be off or a time from 1us to 60s, e.g. 1ms";
        let head = "-ERR CONFIG SET failed (possibly related to argument 'slo') - ";
        client.ask(format!("CONFIG SET slo {value}\r\n"), format!("{head}{reason}\r\n"));
    }
    client.ask(
        "CONFIG SET slo 5\r\n",
        "-ERR CONFIG SET failed (possibly related to argument 'slo') - write a unit: 5ms, 5us, \
         5s\r\n",
    );
    client.ask(
        "CONFIG SET slo 1ms port 1\r\n",
        "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable \
         config\r\n",
    );
    assert_eq!(server.server().shared().slo().target(), Some(SLO_MAX));
    let too_short = Config { slo: Some(Duration::from_nanos(1)), ..config() };
    assert!(matches!(Server::start(too_short), Err(StartError::SloOutOfRange)));
}
