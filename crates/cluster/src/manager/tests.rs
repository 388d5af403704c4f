//! Tests of the manager against an embedded config store, message by message.

use super::*;
use crate::config_store::EmbeddedConfigStore;

const MS: u64 = 1_000_000;

fn lease(sent_at: Instant, term: Term) -> Message {
    let addresses = Arc::default();
    Message::Lease { sent_at, term, recovered: Recovered::Nothing, addresses }
}

struct Bench {
    manager: Manager,
    config_store: EmbeddedConfigStore,
    now: Instant,
    sent: Vec<(Peer, Message)>,
}

impl Bench {
    fn new() -> Bench {
        let settings = Settings { shards: 1, ..Settings::default() };
        let manager = Manager::new(0, settings);
        let config_store = EmbeddedConfigStore::default();
        Bench { manager, config_store, now: Instant { ns: MS }, sent: Vec::new() }
    }

    fn input(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.manager.input(event, self.now, &mut actions);
        for action in actions {
            match action {
                Action::Send { to, message } => self.sent.push((to, message)),
                Action::ConfigStore(request) => {
                    let mut responses = Vec::new();
                    self.config_store.input(request, self.now, &mut responses);
                    for response in responses {
                        self.input(Event::ConfigStore(response));
                    }
                }
            }
        }
    }

    fn hear(&mut self, name: u16, message: Message) {
        self.input(Event::Message { from: Peer::Node(node(name)), message });
    }

    fn lease(&mut self, name: u16) {
        let (sent_at, term) = (self.now, self.term());
        self.hear(name, lease(sent_at, term));
    }

    fn installed(&mut self, name: u16) {
        let term = self.term();
        self.hear(name, Message::Installed { term });
    }

    fn term(&self) -> Term {
        self.manager.configuration().map_or(Term(0), |configuration| configuration.term)
    }

    fn pass(&mut self, time_ns: u64, leases: &[u16]) {
        let end = after(self.now, time_ns);
        while self.now < end {
            self.now = after(self.now, MS);
            leases.iter().for_each(|name| self.lease(*name));
            self.input(Event::Tick);
        }
    }

    /// Three members that have installed and serve.
    fn settled() -> Bench {
        let mut bench = Bench::new();
        bench.pass(4 * MS, &[]);
        bench.pass(4 * MS, &[1, 2, 3]);
        [1, 2, 3].into_iter().for_each(|name| bench.installed(name));
        bench.pass(12 * MS, &[1, 2, 3]);
        assert!(bench.manager.is_committed());
        bench.sent.clear();
        bench
    }
}

fn node(name: u16) -> NodeId {
    NodeId { name, incarnation: 1 }
}

#[test]
fn the_first_configuration_waits_for_enough_nodes() {
    let mut bench = Bench::new();
    bench.pass(4 * MS, &[]);
    bench.pass(4 * MS, &[1, 2]);
    assert_eq!(bench.term(), Term(0));
    bench.pass(MS, &[1, 2, 3]);
    assert_eq!(bench.term(), Term(1));
    assert!(!bench.manager.is_committed());
}

#[test]
fn a_commit_waits_for_the_lease_of_the_node_that_is_left_out() {
    let mut bench = Bench::settled();
    let last_grant = bench.now;
    bench.pass(10 * MS, &[2, 3]);
    assert_eq!(bench.term(), Term(2), "silent for a lease");
    bench.installed(2);
    bench.installed(3);
    let lapse_ns = bench.manager.settings.lapse_ns(bench.manager.settings.lease_ns);
    assert!(bench.now < after(last_grant, lapse_ns));
    assert!(!bench.manager.is_committed(), "V2");
    bench.pass(2 * MS, &[2, 3]);
    assert!(bench.manager.is_committed());
}

#[test]
fn a_node_that_is_left_out_gets_the_configuration_and_no_lease() {
    let mut bench = Bench::settled();
    bench.pass(10 * MS, &[2, 3]);
    bench.sent.clear();
    let (sent_at, term) = (bench.now, Term(1));
    bench.hear(1, lease(sent_at, term));
    let to_one = bench.sent.iter().filter(|(to, _)| *to == Peer::Node(node(1)));
    let messages: Vec<&Message> = to_one.map(|(_, message)| message).collect();
    assert!(matches!(messages[..], [Message::Install(_)]), "{messages:?}");
}

#[test]
fn a_manager_that_may_have_lost_its_session_grants_nothing() {
    let mut bench = Bench::settled();
    bench.now = after(bench.now, bench.manager.settings.session_ns);
    bench.lease(1);
    assert_eq!(bench.sent, []);
    bench.pass(10 * MS, &[1, 2, 3]);
    assert!(bench.manager.leads(bench.now), "a new session, a new claim");
    assert_eq!(bench.term(), Term(1), "from what the config store holds");
}

#[test]
fn a_second_manager_takes_over_and_waits_for_one_lease() {
    let mut bench = Bench::settled();
    let settings = bench.manager.settings;
    bench.manager = Manager::new(1, settings);
    bench.pass(settings.session_ns + 2 * MS, &[1, 2, 3]);
    assert!(bench.manager.leads(bench.now));
    [1, 2, 3].into_iter().for_each(|name| bench.installed(name));
    assert!(!bench.manager.is_committed(), "V1");
    bench.pass(12 * MS, &[1, 2, 3]);
    assert!(bench.manager.is_committed());
    assert_eq!(bench.term(), Term(1));
}

#[test]
fn a_node_that_was_left_out_gets_a_lease_only_for_what_it_has_installed() {
    let mut bench = Bench::settled();
    bench.pass(10 * MS, &[2, 3]);
    [2, 3].into_iter().for_each(|name| bench.installed(name));
    bench.pass(4 * MS, &[1, 2, 3]);
    assert_eq!(bench.term(), Term(3), "a member again");
    bench.sent.clear();
    let (sent_at, term) = (bench.now, Term(1));
    bench.hear(1, lease(sent_at, term));
    let is_granted = |(to, message): &(Peer, Message)| {
        *to == Peer::Node(node(1)) && matches!(message, Message::Granted { .. })
    };
    assert!(!bench.sent.iter().any(is_granted), "V5: it may serve what others were given");
}

#[test]
fn a_node_that_has_a_later_configuration_makes_the_leader_read_again() {
    let mut bench = Bench::settled();
    let (sent_at, term) = (bench.now, Term(2));
    bench.hear(1, lease(sent_at, term));
    assert!(!bench.manager.leads(bench.now));
    bench.pass(2 * MS, &[]);
    assert!(bench.manager.leads(bench.now) && !bench.manager.is_committed());
}

/// A driver that sleeps until the next need gets the same results as one that ticks every
/// millisecond.
#[test]
fn sleeping_until_the_next_need_misses_nothing() {
    let mut bench = Bench::settled();
    let begin = bench.now;
    bench.pass(5 * MS, &[2, 3]);
    let mut ticks = 0;
    while bench.term() == Term(1) && ticks < 100 {
        bench.now = bench.manager.next_need(bench.now);
        bench.input(Event::Tick);
        ticks += 1;
    }
    let silence_ns = bench.manager.settings.silence_ns();
    assert_eq!(bench.manager.configuration().unwrap().members, [node(2), node(3)]);
    assert!(bench.now <= after(begin, silence_ns + MS), "found silent in time");
    assert!(ticks < 8, "asleep in between: {ticks}");
}

#[test]
fn a_manager_that_stands_by_sleeps() {
    let mut bench = Bench::settled();
    bench.manager = Manager::new(1, bench.manager.settings);
    let mut ticks = 0;
    let end = after(bench.now, bench.manager.settings.session_ns / 2);
    while bench.now < end {
        bench.now = bench.manager.next_need(bench.now);
        bench.input(Event::Tick);
        ticks += 1;
    }
    assert!(ticks < 10, "{ticks}");
}

#[test]
fn a_primary_that_has_not_served_for_long_is_let_go() {
    let mut bench = Bench::settled();
    bench.pass(22 * MS, &[3]);
    bench.installed(3);
    bench.pass(2 * MS, &[3]);
    let waiting = |bench: &Bench| bench.manager.configuration().unwrap().shards[0].waiting.len();
    assert!(bench.manager.is_committed() && waiting(&bench) == 2);
    bench.pass(100 * MS, &[3]);
    assert_eq!(waiting(&bench), 2, "it may be serving");
    let term = bench.term();
    bench.hear(3, Message::Withheld { term, shard: ShardId(0) });
    bench.pass(2 * MS, &[3]);
    assert_eq!(waiting(&bench), 0);
}
