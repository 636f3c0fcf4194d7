//! A new relay identity, with all keys and certificates that a relay sends on its links.
//!
//! [`RelayKeys`] is kept in memory only: the relay that uses it is a new relay at each start. The
//! chain is that of tor-spec:
//!
//! ```text
//!   RSA identity --+-> (type 2, X.509) itself
//!                  +-> (type 7) Ed25519 identity
//!   Ed25519 identity -> (type 4) signing key --+-> (type 5) TLS certificate
//!                                              +-> (type 6) link authentication key
//! ```
//!
//! Limit: nothing is rotated. The certificates last [`CERT_LIFETIME`]; peers do not accept a relay
//! that runs longer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ff_proto::codec::DecodeError;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _, TryCryptoRng, TryRng};
use tor_cert::rsa::EncodedRsaCrosscert;
use tor_cert::x509::{TlsKeyAndCert, X509CertError, create_legacy_rsa_id_cert};
use tor_cert::{CertEncodeError, EncodedEd25519Cert};
use tor_key_forge::{Keygen as _, KeygenRng, ToEncodableCert as _};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_llcrypto::rng::{CautiousRng, EntropicRng};
use tor_proto::RelayChannelAuthMaterial;
use tor_relay_crypto::pk::{
    RelayIdentityKeypair, RelayIdentityRsaKeypair, RelayLinkSigningKeypair, RelayNtorKeypair,
    RelayNtorKeys, RelaySigningKeypair,
};
use tor_relay_crypto::{gen_link_cert, gen_signing_cert, gen_tls_cert};

/// The validity of the certificates of a [`RelayKeys`].
///
/// Less than that of the TLS certificate itself: 30 days from yesterday's midnight.
pub const CERT_LIFETIME: Duration = Duration::from_secs(28 * 24 * 60 * 60);

/// The characters in the random part of a host name, tor's base 32.
const HOSTNAME_CHARS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why no relay identity could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A key could not be generated.
    #[error("cannot generate a relay key")]
    Generate(#[from] tor_key_forge::Error),
    /// One of Tor's own certificates could not be made.
    #[error("cannot encode a certificate of the relay")]
    Certificate(#[from] CertEncodeError),
    /// One of the X.509 certificates could not be made.
    #[error("cannot make an X.509 certificate of the relay")]
    X509(#[from] X509CertError),
    /// The certificates do not fit into a cell.
    #[error("cannot make the cell of the relay's certificates")]
    Cell(#[from] DecodeError),
}

/// The identity of one relay and all keys below it.
#[derive(Clone)]
pub struct RelayKeys {
    /// The keys and certificates for link handshakes, including the TLS key.
    auth: Arc<RelayChannelAuthMaterial>,
    /// The Ed25519 identity.
    ed_identity: Ed25519Identity,
    rsa_identity: RsaIdentity,
    /// The keys for clients' circuit handshakes.
    ntor: RelayNtorKeys,
    /// The keys that sign its descriptor.
    signers: Arc<Signers>,
}

/// The keys that sign a relay's descriptor.
pub(super) struct Signers {
    pub(super) rsa: RelayIdentityRsaKeypair,
    /// The signing key below the Ed25519 identity.
    pub(super) signing: RelaySigningKeypair,
    /// Its certificate by the Ed25519 identity.
    pub(super) signing_cert: EncodedEd25519Cert,
}

impl RelayKeys {
    /// Makes a new relay identity; takes some tenths of a second, mostly for the RSA keys.
    pub fn generate() -> Result<Self, KeyError> {
        Self::generate_by(&mut CautiousRng)
    }

    /// Makes the relay identity of a seed, so that a relay under test is the same one when it is
    /// restarted. The seed reveals the keys.
    pub fn from_seed(seed: [u8; 32]) -> Result<Self, KeyError> {
        Self::generate_by(&mut Seeded(StdRng::from_seed(seed)))
    }

    /// Makes the identities from these random numbers.
    fn generate_by(rng: &mut impl KeygenRng) -> Result<Self, KeyError> {
        let rsa_identity = RelayIdentityRsaKeypair::generate(rng)?;
        let ed_identity = RelayIdentityKeypair::generate(rng)?;
        let ntor = RelayNtorKeypair::generate(rng)?;
        let signing = RelaySigningKeypair::generate(rng)?;
        let expiry = SystemTime::now() + CERT_LIFETIME;
        let signing_cert = gen_signing_cert(&ed_identity, &signing, expiry)?.to_encodable_cert();
        let signers = Signers { rsa: rsa_identity, signing, signing_cert };
        Ok(Self {
            auth: Arc::new(certify(&signers, ed_identity.to_ed25519_id(), expiry)?),
            ed_identity: ed_identity.to_ed25519_id(),
            rsa_identity: signers.rsa.to_rsa_identity(),
            ntor: RelayNtorKeys::new(ntor),
            signers: Arc::new(signers),
        })
    }

    /// The keys and certificates of the link handshake.
    pub fn auth_material(&self) -> Arc<RelayChannelAuthMaterial> {
        Arc::clone(&self.auth)
    }

    /// The Ed25519 identity that clients expect.
    pub fn ed_identity(&self) -> Ed25519Identity {
        self.ed_identity
    }

    /// The RSA identity, the relay's fingerprint.
    pub fn rsa_identity(&self) -> RsaIdentity {
        self.rsa_identity
    }

    /// The keys that sign its descriptor.
    pub(super) fn signers(&self) -> &Signers {
        &self.signers
    }

    /// The keys of the ntor circuit handshakes.
    pub fn ntor_keys(&self) -> &RelayNtorKeys {
        &self.ntor
    }
}

/// Random numbers from a seed, for identities that can be made again.
struct Seeded(StdRng);

impl TryRng for Seeded {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(bytes)
    }
}

impl TryCryptoRng for Seeded {}

impl EntropicRng for Seeded {}

/// Makes the keys of links and certifies them.
fn certify(
    signers: &Signers,
    ed_identity: Ed25519Identity,
    expiry: SystemTime,
) -> Result<RelayChannelAuthMaterial, KeyError> {
    let Signers { rsa, signing, signing_cert } = signers;
    let rng = &mut CautiousRng;
    let now = SystemTime::now();
    let issuer = random_hostname(".com");

    let link = RelayLinkSigningKeypair::generate(rng)?;
    let tls = TlsKeyAndCert::create(rng, now, &issuer, &random_hostname(".net"))?;

    let tls_cert = gen_tls_cert(signing, *tls.link_cert_sha256(), expiry)?;
    let link_cert = gen_link_cert(signing, &link, expiry)?;
    let rsa_keypair = rsa.keypair();
    let rsa_cert = create_legacy_rsa_id_cert(rng, now, &issuer, rsa_keypair)?;
    let cross_cert = EncodedRsaCrosscert::encode_and_sign(rsa_keypair, &ed_identity, expiry)?;

    Ok(RelayChannelAuthMaterial::new(
        &rsa.public().into(),
        ed_identity,
        link,
        signing_cert.clone(),
        tls_cert,
        link_cert.to_encodable_cert(),
        rsa_cert,
        cross_cert,
        tls,
    ))
}

/// A host name like those in tor's TLS handshakes: `www.`, 8 to 20 characters, `suffix`.
pub(crate) fn random_hostname(suffix: &str) -> String {
    let mut rng = rand::rng();
    let length = rng.random_range(8..=20);
    let middle =
        (0..length).map(|_| char::from(HOSTNAME_CHARS[rng.random_range(0..HOSTNAME_CHARS.len())]));
    "www.".chars().chain(middle).chain(suffix.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostnames_have_tors_shape() {
        for _ in 0..100 {
            let name = random_hostname(".net");
            let middle = name
                .strip_prefix("www.")
                .and_then(|rest| rest.strip_suffix(".net"))
                .expect("prefix and suffix");
            assert!((8..=20).contains(&middle.len()), "{name}");
            assert!(middle.bytes().all(|byte| HOSTNAME_CHARS.contains(&byte)), "{name}");
        }
    }

    #[test]
    fn a_seed_has_one_identity() {
        let of = |seed| RelayKeys::from_seed([seed; 32]).expect("keys");
        let (first, again, other) = (of(1), of(1), of(2));
        assert_eq!(first.ed_identity(), again.ed_identity());
        assert_eq!(first.rsa_identity(), again.rsa_identity());
        assert_ne!(first.ed_identity(), other.ed_identity());
        assert_ne!(first.rsa_identity(), other.rsa_identity());
    }

    #[test]
    fn every_identity_is_new() {
        let first = RelayKeys::generate().expect("keys");
        let second = RelayKeys::generate().expect("keys");
        assert_ne!(first.ed_identity(), second.ed_identity());
        assert_ne!(first.rsa_identity(), second.rsa_identity());
    }
}
