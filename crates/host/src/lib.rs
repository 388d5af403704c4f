//! What the operating system gives a server. Nothing here knows of requests.
//!
//! ```text
//!  CPUs and caches   affinity, topology, resctrl
//!  readiness         poller
//!  files             small_file, private, disk_thread
//!  memory            heap, memory_limits
//!  this process      process
//! ```

pub mod affinity;
pub mod disk_thread;
pub mod heap;
pub mod memory_limits;
pub mod poller;
pub mod private;
pub mod process;
pub mod resctrl;
pub mod small_file;
pub mod topology;
