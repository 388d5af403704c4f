//! TLS for a request-and-answer connection: `rediss://` and `memcacheds://`.
//!
//! # Invariants
//! I1: the client sends nothing to a server unless an authority has signed its certificate for the
//!     requested name. No flag turns this off, for a copy may carry all data.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The time limit for the handshake; a server that expects plain text waits for more bytes.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// An encrypted connection.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The authority to trust and the certificate to show, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority that signs the server's certificate; without it, the authorities that this
    /// machine trusts.
    pub authority: Option<PathBuf>,
    /// For servers that require one: the certificate ...
    pub certificate: Option<PathBuf>,
    /// ... and its private key.
    pub key: Option<PathBuf>,
}

/// Performs the handshake; an error of the kind `InvalidInput` is permanent.
pub(crate) fn greet(host: &str, stream: TcpStream, files: &TlsFiles) -> io::Result<TlsStream> {
    let name = ServerName::try_from(host.to_owned()).map_err(lasting)?;
    let config = config(files).map_err(lasting)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(lasting)?;
    let stall_max = stream.read_timeout()?;
    stream.set_read_timeout(Some(GREETING_MAX))?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(unanswered)?;
    }
    stream.sock.set_read_timeout(stall_max)?;
    Ok(stream)
}

fn config(files: &TlsFiles) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(files.authority.as_deref())?);
    match (&files.certificate, &files.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let chain = certificates("--tls-cert", certificate)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| of_file("--tls-key", key, &error))?;
            let built = builder.with_client_auth_cert(chain, private);
            built.map_err(|error| of_file("--tls-cert", certificate, &error))
        }
        _ => Err("--tls-cert and --tls-key go together".to_owned()),
    }
}

fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = authority else {
        // Some of a machine's many certificates may be unreadable; it is enough that others are
        // readable.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this machine believes no authority: name one by --tls-ca FILE".to_owned());
        }
        return Ok(roots);
    };
    for root in certificates("--tls-ca", path)? {
        roots.add(root).map_err(|error| of_file("--tls-ca", path, &error))?;
    }
    Ok(roots)
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found.map_err(|error| of_file(flag, path, &error))? {
        none if none.is_empty() => Err(of_file(flag, path, &"no certificate in it")),
        found => Ok(found),
    }
}

fn of_file(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{flag} {}: {error}", path.display())
}

fn lasting(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {error}"))
}

/// The reason for which the handshake failed.
fn unanswered(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        let text = "no answer to TLS's greeting; is this the port that speaks it?";
        return io::Error::new(io::ErrorKind::TimedOut, text);
    }
    of_rustls(error)
}

/// A wrong certificate stays wrong; a broken connection may recover.
pub(crate) fn of_rustls(error: io::Error) -> io::Error {
    let wrong = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match wrong {
        Some(rustls::Error::InvalidCertificate(_)) => {
            lasting(format!("{error}; --tls-ca FILE names the authority that signed it"))
        }
        Some(rustls::Error::InvalidMessage(_)) => lasting("the port does not speak it"),
        Some(rustls::Error::AlertReceived(_)) => {
            lasting(format!("{error}; --tls-cert and --tls-key name what to show"))
        }
        Some(_) => lasting(error),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(files: TlsFiles, want: &str) {
        let reason = config(&files).expect_err(want);
        assert!(reason.contains(want), "{reason}");
    }

    #[test]
    fn files_are_named_by_what_is_wrong_with_them() {
        let path = || Some(PathBuf::from("Cargo.toml"));
        let none = TlsFiles::default;
        check_refused(TlsFiles { authority: path(), ..none() }, "--tls-ca Cargo.toml: no cert");
        let missing = Some(PathBuf::from("no/such/file"));
        check_refused(TlsFiles { authority: missing, ..none() }, "--tls-ca no/such/file: ");
    }
}
