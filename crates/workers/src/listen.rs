//! Listeners: one set per worker on one address, among which the kernel distributes connections.
//!
//! With SO_REUSEPORT alone, a second server of the same user would silently take half of our
//! connections. So the address is first bound without it: that fails if any process listens there,
//! with or without SO_REUSEPORT. Two servers that start within the same few microseconds can still
//! share an address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use config::StartError;
use landing::shm::{Claim, ListenError};
use socket2::{Domain, Protocol, Socket, Type};

/// The maximum number of connections that wait in the kernel to be accepted, per listener; the
/// kernel lowers it to its own `somaxconn`.
const BACKLOG_MAX: i32 = 4096;

/// The maximum length of a path in the kernel's address structure, without the terminating zero.
const PATH_BYTES_MAX: usize = 107;

/// Opens `count` listeners on `address`; a port 0 is resolved once and shared by all of them.
pub fn listen(
    address: SocketAddr,
    count: usize,
    setting: &'static str,
) -> Result<(SocketAddr, Vec<TcpListener>), StartError> {
    listen_inner(address, count).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address, setting },
        _ => StartError::Listen { address, setting, source },
    })
}

fn listen_inner(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    if address.port() != 0 {
        bind(address, Sharing::Alone)?;
    }
    let first = bind(address, Sharing::WithOurs)?;
    first.listen(BACKLOG_MAX)?;
    let first: TcpListener = first.into();
    let resolved = first.local_addr()?;
    let mut listeners = vec![first];
    while listeners.len() < count {
        let next = bind(resolved, Sharing::WithOurs)?;
        next.listen(BACKLOG_MAX)?;
        listeners.push(next.into());
    }
    Ok((resolved, listeners))
}

/// A Unix socket that clients connect to. Dropping it removes its name.
#[derive(Debug)]
pub struct UnixListener {
    /// The listening socket and its name.
    pub claim: Claim,
    /// Its path, as the end of its clients is displayed.
    pub path: Arc<Path>,
}

/// Listens at a path, if there is one.
pub fn listen_unix(
    path: Option<&Path>,
    mode: u16,
    setting: &'static str,
) -> Result<Option<Arc<UnixListener>>, StartError> {
    let Some(path) = path else { return Ok(None) };
    let refused = |reason| StartError::Unix { setting, path: path.to_owned(), reason };
    match path.as_os_str().len() {
        1..=PATH_BYTES_MAX => {}
        bytes => {
            return Err(refused(format!(
                "a socket's path has 1 to {PATH_BYTES_MAX} bytes, and this one {bytes}"
            )));
        }
    }
    let claim = Claim::listen(path, mode).map_err(|error| {
        refused(match error {
            ListenError::InUse { .. } => {
                "another server answers there: stop it or choose another path".to_owned()
            }
            ListenError::NotASocket { .. } => {
                "there is a file that is no socket: choose another path".to_owned()
            }
            ListenError::System { error, .. } => format!("cannot listen there: {error}"),
        })
    })?;
    Ok(Some(Arc::new(UnixListener { claim, path: path.into() })))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    WithOurs,
}

fn bind(address: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart would have to wait for the last connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    if sharing == Sharing::WithOurs {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    #[test]
    fn all_listeners_share_the_resolved_port() {
        let (resolved, listeners) = listen(ANY.into(), 3, "resp").unwrap();
        assert_ne!(resolved.port(), 0);
        for listener in &listeners {
            assert_eq!(listener.local_addr().unwrap(), resolved);
        }
    }

    #[test]
    fn a_port_of_another_server_is_refused_even_if_it_would_share() {
        let (resolved, _held) = listen(ANY.into(), 1, "resp").unwrap();
        let error = listen(resolved, 1, "resp").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{resolved} is in use: stop the other server or choose another address with --resp"
            )
        );
    }

    #[test]
    fn a_socket_of_a_living_server_stays_and_one_of_a_dead_server_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d.sock");
        let refused = |path: &Path| {
            let error = listen_unix(Some(path), 0o600, "unix-socket").unwrap_err().to_string();
            error.strip_prefix(&format!("--unix-socket {}: ", path.display())).map(str::to_owned)
        };
        let first = listen_unix(Some(&path), 0o600, "unix-socket").unwrap();
        assert_eq!(
            refused(&path).unwrap(),
            "another server answers there: stop it or choose another path"
        );
        drop(first);
        assert!(!path.exists(), "its name went with it");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let again = listen_unix(Some(&path), 0o640, "unix-socket").unwrap().unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&*again.path).unwrap().permissions().mode() & 0o777, 0o640);
        let file = directory.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert_eq!(
            refused(&file).unwrap(),
            "there is a file that is no socket: choose another path"
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        let long = directory.path().join("x".repeat(107));
        assert!(
            refused(&long).unwrap().starts_with("a socket's path has 1 to 107 bytes, and this")
        );
        assert!(
            refused(Path::new("/nowhere/at/all")).unwrap().starts_with("cannot listen there: ")
        );
    }

    #[test]
    fn an_address_of_another_machine_says_so() {
        let error = listen(([192, 0, 2, 1], 7777).into(), 1, "memcached").unwrap_err();
        assert!(error.to_string().starts_with("cannot listen on 192.0.2.1:7777: "), "{error}");
    }
}
