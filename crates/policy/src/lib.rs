//! Pure decisions: which worker, which window, which size class. No clock, thread or global.
//!
//! ```text
//!  RouteRequest, Depths ──▶ Router::route ──▶ worker, or wait
//! ```
//!
//! A policy is chosen once, at start-up, and the worker's loop is generic over it, so that it
//! costs a request nothing but its own arithmetic. The server and the simulator run this code.

#![forbid(unsafe_code)]

pub mod depths;
pub mod hot_set;
pub mod route;
pub mod routers;
pub mod size_class;
pub mod taxonomy;
pub mod tuner;
pub mod window;
pub mod write_table;

pub use depths::Depths;
pub use route::{Access, Busy, Route, RouteRequest, Router};
pub use routers::AnyWorker;
pub use write_table::{Pin, Unpin, WriteTable};
