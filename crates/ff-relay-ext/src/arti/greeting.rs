//! The identity that the other end of a link shows when the link opens.
//!
//! A relay sends VERSIONS, CERTS and NETINFO, and AUTHENTICATE too on links that it has opened; a
//! client sends no CERTS (tor-spec, "Negotiating and initializing channels"). The identity is only
//! read here. tor-proto gets the same cells, checks the signatures, and closes the link if one is
//! wrong.

use std::ops::Range;

use ff_proto::cell::{CMD_VPADDING, peek_cell};
use tor_bytes::Reader;
use tor_cell::chancell::msg::{Body as _, Certs};
use tor_cert::CertType;
use tor_llcrypto::util::x509_extract_rsa_subject_kludge;

/// Bytes after which a peer that has not said NETINFO counts as a client: tor-proto checks its
/// identity only then.
const MAX_LEN: usize = 16 * 1024;
/// The header of VERSIONS, whose circuit id has two bytes.
const VERSIONS_HEADER_LEN: usize = 5;
/// tor-spec: CERTS.
const CMD_CERTS: u8 = 129;
/// tor-spec: AUTH_CHALLENGE.
const CMD_AUTH_CHALLENGE: u8 = 130;
/// tor-spec: AUTHENTICATE.
const CMD_AUTHENTICATE: u8 = 131;

/// A relay's RSA identity, by which consensuses list it.
pub(super) type RelayId = [u8; 20];

/// Reads the first cells of a link's other end.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The bytes so far; `None` once they have been judged.
    bytes: Option<Vec<u8>>,
    /// The number of them in cells that have been read.
    read: usize,
    /// The place of the body of CERTS among the bytes; empty without it.
    certs: Range<usize>,
    /// Whether tor-proto makes the peer prove its identity: by TLS, if this relay has opened the
    /// link, and else by AUTHENTICATE.
    is_proved: bool,
}

impl Greeting {
    /// Of the peer that accepted this relay's link.
    pub(super) fn of_accepting() -> Self {
        Self { is_proved: true, ..Self::of_opening() }
    }

    /// Of the peer that opened the link.
    pub(super) const fn of_opening() -> Self {
        Self { bytes: Some(Vec::new()), read: 0, certs: 0..0, is_proved: false }
    }

    /// Takes bytes that the peer has sent. Once it has said enough, returns the identity that it
    /// has shown, or `None` in it for a client; later bytes are ignored.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Option<RelayId>> {
        let kept = self.bytes.as_mut()?;
        kept.extend_from_slice(&bytes[..bytes.len().min(MAX_LEN - kept.len())]);
        let is_full = kept.len() == MAX_LEN;
        let is_over = self.read_cells();
        if !is_over && !is_full {
            return None;
        }
        let bytes = self.bytes.take()?;
        // Only what will be verified is worth reading.
        let is_verified = self.is_proved && is_over;
        Some(if is_verified { identity(&bytes[self.certs.clone()]) } else { None })
    }

    /// Reads the whole cells; returns whether the greeting is over.
    fn read_cells(&mut self) -> bool {
        let Some(bytes) = &self.bytes else { return true };
        if self.read == 0 {
            self.read = versions_len(bytes).unwrap_or(0);
        }
        while self.read > 0
            && let Some(cell) = peek_cell(&bytes[self.read..])
        {
            let end = self.read + cell.wire_len;
            match cell.command {
                CMD_VPADDING | CMD_AUTH_CHALLENGE => {}
                CMD_CERTS if self.certs.is_empty() => self.certs = end - cell.body.len()..end,
                CMD_CERTS => {}
                CMD_AUTHENTICATE => self.is_proved = true,
                // NETINFO, or what has no place here.
                _ => return true,
            }
            self.read = end;
        }
        false
    }
}

/// The length of VERSIONS at the front, if it is complete. Its circuit id has two bytes.
fn versions_len(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low] = bytes.first_chunk()?;
    let len = VERSIONS_HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
    (len <= bytes.len()).then_some(len)
}

/// The RSA identity in the body of a CERTS cell, as tor-proto finds it.
fn identity(body: &[u8]) -> Option<RelayId> {
    let mut reader = Reader::from_slice(body);
    let certs = Certs::decode_from_reader(&mut reader).ok()?;
    let key = x509_extract_rsa_subject_kludge(certs.cert_body(CertType::RSA_ID_X509)?)?;
    Some(key.to_rsa_identity().to_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ff_proto::cell::{fixed_cell, variable_cell};
    use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tor_rtcompat::TlsProvider as _;
    use tor_rtcompat::tls::TlsConnector as _;
    use tor_rtcompat::tokio::TokioRustlsRuntime;

    use super::*;
    use crate::arti::host::RelayHost;
    use crate::arti::relay::RelayTcp;
    use crate::options::TargetOptions;

    /// What a relay of Arti's crates sends to a client until it has introduced itself, and its
    /// identity.
    fn of_a_relay() -> (Vec<u8>, RelayId) {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        let relay = RelayHost::start(policy, None, None).expect("a relay");
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sent = tokio.expect("a runtime").block_on(async {
            let runtime = TokioRustlsRuntime::current().expect("in a runtime");
            let tcp = tokio::net::TcpStream::connect(relay.addr()).await.expect("a connection");
            let tcp: RelayTcp = tcp.into();
            let mut tls = runtime
                .tls_connector()
                .negotiate_unvalidated(tcp, "www.example.com")
                .await
                .expect("TLS");
            tls.write_all(&[0, 0, 7, 0, 2, 0, 4]).await.expect("VERSIONS");
            tls.flush().await.expect("VERSIONS");
            let mut greeting = Greeting::of_accepting();
            let mut sent = Vec::new();
            let mut byte = [0];
            loop {
                tls.read_exact(&mut byte).await.expect("a greeting");
                sent.push(byte[0]);
                if let Some(shown) = greeting.take(&byte) {
                    assert_eq!(shown, Some(relay.keys().rsa_identity().to_bytes()));
                    assert_eq!(greeting.take(&byte), None, "a second time");
                    return sent;
                }
            }
        });
        (sent, relay.keys().rsa_identity().to_bytes())
    }

    /// What a greeting shows of these bytes, in pieces of this length.
    fn shown(mut greeting: Greeting, bytes: &[u8], len: usize) -> Option<Option<RelayId>> {
        let found: Vec<_> = bytes.chunks(len).filter_map(|piece| greeting.take(piece)).collect();
        assert!(found.len() <= 1, "{found:?}");
        found.first().copied()
    }

    #[test]
    fn a_relay_that_proves_its_identity_has_shown_it() {
        let (sent, id) = of_a_relay();
        let netinfo = sent.len() - ff_proto::cell::CELL_LEN;
        let proof = variable_cell(CMD_AUTHENTICATE, &[0; 300]).unwrap();
        let proved = [&sent[..netinfo], &proof, &sent[netinfo..]].concat();
        for len in [1, 7, 514, 100_000] {
            assert_eq!(shown(Greeting::of_accepting(), &sent, len), Some(Some(id)));
            assert_eq!(shown(Greeting::of_opening(), &proved, len), Some(Some(id)));
            // It may be a copy of another relay's.
            assert_eq!(shown(Greeting::of_opening(), &sent, len), Some(None));
            assert_eq!(shown(Greeting::of_accepting(), &sent[..netinfo], len), None);
            // tor-proto has not checked the proof yet.
            let padding = variable_cell(CMD_VPADDING, &[0; 60_000]).unwrap();
            let unchecked = [&sent[..netinfo], &proof, &padding].concat();
            assert_eq!(shown(Greeting::of_opening(), &unchecked, len), Some(None));
        }
    }

    #[test]
    fn a_client_shows_nothing() {
        let versions = [0, 0, 7, 0, 4, 0, 4, 0, 5];
        let netinfo = fixed_cell(0, 8, &[0; 20]).unwrap();
        let padding = variable_cell(CMD_VPADDING, &[0; 1000]).unwrap();
        let proof = variable_cell(CMD_AUTHENTICATE, &[0; 300]).unwrap();
        let long: Vec<_> = padding.iter().copied().cycle().take(2 * MAX_LEN).collect();
        for (rest, expected) in [
            (netinfo.to_vec(), Some(None)),
            ([&padding[..], &proof, &netinfo].concat(), Some(None)),
            (vec![0, 0, 0, 1, 5], None),
            (fixed_cell(1, 5, &[]).unwrap().to_vec(), Some(None)),
            (
                [&[0, 0, 0, 0, CMD_CERTS, 0, 3, 200, 1, 2][..], &proof, &netinfo].concat(),
                Some(None),
            ),
            (long, Some(None)),
            (Vec::new(), None),
        ] {
            let bytes = [&versions[..], &rest].concat();
            assert_eq!(shown(Greeting::of_opening(), &bytes, 100), expected, "{rest:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..2000), len in 1..300_usize) {
            let _ = shown(Greeting::of_opening(), &bytes, len);
            let _ = shown(Greeting::of_accepting(), &bytes, len);
        }
    }
}
