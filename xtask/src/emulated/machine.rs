//! Starts the emulated machine, prints its console, and ends it if it hangs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};

/// The time limit; a run takes a minute or two on an idle machine.
const PATIENCE: Duration = Duration::from_secs(900);
/// The last line of a machine if all tests have passed.
const GOOD_END: &str = "machine: exit 0";

/// The kind of machine.
pub struct Boot {
    pub memory_mib: u32,
    /// The machine type of qemu.
    pub processor: &'static str,
    /// Further kernel parameters.
    pub parameters: &'static str,
}

/// Boots, runs the tests, powers off; returns true if they passed.
pub fn run(kernel: &Path, initramfs: &Path, boot: &Boot) -> Result<bool> {
    let parameters =
        format!("console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable {}", boot.parameters);
    let mut child = Command::new("qemu-system-x86_64")
        // Software emulation: a nested machine may have nothing better.
        .args(["-accel", "tcg", "-smp", "1", "-nographic", "-vga", "none"])
        .args(["-m", &boot.memory_mib.to_string(), "-cpu", boot.processor])
        .args(["-no-reboot", "-net", "none"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", &parameters])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start qemu-system-x86_64")?;
    let result = follow(&mut child);
    // The machine has ended by itself, or it hangs.
    let _ = child.kill();
    child.wait().context("qemu cannot be waited for")?;
    result
}

fn follow(child: &mut Child) -> Result<bool> {
    let console = child.stdout.take().context("qemu has no console")?;
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut console = BufReader::new(console);
        let mut line = Vec::new();
        while console.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            if lines.send(clean(&line)).is_err() {
                break;
            }
            line.clear();
        }
    });
    let mut is_good = false;
    loop {
        match received.recv_timeout(PATIENCE) {
            Ok(line) => {
                is_good |= line == GOOD_END;
                // A closed standard output must not end the tests.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(is_good),
            Err(RecvTimeoutError::Timeout) => {
                println!("the machine has said nothing for {} s", PATIENCE.as_secs());
                return Ok(false);
            }
        }
    }
}

/// A line of the console without escape sequences.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut clean = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // Escape sequences end with a letter.
            '\x1b' => drop(letters.by_ref().find(char::is_ascii_alphabetic)),
            letter if letter.is_control() => {}
            letter => clean.push(letter),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_loses_what_moves_the_cursor() {
        assert_eq!(clean(b"\x1b[2J\x1b[0mtest a ... ok\r\n"), "test a ... ok");
        assert_eq!(clean(b"machine: exit 0\r\n"), GOOD_END);
    }
}
