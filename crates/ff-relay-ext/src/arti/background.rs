//! Background traffic: an ordinary Tor client that loads a relay at a steady rate.
//!
//! [`Background`] opens one link, checks the relay's identity, makes [`CIRCUITS`] one-hop circuits
//! with CREATE_FAST, and opens a directory stream on each. A relay that echoes such streams (our
//! [`Relay`](super::relay::Relay)) then carries the same traffic in both directions.
//!
//! ```text
//!   Pace -> send_paced -> stream -> link -> relay
//!   echoed_bytes <- count_echo <- stream <- link <-+
//! ```
//!
//! The unit is bytes of DATA cells on the link, the same bytes that the extension at the relay
//! counts: 514 for every 498 bytes of stream payload. Neither side counts the SENDME cells that
//! acknowledge them: one per 50 cells of a stream and one per 100 of a circuit, so up to 3 % more
//! in each direction.
//!
//! Limit: with the fixed windows of CREATE_FAST, 500 cells a stream, the rate is at most about
//! 1 MB per round trip through the relay.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use futures::future::{try_join, try_join_all};
use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use safelog::MaybeSensitive;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tor_linkspec::OwnedChanTarget;
use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_netdir::params::NetParameters;
use tor_proto::ClientChannelBuilder;
use tor_proto::channel::Channel;
use tor_proto::client::circuit::TimeoutEstimator;
use tor_proto::client::stream::{DataReader, DataStream, DataWriter};
use tor_proto::memquota::{ChannelAccount, SpecificAccount as _};
use tor_proto::peer::PeerAddr;
use tor_rtcompat::tls::{CertifiedConn as _, TlsConnector as _};
use tor_rtcompat::tokio::TokioRustlsRuntime;
use tor_rtcompat::{NetStreamProvider, TlsProvider as _};
use tracing::debug;

use super::keys::random_hostname;
use super::params::{ParamsError, client_circuits};

/// The number of circuits that share the rate.
pub const CIRCUITS: u32 = 4;

/// Time limit for opening the link and its circuits.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Bytes of stream payload in a cell of a circuit made with CREATE_FAST.
const CELL_PAYLOAD_BYTES: usize = 498;

/// Bytes of one cell on a link of protocol 4 or 5.
const CELL_BYTES: u64 = 514;

/// How often the senders check what they may send.
const TICK: Duration = Duration::from_millis(10);

/// How much of its rate, in time, a delayed sender can catch up.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Why background traffic could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackgroundError {
    /// A connection, thread or timer failed, or TLS did.
    #[error("cannot connect to the relay")]
    Io(#[from] io::Error),
    /// The Tor handshake failed; also the case if the relay has another identity.
    #[error("the link or a circuit to the relay failed")]
    Protocol(#[from] tor_proto::Error),
    /// The relay did not answer within [`CONNECT_TIME`].
    #[error("the relay did not answer within {CONNECT_TIME:?}")]
    Timeout,
    /// The circuits' parameters are incomplete.
    #[error("cannot make the circuit parameters")]
    Params(#[from] ParamsError),
}

/// A client sending to a relay and reading back; dropping it ends the traffic.
#[derive(Debug)]
pub struct Background {
    /// Stream payload bytes that came back.
    echoed_payload: Arc<AtomicU64>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    /// The client's thread.
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Connects to the relay at `addr`, which must have the given identity, and starts sending.
    ///
    /// The client runs in its own thread. This call blocks until the circuits are open or have
    /// failed, at most [`CONNECT_TIME`]; a relay in the caller's own runtime would be blocked as
    /// well. `rate_bytes_per_sec` counts DATA cells on the link, see the module.
    pub fn start(
        addr: SocketAddr,
        ed_identity: Ed25519Identity,
        rate_bytes_per_sec: u64,
    ) -> Result<Self, BackgroundError> {
        super::install_crypto_provider();
        let target = OwnedChanTarget::builder()
            .addrs(vec![addr])
            .ed_identity(ed_identity)
            .build()
            .map_err(io::Error::other)?;
        let echoed_payload = Arc::new(AtomicU64::new(0));
        let client = Client {
            addr,
            target,
            rate_bytes_per_sec,
            echoed_payload: Arc::clone(&echoed_payload),
        };
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("ff-background".into())
            .spawn(move || client.run_until(stopped, &ready))?;
        let background = Self { echoed_payload, stop: Some(stop), thread: Some(thread) };
        match is_ready.recv() {
            Ok(connected) => connected.map(|()| background),
            Err(_) => Err(io::Error::other("the client's thread ended early").into()),
        }
    }

    /// Bytes of DATA cells that have come back so far.
    pub fn echoed_bytes(&self) -> u64 {
        let payload = self.echoed_payload.load(Ordering::Relaxed);
        payload * CELL_BYTES / CELL_PAYLOAD_BYTES as u64
    }

    /// Whether the client still has all of its circuits; it stops when it loses one.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic message has been printed already.
            let _ = thread.join();
        }
    }
}

/// A TCP connection of the type that Arti's TLS uses.
type ArtiTcp = <TokioRustlsRuntime as NetStreamProvider>::Stream;

/// The data of the client's thread.
struct Client {
    /// The relay's address.
    addr: SocketAddr,
    /// The identity that the relay must have.
    target: OwnedChanTarget,
    /// Bytes of DATA cells to send each second.
    rate_bytes_per_sec: u64,
    /// Payload bytes that came back.
    echoed_payload: Arc<AtomicU64>,
}

impl Client {
    /// Runs the client in this thread until `stopped`; reports on `ready` once it is connected.
    fn run_until(
        self,
        stopped: oneshot::Receiver<()>,
        ready: &mpsc::SyncSender<Result<(), BackgroundError>>,
    ) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error.into()))),
        };
        runtime.block_on(async {
            let connected = tokio::time::timeout(CONNECT_TIME, self.connect()).await;
            let streams = match connected.unwrap_or(Err(BackgroundError::Timeout)) {
                Ok(streams) => streams,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            tokio::select! {
                _ = stopped => {}
                Err(error) = self.load(streams) => debug!("background traffic ended: {error}"),
            }
        });
    }

    /// Opens the link and a stream on each of its circuits.
    async fn connect(&self) -> Result<Vec<DataStream>, BackgroundError> {
        let channel = open_link(self.addr, &self.target).await?;
        let mut streams = Vec::new();
        for _ in 0..CIRCUITS {
            streams.push(open_stream(&channel).await?);
        }
        Ok(streams)
    }

    /// Sends on all streams and counts the echo, until one of them fails.
    async fn load(&self, streams: Vec<DataStream>) -> io::Result<()> {
        let share = self.rate_bytes_per_sec as f64 / f64::from(CIRCUITS);
        let loaded = streams.into_iter().map(|stream| {
            let (reader, writer) = stream.split();
            try_join(send_paced(writer, share), count_echo(reader, &self.echoed_payload))
        });
        try_join_all(loaded).await.map(drop)
    }
}

/// Opens a link to the relay at `addr` and checks its identity.
pub(super) async fn open_link(
    addr: SocketAddr,
    target: &OwnedChanTarget,
) -> Result<Arc<Channel>, BackgroundError> {
    let runtime = TokioRustlsRuntime::current()?;
    let tcp = TcpStream::connect(addr).await?;
    tcp.set_nodelay(true)?;
    let tcp: ArtiTcp = tcp.into();
    let hostname = random_hostname(".com");
    let tls = runtime.tls_connector().negotiate_unvalidated(tcp, &hostname).await?;
    let certificate = tls
        .peer_certificate()?
        .ok_or_else(|| io::Error::other("TLS without a certificate"))?
        .into_owned();

    let peer = MaybeSensitive::not_sensitive(PeerAddr::from(addr));
    let (channel, reactor) = ClientChannelBuilder::new()
        .launch(tls, runtime, ChannelAccount::new_noop())
        .connect(SystemTime::now)
        .await?
        .verify(target, &certificate, None)?
        .finish(peer)
        .await?;
    tokio::spawn(reactor.run());
    Ok(channel)
}

/// Makes a circuit of one hop and opens a directory stream on it.
pub(super) async fn open_stream(channel: &Arc<Channel>) -> Result<DataStream, BackgroundError> {
    let params = client_circuits(&NetParameters::default())?;
    let (pending, reactor) = channel.new_tunnel(Arc::new(FixedTimeout)).await?;
    tokio::spawn(reactor.run());
    let tunnel = Arc::new(pending.create_firsthop_fast(params).await?);
    // The request is sent ahead; without waiting, a refusal would only be noticed at the first
    // read.
    let mut stream = tunnel.begin_dir_stream().await?;
    stream.wait_for_connection().await?;
    Ok(stream)
}

/// Sends cells at `rate` bytes a second as long as the stream accepts them.
async fn send_paced(mut writer: DataWriter, rate: f64) -> io::Result<()> {
    // Every cell is encrypted on its way, so the content does not matter.
    let payload = [0; CELL_PAYLOAD_BYTES];
    let mut pace = Pace::new(rate, Instant::now());
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        pace.earn(Instant::now());
        while pace.spend_cell() {
            writer.write_all(&payload).await?;
        }
        writer.flush().await?;
    }
}

/// Counts the bytes that come back in `echoed`; the end of a stream is an error.
async fn count_echo(mut reader: DataReader, echoed: &AtomicU64) -> io::Result<()> {
    let mut buffer = [0; CELL_PAYLOAD_BYTES];
    loop {
        match reader.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => echoed.fetch_add(length as u64, Ordering::Relaxed),
        };
    }
}

/// The time limits for streams, on which nothing here depends.
struct FixedTimeout;

impl TimeoutEstimator for FixedTimeout {
    fn circuit_build_timeout(&self, _length: usize) -> Duration {
        CONNECT_TIME
    }
}

/// Computes the number of cells due: a token bucket that earns bytes with time and spends whole
/// cells.
struct Pace {
    /// Bytes earned each second.
    rate: f64,
    /// Bytes earned and not yet spent.
    credit: f64,
    /// When credit was last added.
    at: Instant,
}

impl Pace {
    /// A pace of `rate` bytes a second that starts without credit.
    fn new(rate: f64, now: Instant) -> Self {
        Self { rate, credit: 0.0, at: now }
    }

    /// Adds what was earned until `now`, up to [`CATCH_UP`]'s worth.
    fn earn(&mut self, now: Instant) {
        let earned = self.rate * now.saturating_duration_since(self.at).as_secs_f64();
        // At very low rates the limit of the credit must still be enough for one cell.
        let most = (self.rate * CATCH_UP.as_secs_f64()).max(CELL_BYTES as f64);
        self.credit = (self.credit + earned).min(most);
        self.at = now;
    }

    /// Pays for one cell; false without enough credit.
    fn spend_cell(&mut self) -> bool {
        let is_due = self.credit >= CELL_BYTES as f64;
        if is_due {
            self.credit -= CELL_BYTES as f64;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells_due(pace: &mut Pace, now: Instant) -> u64 {
        pace.earn(now);
        let mut cells = 0;
        while pace.spend_cell() {
            cells += 1;
        }
        cells
    }

    /// Cells due over `seconds` in steps of `step`.
    fn cells_over(pace: &mut Pace, from: Instant, seconds: u64, step: Duration) -> u64 {
        let end = from + Duration::from_secs(seconds);
        let mut now = from;
        let mut cells = 0;
        while now < end {
            now += step;
            cells += cells_due(pace, now);
        }
        cells
    }

    #[test]
    fn pace_is_exact_over_uneven_ticks() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000_000.0, start);
        let cells = cells_over(&mut pace, start, 10, Duration::from_micros(11_370));
        let expected = 10 * 1_000_000 / CELL_BYTES;
        assert!(cells.abs_diff(expected) <= expected / 500, "{cells} cells, not {expected}");
    }

    #[test]
    fn pace_catches_up_one_second_at_most() {
        let start = Instant::now();
        let mut pace = Pace::new(51_400.0, start);
        let late = start + Duration::from_secs(30);
        assert_eq!(cells_due(&mut pace, late), 100);
        let cells = cells_over(&mut pace, late, 1, TICK);
        assert!((99..=100).contains(&cells), "{cells} cells");
    }

    #[test]
    fn pace_below_one_cell_a_second_still_sends() {
        let start = Instant::now();
        let mut pace = Pace::new(64.25, start);
        assert_eq!(cells_over(&mut pace, start, 80, Duration::from_secs(1)), 10);
    }
}
