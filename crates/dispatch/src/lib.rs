//! Requests between workers, as plain data: which worker executes a request is decided above.
//!
//! ```text
//!  lanes           request slots and rings between two workers; layers, roles, loans, steal queues
//!  sizes           size classes and their workers (Minos)
//!  hot             the hot set of each epoch (uTPS)
//!  controller      the trait of slow decisions; published: the last ones
//! ```

pub mod controller;
pub mod hot;
pub mod lanes;
pub mod layer_settings;
pub mod published;
pub mod sizes;
