//! This server as one node of a cluster: what its workers ask before they execute, and the control
//! thread that drives the node's state machine (`cluster::Node`).
//!
//! ```text
//!  worker ─ slot of the key ─▶ View ─┬─ Here ────────▶ a read, executed by the worker
//!                                    ├─ ThroughControl ▶ control thread ─▶ node ══▶ backups
//!                                    ├─ Elsewhere ───▶ MOVED, or forwarded
//!                                    └─ Nowhere ─────▶ CLUSTERDOWN
//! ```

pub mod shelf;
pub mod told;
pub mod view;

pub use shelf::StoreShelf;
pub use told::Told;
pub use view::{Figures, Place, View};
