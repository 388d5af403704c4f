//! What lies between workers, and between them and the manager, as plain data. `policy` decides
//! which worker executes; `workers` asks it, with the router that `lanes::layers` makes.
//!
//! ```text
//!  lanes           request slots and rings between two workers; layers, roles, loans, steal queues
//!  layer_settings  what threads and settings allow
//!  sizes           size classes and their workers (Minos)
//!  hot             the hot set of each epoch (uTPS)
//!  controller      the trait of slow decisions; published: the last ones, and the decision log
//! ```
//!
//! It knows no worker's connections and no session. A request slot has one holder at a time (I1 of
//! `lanes::request_slot`).

pub mod controller;
pub mod hot;
pub mod lanes;
pub mod layer_settings;
pub mod published;
pub mod sizes;
