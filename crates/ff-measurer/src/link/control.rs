//! The coordinator's end of a link, for a few cells a second, on tokio.
//!
//! [`ControlLink`] wraps an open [`Link`] to send cells and to receive one cell at a time. Its
//! buffers are bounded: they hold at most one cell and two records, because nothing is read while a
//! whole cell has not been received by the caller.
//!
//! For bulk traffic use the parts of [`Link`] directly.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::cell::{CellRef, HEADER_LEN, is_variable_length, peek_cell};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::consume_budget;
use tokio::time::timeout;
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use zeroize::Zeroizing;

use crate::link::record::{
    HEADER, MAX_PLAINTEXT, MAX_WIRE, Opened, Opener, RECORD_OVERHEAD, RecordError, Sealer, Suite,
};
use crate::link::{EXPORTER_LEN, Link};

/// The largest number of bytes that [`ControlLink::send_cells`] accepts in one call.
pub const MAX_SEND: usize = 64 * 1024;

/// One received cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedCell {
    /// The circuit, 0 for the link as a whole.
    pub circ_id: u32,
    /// The command.
    pub command: u8,
    /// The body, without a variable-length cell's length field.
    pub body: Vec<u8>,
}

impl OwnedCell {
    /// The cell, borrowed.
    #[must_use]
    pub fn as_cell(&self) -> CellRef<'_> {
        let length = if is_variable_length(self.command) { 2 } else { 0 };
        let wire_len = HEADER_LEN + length + self.body.len();
        CellRef { circ_id: self.circ_id, command: self.command, body: &self.body, wire_len }
    }
}

/// Why a control link ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The relay closed the link, or went away.
    #[error("{peer} closed the link")]
    Closed {
        /// The relay's address.
        peer: SocketAddr,
    },
    /// The socket failed.
    #[error("the link to {peer} failed")]
    Io {
        /// The relay's address.
        peer: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The TLS record layer failed.
    #[error("the link to {peer} failed")]
    Record {
        /// The relay's address.
        peer: SocketAddr,
        /// The error.
        source: RecordError,
    },
    /// The caller gave more than [`MAX_SEND`] bytes.
    #[error("{len} bytes are too many to send at once; {MAX_SEND} is the limit")]
    TooLong {
        /// The number of bytes.
        len: usize,
    },
}

/// Properties of the link that are only returned by [`ControlLink::into_link`].
struct About {
    /// As in [`Link`].
    ed_identity: Option<Ed25519Identity>,
    /// As in [`Link`].
    rsa_identity: Option<RsaIdentity>,
    /// As in [`Link`].
    suite: Suite,
    /// As in [`Link`].
    link_protocol: Option<u16>,
}

/// An open link that sends and receives single cells.
pub struct ControlLink {
    /// The socket.
    tcp: TcpStream,
    /// Address of the relay.
    peer: SocketAddr,
    /// The link's TLS exporter.
    exporter: Zeroizing<[u8; EXPORTER_LEN]>,
    /// Encrypts sent records.
    sealer: Sealer,
    /// Decrypts received records.
    opener: Opener,
    /// Sealed records that the socket has not accepted yet.
    outgoing: Vec<u8>,
    /// Received bytes that are not decrypted; at most [`CIPHERTEXT_BYTES`].
    ciphertext: Vec<u8>,
    /// Decrypted bytes: less than a cell and a record, and cells that the caller has received.
    plain: Vec<u8>,
    /// The number of these in cells that the caller has received.
    taken: usize,
    /// Whether the relay has announced the end of its data.
    closed: bool,
    /// The link's other properties.
    about: About,
}

impl ControlLink {
    /// Takes over an open link. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`ControlError::Io`] when tokio cannot take the socket.
    pub fn new(link: Link) -> Result<Self, ControlError> {
        let Link { tcp, peer, sealer, opener, exporter, .. } = link;
        let Link { ed_identity, rsa_identity, suite, link_protocol, .. } = link;
        let about = About { ed_identity, rsa_identity, suite, link_protocol };
        let tcp = TcpStream::from_std(tcp).map_err(|source| ControlError::Io { peer, source })?;
        Ok(Self {
            tcp,
            peer,
            exporter,
            sealer,
            opener,
            outgoing: Vec::new(),
            ciphertext: link.leftover_ciphertext,
            plain: link.leftover_plaintext,
            taken: 0,
            closed: false,
            about,
        })
    }

    /// Sends whole cells, encoded for the link.
    ///
    /// If the future is dropped, either no cell is sent, or all are sent before those of the next
    /// call; the link stays usable.
    ///
    /// # Errors
    /// [`ControlError::TooLong`] leaves the link usable; every other error ends it.
    pub async fn send_cells(&mut self, cells: &[u8]) -> Result<(), ControlError> {
        if cells.len() > MAX_SEND {
            return Err(ControlError::TooLong { len: cells.len() });
        }
        self.flush().await?;
        for chunk in cells.chunks(MAX_PLAINTEXT) {
            let start = self.outgoing.len();
            self.outgoing.resize(start + chunk.len() + RECORD_OVERHEAD, 0);
            let record = &mut self.outgoing[start..];
            record[HEADER..HEADER + chunk.len()].copy_from_slice(chunk);
            let peer = self.peer;
            self.sealer.seal(record).map_err(|source| ControlError::Record { peer, source })?;
        }
        self.flush().await
    }

    /// Receives the next cell of any kind.
    ///
    /// If the future is dropped, nothing is lost.
    ///
    /// # Errors
    /// [`ControlError::Closed`] when the relay has closed the link; every error is final.
    pub async fn recv_cell(&mut self) -> Result<OwnedCell, ControlError> {
        loop {
            // A peer that always has sent something must not keep its caller's deadlines from
            // being polled.
            consume_budget().await;
            if let Some(cell) = self.next_cell() {
                return Ok(cell);
            }
            if self.closed {
                return Err(ControlError::Closed { peer: self.peer });
            }
            if !self.open_record()? {
                self.fill().await?;
            }
        }
    }

    /// Announces the end and closes the socket; waits for at most a second.
    pub async fn close(mut self) {
        let farewell = async {
            self.flush().await?;
            let source_at = |source| ControlError::Record { peer: self.peer, source };
            let alert = self.sealer.close_notify().map_err(source_at)?;
            self.tcp.write_all(&alert).await.map_err(|source| self.io(source))?;
            self.tcp.shutdown().await.map_err(|source| self.io(source))
        };
        // The socket is closed in any case; if the peer has gone, no alert is needed.
        let _ = timeout(CLOSE_TIMEOUT, farewell).await;
    }

    /// Returns the link, with bytes that were received and not yet read. Cells that the socket has
    /// not accepted are lost; [`send_cells`](Self::send_cells) leaves none.
    ///
    /// # Errors
    /// [`ControlError::Io`] when tokio does not release the socket.
    pub fn into_link(mut self) -> Result<Link, ControlError> {
        self.plain.drain(..self.taken);
        let Self { tcp, peer, exporter, sealer, opener, about, .. } = self;
        let (leftover_ciphertext, leftover_plaintext) = (self.ciphertext, self.plain);
        let tcp = tcp.into_std().map_err(|source| ControlError::Io { peer, source })?;
        let About { ed_identity, rsa_identity, suite, link_protocol } = about;
        Ok(Link {
            tcp,
            peer,
            sealer,
            opener,
            exporter,
            leftover_ciphertext,
            leftover_plaintext,
            ed_identity,
            rsa_identity,
            suite,
            link_protocol,
        })
    }

    /// A secret known only to the two ends of this TLS connection.
    #[must_use]
    pub fn exporter(&self) -> &[u8; EXPORTER_LEN] {
        &self.exporter
    }

    /// Address of the relay.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes the first cell out of the plaintext, if it is whole.
    fn next_cell(&mut self) -> Option<OwnedCell> {
        let cell = peek_cell(&self.plain[self.taken..])?;
        let owned =
            OwnedCell { circ_id: cell.circ_id, command: cell.command, body: cell.body.to_vec() };
        self.taken += cell.wire_len;
        Some(owned)
    }

    /// Decrypts the next record if it is whole; returns whether it did.
    fn open_record(&mut self) -> Result<bool, ControlError> {
        let peer = self.peer;
        let opened = self.opener.open(&mut self.ciphertext);
        let wire_len = match opened.map_err(|source| ControlError::Record { peer, source })? {
            Opened::Incomplete { .. } => return Ok(false),
            Opened::Data { plaintext, wire_len } => {
                self.plain.drain(..std::mem::take(&mut self.taken));
                self.plain.extend_from_slice(&self.ciphertext[plaintext]);
                wire_len
            }
            Opened::Ignored { wire_len } => wire_len,
            Opened::Closed => {
                self.closed = true;
                self.ciphertext.len()
            }
        };
        self.ciphertext.drain(..wire_len);
        Ok(true)
    }

    /// Reads more ciphertext; cancel-safe.
    async fn fill(&mut self) -> Result<(), ControlError> {
        loop {
            self.tcp.readable().await.map_err(|source| self.io(source))?;
            let room = CIPHERTEXT_BYTES.saturating_sub(self.ciphertext.len());
            self.ciphertext.reserve(room);
            let start = self.ciphertext.len();
            self.ciphertext.resize(start + room, 0);
            let read = self.tcp.try_read(&mut self.ciphertext[start..]);
            self.ciphertext.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ControlError::Closed { peer: self.peer }),
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(self.io(source)),
            }
        }
    }

    /// Writes unsent bytes to the socket; cancel-safe: the rest stays here.
    async fn flush(&mut self) -> Result<(), ControlError> {
        while !self.outgoing.is_empty() {
            self.tcp.writable().await.map_err(|source| self.io(source))?;
            match self.tcp.try_write(&self.outgoing) {
                Ok(0) => return Err(ControlError::Closed { peer: self.peer }),
                Ok(len) => drop(self.outgoing.drain(..len)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(self.io(source)),
            }
        }
        Ok(())
    }

    /// The error for a failed socket operation.
    fn io(&self, source: io::Error) -> ControlError {
        match source.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                ControlError::Closed { peer: self.peer }
            }
            _ => ControlError::Io { peer: self.peer, source },
        }
    }
}

impl std::fmt::Debug for ControlLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlLink").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Largest number of ciphertext bytes held: the longest record, and the next one.
const CIPHERTEXT_BYTES: usize = 2 * MAX_WIRE;
/// How long [`ControlLink::close`] waits for the socket to accept its last bytes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use ff_proto::cell::{CMD_VPADDING, variable_cell};

    use super::*;
    use crate::link::record::tests::looped;

    /// A link whose peer sends padding without end.
    fn padded() -> ControlLink {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = listener.local_addr().expect("an address");
        let (mut sealer, opener) = looped();
        std::thread::spawn(move || {
            let mut tcp = listener.accept().expect("a connection").0;
            let cell = variable_cell(CMD_VPADDING, &[]).expect("it fits");
            let cells = cell.repeat(MAX_PLAINTEXT / cell.len());
            loop {
                let mut record = vec![0; cells.len() + RECORD_OVERHEAD];
                record[HEADER..HEADER + cells.len()].copy_from_slice(&cells);
                sealer.seal(&mut record).expect("it fits");
                // The reader has gone.
                if tcp.write_all(&record).is_err() {
                    return;
                }
            }
        });
        let tcp = std::net::TcpStream::connect(peer).expect("a connection");
        tcp.set_nonblocking(true).expect("a socket");
        ControlLink::new(Link {
            tcp,
            peer,
            sealer: looped().0,
            opener,
            exporter: Zeroizing::new([0; EXPORTER_LEN]),
            leftover_ciphertext: Vec::new(),
            leftover_plaintext: Vec::new(),
            ed_identity: None,
            rsa_identity: None,
            suite: Suite::ChaCha20Poly1305,
            link_protocol: Some(5),
        })
        .expect("tokio takes the socket")
    }

    #[tokio::test]
    async fn deadlines_are_kept_while_a_relay_sends_padding() {
        let mut link = padded();
        let reading = async {
            loop {
                assert_eq!(link.recv_cell().await.expect("a cell").command, CMD_VPADDING);
            }
        };
        assert!(timeout(Duration::from_millis(100), reading).await.is_err());
    }
}
