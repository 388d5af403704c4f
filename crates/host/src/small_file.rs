//! Files that an operator names and that are read whole: settings, users, keys, certificates.
//!
//! ```text
//!  path ─▶ open, without waiting ─▶ a regular file, and not longer than allowed? ─▶ bytes
//!                                    └─ no: one line that says what it is instead
//! ```
//!
//! # Invariants
//! S1: opening and reading wait for no other process: a pipe, a device or a socket is refused. Only
//!     [`read_once`], used at the start, reads these too.
//! S2: at most one byte more than allowed is held, even of a file that grows meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base::ByteSize;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The maximum length of a file of settings, or of a key.
pub const SETTINGS_MAX_BYTES: u64 = 1 << 20;

/// The maximum length of a file of users, or of certificates.
pub const USERS_MAX_BYTES: u64 = 16 << 20;

/// Reads a file of at most `max_bytes`.
///
/// # Errors
///
/// It cannot be read, is not a regular file (S1), or is longer.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // Without that flag, opening a pipe waits for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let status = file.metadata()?;
    if status.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !status.is_file() {
        return Err(io::Error::other("no regular file: name one, no pipe or device"));
    }
    if status.len() > max_bytes {
        return Err(too_long(&format!("{} bytes", status.len()), max_bytes));
    }
    read_up_to(file, Vec::with_capacity(usize::try_from(status.len()).unwrap_or(0) + 1), max_bytes)
}

/// Reads a file that is given at a start, even a pipe (`<(...)`, `/dev/stdin`) or `/dev/null`: it
/// waits for the writer.
///
/// # Errors
///
/// It cannot be read, or is longer.
pub fn read_once(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_up_to(File::open(path)?, Vec::new(), max_bytes)
}

fn read_up_to(file: File, mut bytes: Vec<u8>, max_bytes: u64) -> io::Result<Vec<u8>> {
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_long("more", max_bytes));
    }
    Ok(bytes)
}

/// Reads a text file of at most `max_bytes`.
///
/// # Errors
///
/// Those of [`read`]; it is not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let bytes = read(path, max_bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("no text: write it in UTF-8"))
}

fn too_long(found: &str, max_bytes: u64) -> io::Error {
    let max = ByteSize { bytes: max_bytes };
    io::Error::other(format!("too long: it has {found}, and at most {max} are read"))
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    #[track_caller]
    fn refused(path: &Path, max_bytes: u64) -> String {
        read(path, max_bytes).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(read(&path, 3).unwrap_err().kind(), io::ErrorKind::NotFound);
        write(&path, "abc").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"abc");
        assert_eq!(read_text(&path, 3).unwrap(), "abc");
        assert_eq!(refused(&path, 2), "too long: it has 3 bytes, and at most 2B are read");
        write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path, 3).unwrap_err().to_string(), "no text: write it in UTF-8");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let want = "too long: it has 1099511627776 bytes, and at most 1MiB are read";
        assert_eq!(refused(&path, SETTINGS_MAX_BYTES), want);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(refused(path, 9), "no regular file: name one, no pipe or device");
        }
        assert_eq!(read(folder.path(), 9).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_start_reads_devices_up_to_the_limit() {
        assert_eq!(read_once(Path::new("/dev/null"), 9).unwrap(), b"");
        let error = read_once(Path::new("/dev/zero"), 9).unwrap_err().to_string();
        assert_eq!(error, "too long: it has more, and at most 9B are read");
    }

    #[test]
    fn a_link_leads_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        write(&file, "abc").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 3).unwrap(), b"abc");
    }
}
