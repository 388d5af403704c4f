//! The load generator behind `dovetail bench`: open and closed loop, over sockets or embedded.
//!
//! ```text
//!  Args ─▶ Plan ─▶ Trace (drawn before the clock starts)
//!                    │ one lane per connection or thread
//!                    ▼
//!  populate ─▶ warm up ─▶ measure ─▶ Tally per thread ─▶ Summary ─▶ table, JSON, SVG, log
//!     worker: epoll, RESP or memcached         embedded: Session::execute in batches
//!     native: the client, UDP or shared memory
//! ```
//!
//! `docs/design/bench.md` explains how to read the figures, and how they can mislead.
#![forbid(unsafe_code)]

mod apart;
mod args;
mod codec;
mod connection;
mod control;
mod embedded;
mod error;
mod items;
mod lane;
pub mod look_aside;
mod native;
mod network;
mod pin;
mod plan;
mod poller;
mod progress;
mod report;
mod server_cpu;
mod summary;
mod tally;
mod target;
mod worker;

pub use args::Args;
pub use error::BenchError;

use control::Control;
use plan::Plan;
use progress::Progress;
use target::Target;

/// Runs one benchmark as the command line asks and prints its report.
pub fn run(args: Args) -> Result<(), BenchError> {
    let plan = Plan::new(&args)?;
    report::check_files(&plan)?;
    let control = Control::new(control::interrupt_flag()?);
    let progress = Progress::new();
    let mut summary = match &plan.target {
        Target::Embedded | Target::Null => embedded::run(&plan, &control, &progress)?,
        Target::Server { protocol, address } => {
            network::run(&plan, *protocol, address, &control, &progress)?
        }
        Target::Native(target) => native::run(&plan, target, &control, &progress)?,
    };
    summary.was_interrupted = control.is_interrupted();
    report::write(&plan, &summary)
}
