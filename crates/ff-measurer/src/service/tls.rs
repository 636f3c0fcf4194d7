//! TLS between a coordinator and its measurers, which identify each other only by their Ed25519
//! keys.
//!
//! The keys are sent as raw public keys (RFC 7250), so there are no certificates that expire or
//! must be signed. TLS 1.3 only, without resumption.
//!
//! Decisions: doc/decisions.md, "Hosts know each other by raw public keys".

use std::sync::Arc;

use ed25519_dalek::SigningKey;
use ff_proto::ids::Ed25519Id;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_eddsa_type};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use zeroize::Zeroizing;

use super::words::Unknown;

/// The bytes before an Ed25519 public key in its SubjectPublicKeyInfo (RFC 8410 §4).
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The bytes before an Ed25519 private key in PKCS #8 (RFC 8410 §7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// HTTP/2, as gRPC needs it.
const ALPN: &[u8] = b"h2";

/// Decides whether a peer may connect; called at each handshake.
pub type IsAllowed = Arc<dyn Fn(&Ed25519Id) -> bool + Send + Sync>;

/// The configuration of the client, which accepts only this peer.
///
/// # Errors
/// When rustls refuses it.
pub fn client_config(key: &SigningKey, peer: Ed25519Id) -> Result<ClientConfig, Error> {
    let own = AlwaysResolvesClientRawPublicKeys::new(certified(key)?);
    let verifier = Arc::new(Pinned::new(Arc::new(move |id| *id == peer)));
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(own));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// The configuration of the server.
///
/// # Errors
/// When rustls refuses it.
pub fn server_config(key: &SigningKey, is_allowed: IsAllowed) -> Result<ServerConfig, Error> {
    let own = AlwaysResolvesServerRawPublicKeys::new(certified(key)?);
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(Pinned::new(is_allowed)))
        .with_cert_resolver(Arc::new(own));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The key of an accepted peer.
#[must_use]
pub fn peer_id(certificates: Option<&[CertificateDer<'_>]>) -> Option<Ed25519Id> {
    id_of(certificates?.first()?)
}

/// A key in rustls's form.
fn certified(key: &SigningKey) -> Result<Arc<CertifiedKey>, Error> {
    let private = Zeroizing::new([PKCS8_PREFIX.as_slice(), key.as_bytes()].concat());
    let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(private.as_slice()))?;
    let public = [SPKI_PREFIX.as_slice(), key.verifying_key().as_bytes()].concat();
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signer)))
}

/// The Ed25519 key in a raw public key.
fn id_of(spki: &CertificateDer<'_>) -> Option<Ed25519Id> {
    let key = spki.strip_prefix(SPKI_PREFIX.as_slice())?;
    Some(Ed25519Id(key.try_into().ok()?))
}

/// Accepts allowed peers that prove their key.
struct Pinned {
    is_allowed: IsAllowed,
    /// The supported signature algorithms.
    algorithms: WebPkiSupportedAlgorithms,
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinned").finish_non_exhaustive()
    }
}

impl Pinned {
    /// Accepts the peers for which this function returns true.
    fn new(is_allowed: IsAllowed) -> Self {
        Self { is_allowed, algorithms: default_provider().signature_verification_algorithms }
    }

    /// Fails unless the peer is allowed.
    fn check(&self, spki: &CertificateDer<'_>) -> Result<(), Error> {
        let id = id_of(spki).ok_or(CertificateError::BadEncoding)?;
        if (self.is_allowed)(&id) { Ok(()) } else { Err(Unknown(id).into()) }
    }
}

/// The methods with which both verifiers check a handshake's signature: it must be made with the
/// raw public key of the peer. TLS 1.2 is refused.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(spki.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, Connection, ServerConnection};

    use super::*;

    /// A key for tests.
    fn key(byte: u8) -> SigningKey {
        SigningKey::from_bytes(&[byte; 32])
    }

    /// A key's identity.
    fn id(key: &SigningKey) -> Ed25519Id {
        Ed25519Id(key.verifying_key().to_bytes())
    }

    /// One's public key with another's signatures.
    fn impostor(shown: &SigningKey, held: &SigningKey) -> Arc<CertifiedKey> {
        let (shown, held) = (certified(shown).expect("a key"), certified(held).expect("a key"));
        Arc::new(CertifiedKey::new(shown.cert.clone(), held.key.clone()))
    }

    /// Moves all bytes that one end has to send to the other.
    fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
        let mut bytes = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut bytes).expect("writing to memory");
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            to.read_tls(&mut rest).expect("reading from memory");
            to.process_new_packets()?;
        }
        Ok(())
    }

    /// The first error of a handshake, if it fails.
    fn handshake(client: ClientConfig, server: ServerConfig) -> Result<(), Error> {
        let name = ServerName::try_from("measurer").expect("a name");
        let mut client = Connection::Client(ClientConnection::new(Arc::new(client), name)?);
        let mut server = Connection::Server(ServerConnection::new(Arc::new(server))?);
        for _ in 0..4 {
            pass(&mut client, &mut server)?;
            pass(&mut server, &mut client)?;
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        Ok(())
    }

    /// The identity that a failed handshake did not expect.
    fn unexpected(result: Result<(), Error>) -> Option<Ed25519Id> {
        let Err(Error::InvalidCertificate(CertificateError::Other(other))) = result else {
            return None;
        };
        other.0.downcast_ref::<Unknown>().map(|unknown| unknown.0)
    }

    /// The configurations of both ends, which expect each other.
    fn both(coordinator: &SigningKey, measurer: &SigningKey) -> (ClientConfig, ServerConfig) {
        let expected = id(coordinator);
        let is_allowed: IsAllowed = Arc::new(move |id| *id == expected);
        let client = client_config(coordinator, id(measurer)).expect("settings");
        (client, server_config(measurer, is_allowed).expect("settings"))
    }

    #[test]
    fn each_end_takes_the_expected_key_only() {
        let (coordinator, measurer, stranger) = (key(1), key(2), key(3));
        let (client, server) = both(&coordinator, &measurer);
        handshake(client, server).expect("both are expected");

        let (client, _) = both(&coordinator, &measurer);
        let (_, server) = both(&coordinator, &stranger);
        assert_eq!(unexpected(handshake(client, server)), Some(id(&stranger)));

        let (client, _) = both(&stranger, &measurer);
        let (_, server) = both(&coordinator, &measurer);
        assert_eq!(unexpected(handshake(client, server)), Some(id(&stranger)));
    }

    #[test]
    fn each_end_must_hold_the_key_that_it_shows() {
        let (coordinator, measurer, stranger) = (key(1), key(2), key(3));
        let refused = Err(Error::InvalidCertificate(CertificateError::BadSignature));

        let (client, mut server) = both(&coordinator, &measurer);
        let shown = impostor(&measurer, &stranger);
        server.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown));
        assert_eq!(handshake(client, server), refused);

        let (mut client, server) = both(&coordinator, &measurer);
        let shown = impostor(&coordinator, &stranger);
        client.client_auth_cert_resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown));
        assert_eq!(handshake(client, server), refused);
    }
}
