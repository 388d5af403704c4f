//! `dovetail completions` and `dovetail man`: shell completions and the manual page, generated from
//! the definition of the command line.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

use crate::failure::{Failure, print_bytes};
use crate::settings::file::reason_of;

/// The subcommand `completions`.
pub fn completions_command() -> Command {
    Command::new("completions")
        .about("Print a shell's completions")
        .after_help("For example: dovetail completions bash > /etc/bash_completion.d/dovetail")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(clap::value_parser!(Shell))
                .help("The shell"),
        )
}

/// The subcommand `man`.
pub fn man_command() -> Command {
    Command::new("man").about("Write the man pages, one for each command, into a directory").arg(
        Arg::new("dir")
            .value_name("DIR")
            .required(true)
            .value_parser(clap::value_parser!(PathBuf))
            .help("Target directory, created if missing; man reads /usr/local/share/man/man1"),
    )
}

/// Prints the completions of `command`, which is the whole program.
pub fn completions(matches: &ArgMatches, mut command: Command) -> Result<(), Failure> {
    let shell = *matches.get_one::<Shell>("shell").expect("it is required");
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "dovetail", &mut text);
    print_bytes(&text)
}

/// Writes `dovetail.1`, `dovetail-serve.1` and so on.
pub fn man(matches: &ArgMatches, command: Command) -> Result<(), Failure> {
    let directory = matches.get_one::<PathBuf>("dir").expect("it is required");
    let failed = |path: &Path, error: std::io::Error| {
        let (path, reason) = (path.display(), reason_of(&error));
        Failure::Runtime(format!("man: {path}: {reason}; write a directory that can be written"))
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    clap_mangen::generate_to(command, directory).map_err(|error| failed(directory, error))
}
