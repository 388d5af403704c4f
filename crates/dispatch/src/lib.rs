//! The state that workers share with each other and with the manager. `policy` decides which worker
//! executes a request: a dispatcher (in `workers`) asks the router, which `lanes::layers` makes. At
//! a cluster's node it asks the view of `replication` instead.
//!
//! ```text
//!  lanes           request slots and rings between two workers, with the bells (flags) that wake
//!                  a sleeping one; layers, roles, steal queues, replies that a connection awaits;
//!                  loans: sockets lent to the worker that writes a large reply
//!  layer_settings  checks the settings of layers, and says why a server has one layer
//!  sizes           size classes and their workers (Minos); sizes of stored items
//!  hot             the hot set of each epoch (uTPS); samples of keys; HOTKEYS
//!  controller      the trait of slow decisions
//!  published       the manager's figures for metrics, INFO and the admin pages; the decision log
//! ```
//!
//! It starts no thread, and uses neither the type `Connection` nor a `store::Session`. Of a
//! connection it has the slot, the replies that it awaits and, on loan, its socket and output. A
//! request slot has one holder at a time: dispatcher or executor (I1 of `lanes::request_slot`), or
//! a worker that has stolen or taken it, or the control thread.

pub mod controller;
pub mod hot;
pub mod lanes;
pub mod layer_settings;
pub mod published;
pub mod sizes;
