//! What commands do, below connections and threads: plain data in, plain data out.
//!
//! ```text
//!  facts       what COMMAND and ACL report of each verb
//!  rmw         updates: what a command makes of the entry that it finds
//!  compaction  writes of one key, combined into one (C-4)
//!  reply       how outcomes are encoded, in each protocol
//!  output      what a client has still to get
//!  work        how much a command may do before others have a turn
//! ```

#![forbid(unsafe_code)]

pub mod compaction;
pub mod facts;
pub mod output;
pub mod reply;
pub mod rmw;
pub mod work;
