//! The binary `dovetail`: the server, its load generator and its settings, on the command line.
#![forbid(unsafe_code)]

mod backup_command;
mod check_command;
mod cli;
mod cli_command;
mod cluster_command;
mod cm_command;
mod compare_command;
mod config_command;
mod doctor;
mod failure;
mod flags;
mod http;
mod logs;
mod machine;
mod migrate_command;
mod notify;
mod plan_command;
mod reload;
mod serve;
mod settings;
mod shell_command;
mod signals;
mod sim_command;
mod top_command;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
