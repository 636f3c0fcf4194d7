//! The hop after a measured relay, in the relay's own process, where echoed cells leave the relay.
//!
//! ```text
//!              LinkStream                    tor-proto                             NextHop
//!   measurer ─▶ decrypts ─▶ RELAY cell ─▶ channel ─▶ circuit ─▶ another channel ─▶ Echoes ─▶ LinkStream ─▶ measurer
//! ```
//!
//! For tor-proto a [`NextHop`] is the TLS connection of a link that the relay has opened to another
//! one. It answers the link's handshake, and the CREATE2 that follows from the circuit's EXTEND2;
//! it passes RELAY cells to the link from which they came. So an echoed cell takes the path of a
//! forwarded one, from one link's TLS to another's: the relay's echo rate is its forwarding rate.
//!
//! Decisions: doc/decisions.md, "In an Arti relay an echoed cell goes the way of a forwarded cell".

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use ff_proto::cell::{
    Boundaries, CELL_LEN, CMD_AUTH_CHALLENGE, CMD_CERTS, CMD_DESTROY, CMD_MEAS_ECHO, CMD_NETINFO,
    CMD_VERSIONS, CellAssembler, CellRef, HEADER_LEN, fixed_cell, variable_cell,
};
use ff_proto::codec::DecodeError;
use ff_proto::onion::extend::{CMD_CREATE2, CMD_CREATED2, CMD_RELAY, created};
use futures::io::{AsyncRead, AsyncWrite};
use futures::task::AtomicWaker;
use tor_cert::CertType;
use tor_cert::rsa::EncodedRsaCrosscert;
use tor_cert::x509::create_legacy_rsa_id_cert;
use tor_key_forge::{Keygen as _, ToEncodableCert as _};
use tor_linkspec::{OwnedChanTarget, OwnedChanTargetBuilder};
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_llcrypto::rng::CautiousRng;
use tor_relay_crypto::pk::{RelayIdentityKeypair, RelayIdentityRsaKeypair, RelaySigningKeypair};
use tor_relay_crypto::{gen_signing_cert, gen_tls_cert};
use tor_rtcompat::StreamOps;

use super::Moved;
use super::keys::{CERT_LIFETIME, KeyError};

/// The largest number of bytes of cells that wait for their link before the relay has to wait: what
/// one link's socket accepts at once.
const MAX_WAITING: usize = 64 * CELL_LEN;
/// The link protocol used here.
const LINK_PROTOCOL: u16 = 5;

/// The identity of all next hops in this process. It is not published.
#[derive(Clone)]
pub struct HopIdentity {
    /// The CERTS cell.
    certs: Vec<u8>,
    /// Replaces the TLS certificate, because there is no TLS.
    tls_cert: [u8; 32],
    /// The Ed25519 identity.
    ed_identity: Ed25519Identity,
    rsa_identity: RsaIdentity,
    /// When the certificates were made; they are always checked as of this time.
    made: SystemTime,
}

impl HopIdentity {
    /// Makes a new identity; takes some tenths of a second, for the RSA keys.
    ///
    /// # Errors
    /// [`KeyError`], which depends only on this program.
    pub fn generate() -> Result<Self, KeyError> {
        let rng = &mut CautiousRng;
        let made = SystemTime::now();
        let expiry = made + CERT_LIFETIME;
        let rsa = RelayIdentityRsaKeypair::generate(rng)?;
        let identity = RelayIdentityKeypair::generate(rng)?;
        let signing = RelaySigningKeypair::generate(rng)?;
        let ed_identity = identity.to_ed25519_id();
        let tls_cert: [u8; 32] = rand::random();
        let certs = [
            (
                CertType::RSA_ID_X509,
                create_legacy_rsa_id_cert(rng, made, "www.example.com", rsa.keypair())?,
            ),
            (
                CertType::IDENTITY_V_SIGNING,
                gen_signing_cert(&identity, &signing, expiry)?.to_encodable_cert().to_vec(),
            ),
            (
                CertType::SIGNING_V_TLS_CERT,
                gen_tls_cert(&signing, sha256(&tls_cert), expiry)?.to_vec(),
            ),
            (
                CertType::RSA_ID_V_IDENTITY,
                EncodedRsaCrosscert::encode_and_sign(rsa.keypair(), &ed_identity, expiry)?.to_vec(),
            ),
        ];
        let mut body = vec![4];
        for (kind, cert) in certs {
            let [.., high, low] = cert.len().to_be_bytes();
            body.extend([kind.into(), high, low]);
            body.extend_from_slice(&cert);
        }
        let certs = variable_cell(CMD_CERTS, &body)?;
        Ok(Self { certs, tls_cert, ed_identity, rsa_identity: rsa.to_rsa_identity(), made })
    }

    /// The Ed25519 identity.
    pub(super) fn ed_identity(&self) -> Ed25519Identity {
        self.ed_identity
    }

    pub(super) fn rsa_identity(&self) -> RsaIdentity {
        self.rsa_identity
    }

    /// Replaces the TLS certificate.
    pub(super) fn tls_cert(&self) -> &[u8] {
        &self.tls_cert
    }

    /// When the certificates were made.
    pub(super) fn made(&self) -> SystemTime {
        self.made
    }

    /// The identity that a channel to it must have.
    pub(super) fn target(&self) -> OwnedChanTarget {
        let mut target = OwnedChanTargetBuilder::default();
        target.ed_identity(self.ed_identity).rsa_identity(self.rsa_identity);
        target.build().unwrap_or_else(|_| unreachable!("it has all that a target needs"))
    }

    /// All cells of a next hop in the link's handshake.
    fn greeting(&self) -> Result<Vec<u8>, DecodeError> {
        let [high, low] = LINK_PROTOCOL.to_be_bytes();
        let mut cells = vec![0, 0, CMD_VERSIONS, 0, 2, high, low];
        cells.extend_from_slice(&self.certs);
        // A challenge without methods to answer it.
        let challenge = [&rand::random::<[u8; 32]>()[..], &[0, 0]].concat();
        cells.extend(variable_cell(CMD_AUTH_CHALLENGE, &challenge)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        // The time, the other end's address, and one of our own.
        let netinfo = [&now.to_be_bytes()[..], &[4, 4, 0, 0, 0, 0, 1, 4, 4, 0, 0, 0, 0]].concat();
        cells.extend(fixed_cell(0, CMD_NETINFO, &netinfo)?);
        Ok(cells)
    }
}

impl std::fmt::Debug for HopIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HopIdentity").finish_non_exhaustive()
    }
}

/// The SHA-256 digest.
fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

/// The cells of one measurement link that have left the relay, on their way back to the link.
#[derive(Debug)]
pub(super) struct Echoes {
    /// The measurement circuit's id on the link.
    circ_id: u32,
    state: Mutex<Waiting>,
    /// Wakes the link's task.
    pub(super) link: AtomicWaker,
    /// Wakes the next hop's task.
    hop: AtomicWaker,
}

/// The state that the lock of [`Echoes`] protects.
#[derive(Debug, Default)]
struct Waiting {
    /// Whole MEAS_ECHO cells, one after the other.
    cells: Vec<u8>,
    /// Bytes of cells that have entered the relay and were not taken back. The link is woken when
    /// all of them are out: sending them back in pieces took a seventh more CPU time than
    /// forwarding them.
    inside: usize,
    /// Whether either end has closed.
    is_over: bool,
}

impl Waiting {
    /// Whether all bytes that entered the relay have left it.
    fn is_whole(&self) -> bool {
        self.cells.len() >= self.inside
    }
}

impl Echoes {
    /// Without cells, for the measurement circuit with this id.
    pub(super) fn new(circ_id: u32) -> Self {
        Self { circ_id, state: Mutex::default(), link: AtomicWaker::new(), hop: AtomicWaker::new() }
    }

    /// Runs an action on the waiting cells; `None` when it is over.
    fn with<T>(&self, action: impl FnOnce(&mut Waiting) -> T) -> Option<T> {
        // After a panic with the lock held the cells may be incomplete.
        let mut waiting = self.state.lock().ok()?;
        if waiting.is_over { None } else { Some(action(&mut waiting)) }
    }

    /// Notes bytes of cells that enter the relay.
    pub(super) fn go_in(&self, bytes: usize) {
        let _ = self.with(|waiting| waiting.inside += bytes);
    }

    /// Moves all waiting cells into `into`, which must be empty, once all that entered are out.
    /// `false` when no more will come.
    pub(super) fn take(&self, into: &mut Vec<u8>) -> bool {
        let taken = self.with(|waiting| {
            if waiting.is_whole() {
                std::mem::swap(&mut waiting.cells, into);
                waiting.inside = 0;
            }
        });
        if !into.is_empty() {
            self.hop.wake();
        }
        taken.is_some()
    }

    /// Ends it; both ends are woken.
    pub(super) fn end(&self) {
        if let Ok(mut waiting) = self.state.lock() {
            *waiting = Waiting { is_over: true, ..Waiting::default() };
        }
        self.hop.wake();
        self.link.wake();
    }
}

/// The TLS connection to the next relay, as tor-proto sees it; the module has a drawing.
pub struct NextHop {
    /// The receiver of the cells.
    echoes: Arc<Echoes>,
    /// The identity of its link.
    identity: Arc<HopIdentity>,
    /// Reads VERSIONS, the only cell with a short circuit id.
    versions: Boundaries,
    is_greeted: bool,
    /// Joins the cells after it.
    cells: CellAssembler,
    /// The bytes to send.
    says: Vec<u8>,
    /// The number of these bytes that have been read.
    said: usize,
    /// Wakes the relay when there is something to read.
    reader: AtomicWaker,
}

impl NextHop {
    /// The far end of a link to this identity.
    pub(super) fn new(identity: Arc<HopIdentity>, echoes: Arc<Echoes>) -> Self {
        Self {
            echoes,
            identity,
            versions: Boundaries::default(),
            is_greeted: false,
            cells: CellAssembler::default(),
            says: Vec::new(),
            said: 0,
            reader: AtomicWaker::new(),
        }
    }

    /// Takes bytes that the relay sends.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), DecodeError> {
        while !self.is_greeted && !bytes.is_empty() {
            bytes = &bytes[self.versions.advance(bytes)..];
            if self.versions.versions_done() && self.versions.at_boundary() {
                self.is_greeted = true;
                self.says.extend(self.identity.greeting()?);
                self.reader.wake();
            }
        }
        let Self { cells, echoes, says, .. } = self;
        let said = says.len();
        let mut is_over = false;
        let forwarded = echoes.with(|waiting| {
            let before = waiting.cells.len();
            cells.feed(bytes, |cell| {
                is_over |= cell.command == CMD_DESTROY;
                take_cell(cell, echoes.circ_id, waiting, says)
            })?;
            Ok(waiting.cells.len() > before && waiting.is_whole())
        });
        if says.len() > said {
            self.reader.wake();
        }
        if forwarded.transpose()? == Some(true) {
            self.echoes.link.wake();
        }
        if is_over {
            self.echoes.end();
        }
        Ok(())
    }
}

/// Handles one cell after VERSIONS.
fn take_cell(
    cell: CellRef<'_>,
    circ_id: u32,
    waiting: &mut Waiting,
    says: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    match cell.command {
        CMD_RELAY => {
            waiting.cells.extend_from_slice(&circ_id.to_be_bytes());
            waiting.cells.push(CMD_MEAS_ECHO);
            waiting.cells.extend_from_slice(cell.body);
            debug_assert_eq!(cell.body.len() + HEADER_LEN, CELL_LEN);
        }
        CMD_CREATE2 => {
            says.extend(fixed_cell(cell.circ_id, CMD_CREATED2, &created(&[])?)?);
        }
        _ => {}
    }
    Ok(())
}

impl Drop for NextHop {
    fn drop(&mut self) {
        self.echoes.end();
    }
}

impl AsyncRead for NextHop {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Moved {
        let this = self.get_mut();
        this.reader.register(cx.waker());
        let unsaid = &this.says[this.said..];
        if !unsaid.is_empty() {
            let len = unsaid.len().min(out.len());
            out[..len].copy_from_slice(&unsaid[..len]);
            this.said += len;
            return Poll::Ready(Ok(len));
        }
        (this.says, this.said) = (Vec::new(), 0);
        this.echoes.hop.register(cx.waker());
        // The end of the measurement closes the link, and with it the circuit.
        if this.echoes.with(|_| ()).is_none() { Poll::Ready(Ok(0)) } else { Poll::Pending }
    }
}

impl AsyncWrite for NextHop {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
        let this = self.get_mut();
        this.echoes.hop.register(cx.waker());
        match this.echoes.with(|waiting| waiting.cells.len() < MAX_WAITING) {
            Some(true) => {}
            Some(false) => return Poll::Pending,
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
        this.take(bytes).map_err(io::Error::other)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.echoes.end();
        Poll::Ready(Ok(()))
    }
}

impl StreamOps for NextHop {}

#[cfg(test)]
mod tests {
    use ff_proto::cell::{BODY_LEN, CMD_PADDING};
    use ff_proto::onion::extend::create;

    use super::*;

    #[test]
    fn cells_come_out_in_whatever_pieces_they_come() {
        const CIRCUIT: u32 = 0x8000_0001;
        const LINK_CIRCUIT: u32 = 0x9000_0002;
        let identity = Arc::new(HopIdentity::generate().expect("an identity"));
        let cell = |command, body: &[u8]| fixed_cell(CIRCUIT, command, body).expect("a cell");
        let relay = cell(CMD_RELAY, &[7; BODY_LEN]);
        let sent = [
            &[0, 0, CMD_VERSIONS, 0, 4, 0, 4, 0, 5][..],
            &cell(CMD_CREATE2, &create(3, &[1; 84]).expect("a handshake")),
            &relay,
            &cell(CMD_PADDING, &[]),
            &relay,
        ]
        .concat();
        let echo = fixed_cell(LINK_CIRCUIT, CMD_MEAS_ECHO, &[7; BODY_LEN]).expect("a cell");
        for piece in [1, 8, 100, CELL_LEN, sent.len()] {
            let echoes = Arc::new(Echoes::new(LINK_CIRCUIT));
            let mut hop = NextHop::new(Arc::clone(&identity), Arc::clone(&echoes));
            for bytes in sent.chunks(piece) {
                hop.take(bytes).expect("cells");
            }
            let mut out = Vec::new();
            assert!(echoes.take(&mut out));
            assert!(out == [echo, echo].concat(), "in pieces of {piece} bytes");
            assert!(hop.says.ends_with(&cell(CMD_CREATED2, &[0, 0])), "in pieces of {piece} bytes");
            drop(hop);
            assert!(!echoes.take(&mut Vec::new()), "the link is told of the end");
        }
    }

    #[test]
    fn the_link_gets_a_batch_when_all_of_it_is_out() {
        let identity = Arc::new(HopIdentity::generate().expect("an identity"));
        let echoes = Arc::new(Echoes::new(0x9000_0002));
        let mut hop = NextHop::new(identity, Arc::clone(&echoes));
        hop.take(&[0, 0, CMD_VERSIONS, 0, 4, 0, 4, 0, 5]).expect("a cell");
        let relay = fixed_cell(0x8000_0001, CMD_RELAY, &[7; BODY_LEN]).expect("a cell");
        let mut out = Vec::new();
        for _ in 0..2 {
            echoes.go_in(2 * CELL_LEN);
            hop.take(&relay).expect("a cell");
            assert!(echoes.take(&mut out) && out.is_empty(), "one is inside still");
            hop.take(&relay).expect("a cell");
            assert!(echoes.take(&mut out));
            assert_eq!(out.len(), 2 * CELL_LEN);
            out.clear();
        }
    }
}
