//! TLS 1.3 that accepts only the certificate of our own key.
//!
//! The certificate is only the wrapper that TLS requires around a public key. It is derived from the key alone, and is the
//! same on every device; only the public key in it is compared, so neither its dates nor its names can lock anyone out, and
//! a later release may change the wrapper. The peer proves possession of the private key with its signature of the
//! handshake, which TLS 1.3 makes different for either end, so that our own cannot be replayed to us.
//!
//! Sessions are never resumed: a handshake takes a millisecond, and each one is a separate proof.

use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use std::sync::Arc;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring as primitives, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ParsedCertificate};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerIncompatible,
    ServerConfig, SignatureScheme,
};

/// DER up to the seed of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// DER up to the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// The TLS configurations of both ends of a connection.
#[derive(Clone)]
pub struct Configs {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
}

/// Why a certificate is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CertificateMismatch {
    /// It is of another Fathom key.
    #[error("another key, {0}")]
    AnotherKey(String),
    /// It was not made by Fathom.
    #[error("a certificate that was not made by Fathom")]
    Stranger,
}

/// The fingerprint of a public key: the first 64 bits of its SHA-256.
pub fn fingerprint(public: &[u8]) -> String {
    let hash = digest(&SHA256, public);
    let groups: Vec<String> =
        hash.as_ref()[..8].chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join("-")
}

/// Creates the configurations from a seed.
///
/// # Errors
/// A cryptographic error; none is known to occur for 32 bytes.
pub fn derive_configs(seed: &[u8; 32]) -> Result<Configs, Error> {
    let other = |what: &dyn std::fmt::Display| Error::General(what.to_string());
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|e| other(&e))?;
    let pkcs8 = PrivatePkcs8KeyDer::from([&PKCS8_PREFIX[..], seed].concat());
    let signer = rcgen::KeyPair::try_from(&pkcs8).map_err(|e| other(&e))?;
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "fathom");
    let certificate = parameters.self_signed(&signer).map_err(|e| other(&e))?.der().clone();

    let provider = Arc::new(provider());
    let pinned = Arc::new(PinnedVerifier {
        public_key: [&SPKI_PREFIX[..], pair.public_key().as_ref()].concat(),
        provider: provider.clone(),
    });
    let private = || PrivateKeyDer::Pkcs8(pkcs8.clone_key());
    let client = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
    let client = client.dangerous().with_custom_certificate_verifier(pinned.clone());
    let mut client = client.with_client_auth_cert(vec![certificate.clone()], private())?;
    client.enable_sni = false;
    client.resumption = Resumption::disabled();
    let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let mut server = server.with_client_cert_verifier(pinned).with_single_cert(vec![certificate], private())?;
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Configs { client: Arc::new(client), server: Arc::new(server) })
}

/// AES first where the CPU has instructions for it, otherwise ChaCha20 first, as on old phones.
fn provider() -> CryptoProvider {
    use primitives::cipher_suite::{TLS13_AES_128_GCM_SHA256 as AES, TLS13_CHACHA20_POLY1305_SHA256 as CHACHA};
    let cipher_suites = if has_aes() { vec![AES, CHACHA] } else { vec![CHACHA, AES] };
    CryptoProvider { cipher_suites, kx_groups: vec![primitives::kx_group::X25519], ..primitives::default_provider() }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Accepts one public key.
#[derive(Debug)]
struct PinnedVerifier {
    /// The key in DER, as contained in a certificate.
    public_key: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let refused = |why| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))));
        let parsed = ParsedCertificate::try_from(certificate).map_err(|_| refused(CertificateMismatch::Stranger))?;
        let theirs = parsed.subject_public_key_info();
        if theirs.as_ref() == self.public_key {
            return Ok(());
        }
        Err(refused(match theirs.as_ref().strip_prefix(&SPKI_PREFIX[..]) {
            Some(public) => CertificateMismatch::AnotherKey(fingerprint(public)),
            None => CertificateMismatch::Stranger,
        }))
    }
}

/// Verifies that the other end has the private key: the same at both ends, for which rustls has separate traits.
macro_rules! signatures {
    () => {
        /// Neither end supports TLS 1.2.
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for PinnedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

/// A client that presents the key of `shown`, and accepts that of `accepted`.
#[cfg(test)]
pub fn tests_only_client_accepting(shown: &[u8; 32], accepted: &[u8; 32]) -> Arc<ClientConfig> {
    let (forged, accepted) = (derive_configs(shown).expect("a key"), derive_configs(accepted).expect("a key"));
    let mut client = ClientConfig::clone(&accepted.client);
    client.client_auth_cert_resolver = forged.client.client_auth_cert_resolver.clone();
    Arc::new(client)
}

/// A client that presents no key.
#[cfg(test)]
pub fn tests_only_client_without_key(accepted: &[u8; 32]) -> Arc<ClientConfig> {
    let public = Ed25519KeyPair::from_seed_unchecked(accepted).expect("a key").public_key().as_ref().to_vec();
    let provider = Arc::new(provider());
    let pinned = PinnedVerifier { public_key: [&SPKI_PREFIX[..], &public].concat(), provider: provider.clone() };
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).expect("it exists");
    let client = client.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
    Arc::new(client.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock at 1970 or far ahead does not invalidate the certificate.
    #[test]
    fn certificate_is_valid_at_any_time() {
        let configs = derive_configs(&[1; 32]).expect("any seed is a key");
        let own = configs.client.client_auth_cert_resolver.resolve(&[], &[SignatureScheme::ED25519]);
        let own = own.expect("a certificate").cert[0].clone();
        let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("a key");
        let public = [&SPKI_PREFIX[..], pair.public_key().as_ref()].concat();
        let pinned = PinnedVerifier { public_key: public, provider: Arc::new(provider()) };
        let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        for seconds in [0, 1, 1 << 40] {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
            assert!(pinned.verify_server_cert(&own, &[], &name, &[], now).is_ok());
            assert!(pinned.verify_client_cert(&own, &[], now).is_ok());
        }
    }

    /// The certificate is the same wherever it is created, and whatever the clock.
    #[test]
    fn key_has_one_certificate() {
        let chain = |seed| {
            let configs = derive_configs(seed).expect("any seed is a key");
            let hint = configs.client.client_auth_cert_resolver.resolve(&[], &[SignatureScheme::ED25519]);
            hint.expect("a certificate").cert.clone()
        };
        assert_eq!(chain(&[1; 32]), chain(&[1; 32]));
        assert_ne!(chain(&[1; 32]), chain(&[2; 32]));
    }
}
