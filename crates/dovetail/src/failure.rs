//! How a command fails: one line on standard error, exit status 2 for usage, 1 at run time.

use std::io::Write;
use std::process::ExitCode;

use crate::settings::SettingError;

/// The reason for which a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command line or the configuration is wrong: exit status 2.
    Usage(String),
    /// Something failed at run time: exit status 1.
    Runtime(String),
    /// The message has been printed already.
    Silent(u8),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Runtime(message) => formatter.write_str(message),
            Failure::Silent(status) => write!(formatter, "exit status {status}"),
        }
    }
}

impl Failure {
    /// Prints the line and gives the exit status.
    pub fn report(self) -> ExitCode {
        let (message, status) = match self {
            Failure::Usage(message) => (message, 2),
            Failure::Runtime(message) => (message, 1),
            Failure::Silent(status) => return ExitCode::from(status),
        };
        let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        note(&format!("dovetail: {line}"));
        ExitCode::from(status)
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Failure {
        Failure::Usage(error.to_string())
    }
}

/// Prints a line on standard error. `eprintln!` would end the program if standard error is closed,
/// as after `2>&1 | head`; this function ignores that, and the work goes on.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints to standard output; a closed pipe is not a failure.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// The same for bytes that need not be text.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
