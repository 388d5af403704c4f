//! The TLS files: a certificate, its key, and the authority that signs clients' certificates.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use budget::Reservation;
use config::StartError;
use config::tls::{ClientCertificates, TlsConfig};
use host::small_file;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::stream::Stream;

/// The contents of the files when they were last read.
#[derive(Debug)]
pub struct Certificates {
    config: TlsConfig,
    current: Mutex<Current>,
}

/// The TLS configurations of new connections.
#[derive(Clone, Debug)]
struct Current {
    /// For the TLS ports.
    ports: Arc<ServerConfig>,
    /// For the admin port, where clients log in and present no certificate.
    admin: Arc<ServerConfig>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A file is missing or does not fit the others.
    pub fn open(config: &TlsConfig) -> Result<Certificates, StartError> {
        let current = read(config).map_err(|reason| StartError::Tls { reason })?;
        Ok(Certificates { config: config.clone(), current: Mutex::new(current) })
    }

    /// Reads the files again, for new connections (T3).
    ///
    /// # Errors
    ///
    /// As for [`Certificates::open`]; the previous contents stay.
    pub fn reload(&self) -> Result<(), String> {
        let new = read(&self.config)?;
        *self.current() = new;
        Ok(())
    }

    /// The TLS state of a connection that was just accepted.
    pub fn accept(&self, booked: Reservation) -> Result<Stream, rustls::Error> {
        let config = Arc::clone(&self.current().ports);
        Stream::new(config, booked)
    }

    /// The configuration for connections whose clients present no certificate.
    pub fn without_clients(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().admin)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(config: &TlsConfig) -> Result<Current, String> {
    let without_clients = TlsConfig { clients: ClientCertificates::No, ..config.clone() };
    Ok(Current { ports: read_one(config)?, admin: read_one(&without_clients)? })
}

fn read_one(config: &TlsConfig) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates("tls-cert", &config.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read_file("tls-key", &config.key)?)
        .map_err(|error| of_file("tls-key", &config.key, &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match (&config.authority, config.clients) {
        (_, ClientCertificates::No) => builder.with_no_client_auth(),
        (None, _) => return Err("--tls-auth-clients needs --tls-ca".to_owned()),
        (Some(path), clients) => {
            let mut roots = RootCertStore::empty();
            for root in certificates("tls-ca", path)? {
                roots.add(root).map_err(|error| of_file("tls-ca", path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|error| of_file("tls-ca", path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let built = builder.with_single_cert(chain, key);
    Ok(Arc::new(built.map_err(|error| of_file("tls-cert", &config.certificate, &error))?))
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&read_file(setting, path)?).collect();
    let found = found.map_err(|error| of_file(setting, path, &error))?;
    if found.is_empty() {
        return Err(of_file(setting, path, &"no certificate in it"));
    }
    Ok(found)
}

fn read_file(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    small_file::read(path, small_file::USERS_MAX_BYTES)
        .map_err(|error| of_file(setting, path, &error))
}

fn of_file(setting: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("--{setting} {}: {error}", path.display())
}
