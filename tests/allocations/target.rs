//! The relay's part of an echo, with memory in place of TLS: it allocates nothing per cell.

use std::borrow::Cow;
use std::io;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_measurer::measurer_id;
use ff_proto::cell::{CELL_LEN, Cell, CellRef, peek_cell};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasParams, MeasurerGrant, Msg};
use ff_proto::params::Params;
use ff_proto::session::coordinator::CoordinatorLink;
use ff_proto::session::measurer::{EchoEvent, EchoLink, LinkSecrets, Opening, OpeningLink};
use ff_proto::session::target::Policy;
use ff_proto::units::MonoTime;
use ff_relay_ext::arti::extension::Extension;
use ff_relay_ext::arti::link::LinkStream;
use ff_relay_ext::arti::next_hop::HopIdentity;
use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::{CertifiedConn, StreamOps};

use crate::counting::ThreadCounts;
use crate::forwarder::Forwarder;

/// The identity of the next hop.
static HOP: LazyLock<HopIdentity> = LazyLock::new(|| HopIdentity::generate().expect("an identity"));
/// A VERSIONS cell: with it in front, circuit ids have four bytes.
const VERSIONS: [u8; 7] = [0, 0, 7, 0, 2, 0, 5];
/// The measurement.
const MEASUREMENT: MeasurementId = MeasurementId([2; 16]);
/// Stands for a TLS session's exporter.
const EXPORTER: [u8; 32] = [5; 32];
/// Cells given to the relay at once.
const BATCH: usize = 31;
/// Batches that are counted: 50,003 cells.
const BATCHES: usize = 1613;
/// Batches before the counting.
const WARM_UP: usize = 20;
/// Room in a pipe, so that it does not grow while allocations are counted.
const PIPE_LEN: usize = 64 * CELL_LEN;

#[test]
fn the_extension_adds_no_allocation_to_an_echoed_cell() {
    let (mut measurer, mut link, _coordinator) = open_circuit();
    let mut checked = 0;
    (0..WARM_UP).for_each(|_| checked += echo_batch(&mut measurer, &mut link));
    let before = ThreadCounts::own().allocations();
    (0..BATCHES).for_each(|_| checked += echo_batch(&mut measurer, &mut link));
    let allocations = ThreadCounts::own().allocations() - before;
    println!("{allocations} allocations over {} cells, {checked} checked", BATCHES * BATCH);
    assert_eq!(allocations, 0);
    assert!(checked > 100, "the cells do go through the circuit's cipher");
}

#[test]
fn a_relay_whose_circuits_carry_no_measurement_grants_none() {
    let extension = extension();
    let mut coordinator = End::new(&extension);
    coordinator.pipe.send(&request());
    assert_eq!(coordinator.poll_any(), None, "the link has ended");
    let answer = std::mem::take(&mut coordinator.pipe.bytes().from_relay);
    let Ok(Msg::Err(refusal)) = Msg::decode(cell(&answer).body) else { panic!("{answer:?}") };
    assert_eq!(refusal.code, ErrCode::DISABLED);
}

#[test]
fn the_end_of_a_link_ends_its_circuit_through_the_relay() {
    let (mut measurer, mut link, _coordinator) = open_circuit();
    echo_batch(&mut measurer, &mut link);
    assert!(measurer.relay.is_open());
    let End { stream, mut relay, .. } = measurer;
    drop(stream);
    assert!(!relay.is_open(), "its next hop has ended the link");
}

#[test]
fn a_peer_that_does_not_read_keeps_no_task_of_the_relay_waiting() {
    let (mut measurer, mut link, coordinator) = open_circuit();
    measurer.pipe.bytes().is_full = true;
    let mut cell: Cell = [0; CELL_LEN];
    link.write(&mut cell);
    measurer.pipe.send(&cell);
    (0..4).for_each(|_| measurer.poll());
    // The coordinator's end ends the measurement, and tor-proto wants to say so on the measurer's
    // link.
    drop(coordinator);
    let mut cx = Context::from_waker(Waker::noop());
    let stream = &mut measurer.stream;
    let destroy: Cell = [4; CELL_LEN];
    for _ in 0..4 {
        assert!(Pin::new(&mut *stream).poll_write(&mut cx, &destroy).is_ready());
        assert!(Pin::new(&mut *stream).poll_flush(&mut cx).is_ready());
        let _ = Pin::new(&mut *stream).poll_read(&mut cx, &mut [0; CELL_LEN]);
    }
}

#[test]
fn padding_on_a_measurement_link_is_passed_over() {
    let (mut end, mut link, _coordinator) = open_circuit();
    let mut echo: Cell = [0; CELL_LEN];
    for padding in [&[0; CELL_LEN][..], &[0, 0, 0, 0, 128, 0, 3, 9, 9, 9][..]] {
        link.write(&mut echo);
        end.pipe.send(&echo);
        end.pipe.send(padding);
    }
    link.write(&mut echo);
    end.pipe.send(&echo);
    for _ in 0..8 {
        end.poll();
        end.pipe.take(|cell| {
            link.handle(cell).expect("nothing but echoes comes back");
        });
    }
    assert_eq!((link.sent(), link.echoed()), (3, 3));
    // It is not clients', who would pay for it.
    let totals = end.extension.totals().expect("it is in service");
    assert_eq!((totals.echoed_bytes, totals.background_bytes), (3 * CELL_LEN as u64, 0));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken_or_end_the_link(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000),
        commands in proptest::collection::vec(proptest::sample::select(vec![0_u8, 5, 80, 81, 128]), 0..6),
        state in 0..3_u8,
    ) {
        let (measurer, _, coordinator) = open_circuit();
        let mut end = match state {
            0 => measurer,
            1 => coordinator.another(),
            _ => End::new_without_versions(&coordinator.extension),
        };
        // Cells of commands that mean something here, with whatever bytes there are in them.
        for (index, command) in commands.into_iter().enumerate() {
            let mut cell: Cell = [0x80; CELL_LEN];
            for (at, byte) in bytes.iter().skip(index * 7).take(CELL_LEN).enumerate() {
                cell[at] = *byte;
            }
            cell[4] = command;
            end.pipe.send(&cell);
        }
        end.pipe.send(&bytes);
        for _ in 0..200 {
            if end.poll_any().is_none() {
                break;
            }
        }
        let answers = end.pipe.bytes().from_relay.len();
        proptest::prop_assert!(answers <= 20 * CELL_LEN, "{} bytes of answers", answers);
    }
}

/// Has a relay without TLS grant a measurement, and opens a link's circuit.
fn open_circuit() -> (End, EchoLink, End) {
    let (mut measurer, opening, create, coordinator) = granted();
    let answer = measurer.ask(&create);
    match opening.handle(cell(&answer)).expect("the circuit opens") {
        Opening::Open(link) => (measurer, *link, coordinator),
        Opening::Waiting(_) => panic!("the answer is there"),
    }
}

/// The coordinator's and measurer's key.
fn key() -> SigningKey {
    SigningKey::from_bytes(&[1; 32])
}

/// The extension of a relay that this coordinator may measure.
fn extension() -> Arc<Extension> {
    let policy = Policy {
        enabled: true,
        coordinators: vec![measurer_id(&key())],
        period: Duration::ZERO,
        ratio: Params::default().ratio,
        max_duration_secs: NonZero::new(30).expect("not 0"),
        max_sockets: 512,
    };
    Extension::new(policy, None, None).expect("it has no file to read")
}

/// The coordinator's request.
fn request() -> Cell {
    let grant = MeasurerGrant { id: measurer_id(&key()), sockets: 1, address: None };
    let crypto = vec![CryptoKind::CGO_AES128];
    let request =
        MeasParams { measurement: MEASUREMENT, duration_secs: 30, measurers: vec![grant], crypto };
    let now = MonoTime::default();
    let link = CoordinatorLink::new(request, &key(), &EXPORTER, &[0; 20], now);
    let (_, [request, _]) = link.expect("one measurer fits");
    request
}

/// Has a relay without TLS, whose circuits get to our next hop, grant a measurement: the measurer's
/// link, what it is to send on it, and the coordinator's.
fn granted() -> (End, OpeningLink, Cell, End) {
    let extension = extension();
    extension.set_hop(HOP.clone());
    let mut coordinator = End::new(&extension);
    let answer = coordinator.ask(&request());
    assert!(matches!(Msg::decode(cell(&answer).body), Ok(Msg::ParamsOk(_))));

    let secrets = LinkSecrets { ephemeral: [3; 32], content: [4; 16], sampling: [6; 16] };
    let crypto = CryptoKind::CGO_AES128;
    let (opening, create) = OpeningLink::new(MEASUREMENT, &key(), EXPORTER, secrets, crypto, 1e-2);
    (End::new(&extension), opening, create, coordinator)
}

/// Sends cells and takes their echoes; returns how many were checked.
fn echo_batch(end: &mut End, link: &mut EchoLink) -> u64 {
    let mut fresh: Cell = [0; CELL_LEN];
    for _ in 0..BATCH {
        link.write(&mut fresh);
        end.pipe.send(&fresh);
    }
    let before = link.echoed();
    let mut checked = 0;
    while link.echoed() - before < BATCH as u64 {
        end.poll();
        end.pipe.take(|cell| {
            let event = link.handle(cell).expect("the echoes are right");
            checked += u64::from(event != EchoEvent::Echo);
        });
    }
    checked
}

/// The whole cell in these bytes.
fn cell(bytes: &[u8]) -> CellRef<'_> {
    peek_cell(bytes).expect("a whole cell")
}

/// The peer's end of a link, and the relay's stream that is polled as tor-proto does.
struct End {
    /// The relay's end.
    stream: LinkStream<Pipe>,
    /// The peer's.
    pipe: Pipe,
    /// The relay's.
    extension: Arc<Extension>,
    /// The relay.
    relay: Forwarder,
}

impl End {
    /// A link whose VERSIONS cell has passed.
    fn new(extension: &Arc<Extension>) -> Self {
        let mut end = Self::new_without_versions(extension);
        end.pipe.send(&VERSIONS);
        end.poll();
        // That was VERSIONS, which the relay ignores.
        end.relay = Forwarder::default();
        end
    }

    /// A fresh link.
    fn new_without_versions(extension: &Arc<Extension>) -> Self {
        let (pipe, extension) = (Pipe::new(), extension.clone());
        let stream = LinkStream::new(pipe.clone(), extension.clone());
        Self { stream, pipe, extension, relay: Forwarder::default() }
    }

    /// Another link of the same relay.
    fn another(&self) -> Self {
        Self::new(&self.extension)
    }

    /// Lets the relay's end do what it can; `None` when it waits for more or has ended.
    fn poll_any(&mut self) -> Option<usize> {
        let mut out = [0; CELL_LEN];
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.stream).poll_read(&mut cx, &mut out) {
            Poll::Ready(Ok(len)) if len > 0 => Some(len),
            Poll::Pending if !self.pipe.bytes().to_relay.0.is_empty() => Some(0),
            _ => None,
        }
    }

    /// Sends a control cell and returns the bytes of the answer.
    fn ask(&mut self, cell: &Cell) -> Vec<u8> {
        self.pipe.send(cell);
        self.poll();
        std::mem::take(&mut self.pipe.bytes().from_relay)
    }

    /// Lets the relay's end, and the relay, do what they can.
    fn poll(&mut self) {
        let mut out = [0; CELL_LEN];
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let polled = Pin::new(&mut self.stream).poll_read(&mut cx, &mut out);
            assert!(!matches!(polled, Poll::Ready(Ok(0) | Err(_))), "the link goes on: {polled:?}");
            let Poll::Ready(Ok(len)) = polled else { return };
            if let Some(answer) = self.relay.take(&out[..len], &self.extension) {
                let answered = Pin::new(&mut self.stream).poll_write(&mut cx, &answer[..]);
                assert!(answered.is_ready());
            }
        }
    }
}

/// Two directions of bytes in memory, in place of a TLS connection.
#[derive(Clone)]
struct Pipe(Arc<Mutex<Bytes>>);

/// The bytes in a pipe.
struct Bytes {
    /// To the relay, and how many of them it has read.
    to_relay: (Vec<u8>, usize),
    /// From the relay.
    from_relay: Vec<u8>,
    /// Whether the relay can send no more.
    is_full: bool,
}

impl Pipe {
    /// An empty one.
    fn new() -> Self {
        let room = || Vec::with_capacity(PIPE_LEN);
        Self(Arc::new(Mutex::new(Bytes {
            to_relay: (room(), 0),
            from_relay: room(),
            is_full: false,
        })))
    }

    /// The bytes in it.
    fn bytes(&self) -> std::sync::MutexGuard<'_, Bytes> {
        self.0.lock().expect("nothing panics with the lock held")
    }

    /// Sends to the relay.
    fn send(&self, bytes: &[u8]) {
        self.bytes().to_relay.0.extend_from_slice(bytes);
    }

    /// Takes what the relay has sent, which is whole cells.
    fn take(&self, mut on_cell: impl FnMut(CellRef<'_>)) {
        let mut bytes = self.bytes();
        let (cells, rest) = bytes.from_relay.as_chunks::<CELL_LEN>();
        assert!(rest.is_empty(), "memory takes every write whole");
        cells.iter().for_each(|bytes| on_cell(cell(bytes)));
        bytes.from_relay.clear();
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = self.bytes();
        let (sent, done) = &mut bytes.to_relay;
        let len = out.len().min(sent.len() - *done);
        if len == 0 {
            return Poll::Pending;
        }
        out[..len].copy_from_slice(&sent[*done..*done + len]);
        *done += len;
        if *done == sent.len() {
            sent.clear();
            *done = 0;
        }
        Poll::Ready(Ok(len))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.bytes();
        if pipe.is_full {
            return Poll::Pending;
        }
        pipe.from_relay.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.bytes().is_full { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl StreamOps for Pipe {}

impl CertifiedConn for Pipe {
    fn export_keying_material(
        &self,
        len: usize,
        _: &[u8],
        _: Option<&[u8]>,
    ) -> io::Result<Vec<u8>> {
        Ok(EXPORTER[..len].to_vec())
    }

    fn peer_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }

    fn own_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}
