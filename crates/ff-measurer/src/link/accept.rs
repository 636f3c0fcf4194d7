//! Accepts a link as a relay does: TLS, then Tor's handshake in the responder's part.
//!
//! ```text
//!   VERSIONS ────────────────────────────────────────────▶
//!            ◀── VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO
//!   (CERTS, AUTHENTICATE,) NETINFO ──────────────────────▶
//! ```
//!
//! The initiator's identity is not checked: its later cells decide what it may do.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use ff_proto::cell::{CMD_AUTH_CHALLENGE, CMD_NETINFO, CMD_VERSIONS, fixed_cell, variable_cell};
use ff_proto::codec::DecodeError;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::link::gate::LINK_PROTOCOLS;
use crate::link::handshake::into_link;
use crate::link::stream::{Fault, TlsStream};
use crate::link::{Link, LinkError, LinkIdentity, Stage};

/// The initiator's method of authentication: Ed25519, with TLS's exporter (tor-spec 4.4).
const AUTH_METHOD: u16 = 3;

/// Does both handshakes on an accepted socket, within this time limit; runs on tokio.
///
/// # Errors
/// A [`LinkError`] that names the peer. Dropping the future closes the connection.
pub async fn accept(
    tcp: TcpStream,
    identity: &LinkIdentity,
    time: Duration,
) -> Result<Link, LinkError> {
    let deadline = Instant::now() + time;
    let failed = |peer, source| LinkError::Io { peer, stage: Stage::Tcp, source };
    let peer = tcp.peer_addr().map_err(|e| failed(([0; 4], 0).into(), e))?;
    let ours = tcp.local_addr().map_err(|e| failed(peer, e))?;
    tcp.set_nodelay(true).map_err(|e| failed(peer, e))?;
    let greeting = greeting(identity, peer, ours).map_err(|e| LinkError::setup(peer, e))?;
    let mut stream =
        TlsStream::server(tcp, identity.tls.clone()).map_err(|e| LinkError::setup(peer, e))?;
    let late = |stage| LinkError::HandshakeTimeout { peer, stage, after: time };

    timeout_at(deadline, stream.handshake())
        .await
        .map_err(|_| late(Stage::Tls))?
        .map_err(|fault| fault.into_error(peer, Stage::Tls))?;
    timeout_at(deadline, greet(&mut stream, &greeting))
        .await
        .map_err(|_| late(Stage::Tor))?
        .map_err(|fault| fault.into_error(peer, Stage::Tor))?;
    into_link(stream, peer)
}

/// Does the responder's part of Tor's handshake.
async fn greet(stream: &mut TlsStream, greeting: &[u8]) -> Result<(), Fault> {
    stream.until(|gate| gate.is_tor()).await?;
    if stream.gate.link_protocol().is_none() {
        return Err(Fault::NotTor("it supports none of our link protocols"));
    }
    stream.send(greeting).await?;
    stream.until(|gate| gate.is_closed()).await
}

/// The responder's cells of the handshake.
fn greeting(
    identity: &LinkIdentity,
    peer: SocketAddr,
    ours: SocketAddr,
) -> Result<Vec<u8>, DecodeError> {
    // The only cell whose circuit id has two bytes.
    let versions = LINK_PROTOCOLS.map(u16::to_be_bytes);
    let versions = versions.as_flattened();
    let [.., len] = versions.len().to_be_bytes();
    let mut cells = [&[0, 0, CMD_VERSIONS, 0, len], versions].concat();
    cells.extend_from_slice(&identity.certs);
    let mut challenge = rand::random::<[u8; 32]>().to_vec();
    for number in [1, AUTH_METHOD] {
        challenge.extend(number.to_be_bytes());
    }
    cells.extend(variable_cell(CMD_AUTH_CHALLENGE, &challenge)?);
    cells.extend(fixed_cell(0, CMD_NETINFO, &netinfo(peer.ip(), ours.ip()))?);
    Ok(cells)
}

/// The body of NETINFO: the time, the peer's address, and ours.
fn netinfo(peer: IpAddr, ours: IpAddr) -> Vec<u8> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The field's 32 bits last until 2106.
    let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
    [&now.to_be_bytes()[..], &address(peer), &[1], &address(ours)].concat()
}

/// An address in the format of NETINFO: type, length, bytes.
fn address(ip: IpAddr) -> Vec<u8> {
    match ip.to_canonical() {
        IpAddr::V4(ip) => [&[4, 4], &ip.octets()[..]].concat(),
        IpAddr::V6(ip) => [&[6, 16], &ip.octets()[..]].concat(),
    }
}
