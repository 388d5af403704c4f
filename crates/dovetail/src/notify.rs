//! Tells a service manager that the server is ready or stopping (`Type=notify` of systemd).
//!
//! Sends one datagram to the socket in `NOTIFY_SOCKET`; without that variable it does nothing. The
//! code is short enough to need no crate.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state to report to the service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Clients can connect.
    Ready,
    /// Draining.
    Stopping,
}

/// Sends the state if `NOTIFY_SOCKET` is set; a missing manager is not a failure.
pub fn tell(state: State) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&name, state)
    {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

fn send(name: &OsStr, state: State) -> std::io::Result<()> {
    let message: &[u8] = match state {
        State::Ready => b"READY=1\n",
        State::Stopping => b"STOPPING=1\n",
    };
    // A leading `@` stands for the abstract namespace.
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(receiver: &UnixDatagram, name: &str, state: State, want: &[u8]) {
        send(OsStr::new(name), state).unwrap();
        let mut buffer = [0; 64];
        let len = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], want);
    }

    #[test]
    fn a_socket_in_the_file_system_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        check(&receiver, path.to_str().unwrap(), State::Ready, b"READY=1\n");
        check(&receiver, path.to_str().unwrap(), State::Stopping, b"STOPPING=1\n");
    }

    #[test]
    fn an_abstract_socket_is_told() {
        let name = format!("dovetail-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let receiver = UnixDatagram::bind_addr(&address).unwrap();
        check(&receiver, &format!("@{name}"), State::Ready, b"READY=1\n");
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error_and_no_panic() {
        assert!(send(OsStr::new("/nonexistent/notify"), State::Ready).is_err());
    }
}
