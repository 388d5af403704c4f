//! Reads that a signal may interrupt.

use std::io::{ErrorKind, Read};

/// What one read brings. A read with a timeout is not begun again by the kernel, whatever stopped
/// the process.
pub fn read_some(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
