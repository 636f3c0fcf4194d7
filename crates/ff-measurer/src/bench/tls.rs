//! TLS between the bench's own threads: configuration, and handshakes over blocking sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConfig, ServerConnection};
use tor_cert::x509::TlsKeyAndCert;

use super::{BenchError, io};
use crate::link::record::HEADER;
use crate::window::MIN_NAP;

/// The server's configuration, with a fresh certificate like those of tor's relays.
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

/// A socket that is read one record at a time: later bytes would be lost in rustls, because the
/// keys are taken out of it after the handshake.
struct Records<'a> {
    tcp: &'a mut TcpStream,
    /// Bytes of the current record that have not been read yet.
    left: usize,
}

impl Read for Records<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut header = [0; HEADER];
        while self.left == 0 {
            match self.tcp.peek(&mut header)? {
                0 => return Ok(0),
                HEADER => {
                    self.left = HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
                }
                _ => std::thread::sleep(MIN_NAP),
            }
        }
        let room = buffer.len().min(self.left);
        let len = self.tcp.read(&mut buffer[..room])?;
        self.left -= len;
        Ok(len)
    }
}

impl Write for Records<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.tcp.flush()
    }
}

/// The client's handshake, with the configuration of a link.
pub(super) fn client(tcp: &mut TcpStream) -> Result<ClientConnection, BenchError> {
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let mut tls = ClientConnection::new(crate::link::client_config()?, name)?;
    let mut records = Records { tcp, left: 0 };
    while tls.is_handshaking() {
        tls.complete_io(&mut records).map_err(io("the TLS handshake"))?;
    }
    Ok(tls)
}

/// The server's handshake.
pub(super) fn server(
    tcp: &mut TcpStream,
    config: &Arc<ServerConfig>,
) -> Result<ServerConnection, BenchError> {
    let mut tls = ServerConnection::new(config.clone())?;
    let mut records = Records { tcp, left: 0 };
    while tls.is_handshaking() {
        tls.complete_io(&mut records).map_err(io("the TLS handshake"))?;
    }
    Ok(tls)
}
