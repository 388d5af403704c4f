//! Tests of managers in one process, over a directory and real links, with fake nodes that only
//! send nodes' messages.

use std::sync::Arc;

use cluster::message::Recovered;
use cluster::{Addresses, Configuration, NodeId, Term};

use std::time::Instant as Clock;

use super::*;
use crate::admin::{self, Question, Report};
use crate::founding::{Wanted, settle};

const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    folder: tempfile::TempDir,
    stored: Stored,
}

impl Cluster {
    fn new(wanted: Wanted) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::File(folder.path().to_owned());
        let stored = settle(&place, &wanted, &|| false).unwrap();
        Cluster { folder, stored }
    }

    fn place(&self) -> Place {
        Place::File(self.folder.path().to_owned())
    }

    fn manager(&self) -> Managing {
        let listen = "127.0.0.1:0".parse().unwrap();
        let station = Station { place: self.place(), listen, advertise: None };
        Managing::start(&station, self.stored.clone()).unwrap()
    }

    fn ask(&self, question: &Question) -> Reply {
        admin::ask(&self.place(), question, PATIENCE).unwrap()
    }

    fn status(&self) -> Report {
        let reply = self.ask(&Question::Status);
        let Reply::Status(report) = reply else { panic!("{reply:?}") };
        report
    }

    fn until(&self, what: &str, is_so: impl Fn(&Report) -> bool) {
        let started = Clock::now();
        loop {
            if let Reply::Status(report) = self.ask(&Question::Status)
                && is_so(&report)
            {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "not yet: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Asks for leases, installs the configurations that it is sent, and reports that it has joined its
/// shards.
struct FakeNode {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeNode {
    fn new(name: u16, cluster: &Cluster, manager: &Managing) -> FakeNode {
        let node = NodeId { name, incarnation: 1 };
        let (told, heard) = unbounded();
        let links =
            Links::start(Peer::Node(node), None, cluster.stored.key.clone(), told, || {}).unwrap();
        let at = Endpoint::address(manager.advertise());
        let (stop, stopped) = bounded::<()>(0);
        let run = move || {
            let mut term = Term(0);
            let mut installed: Option<Arc<Configuration>> = None;
            loop {
                let addresses =
                    Arc::new(Addresses { peer: format!("h{name}:1"), ..Addresses::default() });
                let sent_at = Instant { ns: 1 };
                let recovered = Recovered::Nothing;
                let lease = Message::Lease { sent_at, term, recovered, addresses };
                links.send(&at, Peer::Manager(0), lease);
                for (id, shard) in installed.iter().flat_map(|all| all.shards()) {
                    if let (true, Some(joining)) = (shard.primary == node, shard.joining) {
                        let joined = Message::Joined { term, shard: id, node: joining };
                        links.send(&at, Peer::Manager(0), joined);
                    }
                }
                select! {
                    recv(stopped) -> _ => return,
                    recv(heard) -> event => {
                        let Ok(LinkEvent::Message { message, .. }) = event else { continue };
                        if let Message::Install(all) = message {
                            term = all.term;
                            installed = Some(all);
                            links.send(&at, Peer::Manager(0), Message::Installed { term });
                        }
                    }
                    default(Duration::from_millis(20)) => {}
                }
            }
        };
        FakeNode { stop: Some(stop), thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn wanted() -> Wanted {
    Wanted {
        copies: Some(2),
        min_copies: Some(1),
        shards: Some(4),
        // The machine that runs the tests may be busy.
        lease: Some(Duration::from_secs(4)),
        ..Wanted::default()
    }
}

#[test]
fn nodes_become_a_cluster_and_operators_see_it() {
    let cluster = Cluster::new(wanted());
    let manager = cluster.manager();
    let reply = cluster.ask(&Question::Status);
    let want = "the cluster waits for its first 2 nodes: 0 are here";
    assert!(matches!(&reply, Reply::Refused(line) if line.starts_with(want)), "{reply:?}");
    let _nodes = [1, 2].map(|name| FakeNode::new(name, &cluster, &manager));
    cluster.until("all serve", |report| report.is_committed);
    let report = cluster.status();
    assert_eq!(report.shards.len(), 4);
    assert!(report.shards.iter().all(|shard| shard.full_copies == 2), "{report:?}");
    let peers: Vec<&str> = report.nodes.iter().map(|node| node.peer.as_str()).collect();
    assert_eq!(peers, ["h1:1", "h2:1"]);
}

#[test]
fn a_node_that_is_drained_may_stop() {
    let cluster = Cluster::new(wanted());
    let manager = cluster.manager();
    // The first two have all shards: with three, it would be open which of them came first.
    let _first = [1, 2].map(|name| FakeNode::new(name, &cluster, &manager));
    cluster.until("two serve", |report| report.is_committed && report.nodes.len() == 2);
    let _third = FakeNode::new(3, &cluster, &manager);
    cluster.until("all serve", |report| report.is_committed && report.nodes.len() == 3);
    let question = Question::Drain { node: "n1".to_owned(), leaves: true };
    let reply = cluster.ask(&question);
    assert!(matches!(&reply, Reply::Done(line) if line.contains("n1.1 leaves")), "{reply:?}");
    cluster.until("n1 may stop", |report| report.nodes[0].leaves && report.nodes[0].may_stop);
    let report = cluster.status();
    assert!(report.shards.iter().all(|shard| shard.full_copies == 2), "{report:?}");
    let done = cluster.ask(&question);
    assert!(matches!(&done, Reply::Done(line) if line.ends_with("may stop")), "{done:?}");
    let stays = Question::Move { shard: 0, node: "n1".to_owned() };
    assert!(matches!(cluster.ask(&stays), Reply::Refused(_)));
}

#[test]
fn a_shard_moves_where_an_operator_wants_it() {
    let cluster = Cluster::new(wanted());
    let manager = cluster.manager();
    let _nodes = [1, 2].map(|name| FakeNode::new(name, &cluster, &manager));
    cluster.until("all serve", |report| report.is_committed);
    let question = Question::Move { shard: 0, node: "h2:1".to_owned() };
    assert!(matches!(cluster.ask(&question), Reply::Done(_)));
    cluster.until("n2 serves it", |report| report.shards[0].primary == "n2.1");
    for (shard, node) in [(9, "n1"), (0, "n9")] {
        let question = Question::Move { shard, node: node.to_owned() };
        assert!(matches!(cluster.ask(&question), Reply::Refused(_)), "{shard} {node}");
    }
}

#[test]
fn the_next_manager_leads_when_the_first_is_gone() {
    let cluster = Cluster::new(wanted());
    let first = cluster.manager();
    let _nodes = [1, 2].map(|name| FakeNode::new(name, &cluster, &first));
    cluster.until("all serve", |report| report.is_committed);
    let term = cluster.status().term;
    let second = cluster.manager();
    drop(first);
    let _nodes = [1, 2].map(|name| FakeNode::new(name, &cluster, &second));
    cluster.until("all serve again", |report| report.is_committed);
    assert!(cluster.status().term >= term, "from what the config store holds");
}
