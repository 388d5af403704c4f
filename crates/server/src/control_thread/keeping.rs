//! A server that keeps the cluster's configuration itself: its member of the quorum, and its
//! manager.
//!
//! ```text
//!  member's file, links ─▶ settings of the cluster: found, or written by the first ─▶ manager
//! ```

use std::time::Duration;

use cluster::Durability;
use cluster_io::quorum::{Host, state_folder};
use cluster_io::{Managing, Place, Wanted, founding};
use config::{ClusterConfig, Config, StartError};

/// How long the config store keeps a manager that is silent. With the lease of 500 ms, clients miss
/// a manager that dies for one to two seconds (decision 0116).
const SESSION: Duration = Duration::from_secs(1);

/// A member and its manager. The manager ends first: it gives up its claim through the member.
#[derive(Debug)]
pub struct Keeping {
    _managing: Managing,
    _host: Host,
}

/// Starts both, and waits until the cluster has settings; none if others keep them.
pub fn start(all: &Config, config: &ClusterConfig) -> Result<Option<Keeping>, StartError> {
    let refused = |reason: String| StartError::Cluster { reason };
    let Some(membership) = &config.membership else {
        if let Place::Quorum(place) = &config.config_store {
            tracing::info!("this server is none of {place}: it keeps no configuration");
        }
        return Ok(None);
    };
    let place = &membership.place;
    let key = place.key(state_folder().as_deref()).map_err(|error| refused(error.to_string()))?;
    let host = Host::start(membership, key.clone()).map_err(|error| refused(error.to_string()))?;
    let durability = match all.data.as_ref().map(|data| data.durability) {
        Some(config::Durability::None) => {
            let line = "--durability none keeps no promise to the other servers: leave it out";
            return Err(refused(line.to_owned()));
        }
        Some(_) => Durability::Fsync,
        None => Durability::Replicated,
    };
    let wanted = Wanted {
        name: Some(place.name.clone()),
        copies: config.copies,
        min_copies: config.min_copies,
        first_durability: Some(durability),
        replication: config.replication,
        first_session: Some(SESSION),
        key: Some(key),
        ..Wanted::default()
    };
    // A signal before the server is ready ends the process.
    let stored = founding::settle(&Place::Quorum(place.clone()), &wanted, &|| false)
        .map_err(|error| refused(error.to_string()))?;
    let managing = Managing::start_in(&host, membership, stored)
        .map_err(|source| StartError::System { what: "start the manager", source })?;
    Ok(Some(Keeping { _managing: managing, _host: host }))
}
