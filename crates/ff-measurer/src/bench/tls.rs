//! TLS between the bench's own threads: settings, and handshakes over blocking sockets.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConfig, ServerConnection};
use tor_cert::x509::TlsKeyAndCert;

use super::{BenchError, io};

/// The server's settings, with a fresh certificate of the kind that tor's relays have.
pub(super) fn server_config() -> Result<Arc<ServerConfig>, BenchError> {
    let mut rng = tor_llcrypto::rng::CautiousRng;
    let identity =
        TlsKeyAndCert::create(&mut rng, SystemTime::now(), "www.bench.net", "www.bench.com")?;
    let key = identity.private_key_pkcs8_der()?;
    Ok(Arc::new(crate::link::server_config(&identity.certificates_der(), &key)?))
}

/// A listener on loopback.
pub(super) fn listen() -> Result<TcpListener, BenchError> {
    TcpListener::bind(("127.0.0.1", 0)).map_err(io("listening on loopback"))
}

/// Connects to a listener.
pub(super) fn connect(addr: std::net::SocketAddr) -> Result<TcpStream, BenchError> {
    let tcp = TcpStream::connect(addr).map_err(io("connecting over loopback"))?;
    tcp.set_nodelay(true).map_err(io("setting TCP_NODELAY"))?;
    Ok(tcp)
}

/// The client's handshake, with the settings of a link.
pub(super) fn client(tcp: &mut TcpStream) -> Result<ClientConnection, BenchError> {
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let mut tls = ClientConnection::new(crate::link::client_config()?, name)?;
    while tls.is_handshaking() {
        tls.complete_io(tcp).map_err(io("the TLS handshake"))?;
    }
    Ok(tls)
}

/// The server's handshake.
pub(super) fn server(
    tcp: &mut TcpStream,
    config: &Arc<ServerConfig>,
) -> Result<ServerConnection, BenchError> {
    let mut tls = ServerConnection::new(config.clone())?;
    while tls.is_handshaking() {
        tls.complete_io(tcp).map_err(io("the TLS handshake"))?;
    }
    Ok(tls)
}
