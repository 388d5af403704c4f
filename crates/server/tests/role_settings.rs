//! The number of threads of each role: by settings, fixed, and as counted.

use server::{Config, Dispatch, Policies, Server, Shared, Wanted, WritePolicy};

use crate::moving::{divide, start};
use crate::support::{Client, PATIENCE, TestServer, config};

#[test]
fn settings_change_roles_and_say_what_would_be_right() {
    let server = start("crcw any", None);
    let mut client = server.resp();
    let mut check = |ask: &str, want: &str| client.ask(format!("{ask}\r\n"), format!("{want}\r\n"));
    let failed = |name: &str, reason: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
    };
    let shown = |name: &str, value: &str| {
        format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}", name.len(), value.len())
    };
    check("CONFIG GET cr-threads", &shown("cr-threads", "auto"));
    check("CONFIG GET threads", &shown("threads", "4"));
    check("CONFIG SET cr-threads 1", "+OK");
    check("CONFIG GET cr-threads", &shown("cr-threads", "1"));
    check("CONFIG SET threads 3", "+OK");
    check("CONFIG GET threads", &shown("threads", "3"));
    check("SET a 1", "+OK");
    let plan = server.server().shared().roles().plan();
    assert_eq!((plan.threads, plan.dispatchers, plan.executors), (3, 1, 2));
    check("CONFIG SET threads 4 cr-threads 4", "+OK");
    check("CONFIG GET cr-threads", &shown("cr-threads", "4"));
    check("CONFIG SET threads 2 cr-threads auto", "+OK");
    check("CONFIG GET cr-threads", &shown("cr-threads", "auto"));
    check("GET a", "$1\r\n1");
    check("CONFIG SET threads auto", "+OK");
    let plan = server.server().shared().roles().plan();
    assert_eq!((plan.threads, plan.dispatchers, plan.executors), (4, 4, 4));
    let reason = "threads must be 1 to 4, as many as the server was started with";
    check("CONFIG SET threads 5", &failed("threads", reason));
    check("CONFIG SET threads 0", &failed("threads", reason));
    let reason = "cr-threads must be auto or 1 to 4, the number of threads";
    check("CONFIG SET cr-threads 5", &failed("cr-threads", reason));
    let reason = "argument must be auto or a number of threads";
    check("CONFIG SET threads many", &failed("threads", reason));
    check("CONFIG SET threads 3 threads 3", &failed("threads", "duplicate parameter"));
    check("CONFIG SET threads 3 port 1", &failed("port", "can't set immutable config"));
    check("CONFIG GET threads", &shown("threads", "4"));
}

/// On few threads no worker pays for what only two layers need; their number changes all the same.
#[test]
fn a_server_that_runs_to_completion_changes_only_how_many_threads_work() {
    let server = TestServer::with(Config { threads: 3, ..config() });
    let shared = server.server().shared();
    let mut client = server.resp();
    let reason = "this server runs to completion; start it with --cr-threads 1 or more below \
                  --threads, or with 4 threads and --cr-threads auto, to have two layers";
    let head = "-ERR CONFIG SET failed (possibly related to argument 'cr-threads') - ";
    client.ask("CONFIG SET cr-threads 1\r\n", format!("{head}{reason}\r\n"));
    let mut clients: Vec<Client> = (0..9).map(|_| server.resp()).collect();
    for round in 0..50 {
        divide_equally(shared, 1 + round % 3);
        for client in &mut clients {
            client.ask("SET a 1\r\nGET a\r\nPING\r\n", "+OK\r\n$1\r\n1\r\n+PONG\r\n");
        }
    }
    assert!(shared.totals().forwardings.connections_moved > 50);
    assert_eq!(shared.totals().forwardings.served, 0, "nothing is routed");
    assert!(server.stop(PATIENCE));
}

fn divide_equally(shared: &Shared, threads: usize) {
    divide(shared, (threads, threads));
}

#[test]
fn fixed_roles_stay() {
    let policies = Policies::new(WritePolicy::Crcw, Dispatch::HandOff(1));
    let server = TestServer::try_with(Config { threads: 3, policies, ..config() }).unwrap();
    let error = server.server().shared().change_roles(Wanted::by_hand(3, 2)).unwrap_err();
    let want = "--dispatch hand-off:1 fixes which threads poll; start with another dispatch";
    assert_eq!(error.to_string(), want);
    server.server().shared().change_roles(Wanted::by_hand(3, 1)).unwrap();
}

#[test]
fn threads_are_counted_by_role() {
    let server = Server::start(Config { threads: 4, ..config() }).unwrap();
    let shared = server.shared();
    for (division, want) in [((4, 1), (1, 0, 3)), ((3, 3), (0, 3, 0)), ((4, 4), (0, 4, 0))] {
        divide(shared, division);
        assert_eq!(shared.roles().plan().role_counts(), want);
    }
    assert_eq!(shared.roles().plan().epoch, 3);
    assert!(shared.totals().forwardings.role_changes >= 4);
}
