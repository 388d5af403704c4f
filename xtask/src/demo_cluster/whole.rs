//! Checks whether the cluster is whole: every server and the leading manager must say so, since
//! servers may not have learned yet that one of them is left out.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::crew::Crew;
use super::resp::page;

/// The time limit on a busy machine, with a session of ZooKeeper to wait for.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(60);

/// A server's own status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    term: u64,
    members: u64,
    /// Shards that it serves.
    pub primary: u64,
    backup: u64,
    joining: u64,
}

/// Asks one server.
pub fn ask(crew: &Crew, index: usize) -> Result<Told> {
    let text = page(&crew.admin_address(index), "/metrics")?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
    };
    let shards = |role: &str| number(&format!("dovetail_shards{{role=\"{role}\"}}"));
    Ok(Told {
        term: number("dovetail_term"),
        members: number("dovetail_members"),
        primary: shards("primary"),
        backup: shards("backup"),
        joining: shards("joining"),
    })
}

/// Whether a manager leads and has announced no newer term than this one, under which no copy is
/// missing.
fn leader_says_so(crew: &Crew, term: u64, copies: u64) -> bool {
    let Some(status) = crew.status() else { return false };
    let status = &status["status"];
    let has_all = |shard: &serde_json::Value| {
        shard["full_copies"].as_u64() == Some(copies) && shard["joining"].is_null()
    };
    status["term"].as_u64() == Some(term)
        && status["is_committed"].as_bool() == Some(true)
        && status["shards"].as_array().is_some_and(|shards| shards.iter().all(has_all))
}

/// Waits until the cluster is whole; on failure returns the servers' last status.
pub fn wait(crew: &mut Crew) -> Result<Duration> {
    let (began, servers) = (Instant::now(), crew.plan().servers as u64);
    let copies = servers.min(3);
    loop {
        let told: Vec<Result<Told>> = (0..servers as usize).map(|index| ask(crew, index)).collect();
        let said: Vec<Told> = told.iter().filter_map(|told| told.as_ref().ok().copied()).collect();
        let sum = |of: fn(&Told) -> u64| said.iter().map(of).sum::<u64>();
        let shards = u64::from(crew.plan().shards);
        let is_whole = said.len() as u64 == servers
            && said.iter().all(|one| one.members == servers && one.term == said[0].term)
            && sum(|one| one.primary) == shards
            && sum(|one| one.backup) == shards * (copies - 1)
            && sum(|one| one.joining) == 0
            && leader_says_so(crew, said[0].term, copies);
        if is_whole {
            return Ok(began.elapsed());
        }
        let fallen = crew.fallen();
        if !fallen.is_empty() {
            bail!("these have ended by themselves: {fallen:?}");
        }
        if began.elapsed() > WHOLE_TIME_MAX {
            bail!("not whole after {WHOLE_TIME_MAX:?}: {told:?}");
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}
