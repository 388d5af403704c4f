//! What the cluster's state machines need of the world: links, config stores, settings, discovery.
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
//! | `links` | control messages over TCP, both ends proven by the cluster's key |
//! | `config_store` | the config store's places: `zk://HOSTS/PATH`, `file:///DIR` |
//! | `settings` | what holds for a whole cluster, as the config store keeps it |
//! | `founding` | the first manager's writing of the settings |
//! | `managing` | a manager's thread |
//! | `admin` | what operators ask, and are answered |
//! | `discover` | what servers read from the config store |
//! | `clock` | what leases are counted on |
//! | `key` | the cluster's secret |
//!
//! # Invariants
//! O1: a thread that hands something in here waits for no socket and no file.
//! O2: what comes from a socket or a file is checked, bounded, and never a reason to panic.
#![forbid(unsafe_code)]

pub mod admin;
pub mod clock;
pub mod config_store;
pub mod discover;
pub mod founding;
pub mod key;
pub mod links;
pub mod managing;
pub mod settings;

pub use config_store::{ConfigStore, Place};
pub use discover::{Discovery, Found};
pub use founding::Wanted;
pub use key::Key;
pub use links::{Endpoint, LinkEvent, LinkId, Links};
pub use managing::{Managing, Station};
pub use settings::Stored;
