//! TLS that tampers with what the relay says, beneath the measurement extension.
//!
//! ```text
//!   tor-proto <- LinkStream <- LyingStream <- P::TlsServerStream <- TCP
//!                (honest)       cuts what is written into cells and changes some
//! ```
//!
//! The relay above it is the honest one, so that nothing but the lie itself differs.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ff_proto::cell::{
    Boundaries, CELL_LEN, CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_VPADDING, HEADER_LEN, fixed_cell,
    variable_cell,
};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasBg, MeasEnd, MeasErr, MeasStats, Msg, TeamCells};
use ff_proto::units::Ratio;
use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::tls::{TlsAcceptorSettings, TlsConnector};
use tor_rtcompat::{CertifiedConn, StreamOps, TlsProvider};

use crate::holding::{Hold, Holder, Holding, lock};

/// The echo cell, counted from 0 on the first measurement link, at which a lie about one cell is
/// told: late enough for the measurement to be well under way.
const WHEN: u64 = 100;

/// A relay's lie about the cells that it sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// Nothing.
    Nothing,
    /// Changes one byte of one echo.
    FlipByte,
    /// Sends one echo twice.
    RepeatCell,
    /// Sends every echo twice.
    RepeatAll,
    /// Sends an echo when it has got no cell yet.
    AnswerEarly,
    /// Sends two neighbouring echoes in the wrong order.
    SwapNeighbours,
    /// Leaves one echo out.
    DropCell,
    /// Sends one echo on another circuit.
    WrongCircuit,
    /// Makes every so manieth echo up.
    Forge {
        /// Echoes per forged one.
        one_in: u64,
    },
    /// Makes all echoes up from so long after the first one.
    ForgeAfter(Duration),
    /// Holds echoes back.
    Hold {
        /// When it lets them go.
        hold: Hold,
        /// The ratio of background that it claims beside the echoes it sent; `None` for the truth.
        claim: Option<Ratio>,
    },
    /// Reports this many background bytes every second.
    Background(u64),
    /// Reports all the background that this percentage allows it beside its echoes, so many times.
    ClaimShare(u8, u64),
    /// Reports other echoed cells than there were.
    CountEchoes(Count),
    /// Sends this cell this many times with the grant: padding, or the probe's answer again.
    Repeat(u8, u32, usize),
    /// Sends the first report with the grant.
    ReportWithGrant,
    /// Sends the reports of this many seconds at the end of the first.
    ReportAtOnce(u16),
    /// Sends its statistics this many times.
    ChatterStats(u16),
    /// Grants this many seconds, regardless of the request.
    GrantSecs(u16),
    /// Grants this cipher, whatever it was asked for.
    GrantCrypto(CryptoKind),
    /// Refuses with this code.
    Refuse(ErrCode),
    /// Stops in place of the report of this second.
    Stop {
        /// From 0.
        second: u16,
        /// How.
        how: Stop,
    },
    /// Reads nothing more on a measurement link after this many echoes.
    StopReading {
        /// Echoes on each link.
        after: u64,
    },
    /// Closes some measurement links after this many echoes.
    CloseLinks {
        /// How many links.
        links: usize,
        /// Echoes on each of them.
        after: u64,
    },
}

/// A relay's claim of its echoes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// To the measurer with this index, so many percent of what it has.
    Percent(usize, u64),
    /// To the first measurer what it has to the second, and the other way round.
    Swap,
    /// To so many measurers, whoever they are.
    Of(usize),
}

/// How a relay stops before the end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// Sends an error.
    Error,
    /// Reports the end.
    End,
    /// Closes the coordinator's link.
    Close,
}

/// A TLS provider whose accepted connections lie.
#[derive(Clone, Debug)]
pub(crate) struct LyingTls<P> {
    /// Does the TLS.
    provider: P,
    /// Handed to every link.
    liar: Arc<Liar>,
}

/// The state shared by the links of a lying relay.
#[derive(Debug)]
struct Liar {
    /// The lie.
    lie: Lie,
    /// Measurement links so far.
    links: AtomicUsize,
    /// What has been held back and sent.
    holding: Arc<Holding>,
}

impl<P> LyingTls<P> {
    /// Has `provider`'s accepted connections lie.
    pub(crate) fn new(provider: P, lie: Lie, holding: Arc<Holding>) -> Self {
        Self { provider, liar: Arc::new(Liar { lie, links: AtomicUsize::new(0), holding }) }
    }
}

impl<S, P> TlsProvider<S> for LyingTls<P>
where
    S: StreamOps + Send + 'static,
    P: TlsProvider<S>,
{
    type Connector = P::Connector;
    type TlsStream = P::TlsStream;
    type Acceptor = LyingAcceptor<P::Acceptor>;
    type TlsServerStream = LyingStream<P::TlsServerStream>;

    fn tls_connector(&self) -> Self::Connector {
        self.provider.tls_connector()
    }

    fn tls_acceptor(&self, settings: TlsAcceptorSettings) -> io::Result<Self::Acceptor> {
        let inner = self.provider.tls_acceptor(settings)?;
        Ok(LyingAcceptor { inner, liar: Arc::clone(&self.liar) })
    }

    fn supports_keying_material_export(&self) -> bool {
        self.provider.supports_keying_material_export()
    }
}

/// Accepts TLS connections and has them lie.
#[derive(Debug)]
pub(crate) struct LyingAcceptor<A> {
    /// Does the handshake.
    inner: A,
    /// Handed to every link.
    liar: Arc<Liar>,
}

#[async_trait]
impl<S, A> TlsConnector<S> for LyingAcceptor<A>
where
    S: Send + 'static,
    A: TlsConnector<S> + Send + Sync,
{
    type Conn = LyingStream<A::Conn>;

    async fn negotiate_unvalidated(&self, stream: S, sni: &str) -> io::Result<Self::Conn> {
        let inner = self.inner.negotiate_unvalidated(stream, sni).await?;
        Ok(LyingStream::new(inner, Arc::clone(&self.liar)))
    }
}

/// One lying connection; what it holds back is sent by a task of the relay's.
#[derive(Debug)]
pub(crate) struct LyingStream<T>(Arc<Mutex<Link<T>>>);

/// The state of a lying connection.
#[derive(Debug)]
struct Link<T> {
    /// The honest connection.
    inner: T,
    /// What to do.
    liar: Arc<Liar>,
    /// Where the cells of what is written begin.
    boundaries: Boundaries,
    /// The bytes of the cell that is being written.
    cell: Vec<u8>,
    /// The cells to send, and how many of their bytes are gone.
    out: (Vec<u8>, usize),
    /// Which measurement link this is, once it has sent an echo.
    link: Option<usize>,
    /// Echoes the relay has given so far.
    echoes: u64,
    /// An echo that waits for the next one.
    swapped: Option<Vec<u8>>,
    /// Echoes that are held back, and when they were made.
    held: VecDeque<(Instant, Vec<u8>)>,
    /// The measurement that has been granted on this link.
    measurement: Option<MeasurementId>,
    /// Whether the relay has cut it off.
    is_cut: bool,
}

impl<T> LyingStream<T> {
    /// A connection before its first cell.
    fn new(inner: T, liar: Arc<Liar>) -> Self {
        Self(Arc::new(Mutex::new(Link {
            inner,
            liar,
            boundaries: Boundaries::default(),
            cell: Vec::new(),
            out: (Vec::new(), 0),
            link: None,
            echoes: 0,
            swapped: None,
            held: VecDeque::new(),
            measurement: None,
            is_cut: false,
        })))
    }
}

impl<T> Link<T> {
    /// Takes bytes that the relay sends, cuts them into cells and lies.
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Circuit ids have their four bytes once VERSIONS, which is not touched, has passed.
            let has_circuits = self.boundaries.versions_done();
            let len = self.boundaries.advance(bytes);
            self.cell.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            if self.boundaries.at_boundary() {
                let cell = std::mem::take(&mut self.cell);
                match cell.get(HEADER_LEN - 1) {
                    Some(&CMD_MEAS_ECHO) if has_circuits => self.send_echo(cell),
                    Some(&CMD_MEASUREMENT) if has_circuits => self.send_control(&cell),
                    _ => self.send(&cell),
                }
            }
        }
    }

    /// Queues a cell as it is, unless the relay has cut the link off.
    fn send(&mut self, cell: &[u8]) {
        if !self.is_cut {
            self.out.0.extend_from_slice(cell);
        }
    }

    /// Queues a control message.
    fn say(&mut self, circ_id: u32, message: &Msg) {
        let body = message.encode().expect("a short message");
        self.send(&fixed_cell(circ_id, CMD_MEASUREMENT, &body).expect("a short body"));
    }

    /// Queues a control cell, or what the relay says in its place.
    fn send_control(&mut self, cell: &[u8]) {
        let [a, b, c, d] = *cell.first_chunk().expect("a cell has a header");
        let circ_id = u32::from_be_bytes([a, b, c, d]);
        match Msg::decode(&cell[HEADER_LEN..]).expect("the relay's own message") {
            Msg::Bg(report) => self.send_report(circ_id, report),
            Msg::ParamsOk(mut grant) => {
                self.measurement = Some(grant.measurement);
                match self.liar.lie {
                    Lie::GrantSecs(seconds) => grant.duration_secs = seconds,
                    Lie::GrantCrypto(kind) => grant.crypto = kind,
                    Lie::Refuse(code) => {
                        return self.say(circ_id, &Msg::Err(MeasErr::new(code, "not now")));
                    }
                    _ => {}
                }
                self.say(circ_id, &Msg::ParamsOk(grant));
                if let Lie::Repeat(command, circ_id, times) = self.liar.lie {
                    let cell = match command {
                        CMD_VPADDING => variable_cell(command, &[]).expect("a short body"),
                        _ => fixed_cell(circ_id, command, &[]).expect("a short body").to_vec(),
                    };
                    (0..times).for_each(|_| self.send(&cell));
                }
                if let Lie::ReportWithGrant = self.liar.lie {
                    self.say(
                        circ_id,
                        &Msg::Bg(MeasBg { second: 0, sent: 0, received: 0, echoed: None }),
                    );
                }
            }
            Msg::Created(_) if matches!(self.liar.lie, Lie::AnswerEarly) => {
                self.send(cell);
                self.send(&fixed_cell(circ_id, CMD_MEAS_ECHO, &[]).expect("a short body"));
            }
            _ => self.send(cell),
        }
    }

    /// Queues a second's report, or what the relay says in its place.
    fn send_report(&mut self, circ_id: u32, honest: MeasBg) {
        let second = honest.second;
        let report =
            |second, bytes| Msg::Bg(MeasBg { second, sent: bytes, received: bytes, ..honest });
        let holding = Arc::clone(&self.liar.holding);
        let message = match self.liar.lie {
            Lie::Background(bytes) => report(second, bytes),
            Lie::ClaimShare(percent, times) => {
                let ratio = Ratio::from_percent(percent).expect("a ratio");
                report(second, ratio.background_for(holding.sent_bytes(second)) * times)
            }
            Lie::Hold { claim: Some(ratio), .. } => {
                // All that is counted, and a little more for clocks that differ.
                let most = ratio.background_for(holding.sent_bytes(second));
                report(second, most + most / 30 + 20_000)
            }
            Lie::CountEchoes(count) => {
                let mut cells = honest.echoed.expect("it counts").as_slice().to_vec();
                match count {
                    Count::Percent(measurer, percent) => {
                        cells[measurer] = cells[measurer] * percent / 100;
                    }
                    Count::Swap => cells.swap(0, 1),
                    Count::Of(measurers) => cells.resize(measurers, 0),
                }
                Msg::Bg(MeasBg { echoed: TeamCells::from_slice(&cells), ..honest })
            }
            Lie::ReportAtOnce(seconds) if second == 0 => {
                (0..seconds).for_each(|second| self.say(circ_id, &report(second, 0)));
                return;
            }
            Lie::ChatterStats(times) if second == 0 => {
                let stats = MeasStats { second, cpu_permille: 1000, overloaded: true };
                (0..times).for_each(|_| self.say(circ_id, &Msg::Stats(stats)));
                Msg::Bg(honest)
            }
            Lie::Stop { second: last, how } if second == last => match how {
                Stop::Error => Msg::Err(MeasErr::new(ErrCode::INTERNAL, "so slow today")),
                Stop::End => {
                    let measurement = self.measurement.expect("a grant came first");
                    Msg::End(MeasEnd { measurement })
                }
                Stop::Close => {
                    self.is_cut = true;
                    return;
                }
            },
            _ => Msg::Bg(honest),
        };
        self.say(circ_id, &message);
    }

    /// Queues an echo, or what the relay sends in its place, or holds it back.
    fn send_echo(&mut self, mut cell: Vec<u8>) {
        let links = &self.liar.links;
        let link = *self.link.get_or_insert_with(|| links.fetch_add(1, Ordering::Relaxed));
        let index = self.echoes;
        self.echoes += 1;
        let now = link == 0 && index == WHEN;
        match self.liar.lie {
            Lie::Hold { hold, .. } if link < hold.links => {
                return self.held.push_back((Instant::now(), cell));
            }
            Lie::FlipByte if now => cell[CELL_LEN - 1] ^= 1,
            Lie::WrongCircuit if now => cell[HEADER_LEN - 2] ^= 1,
            Lie::DropCell if now => return,
            Lie::SwapNeighbours if now => return self.swapped = Some(cell),
            Lie::RepeatCell if now => self.send(&cell),
            Lie::RepeatAll => self.send(&cell),
            Lie::Forge { one_in } if index % one_in == one_in - 1 => cell[HEADER_LEN..].fill(0x5a),
            Lie::ForgeAfter(time) if self.liar.holding.time() > time => {
                cell[HEADER_LEN..].fill(0x5a);
            }
            _ => {}
        }
        self.liar.holding.on_sent();
        self.send(&cell);
        if let Some(earlier) = self.swapped.take() {
            self.send(&earlier);
        }
    }

    /// Whether the relay reads no more here.
    fn is_deaf(&self) -> bool {
        matches!(self.liar.lie, Lie::StopReading { after } if self.echoes >= after)
    }

    /// Whether the relay has closed this link.
    fn is_closed(&self) -> bool {
        self.is_cut
            || matches!(
                (self.liar.lie, self.link),
                (Lie::CloseLinks { links, after }, Some(link))
                    if link < links && self.echoes >= after
            )
    }

    /// How this link holds echoes back, if it does.
    fn hold(&self) -> Option<Hold> {
        match self.liar.lie {
            Lie::Hold { hold, .. } if self.link.is_some_and(|link| link < hold.links) => Some(hold),
            _ => None,
        }
    }
}

impl<T: AsyncWrite + Unpin> Link<T> {
    /// Sends what is queued.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (bytes, done) = &mut self.out;
        while *done < bytes.len() {
            *done += ready!(Pin::new(&mut self.inner).poll_write(cx, &bytes[*done..]))?;
        }
        bytes.clear();
        *done = 0;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin + Send> Holder for Link<T> {
    fn held(&self) -> usize {
        self.held.len()
    }

    fn held_since(&self, when: Instant) -> usize {
        self.held.partition_point(|(made, _)| *made < when)
    }

    fn let_go(&mut self, echoes: usize) {
        for (_, cell) in self.held.drain(..echoes) {
            self.out.0.extend_from_slice(&cell);
            self.liar.holding.on_sent();
        }
    }

    fn push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for LyingStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut link = lock(&self.0);
        if link.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if link.is_deaf() {
            return Poll::Pending;
        }
        Pin::new(&mut link.inner).poll_read(cx, out)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncWrite for LyingStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut link = lock(&self.0);
        if link.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if link.hold().is_some() {
            // Nothing holds up a relay that holds its echoes back itself.
            link.take(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        // One batch at a time, so that a peer that does not read holds the relay back as ever.
        ready!(link.poll_send(cx))?;
        link.take(bytes);
        if let Some(hold) = link.hold() {
            let holder: Arc<Mutex<dyn Holder>> = Arc::clone(&self.0) as _;
            link.liar.holding.join(hold, Arc::downgrade(&holder));
        }
        if link.is_closed() {
            // The reader shall see it.
            cx.waker().wake_by_ref();
        }
        match link.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut link = lock(&self.0);
        if link.hold().is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(link.poll_send(cx))?;
        Pin::new(&mut link.inner).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut link = lock(&self.0);
        ready!(link.poll_send(cx))?;
        Pin::new(&mut link.inner).poll_close(cx)
    }
}

impl<T: StreamOps> StreamOps for LyingStream<T> {
    fn set_tcp_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        lock(&self.0).inner.set_tcp_notsent_lowat(bytes)
    }

    fn new_handle(&self) -> Box<dyn StreamOps + Send + Unpin> {
        lock(&self.0).inner.new_handle()
    }
}

impl<T: CertifiedConn> CertifiedConn for LyingStream<T> {
    fn export_keying_material(
        &self,
        len: usize,
        label: &[u8],
        context: Option<&[u8]>,
    ) -> io::Result<Vec<u8>> {
        lock(&self.0).inner.export_keying_material(len, label, context)
    }

    fn peer_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        let link = lock(&self.0);
        let certificate = link.inner.peer_certificate()?;
        Ok(certificate.map(|bytes| Cow::Owned(bytes.into_owned())))
    }

    fn own_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        let link = lock(&self.0);
        let certificate = link.inner.own_certificate()?;
        Ok(certificate.map(|bytes| Cow::Owned(bytes.into_owned())))
    }
}
