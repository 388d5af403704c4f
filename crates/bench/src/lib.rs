//! The load generator behind `dovetail bench`: open and closed loop, over sockets or the embedded store.
#![forbid(unsafe_code)]

mod args;
mod error;

pub use args::Args;
pub use error::BenchError;

/// Runs one benchmark as the command line asks and prints its report.
pub fn run(args: Args) -> Result<(), BenchError> {
    let _ = args;
    Err(BenchError::Usage { message: "the load generator is not built yet".to_owned() })
}
