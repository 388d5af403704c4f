//! Forwardings: requests that are executed by another worker than the one that received them.
//!
//! ```text
//!   thread 0                                                   thread 1
//!  ┌────────────────────────────────────────┐                 ┌──────────────────────────────┐
//!  │ dispatcher  parse ─▶ router ─▶ slot    │══ ring 0 ▶ 1 ══▶│ executor   batch ─▶ session  │
//!  │             output ◀─ in order ◀─ slot │◀═ its tail ═════│            answer ─▶ slot    │
//!  │ executor    ...                        │◀═ ring 1 ▶ 0 ═══│ dispatcher ...               │
//!  └────────────────────────────────────────┘                 └──────────────────────────────┘
//! ```
//!
//! Every worker has both halves, but for two-layer settings (`--cr-threads`), where some threads
//! have only a dispatcher and the others only an executor. Where every request stays with the
//! worker that received it, none of this exists. The whole is described in `docs/design/layers.md`.
//!
//! | module | owns |
//! |---|---|
//! | `layers` | which thread may have which half, and the routers, from the settings |
//! | `roles` | which thread has which half now, and how that changes |
//! | `lane` | what one dispatcher sends to one executor |
//! | `fabric` | what lies between workers: bells, and ends of rings on their way |
//! | `request_slot` | one request and its answer, in memory that both sides reach |
//! | `awaiting` | what one connection waits for |
//! | `dispatcher` | routes, sends, takes back, keeps each connection's order; `direct`: runs here |
//! | `ahead` | finds what waits for the batch's windows in the queues |
//! | `help` | what idle large workers may take |
//! | `steal_queues` | what any worker may take, where requests are stolen |
//! | `executor` | takes batches from all dispatchers and executes them |
//! | `replicate` | what goes through the control thread, in a cluster |
//! | `loan` | large replies, sent by the worker that serves their size |
//! | `routed` | both halves as a worker's engine |

mod ahead;
mod awaiting;
mod dispatcher;
mod executor;
mod fabric;
mod help;
mod lane;
mod layers;
mod loan;
pub mod replicate;
mod request_slot;
mod roles;
mod routed;
mod steal_queues;

pub use awaiting::{Awaiting, DEPTH_AT_FIRST};
pub use fabric::Fabric;
pub use lane::Lane;
pub use layers::{ForwardingMemory, Layers};
pub use loan::{Loan, LoanEnd, Returned, TOKEN_LOAN};
pub use request_slot::KEPT_BYTES_MAX;
pub use roles::{Dispatchers, PublishedRoles, Roles, RolesError, Threads, Turn, Wanted};
pub use routed::Routed;
