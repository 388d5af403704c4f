//! Forwarding: sends a request to another worker for execution and brings the reply back.
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
//! Every worker has both halves, except under two-layer settings (`--cr-threads`) and hand-off
//! (`--dispatch hand-off:N`), where some threads have only a dispatcher and the others only an
//! executor. If every request stays with the worker that received it, none of this exists.
//! `docs/design/layers.md` describes the whole.
//!
//! | module | owns |
//! |---|---|
//! | `layers` | which thread may have which half, and the routers, from the settings |
//! | `roles` | which thread has which half now, and how that changes |
//! | `lane` | the requests that one dispatcher sends to one executor |
//! | `fabric` | the state between workers: bells, and ring ends in transit |
//! | `request_slot` | one request and its answer, in memory that both sides reach |
//! | `awaiting` | the replies that one connection waits for |
//! | `dispatcher` | routes, sends, takes back, keeps each connection's order; `direct`: runs here |
//! | `ahead` | finds queued requests that join the windows of the current batch |
//! | `help` | the requests that idle large workers may take |
//! | `steal_queues` | the requests that any worker may take, under `--dispatch steal` |
//! | `executor` | takes batches from all dispatchers and executes them |
//! | `replicate` | the requests that go through the control thread, in a cluster |
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
pub use layers::Layers;
pub use loan::{Loan, LoanEnd, Returned, TOKEN_LOAN};
pub use roles::{Dispatchers, PublishedRoles, Roles, RolesError, Threads, Turn, Wanted};
pub use routed::Routed;
