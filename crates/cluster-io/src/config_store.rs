//! Opens a config store by its address: `quorum://HOSTS/NAME`, `zk://HOSTS/PATH` or `file:///DIR`,
//! with one interface for all.

mod file;

use std::fmt;
use std::path::PathBuf;

use cluster::config_store::Request;
use config_store_zookeeper::ZooKeeperConfigStore;
use thiserror::Error;

pub use config_store_zookeeper::Event;
pub use file::FileConfigStore;

use crate::quorum::{self, QuorumConfigStore, QuorumPlace};

/// The address of a config store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In an ensemble of ZooKeeper.
    ZooKeeper(config_store_zookeeper::Place),
    /// In a directory, for all processes of one machine.
    File(PathBuf),
    /// In the cluster's own servers.
    Quorum(QuorumPlace),
}

/// The reason why a text is not the address of a config store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// No scheme, or an unknown one.
    #[error(
        "`{text}` is no config store: write quorum://HOST,HOST,HOST/NAME, \
         zk://HOST:PORT,HOST:PORT/PATH or file:///DIR"
    )]
    Scheme {
        /// The given text.
        text: String,
    },
    /// A relative directory, which depends on where a process was started.
    #[error("`{text}` is no absolute folder: write three slashes, as file:///var/lib/dovetail")]
    Folder {
        /// The given text.
        text: String,
    },
    /// An error in a ZooKeeper address.
    #[error(transparent)]
    ZooKeeper(#[from] config_store_zookeeper::PlaceError),
    /// An error in the list of a cluster's servers.
    #[error(transparent)]
    Quorum(#[from] quorum::PlaceError),
}

impl std::str::FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        if text.starts_with("zk://") {
            return Ok(Place::ZooKeeper(text.parse()?));
        }
        if let Some(rest) = text.strip_prefix("quorum://") {
            return Ok(Place::Quorum(QuorumPlace::parse(rest)?));
        }
        let scheme = || PlaceError::Scheme { text: text.to_owned() };
        let folder = text.strip_prefix("file://").ok_or_else(scheme)?;
        if !folder.starts_with('/') || folder.contains('\0') {
            return Err(PlaceError::Folder { text: text.to_owned() });
        }
        Ok(Place::File(PathBuf::from(folder)))
    }
}

impl fmt::Display for Place {
    /// Formats the address as it was given, without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::ZooKeeper(place) => write!(formatter, "zk://{}{}", place.hosts, place.root),
            Place::File(folder) => write!(formatter, "file://{}", folder.display()),
            Place::Quorum(place) => place.fmt(formatter),
        }
    }
}

impl Place {
    /// Whether every host that reaches the config store can read the cluster's key (K25).
    pub fn is_open(&self) -> bool {
        matches!(self, Place::ZooKeeper(place) if place.digest.is_none())
    }
}

/// A config store: requests go in, events come out. Dropping it ends its sessions and their claims.
#[derive(Debug)]
pub enum ConfigStore {
    /// One in ZooKeeper.
    ZooKeeper(ZooKeeperConfigStore),
    /// One in a directory.
    File(FileConfigStore),
    /// One in the cluster's own servers.
    Quorum(QuorumConfigStore),
}

impl ConfigStore {
    /// Starts its thread, which calls `announced` with each event. Nothing is opened before a
    /// session is.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start(
        place: &Place,
        told: impl Fn(Event) + Send + 'static,
    ) -> std::io::Result<ConfigStore> {
        match place {
            Place::ZooKeeper(place) => {
                ZooKeeperConfigStore::start_with(place.clone(), told).map(ConfigStore::ZooKeeper)
            }
            Place::File(folder) => FileConfigStore::start(folder, told).map(ConfigStore::File),
            Place::Quorum(place) => QuorumConfigStore::start(place, told).map(ConfigStore::Quorum),
        }
    }

    /// Like `start`, for a caller that only reads: nothing missing is created.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn look(
        place: &Place,
        told: impl Fn(Event) + Send + 'static,
    ) -> std::io::Result<ConfigStore> {
        match place {
            Place::ZooKeeper(_) | Place::Quorum(_) => ConfigStore::start(place, told),
            Place::File(folder) => FileConfigStore::look(folder, told).map(ConfigStore::File),
        }
    }

    /// Sends a request; the answer is an event, if it comes.
    pub fn ask(&self, request: Request) {
        match self {
            ConfigStore::ZooKeeper(config_store) => config_store.ask(request),
            ConfigStore::File(config_store) => config_store.ask(request),
            ConfigStore::Quorum(config_store) => config_store.ask(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_zookeeper_or_of_a_folder() {
        #[track_caller]
        fn check(text: &str, want: Result<&str, &str>) {
            let found = text.parse::<Place>().map(|place| place.to_string());
            assert_eq!(
                found.map_err(|error| error.to_string()),
                want.map(str::to_owned).map_err(str::to_owned)
            );
        }
        check("zk://a:1,b:2/x", Ok("zk://a:1,b:2/x"));
        check("zk://me:secret@a:1/x", Ok("zk://a:1/x"));
        check("file:///tmp/x", Ok("file:///tmp/x"));
        check("quorum://c,a,b:1/x", Ok("quorum://a:7600,b:1,c:7600/x"));
        let folder = "`file://tmp/x` is no absolute folder: write three slashes, \
                      as file:///var/lib/dovetail";
        check("file://tmp/x", Err(folder));
        let scheme = "`a:1` is no config store: write quorum://HOST,HOST,HOST/NAME, \
                      zk://HOST:PORT,HOST:PORT/PATH or file:///DIR";
        check("a:1", Err(scheme));
    }
}
