//! A relay's server descriptor for directory authorities.
//!
//! [`Relay`](super::relay::Relay) publishes nothing. To use it in a private network, post this text
//! to the authorities' DirPorts, at `/tor/`. The format and the signed parts are in dir-spec,
//! "Server descriptor format".

use std::net::SocketAddrV4;
use std::time::SystemTime;

use base64ct::{Base64, Base64Unpadded, Encoding};
use ff_proto::units::BytesPerSec;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tor_cert::{CertEncodeError, CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::ed25519::Ed25519SigningKey as _;
use tor_llcrypto::pk::keymanip::convert_curve25519_to_ed25519_private;
use tor_llcrypto::pk::rsa;
use tor_llcrypto::rng::CautiousRng;

use super::keys::{CERT_LIFETIME, RelayKeys};

/// The prefix of the bytes that the Ed25519 signature covers.
const ED25519_PREFIX: &[u8] = b"Tor router descriptor signature v1";
/// The subprotocols that the relay supports.
const PROTOCOLS: &str = "Link=4-5 LinkAuth=3 Relay=2-3";

/// The data of a descriptor, except the keys.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The relay's nickname: 1 to 19 letters and digits.
    pub nickname: String,
    /// Its ORPort.
    pub address: SocketAddrV4,
    /// The advertised bandwidth.
    pub bandwidth: BytesPerSec,
}

/// Why a descriptor cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// A certificate could not be made.
    #[error("cannot certify the relay's keys")]
    Certificate(#[from] CertEncodeError),
    /// A key cannot sign.
    #[error("a key of the relay cannot sign its descriptor")]
    Sign,
}

impl RelayKeys {
    /// The relay's current server descriptor, signed with both identities; authorities accept it
    /// for 18 hours.
    ///
    /// # Errors
    /// [`DescriptorError`], which never happens with keys from [`RelayKeys::generate`].
    pub fn descriptor(&self, facts: &Facts) -> Result<String, DescriptorError> {
        let signers = self.signers();
        let mut text = self.unsigned(facts)?;
        text.push_str("router-sig-ed25519 ");
        let digest = Sha256::new().chain_update(ED25519_PREFIX).chain_update(&text).finalize();
        let signature = signers.signing.sign(&digest).to_bytes();
        text.push_str(&Base64Unpadded::encode_string(&signature));
        text.push_str("\nrouter-signature\n");
        let signature = signers.rsa.sign(&Sha1::digest(&text));
        let signature = signature.map_err(|_| DescriptorError::Sign)?;
        text.push_str(&object("SIGNATURE", &signature));
        Ok(text)
    }

    /// The descriptor without its signatures.
    fn unsigned(&self, facts: &Facts) -> Result<String, DescriptorError> {
        let Facts { nickname, address, bandwidth } = facts;
        let signers = self.signers();
        let (rate, ntor) = (bandwidth.get(), self.ntor_keys().latest());
        // The ntor key proves by a certificate of the identity that both belong to one relay.
        let (ntor_signer, sign_bit) =
            convert_curve25519_to_ed25519_private(ntor.secret()).ok_or(DescriptorError::Sign)?;
        let ntor_cert = Ed25519Cert::builder()
            .cert_type(CertType::NTOR_CC_IDENTITY)
            .expiration(SystemTime::now() + CERT_LIFETIME)
            .cert_key(CertifiedKey::Ed25519(self.ed_identity()))
            .encode_and_sign(&ntor_signer)?;
        let rsa = rsa::PublicKey::from(signers.rsa.public()).to_der();
        // TAP handshakes are not used, but authorities require a key for them (tor 0.4.9).
        let tap = rsa::KeyPair::generate(&mut CautiousRng).map_err(|_| DescriptorError::Sign)?;
        let identities = [self.rsa_identity().as_bytes(), self.ed_identity().as_bytes()].concat();
        let tap_cert = tap.sign(&identities).map_err(|_| DescriptorError::Sign)?;
        Ok(format!(
            "router {nickname} {} {} 0 0\nidentity-ed25519\n{}master-key-ed25519 {}\n\
             bandwidth {rate} {rate} {rate}\nproto {PROTOCOLS}\npublished {}\nfingerprint {}\n\
             onion-key\n{}signing-key\n{}onion-key-crosscert\n{}\
             ntor-onion-key-crosscert {sign_bit}\n{}ntor-onion-key {}\nreject *:*\n",
            address.ip(),
            address.port(),
            object("ED25519 CERT", &signers.signing_cert),
            Base64Unpadded::encode_string(self.ed_identity().as_bytes()),
            stamp(OffsetDateTime::now_utc()),
            spaced(&self.rsa_identity().as_hex_upper()),
            object("RSA PUBLIC KEY", &tap.to_public_key().to_der()),
            object("RSA PUBLIC KEY", &rsa),
            object("CROSSCERT", &tap_cert),
            object("ED25519 CERT", &ntor_cert),
            Base64Unpadded::encode_string(ntor.public().inner().as_bytes()),
        ))
    }
}

/// Bytes as an object of a document, in lines of 64 characters.
fn object(what: &str, bytes: &[u8]) -> String {
    let mut text = format!("-----BEGIN {what}-----\n");
    for (index, character) in Base64::encode_string(bytes).char_indices() {
        if index > 0 && index.is_multiple_of(64) {
            text.push('\n');
        }
        text.push(character);
    }
    text + &format!("\n-----END {what}-----\n")
}

/// Text in groups of four characters.
fn spaced(text: &str) -> String {
    let spaced = text.char_indices().flat_map(|(index, character)| {
        let space = (index > 0 && index.is_multiple_of(4)).then_some(' ');
        space.into_iter().chain([character])
    });
    spaced.collect()
}

/// A time in the format of documents.
fn stamp(time: OffsetDateTime) -> String {
    let (date, (hour, minute, second)) = (time.date(), time.to_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // tests/c_tor tests that authorities accept it.
    #[test]
    fn a_descriptor_has_both_signatures_over_all_before_them() {
        let keys = RelayKeys::generate().expect("keys");
        let facts = Facts {
            nickname: "arti5".to_owned(),
            address: "127.0.1.9:9001".parse().expect("an address"),
            bandwidth: BytesPerSec::new(625_000),
        };
        let text = keys.descriptor(&facts).expect("a descriptor");
        assert!(text.starts_with("router arti5 127.0.1.9 9001 0 0\nidentity-ed25519\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 105), "{text}");
        let (body, signatures) = text.split_once("router-sig-ed25519 ").expect("a signature");
        let (ed25519, rsa) = signatures.split_once('\n').expect("two signatures");
        let signature = Base64Unpadded::decode_vec(ed25519).expect("base64");
        let signature: [u8; 64] = signature.try_into().expect("64 bytes");
        let signed = format!("{body}router-sig-ed25519 ");
        let digest = Sha256::new().chain_update(ED25519_PREFIX).chain_update(signed).finalize();
        assert!(keys.signers().signing.verify(signature.into(), &digest));
        let lines: String = rsa.lines().filter(|line| !line.contains(['-'])).collect();
        let signature = Base64::decode_vec(&lines).expect("base64");
        let signed = text.split_once("-----BEGIN SIGNATURE").expect("a signature").0;
        assert!(keys.signers().rsa.verify(&signature, &Sha1::digest(signed)));
    }
}
