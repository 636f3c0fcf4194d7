//! Lets tor-proto's handshake read the peer's cells up to NETINFO, and no byte after it.
//!
//! tor-proto reads as much as its stream has and keeps the rest in a private buffer. Bytes after
//! NETINFO belong to the measurement. So the stream passes all plaintext through a [`Gate`], which
//! releases only whole cells and closes after NETINFO. It also notes the link protocol and the
//! identity that the relay claims, for error messages.

use ff_proto::cell::{CMD_CERTS, CMD_NETINFO, CMD_VERSIONS, peek_cell};
use tor_llcrypto::pk::ed25519::Ed25519Identity;

/// The plaintext of a link during its handshake.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Received bytes that the handshake has not read.
    plain: Vec<u8>,
    /// The number of bytes at the front of `plain` that are whole cells up to NETINFO.
    released: usize,
    /// The cell expected next.
    state: State,
    /// Bytes received so far.
    total: usize,
    /// The highest link protocol that both sides support.
    link_protocol: Option<u16>,
    /// The content of the CERTS cell, unverified.
    claimed: Option<Claimed>,
}

/// The state of a [`Gate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The VERSIONS cell, the only one with a circuit id of two bytes.
    #[default]
    Versions,
    /// Any cell until NETINFO.
    Handshake,
    /// None: NETINFO has passed.
    Closed,
}

/// The identity in a CERTS cell; `None` if it has no readable Ed25519 identity.
pub(super) type Claimed = Option<Ed25519Identity>;

impl Gate {
    /// Takes plaintext from the TLS connection.
    ///
    /// # Errors
    /// A text with the reason why this is not the start of a Tor link.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.plain.extend_from_slice(bytes);
        self.total += bytes.len();
        while self.step()? {}
        if self.state != State::Closed && self.total > MAX_HANDSHAKE_BYTES {
            return Err("its link handshake is too long");
        }
        Ok(())
    }

    /// Moves released bytes into `out` and returns how many.
    pub(super) fn take(&mut self, out: &mut [u8]) -> usize {
        let len = self.released.min(out.len());
        out[..len].copy_from_slice(&self.plain[..len]);
        self.plain.drain(..len);
        self.released -= len;
        len
    }

    /// Whether the peer has sent a VERSIONS cell.
    pub(super) fn is_tor(&self) -> bool {
        self.state != State::Versions
    }

    /// The highest link protocol that both sides support.
    pub(super) fn link_protocol(&self) -> Option<u16> {
        self.link_protocol
    }

    /// The identity the CERTS cell claims; `None` before that cell.
    pub(super) fn claimed(&self) -> Option<Claimed> {
        self.claimed
    }

    /// Whether NETINFO has passed.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The bytes after NETINFO.
    pub(super) fn into_rest(mut self) -> Vec<u8> {
        self.plain.split_off(self.released)
    }

    /// Releases the next cell if it is whole; returns whether to try again.
    fn step(&mut self) -> Result<bool, &'static str> {
        let ahead = &self.plain[self.released..];
        match self.state {
            State::Closed => Ok(false),
            State::Versions => {
                if ahead.get(2).is_some_and(|&command| command != CMD_VERSIONS) {
                    return Err("its first cell is not VERSIONS");
                }
                let Some(versions) = versions_body(ahead) else { return Ok(false) };
                self.link_protocol = best_protocol(versions);
                self.released += VERSIONS_HEADER_LEN + versions.len();
                self.state = State::Handshake;
                Ok(true)
            }
            State::Handshake => {
                let Some(cell) = peek_cell(ahead) else { return Ok(false) };
                match cell.command {
                    CMD_CERTS => self.claimed = Some(claimed_identity(cell.body)),
                    CMD_NETINFO => self.state = State::Closed,
                    _ => {}
                }
                self.released += cell.wire_len;
                Ok(true)
            }
        }
    }
}

/// The body of a whole VERSIONS cell: `circ_id [2] command [1] length [2] body`.
fn versions_body(cell: &[u8]) -> Option<&[u8]> {
    let (&[_, _, _, hi, lo], rest) = cell.split_first_chunk::<VERSIONS_HEADER_LEN>()?;
    rest.get(..usize::from(u16::from_be_bytes([hi, lo])))
}

/// The highest link protocol in a VERSIONS body that tor-proto also supports.
fn best_protocol(body: &[u8]) -> Option<u16> {
    let offered = body.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    offered.filter(|version| LINK_PROTOCOLS.contains(version)).max()
}

/// Reads the Ed25519 identity from a CERTS body, without verifying anything.
///
/// tor-spec, "CERTS cells": `n [1]`, then n times `type [1] length [2] certificate`.
fn claimed_identity(body: &[u8]) -> Claimed {
    let (&count, mut rest) = body.split_first()?;
    for _ in 0..count {
        let (&[kind, hi, lo], after) = rest.split_first_chunk::<3>()?;
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        let cert = after.get(..len)?;
        if kind == CERT_IDENTITY_SIGNING {
            let cert = tor_cert::Ed25519Cert::decode(cert).ok()?;
            return Some(*cert.should_have_signing_key().ok()?.peek_signing_key());
        }
        rest = &after[len..];
    }
    None
}

/// The largest number of bytes that a relay may send before its NETINFO cell has passed.
///
/// A real handshake takes about 3 KB; one cell takes at most 65,542 bytes.
const MAX_HANDSHAKE_BYTES: usize = 128 * 1024;
/// Length of a VERSIONS cell before its body, in bytes.
const VERSIONS_HEADER_LEN: usize = 5;
/// The link protocols tor-proto offers.
pub(super) const LINK_PROTOCOLS: [u16; 2] = [4, 5];
/// tor-spec, CERTS: the Ed25519 certificate of the signing key, made with the identity key.
const CERT_IDENTITY_SIGNING: u8 = 4;

#[cfg(test)]
mod tests {
    use ff_proto::cell::{CELL_LEN, CMD_PADDING, fixed_cell};
    use proptest::prelude::*;

    use super::*;

    /// VERSIONS with the protocols 3, 4, 5 and 6; an empty CERTS; NETINFO.
    fn handshake() -> Vec<u8> {
        let mut bytes = vec![0, 0, 7, 0, 8, 0, 3, 0, 4, 0, 5, 0, 6];
        bytes.extend([0, 0, 0, 0, CMD_CERTS, 0, 1, 0]);
        bytes.extend(fixed_cell(0, CMD_NETINFO, &[1, 2, 3]).expect("short body"));
        bytes
    }

    #[test]
    fn nothing_passes_behind_netinfo() {
        let mut wire = handshake();
        let len = wire.len();
        wire.extend(fixed_cell(0, CMD_PADDING, &[]).expect("short body"));
        wire.extend([1, 2, 3]);
        let mut gate = Gate::default();
        gate.push(&wire).expect("a Tor link");
        let mut out = vec![0; wire.len()];
        assert_eq!(gate.take(&mut out), len);
        assert_eq!(gate.take(&mut out), 0);
        assert_eq!(gate.link_protocol(), Some(5));
        assert_eq!(gate.claimed(), Some(None));
        assert_eq!(gate.into_rest().len(), CELL_LEN + 3);
    }

    #[test]
    fn cells_pass_whole_however_they_arrive() {
        let wire = handshake();
        let mut gate = Gate::default();
        let mut passed = Vec::new();
        for byte in &wire {
            gate.push(&[*byte]).expect("a Tor link");
            let mut out = [0; 1024];
            let len = gate.take(&mut out);
            passed.extend_from_slice(&out[..len]);
            assert!([0, 13, 21, wire.len()].contains(&passed.len()));
        }
        assert_eq!(passed, wire);
    }

    #[test]
    fn web_server_is_not_tor() {
        assert!(Gate::default().push(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    }

    #[test]
    fn endless_handshake_is_refused() {
        let mut gate = Gate::default();
        gate.push(&handshake()[..13]).expect("VERSIONS");
        let vpadding = [&[0, 0, 0, 0, 128, 255, 255][..], &[0; 65_535]].concat();
        assert!((0..3).any(|_| gate.push(&vpadding).is_err()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Gate::default().push(&bytes);
            let mut gate = Gate::default();
            let _ = gate.push(&handshake()[..13]);
            let _ = gate.push(&bytes);
            let _ = claimed_identity(&bytes);
        }
    }
}
