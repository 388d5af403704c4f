//! Pure decisions: which worker, which window, which size class. No clock, thread or global.
//!
//! ```text
//!  RouteRequest, Depths ──▶ Router::route ──▶ worker, or wait
//! ```
//!
//! A dispatcher holds its router as a trait object, and gets another when threads change roles. A
//! server that does not route has none. The server and the simulator run this code.
//!
//! | module | decides | run by |
//! |---|---|---|
//! | `route`, `routers`, `depths` | which worker serves a request | simulator, server |
//! | `write_table` | the writer of a partition while writes are outstanding | simulator, server |
//! | `size_class` | which sizes are large, and whose they are | simulator, server |
//! | `window::rules` | when dependent writes are gathered, and how long | simulator |
//! | `window::plan`, `execute` | what a closed window does, and its replies | server |
//! | `window::windows`, `ahead` | windows that stay open from batch to batch | tests |
//! | `spin` | whether a thread without work polls before it sleeps | server |
//! | `hot_set` | which keys are hot in this epoch, and which weigh the most | server |
//! | `tuner` | threads, cached items and cache ways | server |
//! | `taxonomy` | which policy suits what is observed | server |
//! | `rebalance` | which shards move to which server | the cluster's manager (`cluster-io`) |

#![forbid(unsafe_code)]

pub mod depths;
pub mod hot_set;
pub mod rebalance;
pub mod route;
pub mod routers;
pub mod size_class;
pub mod spin;
pub mod taxonomy;
pub mod tuner;
pub mod window;
pub mod write_table;

pub use depths::Depths;
pub use route::{Access, Busy, PinCounts, Route, RouteRequest, Router};
pub use routers::{AnyWorker, Dispatch, Helping, LargeHelp, Policies, WritePolicy};
pub use write_table::{Pin, Unpin, WriteTable};
