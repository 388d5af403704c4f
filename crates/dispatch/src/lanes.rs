//! Lanes: the state between workers, by which one sends a request to another and gets the reply.
//! `forwarding` acts on it; nothing here knows a worker's connections or its session.
//!
//! ```text
//!  dispatcher ── slot 7 ──▶ lane (a ring and its tail) ──▶ executor
//!  connection: awaiting [7][9]      fabric: bells, steal queues, help
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `layers` | which thread may have which half, and the routers, from the settings |
//! | `roles` | which thread has which half now, and how that changes |
//! | `lane` | the requests that one dispatcher sends to one executor |
//! | `fabric` | the state between workers: bells, and ring ends in transit |
//! | `request_slot` | one request and its answer, in memory that both sides reach |
//! | `awaiting` | the replies that one connection waits for |
//! | `help` | the requests that idle large workers may take |
//! | `steal_queues` | the requests that any worker may take, under `--dispatch steal` |
//! | `loan` | large replies on their way to the worker that serves their size, and back |

pub mod awaiting;
pub mod fabric;
pub mod help;
pub mod lane;
pub mod layers;
pub mod loan;
pub mod request_slot;
pub mod roles;
pub mod steal_queues;

pub use awaiting::{Awaiting, DEPTH_AT_FIRST};
pub use fabric::Fabric;
pub use lane::Lane;
pub use layers::Layers;
pub use loan::{Loan, LoanEnd, Returned, TOKEN_LOAN};
pub use roles::{Dispatchers, PublishedRoles, Roles, RolesError, Threads, Turn, Wanted};
