//! The state that workers share with each other and with the manager. `policy` decides which worker
//! executes a request; the engine in `workers` asks the router, which `lanes::layers` makes.
//!
//! ```text
//!  lanes           request slots and rings between two workers, with the bells that wake them;
//!                  layers, roles, loans of sockets, steal queues, replies that a connection awaits
//!  layer_settings  checks the settings of layers, and says why a server has one layer
//!  sizes           size classes and their workers (Minos); sizes of stored items
//!  hot             the hot set of each epoch (uTPS); samples of keys; HOTKEYS
//!  controller      the trait of slow decisions
//!  published       the manager's figures for metrics, INFO and the admin pages; the decision log
//! ```
//!
//! It does not use the type `Connection`, nor a session of the store. A request slot has one holder
//! at a time (I1 of `lanes::request_slot`).

pub mod controller;
pub mod hot;
pub mod lanes;
pub mod layer_settings;
pub mod published;
pub mod sizes;
