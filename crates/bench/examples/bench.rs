//! The load generator as a program of its own, for work on it without the rest of the binary.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: bench::Args,
}

fn main() -> ExitCode {
    match bench::run(Command::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
