//! An identity for accepting links, like a relay's.
//!
//! It is kept in memory only and is new at each start; it is in no directory. The certificates are
//! those of tor-spec's CERTS cell:
//!
//! ```text
//!   RSA identity ─┬─▶ 2 (X.509) itself
//!                 └─▶ 7 Ed25519 identity
//!   Ed25519 identity ─▶ 4 signing key ─▶ 5 TLS certificate
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ff_proto::cell::{CMD_CERTS, variable_cell};
use ff_proto::codec::DecodeError;
use rustls::ServerConfig;
use tor_cert::rsa::EncodedRsaCrosscert;
use tor_cert::x509::{TlsKeyAndCert, X509CertError, create_legacy_rsa_id_cert};
use tor_cert::{CertEncodeError, CertType, CertifiedKey, Ed25519Cert, EncodedEd25519Cert};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, Keypair};
use tor_llcrypto::pk::rsa;
use tor_llcrypto::rng::CautiousRng;

use crate::link::server_config;

/// Validity of the certificates: less than that of the TLS certificate, which is valid for 30 days
/// from yesterday's midnight.
const LIFETIME: Duration = Duration::from_secs(28 * 24 * 3600);

/// Why an identity cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The RSA key could not be made.
    #[error("cannot make an RSA key")]
    Rsa(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// One of Tor's own certificates could not be made.
    #[error("cannot make a certificate of an identity")]
    Certificate(#[from] CertEncodeError),
    /// The CERTS cell would be too long.
    #[error("cannot make the CERTS cell")]
    Cell(#[from] DecodeError),
    /// An X.509 certificate could not be made.
    #[error("cannot make an X.509 certificate of an identity")]
    X509(#[from] X509CertError),
    /// rustls refuses the key or the certificate.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// The identity of a host that accepts links.
#[derive(Clone)]
pub struct LinkIdentity {
    /// The TLS configuration with the certificate.
    pub(super) tls: Arc<ServerConfig>,
    /// The CERTS cell.
    pub(super) certs: Vec<u8>,
    /// The Ed25519 identity.
    ed_identity: Ed25519Identity,
    rsa_identity: rsa::RsaIdentity,
}

impl LinkIdentity {
    /// Makes a new identity; takes some tenths of a second, for the RSA keys.
    ///
    /// # Errors
    /// [`IdentityError`], which depends only on this program.
    pub fn generate() -> Result<Self, IdentityError> {
        let rng = &mut CautiousRng;
        let (now, hostname) = (SystemTime::now(), "www.example.com");
        let expiry = now + LIFETIME;
        let rsa = rsa::KeyPair::generate(rng).map_err(|e| IdentityError::Rsa(Box::new(e)))?;
        let (identity, signing) = (Keypair::generate(rng), Keypair::generate(rng));
        let tls = TlsKeyAndCert::create(rng, now, hostname, "www.example.net")?;
        let ed_identity = Ed25519Identity::from(identity.verifying_key());

        let key = CertifiedKey::Ed25519(signing.verifying_key().into());
        let signing_cert = certify(CertType::IDENTITY_V_SIGNING, key, &identity, expiry)?;
        let digest = CertifiedKey::X509Sha256Digest(*tls.link_cert_sha256());
        let tls_cert = certify(CertType::SIGNING_V_TLS_CERT, digest, &signing, expiry)?;
        let rsa_cert = create_legacy_rsa_id_cert(rng, now, hostname, &rsa)?;
        let cross_cert = EncodedRsaCrosscert::encode_and_sign(&rsa, &ed_identity, expiry)?;
        let certs = [
            (CertType::RSA_ID_X509, &rsa_cert[..]),
            (CertType::IDENTITY_V_SIGNING, &signing_cert),
            (CertType::SIGNING_V_TLS_CERT, &tls_cert),
            (CertType::RSA_ID_V_IDENTITY, &cross_cert),
        ];
        Ok(Self {
            tls: Arc::new(server_config(&tls.certificates_der(), &tls.private_key_pkcs8_der()?)?),
            certs: certs_cell(&certs)?,
            ed_identity,
            rsa_identity: rsa.to_public_key().to_rsa_identity(),
        })
    }

    /// The Ed25519 identity.
    #[must_use]
    pub fn ed_identity(&self) -> Ed25519Identity {
        self.ed_identity
    }

    /// The RSA identity.
    #[must_use]
    pub fn rsa_identity(&self) -> rsa::RsaIdentity {
        self.rsa_identity
    }
}

impl fmt::Debug for LinkIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkIdentity")
            .field("ed_identity", &self.ed_identity)
            .field("rsa_identity", &self.rsa_identity)
            .finish_non_exhaustive()
    }
}

/// A certificate of a key, signed with another key.
fn certify(
    kind: CertType,
    key: CertifiedKey,
    signer: &Keypair,
    expiry: SystemTime,
) -> Result<EncodedEd25519Cert, CertEncodeError> {
    Ed25519Cert::builder()
        .cert_type(kind)
        .expiration(expiry)
        .signing_key(signer.verifying_key().into())
        .cert_key(key)
        .encode_and_sign(signer)
}

/// The CERTS cell: the number of certificates, then type, length and bytes of each.
fn certs_cell(certs: &[(CertType, &[u8]); 4]) -> Result<Vec<u8>, DecodeError> {
    let mut body = vec![4];
    for (kind, cert) in certs {
        let limit = usize::from(u16::MAX);
        let len = u16::try_from(cert.len());
        let len = len.map_err(|_| DecodeError::TooLong { field: "a certificate", limit })?;
        body.push((*kind).into());
        body.extend_from_slice(&len.to_be_bytes());
        body.extend_from_slice(cert);
    }
    variable_cell(CMD_CERTS, &body)
}
