//! As much of SOCKS 5 as a test needs to open a stream through a client.
//!
//! In two steps, because a client answers only when its stream is open, and that may wait for
//! somebody to put it on a circuit.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection to a SocksPort that has asked for a stream.
#[derive(Debug)]
pub(crate) struct Pending(TcpStream);

impl Pending {
    /// Connects to a SocksPort and asks for a stream to an IPv4 address.
    ///
    /// Streams with different `isolation` (1 to 255 bytes) never share a circuit of the
    /// client's own choice.
    pub(crate) fn connect(
        socks: SocketAddr,
        target: SocketAddr,
        isolation: &str,
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(socks)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        // RFC 1928 §3: version 5, one method, and that is user and password (RFC 1929).
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

    /// The address the client sees the connection coming from.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Waits for the answer; from then on the socket is the stream.
    pub(crate) fn open(mut self) -> io::Result<TcpStream> {
        let mut reply = [0; 10];
        self.0.read_exact(&mut reply)?;
        match reply {
            [5, 0, ..] => Ok(self.0),
            [_, code, ..] => Err(io::Error::other(format!("SOCKS reply {code}"))),
        }
    }
}

/// How long a client may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Reads two bytes that must be these.
fn expect(socket: &mut TcpStream, expected: [u8; 2], what: &str) -> io::Result<()> {
    let mut reply = [0; 2];
    socket.read_exact(&mut reply)?;
    let refused = || io::Error::other(format!("the SocksPort refused {what}: {reply:?}"));
    (reply == expected).then_some(()).ok_or_else(refused)
}
