//! The stream for opening a link: TCP and rustls, lent to tor-proto and taken back.
//!
//! [`TlsStream`] reads ciphertext into its own buffer and gives rustls one whole record at a time.
//! So when the link is open, every received byte is either plaintext in the [`Gate`] or ciphertext
//! here, and none is left inside rustls. [`Lent`] is the handle that tor-proto owns; afterwards
//! [`Lent::take_back`] returns the stream.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustls::{AlertDescription, ClientConnection, Connection, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tor_rtcompat::StreamOps;

use crate::link::gate::Gate;
use crate::link::record::{HEADER, MAX_WIRE};
use crate::link::{LinkError, Stage, tls};

/// Why the stream failed, without the address.
///
/// tor-proto turns every I/O error into its own kind, so the stream keeps the cause here.
#[derive(Debug)]
pub(super) enum Fault {
    /// The peer's bytes are not TLS 1.3.
    NotTls(String),
    /// The TLS handshake failed for another reason.
    Tls(rustls::Error),
    /// TLS works, but the plaintext is not a Tor link.
    NotTor(&'static str),
    /// The peer closed the connection.
    Closed,
    /// Any other failure of the socket.
    Io(io::Error),
}

impl Fault {
    /// The error of the link for this fault.
    pub(super) fn into_error(self, peer: SocketAddr, stage: Stage) -> LinkError {
        match self {
            Self::NotTls(detail) => LinkError::NotTls { peer, detail },
            Self::Tls(source) => LinkError::Tls { peer, source },
            Self::NotTor(detail) => LinkError::NotTor { peer, detail },
            Self::Closed => LinkError::Closed { peer, stage },
            Self::Io(source) => LinkError::Io { peer, stage, source },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl From<rustls::Error> for Fault {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidMessage(_)
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
                Self::NotTls(error.to_string())
            }
            _ => Self::Tls(error),
        }
    }
}

/// TCP, TLS and the cell gate of a link during its handshake.
pub(super) struct TlsStream {
    /// The socket.
    pub(super) tcp: TcpStream,
    pub(super) tls: Connection,
    /// Decrypted bytes for tor-proto.
    pub(super) gate: Gate,
    /// Ciphertext not yet given to rustls. Usually short: a read rarely has more than one flight of
    /// the handshake.
    pub(super) ciphertext: Vec<u8>,
    /// Why the stream has failed, if it has.
    pub(super) fault: Option<Fault>,
}

impl TlsStream {
    /// Starts TLS over a connected socket; nothing is sent yet.
    pub(super) fn client(tcp: TcpStream, peer: SocketAddr) -> Result<Self, rustls::Error> {
        let tls = ClientConnection::new(tls::client_config()?, peer.ip().into())?;
        Ok(Self::new(tcp, tls.into()))
    }

    /// Prepares TLS on an accepted socket.
    pub(super) fn server(tcp: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self::new(tcp, ServerConnection::new(config)?.into()))
    }

    /// A stream before its first byte.
    fn new(tcp: TcpStream, tls: Connection) -> Self {
        Self { tcp, tls, gate: Gate::default(), ciphertext: Vec::new(), fault: None }
    }

    /// Does the TLS handshake.
    pub(super) async fn handshake(&mut self) -> Result<(), Fault> {
        std::future::poll_fn(|cx| self.poll_handshake(cx)).await
    }

    /// Alternates between sending and receiving until both sides have finished.
    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_record(cx))?;
        }
    }

    /// Receives until the gate fulfils this condition.
    pub(super) async fn until(&mut self, is_so: impl Fn(&Gate) -> bool) -> Result<(), Fault> {
        while !is_so(&self.gate) {
            std::future::poll_fn(|cx| self.poll_record(cx)).await?;
        }
        Ok(())
    }

    /// Sends bytes of the handshake, which fit into rustls's buffer.
    pub(super) async fn send(&mut self, plain: &[u8]) -> Result<(), Fault> {
        self.tls.writer().write_all(plain)?;
        std::future::poll_fn(|cx| self.poll_send(cx)).await
    }

    /// Gives released plaintext to the reader.
    fn poll_take(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, Fault>> {
        loop {
            let len = self.gate.take(out);
            if len > 0 || out.is_empty() {
                return Poll::Ready(Ok(len));
            }
            ready!(self.poll_record(cx))?;
        }
    }

    /// Waits for one record and lets rustls process it.
    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            if let Some(len) = whole_record(&self.ciphertext)? {
                let processed = self.process(len);
                if processed.is_err() {
                    // Best effort: sends the peer an alert with the reason.
                    let _ = self.poll_send(cx);
                }
                return Poll::Ready(processed);
            }
            ready!(self.poll_fill(cx))?;
        }
    }

    /// Reads more ciphertext from the socket.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        // Linux leaves this mode by itself. Without it the acknowledgement waits for up to 40 ms,
        // and the handshake takes 46 ms instead of 2 on loopback.
        self.tcp.set_quickack(true).map_err(Fault::Io)?;
        let mut chunk = [0; READ_BYTES];
        let mut chunk = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut chunk))?;
        if chunk.filled().is_empty() {
            return Poll::Ready(Err(Fault::Closed));
        }
        self.ciphertext.extend_from_slice(chunk.filled());
        Poll::Ready(Ok(()))
    }

    /// Gives rustls the first record of the ciphertext, of `len` bytes.
    fn process(&mut self, len: usize) -> Result<(), Fault> {
        let mut record = &self.ciphertext[..len];
        while !record.is_empty() {
            // rustls has room for a whole record, so the loop ends.
            if self.tls.read_tls(&mut record)? == 0 {
                return Err(Fault::Closed);
            }
        }
        self.ciphertext.drain(..len);
        let state = self.tls.process_new_packets()?;
        let mut plain = vec![0; state.plaintext_bytes_to_read()];
        self.tls.reader().read_exact(&mut plain)?;
        self.gate.push(&plain).map_err(Fault::NotTor)?;
        if state.peer_has_closed() { Err(Fault::Closed) } else { Ok(()) }
    }

    /// Sends all bytes that rustls has to send.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while self.tls.wants_write() {
            let mut socket = Socket { tcp: &mut self.tcp, cx };
            match self.tls.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(Fault::Closed)),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts `plain`, as far as rustls has room, and sends what the socket accepts.
    fn poll_put(&mut self, cx: &mut Context<'_>, plain: &[u8]) -> Poll<Result<usize, Fault>> {
        let mut len = self.tls.writer().write(plain)?;
        if len == 0 && !plain.is_empty() {
            ready!(self.poll_send(cx))?;
            len = self.tls.writer().write(plain)?;
        }
        match self.poll_send(cx) {
            Poll::Ready(Err(fault)) => Poll::Ready(Err(fault)),
            // The flush sends the bytes that the socket does not accept now.
            _ => Poll::Ready(Ok(len)),
        }
    }
}

/// Length of the record at the front of `bytes`, if it is whole.
fn whole_record(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    if let Some(&kind) = bytes.first()
        && !RECORD_TYPES.contains(&kind)
    {
        let shown: String = bytes.iter().take(12).map(|b| b.escape_ascii().to_string()).collect();
        return Err(Fault::NotTls(format!("it answered \"{shown}\"")));
    }
    let Some(&[_, major, _, hi, lo]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let len = HEADER + usize::from(u16::from_be_bytes([hi, lo]));
    if major != 3 || len > MAX_WIRE {
        return Err(Fault::NotTls("it sent a malformed record header".into()));
    }
    Ok((bytes.len() >= len).then_some(len))
}

/// Lets rustls write to the socket without blocking.
struct Socket<'a, 'cx> {
    /// The socket.
    tcp: &'a mut TcpStream,
    /// The task to wake when the socket is writable again.
    cx: &'a mut Context<'cx>,
}

impl io::Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write(self.cx, bytes) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A handle on a [`TlsStream`] that can be given to tor-proto while another gets the stream back.
#[derive(Clone)]
pub(super) struct Lent(Arc<Mutex<Option<TlsStream>>>);

impl Lent {
    /// Prepares a stream for lending.
    pub(super) fn new(stream: TlsStream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream))))
    }

    /// Takes the stream back; all other handles fail from now on.
    pub(super) fn take_back(&self) -> Option<TlsStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The peer's certificate, in DER.
    pub(super) fn peer_certificate(&self) -> Option<Vec<u8>> {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(guard.as_ref()?.tls.peer_certificates()?.first()?.to_vec())
    }

    /// Runs `poll` on the stream and keeps its fault if it fails.
    fn with<T>(
        &self,
        poll: impl FnOnce(&mut TlsStream) -> Poll<Result<T, Fault>>,
    ) -> Poll<io::Result<T>> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stream) = guard.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        poll(stream).map_err(|fault| {
            let kind = match &fault {
                Fault::Closed => io::ErrorKind::UnexpectedEof,
                Fault::Io(error) => error.kind(),
                _ => io::ErrorKind::InvalidData,
            };
            stream.fault = Some(fault);
            kind.into()
        })
    }
}

impl futures::AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_take(cx, out))
    }
}

impl futures::AsyncWrite for Lent {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        plain: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_put(cx, plain))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_send(cx))
    }

    /// Only flushes: the connection is used after tor-proto.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// tor-proto wants to tune the socket for traffic that it never sends, so the defaults are enough.
impl StreamOps for Lent {}

/// The number of bytes read from the socket at once. A relay's first flight has about 1.5 KB.
const READ_BYTES: usize = 4096;
/// Content types of TLS records: change_cipher_spec, alert, handshake, application data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_measured_by_their_header() {
        assert!(matches!(whole_record(&[]), Ok(None)));
        assert!(matches!(whole_record(&[22, 3, 1, 0]), Ok(None)));
        assert!(matches!(whole_record(&[22, 3, 1, 0, 2, 9]), Ok(None)));
        assert!(matches!(whole_record(&[22, 3, 1, 0, 2, 9, 9, 9]), Ok(Some(7))));
    }

    #[test]
    fn bytes_that_are_not_tls_are_shown() {
        let Err(Fault::NotTls(detail)) = whole_record(b"HTTP/1.1 400 Bad Request\r\n") else {
            panic!("an HTTP answer was taken for TLS");
        };
        assert_eq!(detail, "it answered \"HTTP/1.1 400\"");
        assert!(whole_record(&[22, 3, 3, 0xff, 0xff]).is_err());
        assert!(whole_record(&[22, 2, 3, 0, 1]).is_err());
    }
}
