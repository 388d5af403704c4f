//! A manager's log messages: which manager leads, which nodes came and went, and which
//! configuration is in force.

use std::collections::BTreeSet;

use base::Instant;
use cluster::config_store::Answer;
use cluster::{Configuration, Manager, NodeId, Settings};
use tracing::{error, info, warn};

/// The state last logged.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    leads: Option<bool>,
    term: u64,
    is_committed: bool,
    members: BTreeSet<NodeId>,
    waiting: Option<usize>,
    trouble: Option<String>,
}

impl Chronicle {
    /// Logs the changes since the last call.
    pub(super) fn look(&mut self, manager: &Manager, settings: &Settings, now: Instant) {
        let leads = manager.leads(now);
        if self.leads != Some(leads) {
            let was = self.leads.replace(leads);
            match (leads, was) {
                (true, _) => info!("leading"),
                (false, Some(true)) => {
                    warn!("not leading any more: the config store did not answer in time");
                }
                (false, _) => info!("standing by"),
            }
            *self = Chronicle { leads: self.leads, ..Chronicle::default() };
        }
        if !leads {
            return;
        }
        let Some(configuration) = manager.configuration() else {
            let live = manager.live(now).len();
            if self.waiting != Some(live) {
                self.waiting = Some(live);
                info!(nodes = live, first_nodes = settings.first_nodes, "waiting for nodes");
            }
            return;
        };
        if self.term != configuration.term.0 {
            self.tell(configuration, settings);
        }
        let is_committed = manager.is_committed();
        if is_committed && !self.is_committed {
            info!(term = self.term, "all members have installed it and serve");
        }
        self.is_committed = is_committed;
    }

    fn tell(&mut self, configuration: &Configuration, settings: &Settings) {
        self.term = configuration.term.0;
        self.is_committed = false;
        let members: BTreeSet<NodeId> = configuration.members.iter().copied().collect();
        for node in members.difference(&self.members) {
            let at = configuration.addresses(*node).map(|all| all.peer.as_str());
            info!(%node, at = at.unwrap_or_default(), "a member");
        }
        for node in self.members.difference(&members) {
            warn!(%node, "no member any more: it was silent");
        }
        self.members = members;
        let lacking = |shard: &&cluster::Shard| {
            shard.full_copies().filter(|node| configuration.has(*node)).count()
                < usize::from(settings.copies)
        };
        info!(
            term = self.term,
            members = configuration.members.len(),
            shards = configuration.shards.len(),
            under_copied = configuration.shards.iter().filter(lacking).count(),
            joining = configuration.shards.iter().filter(|one| one.joining.is_some()).count(),
            filling = configuration.shards.iter().filter(|one| one.filling_from.is_some()).count(),
            "configuration",
        );
    }

    /// Reports a configuration that cannot be read. It stops the cluster: no manager leads until it
    /// can be.
    pub(super) fn hear_answer(&mut self, answer: &Answer) {
        self.trouble = None;
        if let Answer::Value(_, Some(bytes)) = answer
            && let Err(why) = Configuration::decode(bytes)
        {
            let line = why.to_string();
            error!("the config store's configuration is not touched, and no manager leads: {line}");
        }
    }

    /// Logs an error once, for as long as it stays the same.
    pub(super) fn trouble(&mut self, line: String) {
        if self.trouble.as_ref() != Some(&line) {
            warn!("{line}");
            self.trouble = Some(line);
        }
    }
}
