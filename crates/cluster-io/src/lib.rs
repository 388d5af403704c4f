//! The environment of the cluster's state machines: links, config stores, settings, discovery.
//!
//! ```text
//!  server's control thread ── links ── TCP ── links ── manager's thread (cluster::Manager)
//!        │ discover                                        │ config store
//!        ▼                                                 ▼
//!     settings, leader ◀─────── ZooKeeper or files ◀──── configuration, claim, settings
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `links` | control messages over TCP, both ends authenticated by the cluster's key |
//! | `config_store` | addresses: `quorum://HOSTS/NAME`, `zk://HOSTS/PATH`, `file:///DIR` |
//! | `quorum` | the config store in the cluster's own servers |
//! | `settings` | the settings of a whole cluster, as the config store keeps them |
//! | `founding` | the first manager's writing of the settings |
//! | `managing` | a manager's thread |
//! | `admin` | the requests of operators, and the answers |
//! | `discover` | the servers' reading of the config store |
//! | `clock` | the clock of leases |
//! | `key` | the cluster's secret |
//!
//! # Invariants
//! O1: a thread that hands work to this crate waits for no socket and no file.
//! O2: input from a socket or a file is checked, bounded, and never a reason to panic.
#![forbid(unsafe_code)]

pub mod admin;
pub mod clock;
pub mod config_store;
pub mod discover;
pub mod founding;
pub mod key;
pub mod links;
pub mod managing;
pub mod quorum;
pub mod settings;

pub use config_store::{ConfigStore, Place};
pub use discover::{Discovery, Found};
pub use founding::Wanted;
pub use key::Key;
pub use links::{Endpoint, LinkEvent, LinkId, Links};
pub use managing::{Managing, Station};
pub use settings::Stored;
