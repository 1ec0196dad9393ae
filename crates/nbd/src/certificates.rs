//! A server's certificates in a directory, with the names used by nbdkit, qemu-nbd and libnbd's clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Why encryption cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.to_string_lossy().replace(char::is_control, "\u{fffd}"))]
pub struct NoCertificates {
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// Sets up encryption with `server-cert.pem` (the certificate, and the intermediate ones) and `server-key.pem` of the
/// directory. `verify`: clients must present a certificate signed by an authority in `ca-cert.pem`.
pub fn from_directory(directory: &Path, verify: bool) -> Result<TlsAcceptor, NoCertificates> {
    let (certificate, key) = (directory.join("server-cert.pem"), directory.join("server-key.pem"));
    let wrong = |path: &Path, why: &dyn std::fmt::Display| NoCertificates { path: path.into(), why: why.to_string() };
    let chain = read_chain(&certificate)?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|e| wrong(&key, &e))?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| wrong(directory, &e))?;
    let builder = if verify {
        let path = directory.join("ca-cert.pem");
        let mut authorities = RootCertStore::empty();
        for authority in self::read_chain(&path)? {
            authorities.add(authority).map_err(|e| wrong(&path, &e))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build();
        builder.with_client_cert_verifier(verifier.map_err(|e| wrong(&path, &e))?)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(chain, private).map_err(|e| wrong(&certificate, &e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, NoCertificates> {
    let wrong = |why: String| NoCertificates { path: path.into(), why };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = read.map_err(|e| wrong(e.to_string()))?;
    if chain.is_empty() { Err(wrong("it has no certificate".into())) } else { Ok(chain) }
}
