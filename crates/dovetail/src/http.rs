//! A minimal HTTP client for an admin port: one GET of a reply with a length, on its own
//! connection.
//!
//! ```text
//!  AdminPort ─▶ TCP ─▶ TLS, if it is asked for ─▶ GET with a login, if there is one ─▶ body
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, Stream,
};

/// Time limit for each step of an exchange.
const STEP_MAX: Duration = Duration::from_secs(5);

/// The most bytes read of an answer; `/stats` has some tens of kilobytes.
const ANSWER_MAX_BYTES: u64 = 16 << 20;

/// An admin port, with its TLS file and login.
#[derive(Clone, Debug)]
pub struct AdminPort {
    /// Its address.
    pub address: SocketAddr,
    /// A PEM file with the certificate that it shows, or with an authority that signed it; `None`:
    /// it does not use TLS.
    pub tls: Option<PathBuf>,
    /// `name:password`.
    pub login: Option<String>,
}

impl AdminPort {
    /// The body of `path`, or what went wrong.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        let words = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect_timeout(&self.address, STEP_MAX).map_err(words)?;
        stream.set_read_timeout(Some(STEP_MAX)).map_err(words)?;
        stream.set_write_timeout(Some(STEP_MAX)).map_err(words)?;
        let request = self.request(path);
        let answer = match &self.tls {
            None => exchange(&mut stream, &request),
            Some(trusted) => {
                let name = ServerName::IpAddress(self.address.ip().into());
                let session = ClientConnection::new(client_config(trusted)?, name);
                let mut session = session.map_err(|error| error.to_string())?;
                exchange(&mut Stream::new(&mut session, &mut stream), &request)
            }
        };
        body_of(&answer.map_err(words)?)
    }

    fn request(&self, path: &str) -> String {
        let login = self.login.as_ref().map_or_else(String::new, |login| {
            format!("Authorization: Basic {}\r\n", STANDARD.encode(login))
        });
        let address = self.address;
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{login}Connection: close\r\n\r\n")
    }
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer);
    match read {
        // After an answer with a length, a server need not close TLS properly.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

fn body_of(answer: &[u8]) -> Result<Vec<u8>, String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.ok_or("no HTTP answer")? + 4);
    let status = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    if !status.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(status).escape_default().to_string());
    }
    Ok(body.to_vec())
}

fn client_config(trusted: &Path) -> Result<Arc<ClientConfig>, String> {
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", trusted.display());
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(trusted).and_then(Iterator::collect);
    let certificates = certificates.map_err(|error| of_file(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let authorities =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| of_file(&error))?;
    let verifier = Trusted { certificates, authorities, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Trusts the certificates of a file, and certificates for the address that they have signed.
#[derive(Debug)]
struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|known| known == shown) {
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(shown, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_follows_the_head_of_a_good_answer() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(body_of(good), Ok(b"{}".to_vec()));
        let missing = b"HTTP/1.1 404 Not Found\r\n\r\nno";
        assert_eq!(body_of(missing), Err("HTTP/1.1 404 Not Found".to_owned()));
        assert_eq!(body_of(b"-ERR unknown command\r\n"), Err("no HTTP answer".to_owned()));
    }
}
