//! Claims a path for a listening socket: removes the leftovers of a dead server, and removes the
//! socket at the end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// The maximum number of clients that wait to be accepted.
const BACKLOG: i32 = 511;

/// Why the server cannot listen at a path.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Another server answers there.
    #[error("another server answers at {}", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Another kind of file has that name; it is left alone.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot listen at {}: {error}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// A listening socket and its name in the file system.
#[derive(Debug)]
pub struct Claim {
    pub(crate) socket: OwnedFd,
    path: CString,
    /// Device and inode of the name: another server's socket of the same name is not ours.
    inode: (u64, u64),
}

impl Claim {
    /// Listens at `path`, whose file gets that mode: the socket of a dead server is replaced, and
    /// any other file of that name is an error. Accepting does not block. Dropping this removes the
    /// name.
    pub fn listen(path: &Path, mode: u16) -> Result<Claim, ListenError> {
        claim(path, Mode::from_raw_mode(u32::from(mode)))
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Listens at `path`, with the access rights of `mode`.
pub(crate) fn claim(path: &Path, mode: Mode) -> Result<Claim, ListenError> {
    let system = |error: Errno| ListenError::System { path: path.to_owned(), error: error.into() };
    let name =
        CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| system(Errno::INVAL))?;
    let address = SocketAddrUnix::new(name.as_c_str()).map_err(system)?;
    // Held until the name belongs to this server: of two servers that find the same stale socket,
    // one waits.
    let _held = lock_directory(path).map_err(system)?;
    remove_stale(path, &name, &address)?;
    let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(system)?;
    // The name has the socket's own mode from the moment it appears.
    rustix::fs::fchmod(&socket, mode).map_err(system)?;
    rustix::net::bind(&socket, &address).map_err(system)?;
    // Undoes the effect of the process's umask, before any client can connect.
    rustix::fs::chmod(name.as_c_str(), mode).map_err(system)?;
    let inode = inode_of(&rustix::fs::lstat(name.as_c_str()).map_err(system)?);
    rustix::net::listen(&socket, BACKLOG).map_err(system)?;
    Ok(Claim { socket, path: name, inode })
}

pub(crate) fn new_socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// A lock on the directory itself leaves no lock file behind.
fn lock_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// Removes a socket on which no process answers; any other file of that name is an error.
fn remove_stale(path: &Path, name: &CString, address: &SocketAddrUnix) -> Result<(), ListenError> {
    let path = path.to_owned();
    let status = match rustix::fs::lstat(name.as_c_str()) {
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(ListenError::System { path, error: error.into() }),
        Ok(status) => status,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(ListenError::NotASocket { path });
    }
    let asked = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        .and_then(|socket| rustix::net::connect(socket, address));
    match asked {
        Err(Errno::CONNREFUSED | Errno::NOENT) => {}
        // A full backlog also means that a server answers.
        Ok(()) | Err(Errno::AGAIN) => return Err(ListenError::InUse { path }),
        Err(error) => return Err(ListenError::System { path, error: error.into() }),
    }
    match rustix::fs::unlinkat(CWD, name.as_c_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(ListenError::System { path, error: error.into() }),
    }
}

fn inode_of(status: &Stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

impl Drop for Claim {
    fn drop(&mut self) {
        let is_ours = rustix::fs::lstat(self.path.as_c_str())
            .is_ok_and(|status| inode_of(&status) == self.inode);
        if is_ours {
            // The next server removes a name that stays.
            let _ = rustix::fs::unlinkat(CWD, self.path.as_c_str(), AtFlags::empty());
        }
    }
}
