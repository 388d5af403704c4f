//! The tuner on a server's threads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Instant;
use config::{Config, Poll, Tuning as Asked};
use control::manager::Manager;
use control::manager::knobs::ServerKnobs;
use control::manager::tuning::Tuning;
use dispatch::controller::{Controller, Observed};
use dispatch::hot::HotEpochs;
use dispatch::lanes::{PublishedRoles, Wanted};
use dispatch::published::DecisionLog;
use host::affinity::Pin;
use host::resctrl::Cat;
use policy::Policies;
use policy::size_class::Threshold;
use policy::tuner::TunerRules;
use runtime::shared::Shared;

use super::Server;

/// A server of four threads whose own manager leaves them alone, and a manager that drives its
/// tuner in virtual time: only the measurements are made up.
struct Tuned {
    server: Server,
    manager: Manager,
    decision_log: DecisionLog,
    now: Instant,
    observed: Observed,
}

impl Tuned {
    fn new(tries_policies: bool) -> Tuned {
        let config = Config {
            resp: Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0))),
            memcached: None,
            native: None,
            admin: None,
            memory_bytes: 128 << 20,
            threads: 4,
            tuning: Asked::Off,
            tries_policies,
            // So that many of these tests' items are large.
            size_threshold: Threshold::Static { bytes: 10_000 },
            cat: Cat::Off,
            pin: Pin::Off,
            poll: Poll::Block,
            ..Config::default()
        };
        let server = Server::start(config).unwrap();
        let shared = server.shared();
        let now = Instant { ns: 0 };
        let keys = Arc::clone(shared.hot_keys().unwrap());
        let knobs = ServerKnobs::new(Arc::clone(shared), None);
        let controllers: Vec<Box<dyn Controller>> = vec![
            Box::new(HotEpochs::new(keys, now)),
            Box::new(Tuning::new(knobs, TunerRules::default(), |_| {})),
        ];
        let observed = Observed { busy_ns: vec![0; 4], ..Observed::default() };
        let manager = Manager::new(controllers, now);
        Tuned { server, manager, decision_log: DecisionLog::default(), now, observed }
    }

    /// Lets the tuner search, with a throughput that depends on the roles in force, until the
    /// decision log tells a change of `what`. `meanwhile` is called after each step.
    fn until_changed(
        &mut self,
        what: &str,
        rps_of: impl Fn(&PublishedRoles) -> u64,
        mut meanwhile: impl FnMut(&PublishedRoles),
    ) -> Vec<String> {
        for _ in 0..100_000 {
            let sleep = self.manager.step(self.now, &self.observed, &self.decision_log);
            if self.decision_log.counts().contains_key(what) {
                break;
            }
            let roles = self.server.shared().roles().latest();
            self.observed.request_count += rps_of(&roles) * sleep.as_micros() as u64 / 1_000_000;
            self.observed.busy_ns[0] += sleep.as_nanos() as u64;
            self.now.ns += sleep.as_nanos() as u64;
            meanwhile(&roles);
            // The threads are real, and take up their roles in real time.
            std::thread::park_timeout(Duration::from_micros(100));
        }
        self.decision_log.entries().into_iter().map(|entry| entry.decision.change).collect()
    }
}

/// A client that reads each of its writes in the same pipeline.
struct Client(TcpStream);

impl Client {
    fn write_and_read(&mut self, number: usize) {
        // Every third value is large.
        let value = number.to_string().repeat(if number.is_multiple_of(3) { 20_000 } else { 1 });
        let key = format!("key:{}", number % 50);
        let sent = format!("SET {key} {value}\r\nGET {key}\r\n");
        self.0.write_all(sent.as_bytes()).unwrap();
        let want = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
        let mut reply = vec![0; want.len()];
        self.0.read_exact(&mut reply).unwrap();
        assert!(reply == want.as_bytes(), "a client reads what it wrote");
    }
}

/// Two layers serve most: the search tries them, they win, and the threads have those roles.
#[test]
fn what_a_search_finds_is_what_the_threads_of_a_server_do() {
    let mut tuned = Tuned::new(false);
    let mut plans = std::collections::HashSet::new();
    let rps_of =
        |roles: &PublishedRoles| if roles.plan().dispatchers == 3 { 2_000_000 } else { 1_000_000 };
    let changes = tuned.until_changed("threads", rps_of, |roles| {
        plans.insert((roles.plan().threads, roles.plan().dispatchers));
    });
    assert_eq!(changes[0], "a search begins");
    assert!(changes[1].starts_with("from run to completion"), "{changes:?}");
    assert!(changes[1].contains("to 1 memory-resident thread"), "{changes:?}");
    assert!(plans.len() >= 3, "only {plans:?} were tried");
    let shared = tuned.server.shared();
    let plan = shared.roles().plan();
    assert_eq!((plan.threads, plan.dispatchers), (4, 3));
    assert!(shared.totals().forwardings.role_changes > 0);
}

/// Each of the policies serves most once: it is tried, it wins, and the threads route by it. A
/// client reads its own writes all the while.
#[test]
fn policies_that_serve_most_are_those_that_the_threads_route_by() {
    for best in Policies::TRIED.into_iter().skip(1) {
        let mut tuned = Tuned::new(true);
        let address = tuned.server.resp_addr().unwrap();
        let mut client = Client(TcpStream::connect(address).unwrap());
        let mut tried = std::collections::HashSet::new();
        let mut written = 0;
        let rps_of =
            |roles: &PublishedRoles| if roles.policies == best { 2_000_000 } else { 1_000_000 };
        let changes = tuned.until_changed("policies", rps_of, |roles| {
            if tried.insert(roles.policies) || written % 8 == 0 {
                client.write_and_read(written);
            }
            written += 1;
        });
        assert_eq!(changes[0], "a search begins");
        assert!(
            changes[1].starts_with(&format!("from run to completion to {best}")),
            "{changes:?}"
        );
        assert_eq!(tried.len(), Policies::TRIED.len(), "only {tried:?} were tried");
        let shared = tuned.server.shared();
        assert_eq!(shared.roles().latest().policies, best);
        let entries = tuned.decision_log.entries();
        let inputs = &entries.last().unwrap().decision.inputs;
        assert!(inputs.iter().any(|(name, rps)| *name == "crcw_any_rps" && *rps < 1.5e6));
        while !shared.roles().are_settled() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        // The router leaves a request here or sends it elsewhere.
        let asked = |shared: &Shared| {
            let forwardings = shared.totals().forwardings;
            forwardings.direct + forwardings.sent
        };
        let asked_before = asked(shared);
        client.write_and_read(written);
        assert!(asked(shared) > asked_before, "the router is not asked");
    }
}

/// Pipelines that write small and large values to one key and read them back see their own writes
/// in order (K10), while the policies change hundreds of times a second.
#[test]
fn clients_read_their_own_writes_while_policies_change() {
    let tuned = Tuned::new(true);
    let address = tuned.server.resp_addr().unwrap();
    let shared = Arc::clone(tuned.server.shared());
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let mut pipeline_count = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    pipeline_count += 1;
                    pipeline(&mut socket, client, pipeline_count);
                }
                pipeline_count
            })
        })
        .collect();
    let began = std::time::Instant::now();
    let mut change_count = 0_u64;
    while began.elapsed() < Duration::from_secs(4) {
        let turn = base::hash::mix(change_count);
        let policies = Policies::TRIED[turn as usize % 4];
        let polling = if turn.is_multiple_of(5) { 2 } else { 4 };
        shared.change_roles(Wanted::tuned(4, polling, policies)).unwrap();
        change_count += 1;
        while !shared.roles().are_settled() {
            std::thread::park_timeout(Duration::from_micros(50));
        }
        std::thread::park_timeout(Duration::from_micros(turn >> 32 & 0x7ff));
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("a client saw its writes out of order") > 0);
    }
    assert!(change_count > 20, "only {change_count} changes");
    let forwardings = shared.totals().forwardings;
    assert!(forwardings.sent > 0 && forwardings.handed_on > 0, "nothing was routed by size");
}

/// Small and large writes of one key of this client, each read back, in one pipeline.
fn pipeline(socket: &mut TcpStream, client: u64, number: u64) {
    let key = format!("{client}:{}", number % 3);
    let (mut sent, mut want) = (Vec::new(), Vec::new());
    for step in 0..12 {
        let is_large = base::hash::mix(number * 16 + step).is_multiple_of(4);
        let value = format!("{number}.{step}.").repeat(if is_large { 3_000 } else { 1 });
        let commands = format!("SET {key} {value}\r\nGET {key}\r\nAPPEND {key} x\r\nGET {key}\r\n");
        sent.extend(commands.bytes());
        let (len, longer) = (value.len(), value.len() + 1);
        let replies = format!("+OK\r\n${len}\r\n{value}\r\n:{longer}\r\n${longer}\r\n{value}x\r\n");
        want.extend(replies.bytes());
    }
    // It reads while it writes, so that neither waits for the other for ever.
    let mut reader = socket.try_clone().unwrap();
    let replies = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut replies = vec![0; want.len()];
            reader.read_exact(&mut replies).unwrap();
            replies
        });
        socket.write_all(&sent).unwrap();
        reading.join().unwrap()
    });
    assert!(replies == want, "client {client}, pipeline {number}");
}
