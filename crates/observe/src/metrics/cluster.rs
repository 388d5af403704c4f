//! Metrics of the cluster: the slots and roles of each node, and the shards that move.

use std::sync::Arc;

use cluster::{Configuration, NodeId, Shard, ShardId};
use replication::cluster::announced::{RoleCounts, node_id};
use replication::cluster::{DigestFigures, Figures, View};
use serde_json::{Value, json};

use super::openmetrics::Page;
use super::roles::{CpuSeconds, cpu_seconds};

/// The cluster at one moment, as this node knows it.
#[derive(Clone, Debug)]
pub struct ClusterNumbers {
    own: NodeId,
    /// None before the node has joined.
    configuration: Option<Arc<Configuration>>,
    figures: Figures,
    cpu_seconds: CpuSeconds,
}

impl ClusterNumbers {
    /// The present state.
    pub(super) fn take(view: &View) -> ClusterNumbers {
        ClusterNumbers {
            own: view.own(),
            configuration: view.configuration(),
            figures: view.figures(),
            cpu_seconds: cpu_seconds(),
        }
    }

    /// The label of a node: its peer address, or its name.
    fn peer(&self, node: NodeId) -> String {
        let known = self.configuration.as_ref().and_then(|it| it.addresses(node));
        match known {
            Some(addresses) if !addresses.peer.is_empty() => addresses.peer.clone(),
            _ => node.to_string(),
        }
    }

    fn member(&self, configuration: &Configuration, node: NodeId) -> Value {
        let counts = RoleCounts::of(configuration, node);
        let addresses = configuration.addresses(node);
        json!({
            "name": node.to_string(),
            "id": node_id(node),
            "is_own": node == self.own,
            "host": addresses.map(|it| &it.host),
            "resp_port": addresses.map(|it| it.resp),
            "tls_resp_port": addresses.map(|it| it.tls_resp),
            "memcached_port": addresses.map(|it| it.memcached),
            "tls_memcached_port": addresses.map(|it| it.tls_memcached),
            "native_port": addresses.map(|it| it.native),
            "admin_port": addresses.map(|it| it.admin),
            "peer": addresses.map(|it| &it.peer),
            "lag_bytes": self.figures.lag_bytes.get(&node),
            "shards": {
                "primary": counts.primary,
                "backup": counts.backup,
                "joining": counts.joining,
                "filling": counts.filling,
            },
        })
    }

    fn shard(&self, id: ShardId, shard: &Shard) -> Value {
        let backups: Vec<String> = shard.backups.iter().map(NodeId::to_string).collect();
        json!({
            "first_slot": shard.first.0,
            "last_slot": shard.last.0,
            "epoch": shard.epoch,
            "primary": shard.primary.to_string(),
            "backups": backups,
            "joining": shard.joining.map(|node| node.to_string()),
            "filling_from": shard.filling_from.map(|node| node.to_string()),
            "progress_ratio": self.figures.progress_ratio.get(&id),
        })
    }

    fn replication(&self) -> Value {
        let it = self.figures.replication;
        json!({
            "scheme": it.scheme.word(),
            "write_streams": it.streams,
            "sent_frames": it.sent_frames,
            "received_frames": it.received_frames,
            "sent_datagrams": it.datagrams.sent,
            "received_datagrams": it.datagrams.received,
            "lost_datagrams": it.datagrams.lost,
            "refused_datagrams": it.datagrams.refused,
            "sent_bytes": it.datagrams.sent_bytes,
            "received_bytes": it.datagrams.received_bytes,
        })
    }

    /// One element for each digest thread.
    fn digest(&self) -> Value {
        let item = |of: &DigestFigures| {
            let DigestFigures { entries, refused, queued, .. } = of;
            json!({ "entries": entries, "refused": refused, "queued": queued })
        };
        self.figures.digest.iter().map(item).collect()
    }

    /// Its field in `/stats`.
    pub(super) fn json(&self) -> Value {
        let configuration = self.configuration.as_deref();
        let members = configuration.iter().flat_map(|it| {
            it.members.iter().map(|node| self.member(it, *node)).collect::<Vec<_>>()
        });
        let shards = configuration.iter().flat_map(|it| {
            it.shards().map(|(id, shard)| self.shard(id, shard)).collect::<Vec<_>>()
        });
        json!({
            "own": self.own.to_string(),
            "id": node_id(self.own),
            "term": configuration.map_or(0, |it| it.term.0),
            "failovers_total": self.figures.failovers,
            "replication": self.replication(),
            "digest": self.digest(),
            "cpu_seconds": self.cpu_seconds,
            "members": members.collect::<Vec<_>>(),
            "shards": shards.collect::<Vec<_>>(),
        })
    }
}

/// Its families of `/metrics`; none for a server that is not a node.
pub(super) fn families(page: &mut Page, cluster: Option<&ClusterNumbers>) {
    let Some(cluster) = cluster else { return };
    let configuration = cluster.configuration.as_deref();
    let counts = configuration.map(|it| RoleCounts::of(it, cluster.own)).unwrap_or_default();
    let help = "Number of the configuration that this node has installed; 0 before it has joined";
    page.gauge("dovetail_term", help, configuration.map_or(0, |it| it.term.0));
    let members = configuration.map_or(0, |it| it.members.len());
    page.gauge("dovetail_members", "Nodes of the cluster that live", members);
    page.family("dovetail_shards", "gauge", "Shards of this node by its role");
    for (role, count) in [
        ("primary", counts.primary),
        ("backup", counts.backup),
        ("joining", counts.joining),
        ("filling", counts.filling),
    ] {
        page.sample("dovetail_shards", &[("role", role)], count);
    }
    page.family(
        "dovetail_migration_progress_ratio",
        "gauge",
        "How much has been copied of a shard that this node gives or is given",
    );
    for (shard, ratio) in &cluster.figures.progress_ratio {
        let shard = shard.0.to_string();
        page.sample("dovetail_migration_progress_ratio", &[("shard", &shard)], ratio);
    }
    page.counter(
        "dovetail_failovers",
        "Times that this node became the primary of a shard whose primary was lost",
        cluster.figures.failovers,
    );
    page.family(
        "dovetail_replication_lag_bytes",
        "gauge",
        "Bytes of writes that a backup has not acknowledged yet",
    );
    for (node, lag_bytes) in &cluster.figures.lag_bytes {
        let peer = cluster.peer(*node);
        page.sample("dovetail_replication_lag_bytes", &[("peer", &peer)], lag_bytes);
    }
    replication(page, cluster);
    digest(page, &cluster.figures.digest);
}

/// The threads that digest landed writes, if the control thread does not; otherwise nothing.
fn digest(page: &mut Page, threads: &[DigestFigures]) {
    if threads.is_empty() {
        return;
    }
    let mut of_each = |family: &str, kind: &str, help: &str, of: fn(&DigestFigures) -> u64| {
        page.family(family, kind, help);
        let name = if kind == "counter" { format!("{family}_total") } else { family.to_owned() };
        for (index, one) in threads.iter().enumerate() {
            page.sample(&name, &[("thread", &index.to_string())], of(one));
        }
    };
    let help =
        "Landed entries that a digest thread installed, or that were older than what is there";
    of_each("dovetail_digest_entries", "counter", help, |one| one.entries);
    let help = "Landed entries that a digest thread had no room for; they are sent again";
    of_each("dovetail_digest_refused", "counter", help, |one| one.refused);
    let help = "Landed entries that wait for their digest thread";
    of_each("dovetail_digest_queue", "gauge", help, |one| one.queued);
}

/// The bytes sent to backups and received as a backup, and the threads whose time they take.
fn replication(page: &mut Page, cluster: &ClusterNumbers) {
    let it = &cluster.figures.replication;
    let name = "dovetail_replication_info";
    page.family("dovetail_replication", "info", "How writes travel to backups");
    page.sample(name, &[("scheme", it.scheme.word())], 1);
    let help = "Logs that other nodes' writes come down in here";
    page.gauge("dovetail_replication_write_streams", help, it.streams);
    let directions = |page: &mut Page, family: &str, help: &str, counts: [u64; 2]| {
        page.family(family, "counter", help);
        for (direction, count) in ["sent", "received"].into_iter().zip(counts) {
            page.sample(&format!("{family}_total"), &[("dir", direction)], count);
        }
    };
    let counts = [it.sent_frames, it.received_frames];
    directions(page, "dovetail_replication_frames", "Frames of entries", counts);
    let counts = [it.datagrams.sent, it.datagrams.received];
    let help = "Datagrams of entries and acknowledgements";
    directions(page, "dovetail_replication_datagrams", help, counts);
    let counts = [it.datagrams.sent_bytes, it.datagrams.received_bytes];
    directions(page, "dovetail_replication_bytes", "Bytes of these datagrams", counts);
    let help = "Datagrams that the socket did not take; what was in them is sent again";
    page.counter("dovetail_replication_lost_datagrams", help, it.datagrams.lost);
    let help = "Datagrams at the peers' port that no node of the cluster sent to this one";
    page.counter("dovetail_replication_refused_datagrams", help, it.datagrams.refused);
    let name = "dovetail_thread_cpu_seconds";
    page.family(name, "counter", "CPU time by what threads are there for");
    for (role, seconds) in &cluster.cpu_seconds {
        page.sample("dovetail_thread_cpu_seconds_total", &[("role", role)], seconds);
    }
}

#[cfg(test)]
mod tests {
    use replication::cluster::ReplicationFigures;
    use replication::cluster::announced::testing::three_nodes;

    use super::*;

    #[test]
    fn a_node_shows_its_roles_its_moves_and_its_lagging_backups() {
        let (configuration, [one, two, _]) = three_nodes();
        let view = View::new(one);
        view.set_configuration(Arc::new(configuration));
        view.count_failover();
        view.set_progress(ShardId(2), Some(0.25));
        view.set_progress(ShardId(1), Some(0.5));
        view.set_progress(ShardId(1), None);
        view.set_lag(two, Some(4096));
        let digest = DigestFigures { entries: 70, refused: 3, queued: 2 };
        view.set_replication(ReplicationFigures::default(), vec![digest; 2]);
        let numbers = ClusterNumbers::take(&view);
        let mut page = Page::default();
        families(&mut page, Some(&numbers));
        for line in [
            "dovetail_term 7",
            "dovetail_members 3",
            "dovetail_shards{role=\"primary\"} 2",
            "dovetail_shards{role=\"backup\"} 1",
            "dovetail_shards{role=\"joining\"} 0",
            "dovetail_migration_progress_ratio{shard=\"2\"} 0.25",
            "dovetail_failovers_total 1",
            "dovetail_replication_info{scheme=\"rowan\"} 1",
            "dovetail_replication_write_streams 0",
            "dovetail_replication_frames_total{dir=\"sent\"} 0",
            "dovetail_replication_lag_bytes{peer=\"10.0.0.2:7400\"} 4096",
            "dovetail_digest_entries_total{thread=\"1\"} 70",
            "dovetail_digest_refused_total{thread=\"0\"} 3",
            "dovetail_digest_queue{thread=\"0\"} 2",
        ] {
            assert!(page.text().lines().any(|found| found == line), "{line}\n{}", page.text());
        }
        assert!(!page.text().contains("shard=\"1\""), "it has ended");
        let json = numbers.json();
        assert_eq!(json["members"][1]["lag_bytes"], 4096);
        assert_eq!(json["shards"][2]["progress_ratio"], 0.25);
        assert_eq!(json["digest"][1]["queued"], 2);
        assert_eq!(json["shards"][2]["backups"][0], "n1.1");
        assert_eq!(ClusterNumbers::take(&View::new(one)).json()["term"], 0, "before it has joined");
    }
}
