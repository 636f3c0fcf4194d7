//! A link for a few cells a second: the coordinator's side, on tokio.
//!
//! [`ControlLink`] wraps an open [`Link`] into "send these cells" and "receive the next cell".
//! Its buffers are bounded: at most one cell and two records are held however much the relay
//! sends, because nothing is read while a whole cell waits to be received.
//!
//! For bulk traffic use the parts of [`Link`] directly.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::cell::peek_cell;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use zeroize::Zeroizing;

use crate::link::record::{
    HEADER, MAX_PLAINTEXT, MAX_WIRE, Opened, Opener, RECORD_OVERHEAD, RecordError, Sealer, Suite,
};
use crate::link::{EXPORTER_LEN, Link};

/// Most bytes [`ControlLink::send_cells`] takes at once.
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
    /// The caller gave more bytes than one call takes.
    #[error("{len} bytes are too many to send at once; {MAX_SEND} is the limit")]
    TooLong {
        /// The number of bytes.
        len: usize,
    },
}

/// The facts about a link that are not needed here.
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
    /// Encrypts what is sent.
    sealer: Sealer,
    /// Decrypts what is received.
    opener: Opener,
    /// Sealed records the socket has not taken yet.
    outgoing: Vec<u8>,
    /// Received and not decrypted; grows up to [`CIPHERTEXT_BYTES`].
    ciphertext: Vec<u8>,
    /// Decrypted and not yet received by the caller; less than a cell and a record.
    plain: Vec<u8>,
    /// Whether the relay has announced that it sends nothing more.
    closed: bool,
    /// What else is known of it.
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
            closed: false,
            about,
        })
    }

    /// Sends whole cells, given as they stand on the wire.
    ///
    /// If the future is dropped, the cells have either not been taken at all, or they go out
    /// before those of the next call; the link is not damaged.
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

    /// Announces the end and closes the socket, waiting a second at most.
    pub async fn close(mut self) {
        let farewell = async {
            self.flush().await?;
            let source_at = |source| ControlError::Record { peer: self.peer, source };
            let alert = self.sealer.close_notify().map_err(source_at)?;
            self.tcp.write_all(&alert).await.map_err(|source| self.io(source))?;
            self.tcp.shutdown().await.map_err(|source| self.io(source))
        };
        // The socket is closed in any case; a peer that is gone already needs no farewell.
        let _ = timeout(CLOSE_TIMEOUT, farewell).await;
    }

    /// Gives the link back, with what has been received and not been asked for. Cells that the
    /// socket has not taken are lost; [`send_cells`](Self::send_cells) leaves none.
    ///
    /// # Errors
    /// [`ControlError::Io`] when tokio does not let go of the socket.
    pub fn into_link(self) -> Result<Link, ControlError> {
        let Self { tcp, peer, exporter, sealer, opener, ciphertext, plain, about, .. } = self;
        let tcp = tcp.into_std().map_err(|source| ControlError::Io { peer, source })?;
        let About { ed_identity, rsa_identity, suite, link_protocol } = about;
        Ok(Link {
            tcp,
            peer,
            sealer,
            opener,
            exporter,
            leftover_ciphertext: ciphertext,
            leftover_plaintext: plain,
            ed_identity,
            rsa_identity,
            suite,
            link_protocol,
        })
    }

    /// Secret known to the two ends of this TLS connection only.
    #[must_use]
    pub fn exporter(&self) -> &[u8; EXPORTER_LEN] {
        &self.exporter
    }

    /// Address of the relay.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes the first whole cell out of the plaintext.
    fn next_cell(&mut self) -> Option<OwnedCell> {
        let cell = peek_cell(&self.plain)?;
        let owned =
            OwnedCell { circ_id: cell.circ_id, command: cell.command, body: cell.body.to_vec() };
        let wire_len = cell.wire_len;
        self.plain.drain(..wire_len);
        Some(owned)
    }

    /// Decrypts the next record if it is whole; returns whether it was.
    fn open_record(&mut self) -> Result<bool, ControlError> {
        let peer = self.peer;
        let opened = self.opener.open(&mut self.ciphertext);
        let wire_len = match opened.map_err(|source| ControlError::Record { peer, source })? {
            Opened::Incomplete { .. } => return Ok(false),
            Opened::Data { plaintext, wire_len } => {
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

    /// Reads more ciphertext; loses nothing when dropped, because only the wait can be dropped.
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

    /// Gives the socket what it has not taken yet; when dropped, what is left stays here.
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

/// Bytes of ciphertext held at most: one record of the greatest length, and the next one.
const CIPHERTEXT_BYTES: usize = 2 * MAX_WIRE;
/// How long [`ControlLink::close`] waits for the socket to take its last bytes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
