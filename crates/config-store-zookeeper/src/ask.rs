//! Translates one request of the config store into requests of ZooKeeper.
//!
//! | config store | ZooKeeper |
//! |---|---|
//! | beat | `sync`: goes through the leader, so a server cut off from the leader does not answer |
//! | read | `sync`, `getData` |
//! | write, nothing there yet | `create` |
//! | write | `setData` with the version |
//! | claim | `create`, ephemeral; if one exists already, whose it is |
//! | watch | `exists` with a watch |

use std::sync::Arc;

use cluster::config_store::{Answer, Ask, Path, Stamp};
use zookeeper_client::{Acls, Client, CreateMode, Error, EventType, Stat};

use crate::Place;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answer(Answer),
    /// No answer, and why (R3).
    Trouble(String),
}

/// Sends a request, and waits for the answer.
pub(crate) async fn answer(client: &Client, place: &Place, ask: Ask) -> Outcome {
    let found = match ask {
        Ask::Open { .. } => Ok(Answer::Alive),
        Ask::Beat => client.sync(&place.root).await.map(|()| Answer::Alive),
        Ask::Read(path) => read(client, &node(place, path)).await,
        Ask::Write { path, expected, value } => {
            write(client, place, &node(place, path), expected, &value).await
        }
        Ask::Claim { path, value } => claim(client, place, &node(place, path), &value).await,
        Ask::Watch(path) => watch(client, &node(place, path), path).await,
    };
    match found {
        Ok(answer) => Outcome::Answer(answer),
        Err(Error::SessionExpired | Error::ClientClosed) => Outcome::Answer(Answer::Expired),
        Err(error) => Outcome::Trouble(format!("zookeeper {}: {error}", place.hosts)),
    }
}

fn node(place: &Place, path: Path) -> String {
    let name = match path {
        Path::Configuration => "configuration",
        Path::Leader => "leader",
        Path::Settings => "settings",
    };
    format!("{}/{name}", place.root)
}

/// The stamp of a node. Stamp 0 is for a value never written, and ZooKeeper's versions begin at 0,
/// so the stamp is the version plus one.
fn stamp(stat: &Stat) -> Stamp {
    Stamp(u64::from(stat.version.cast_unsigned()) + 1)
}

async fn read(client: &Client, node: &str) -> Result<Answer, Error> {
    client.sync(node).await?;
    match client.get_data(node).await {
        Ok((bytes, stat)) => Ok(Answer::Value(stamp(&stat), Some(Arc::from(bytes)))),
        Err(Error::NoNode) => Ok(Answer::Value(Stamp(0), None)),
        Err(error) => Err(error),
    }
}

async fn write(
    client: &Client,
    place: &Place,
    node: &str,
    expected: Stamp,
    value: &[u8],
) -> Result<Answer, Error> {
    let written = match expected.0.checked_sub(1) {
        None => {
            let options = CreateMode::Persistent.with_acls(acls(place));
            client.create(node, value, &options).await.map(|(stat, _)| stat)
        }
        Some(version) => {
            let version = u32::try_from(version).unwrap_or(u32::MAX).cast_signed();
            client.set_data(node, value, Some(version)).await
        }
    };
    match written {
        Ok(stat) => Ok(Answer::Written(stamp(&stat))),
        Err(Error::NodeExists | Error::BadVersion | Error::NoNode) => {
            let now = client.check_stat(node).await?;
            Ok(Answer::Conflict(now.as_ref().map_or(Stamp(0), stamp)))
        }
        Err(error) => Err(error),
    }
}

async fn claim(client: &Client, place: &Place, node: &str, value: &[u8]) -> Result<Answer, Error> {
    let options = CreateMode::Ephemeral.with_acls(acls(place));
    match client.create(node, value, &options).await {
        Ok(_) => Ok(Answer::Claimed),
        Err(Error::NodeExists) => {
            client.sync(node).await?;
            let own = client.session_id().0;
            let stat = client.check_stat(node).await?;
            let is_ours = stat.is_some_and(|stat| stat.ephemeral_owner == own);
            Ok(if is_ours { Answer::Claimed } else { Answer::Held })
        }
        Err(error) => Err(error),
    }
}

/// Waits for the node to change, appear or disappear. A change before the watch was set is not
/// reported: the caller reads the value after setting the watch.
async fn watch(client: &Client, node: &str, path: Path) -> Result<Answer, Error> {
    let (_, watcher) = client.check_and_watch_stat(node).await?;
    let event = watcher.changed().await;
    match event.event_type {
        EventType::Session => Ok(Answer::Expired),
        _ => Ok(Answer::Changed(path)),
    }
}

/// The access control lists of the nodes.
pub(crate) fn acls(place: &Place) -> Acls<'static> {
    if place.digest.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
}
