//! A small SOCKS 5 client that opens a stream through a Tor client.
//!
//! It has two steps, because a client answers only when its stream is open, which may wait until a
//! controller attaches it to a circuit.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection to a SocksPort with a pending request.
#[derive(Debug)]
pub(crate) struct Pending(TcpStream);

impl Pending {
    /// Connects to a SocksPort and requests a stream to an IPv4 address.
    ///
    /// Streams of different `isolation` (1 to 255 bytes) never share a circuit that the client
    /// chooses.
    pub(crate) fn connect(
        socks: SocketAddr,
        target: SocketAddr,
        isolation: &str,
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(socks)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        // RFC 1928 §3: version 5, one method: username and password (RFC 1929).
        socket.write_all(&[5, 1, 2])?;
        expect(&mut socket, [5, 2], "the method")?;
        let length = u8::try_from(isolation.len()).map_err(io::Error::other)?;
        let mut auth = vec![1, length];
        auth.extend(isolation.bytes());
        auth.extend([1, b'x']);
        socket.write_all(&auth)?;
        expect(&mut socket, [1, 0], "user and password")?;
        let SocketAddr::V4(target) = target else {
            return Err(io::Error::other("not an IPv4 address"));
        };
        // RFC 1928 §4: CONNECT to an IPv4 address.
        let mut request = vec![5, 1, 0, 1];
        request.extend(target.ip().octets());
        request.extend(target.port().to_be_bytes());
        socket.write_all(&request)?;
        Ok(Self(socket))
    }

    /// Source address of the connection, as the client sees it.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits for the answer; then the socket is the stream.
    pub(crate) fn open(mut self) -> io::Result<TcpStream> {
        let mut reply = [0; 10];
        self.0.read_exact(&mut reply)?;
        match reply {
            [5, 0, ..] => Ok(self.0),
            [_, code, ..] => Err(io::Error::other(format!("SOCKS reply {code}"))),
        }
    }
}

/// Longest wait for a client's answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Reads two bytes and compares them.
fn expect(socket: &mut TcpStream, expected: [u8; 2], what: &str) -> io::Result<()> {
    let mut reply = [0; 2];
    socket.read_exact(&mut reply)?;
    let refused = || io::Error::other(format!("the SocksPort refused {what}: {reply:?}"));
    (reply == expected).then_some(()).ok_or_else(refused)
}
