//! The settings of TLS.

use std::path::PathBuf;

/// Whether clients present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is requested.
    No,
    /// One is requested; if a client presents one, it has to be valid.
    Optional,
    /// A client without one is refused.
    Required,
}

/// The settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate, and those between it and a root, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// The authority that signs certificates of clients, in PEM.
    pub authority: Option<PathBuf>,
    /// Whether clients present one.
    pub clients: ClientCertificates,
}
