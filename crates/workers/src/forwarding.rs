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
//! | `dispatcher` | routes, sends, takes back, keeps each connection's order; `direct`: runs here |
//! | `ahead` | finds queued requests that join the windows of the current batch |
//! | `executor` | takes batches from all dispatchers and executes them |
//! | `loans` | large replies, sent by the worker that serves their size |
//! | `routed` | both halves as a worker's engine |

mod ahead;
mod dispatcher;
mod executor;
mod loans;
mod routed;

pub use routed::Routed;
