//! The TLS configuration of a link: TLS 1.3 with rustls, and the check of certificates.
//!
//! Tor relays have a self-signed TLS certificate without their identity; the CERTS cell binds it to
//! the identity later. So any certificate is accepted here, but the peer must prove by its
//! handshake signature that it has the certificate's key. Without this check a man in the middle
//! could use the real relay's certificate.

use std::sync::{Arc, LazyLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

/// The TLS configuration of all links that are opened.
///
/// # Errors
/// When rustls refuses the configuration, which depends only on this program.
pub fn client_config() -> Result<Arc<ClientConfig>, Error> {
    /// Made for the first link.
    static CONFIG: LazyLock<Result<Arc<ClientConfig>, Error>> =
        LazyLock::new(|| build().map(Arc::new));
    CONFIG.clone()
}

/// Makes the configuration.
fn build() -> Result<ClientConfig, Error> {
    let provider = CryptoProvider {
        // In the order of C tor's clients. AES-128 is also the cheapest.
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
        ],
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
        ..default_provider()
    };
    let verifier = AnyCertificate { algorithms: provider.signature_verification_algorithms };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // tor-spec: "Implementations SHOULD NOT allow TLS session resumption".
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.enable_secret_extraction = true;
    Ok(config)
}

/// The configuration for accepting links, with this chain of certificates and the key of the first
/// one, in PKCS #8. The client's first cipher is used.
///
/// # Errors
/// When rustls refuses them.
pub(crate) fn server_config(chain: &[&[u8]], key: &[u8]) -> Result<ServerConfig, Error> {
    let chain = chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // tor-spec: "Implementations SHOULD NOT allow TLS session resumption".
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    config.ignore_client_order = false;
    Ok(config)
}

/// Accepts any certificate whose key signed the handshake.
#[derive(Debug)]
struct AnyCertificate {
    /// The offered and accepted signature algorithms.
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 was not offered".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{ServerConfig, SupportedCipherSuite};
    use tor_cert::x509::TlsKeyAndCert;

    use super::*;

    /// A TLS server with a new certificate, like a relay's.
    pub(in crate::link) fn server_config(suites: &[SupportedCipherSuite]) -> ServerConfig {
        let (rng, now) = (&mut rand::rng(), SystemTime::now());
        let made = TlsKeyAndCert::create(rng, now, "www.example.com", "www.example.net")
            .expect("certificate");
        let cert = CertificateDer::from(made.certificates_der()[0]).into_owned();
        let key = PrivatePkcs8KeyDer::from(made.private_key_pkcs8_der().expect("key").to_vec());
        let provider = CryptoProvider { cipher_suites: suites.to_vec(), ..default_provider() };
        ServerConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert], key.into())
            .expect("server config")
    }

    #[test]
    fn settings_are_those_of_a_tor_client() {
        let config = client_config().expect("settings");
        let suites: Vec<_> =
            config.crypto_provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
        assert_eq!(
            suites,
            [
                rustls::CipherSuite::TLS13_AES_128_GCM_SHA256,
                rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                rustls::CipherSuite::TLS13_AES_256_GCM_SHA384,
            ]
        );
        assert!(!config.enable_sni);
        assert!(config.alpn_protocols.is_empty());
    }
}
