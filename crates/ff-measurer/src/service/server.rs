//! The measurer's server: accepts coordinators' connections and measures for them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ed25519_dalek::SigningKey;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use futures::channel::mpsc;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, Server};
use tonic::{Request, Response, Status, Streaming};

use super::admission::{Admission, AdmissionLimits};
use super::exchange::{self, Listening};
use super::refusals::Refusals;
use super::run;
use super::tls;
use super::wire::exchange::ExchangePart;
use super::wire::measurer_server::{Measurer, MeasurerServer};
use super::wire::{Capability, DescribeRequest, Instruction, Report, instruction};
use super::words;
use crate::key::identity_text;
use crate::measurer::measurer_id;
use crate::task::{Host, Task};

/// How long a coordinator may take for its TLS handshake, and for the first instruction of a
/// stream.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refused peer may take to read the reason.
const FAREWELL: Duration = Duration::from_secs(1);
/// The largest number of concurrent handshakes; if there are more, one of the peer with the most is
/// aborted.
const HANDSHAKES: usize = 32;
/// The interval at which it is logged that no connection can be accepted.
const REPEATED: Duration = Duration::from_secs(60);
/// The largest number of connections of a coordinator.
const CONNECTIONS: usize = 8;
/// The interval of pings on an idle connection, and the time limit of their answers.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// The largest number of streams of a connection.
const STREAMS: u32 = 128;
/// The longest instruction in bytes: an exchange with the largest number of peers.
const MAX_INSTRUCTION_BYTES: usize = 8192;
/// The number of reports that may wait for a coordinator to read them.
const REPORTS: usize = 64;

/// A coordinator that may request measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator {
    /// The operator's name for it.
    pub name: String,
    /// Its key.
    pub id: Ed25519Id,
}

/// The parts of the config that may change while the service runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The coordinators that may request measurements.
    pub coordinators: Vec<Coordinator>,
    /// The operator's limits.
    pub limits: AdmissionLimits,
}

/// A measurer that serves coordinators.
pub struct Service {
    host: Host,
    /// The current settings.
    settings: RwLock<Settings>,
    /// The limits and the part of them that is in use.
    admission: Arc<Admission>,
    /// The state of each coordinator's connections.
    connections: Mutex<HashMap<Ed25519Id, Connections>>,
    /// Refused connections.
    refusals: Refusals,
    /// Whether the service must end.
    ending: watch::Sender<bool>,
    /// The service itself, for its tasks.
    myself: Weak<Self>,
}

impl Service {
    /// A service of this host.
    #[must_use]
    pub fn new(host: Host, settings: Settings) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            host,
            settings: RwLock::new(settings),
            admission: Arc::default(),
            connections: Mutex::default(),
            refusals: Refusals::default(),
            ending: watch::Sender::new(false),
            myself: myself.clone(),
        })
    }

    /// Takes new settings. Running work continues, unless its coordinator is not among them.
    pub fn set(&self, settings: Settings) {
        let gone: Vec<_> = {
            let mut old = self.settings.write().unwrap_or_else(PoisonError::into_inner);
            let stays = |id| settings.coordinators.iter().any(|coordinator| coordinator.id == id);
            let ids = old.coordinators.iter().map(|coordinator| coordinator.id);
            let gone = ids.filter(|&id| !stays(id)).collect();
            *old = settings;
            gone
        };
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for id in gone {
            let connections = connections.entry(id).or_default();
            connections.end_all();
            connections.gone.send_replace(());
        }
    }

    /// The number of relays being measured.
    #[must_use]
    pub fn relays(&self) -> u16 {
        self.admission.relays()
    }

    /// Whether an exchange with other measurers is running.
    #[must_use]
    pub fn is_exchanging(&self) -> bool {
        self.admission.is_exchanging()
    }

    /// Ends all measurements and then the service.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Serves until [`end`](Self::end) is called.
    ///
    /// # Errors
    /// When TLS cannot be set up, or the service fails as a whole.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> anyhow::Result<()> {
        let ours = self.clone();
        let is_allowed: tls::IsAllowed = Arc::new(move |id| ours.name_of(id).is_some());
        let key: &SigningKey = &self.host.key;
        let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(key, is_allowed)?));
        let (sender, incoming) = mpsc::channel(HANDSHAKES);
        let accepting = tokio::spawn(accept(self.clone(), listener, acceptor, sender));
        let mut ending = self.ending.subscribe();
        let service =
            MeasurerServer::from_arc(self.clone()).max_decoding_message_size(MAX_INSTRUCTION_BYTES);
        let result = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(STREAMS)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, async move {
                // An error means that the sender is gone, so that nothing else could end the
                // service.
                let _ = ending.wait_for(|ending| *ending).await;
            })
            .await;
        accepting.abort();
        result.map_err(Into::into)
    }

    /// Logs a refused connection, once a minute for each host.
    fn refuse(&self, from: SocketAddr, why: &str) {
        let told = self.refusals.note(network(from.ip()), Instant::now());
        if told.before > 0 {
            tracing::warn!("refused {} more connections before", told.before);
        }
        if told.this {
            tracing::warn!("refused {from}: {why}");
        } else {
            tracing::debug!("refused {from}: {why}");
        }
    }

    /// The operator's name for a coordinator, if it may request measurements.
    fn name_of(&self, id: &Ed25519Id) -> Option<String> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        let coordinator = settings.coordinators.iter().find(|coordinator| coordinator.id == *id);
        coordinator.map(|coordinator| coordinator.name.clone())
    }

    /// The operator's current limits.
    fn limits(&self) -> AdmissionLimits {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).limits.clone()
    }

    /// The peer of a stream, and its request.
    async fn asked(&self, request: Request<Streaming<Instruction>>) -> Result<Asked, Status> {
        let peer =
            *request.extensions().get::<Peer>().ok_or_else(|| Status::internal("no peer"))?;
        let name = self.name_of(&peer.id);
        let name = name.ok_or_else(|| {
            let id = identity_text(&peer.id);
            Status::permission_denied(format!("the identity {id} is in no [[coordinator]] table"))
        })?;
        let mut instructions = request.into_inner();
        let first = timeout(HANDSHAKE_TIMEOUT, instructions.message()).await;
        let first =
            first.map_err(|_| Status::deadline_exceeded("no instruction arrived in time"))??;
        let first = first.and_then(|message| message.instruction);
        let first = first.ok_or_else(|| Status::invalid_argument("an unknown instruction"))?;
        Ok(Asked { peer, name, first, instructions })
    }

    /// Notes a coordinator's new connection; returns its number and its permit. Work over other
    /// connections continues, because a second program on the coordinator's host may only query
    /// this host's state.
    fn new_connection(&self, id: Ed25519Id) -> Option<(u64, OwnedSemaphorePermit)> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connections = connections.entry(id).or_default();
        let place = connections.places.clone().try_acquire_owned().ok()?;
        connections.newest += 1;
        Some((connections.newest, place))
    }

    /// Notes that a connection requests work, which ends the work of the coordinator's older
    /// connections. The returned receiver changes when this work must end.
    fn gives_work(&self, peer: &Peer) -> Result<watch::Receiver<()>, Status> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connections = connections.entry(peer.id).or_default();
        if peer.connection < connections.working {
            return Err(Status::failed_precondition("this coordinator has reconnected"));
        }
        if peer.connection > connections.working {
            connections.working = peer.connection;
            connections.end_all();
        }
        Ok(connections.ended.subscribe())
    }

    /// Changes when a connection's coordinator may not request work any more. That ends an
    /// exchange, but a newer connection does not: it would have to wait for the exchange like all
    /// others.
    fn gone(&self, peer: &Peer) -> watch::Receiver<()> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.entry(peer.id).or_default().gone.subscribe()
    }

    /// Waits until a measurement must end; returns the reason.
    async fn stopped(self: Arc<Self>, mut ended: watch::Receiver<()>) -> &'static str {
        let mut ending = self.ending.subscribe();
        tokio::select! {
            _ = ended.changed() => {
                "its coordinator has reconnected, or was removed from the config"
            }
            _ = ending.wait_for(|ending| *ending) => "it is being shut down",
        }
    }
}

/// A coordinator's connections.
struct Connections {
    /// The number of the newest connection.
    newest: u64,
    /// The number of the newest connection that has requested work.
    working: u64,
    /// Changes when all requested work must end.
    ended: watch::Sender<()>,
    /// Changes when the coordinator may not request work any more.
    gone: watch::Sender<()>,
    /// Permits for further connections.
    places: Arc<Semaphore>,
}

impl Default for Connections {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let [ended, gone] = [watch::Sender::new(()), watch::Sender::new(())];
        Self { newest: 0, working: 0, ended, gone, places }
    }
}

impl Connections {
    /// Ends all requested work.
    fn end_all(&self) {
        self.ended.send_replace(());
    }
}

#[tonic::async_trait]
impl Measurer for Service {
    async fn describe(
        &self,
        _request: Request<DescribeRequest>,
    ) -> Result<Response<Capability>, Status> {
        let limits = self.limits();
        let (send_buffer_bytes, receive_buffer_bytes) = greatest_buffers();
        Ok(Response::new(Capability {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cores: u32::try_from(self.host.cores.len().max(1)).unwrap_or(u32::MAX),
            unix_millis: u64::try_from(now().as_millis()).unwrap_or(u64::MAX),
            rate_bytes_per_sec: limits.rate.map_or(0, BytesPerSec::get),
            relays_at_once: limits.relays_at_once.into(),
            hours: limits.hours.map_or(String::new(), |hours| hours.to_string()),
            open_files: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            congestion_control: super::wire::printable(
                kernel("net/ipv4/tcp_congestion_control").trim(),
            ),
            send_buffer_bytes,
            receive_buffer_bytes,
        }))
    }

    type MeasureStream = mpsc::Receiver<Result<Report, Status>>;

    async fn measure(
        &self,
        request: Request<Streaming<Instruction>>,
    ) -> Result<Response<Self::MeasureStream>, Status> {
        let Asked { peer, name, first, instructions } = self.asked(request).await?;
        let instruction::Instruction::Prepare(prepare) = first else {
            return Err(Status::invalid_argument("the first instruction must be Prepare"));
        };
        let task = Task::try_from(prepare).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let ended = self.gives_work(&peer)?;
        let permit = self.admission.admit(&task, &self.limits(), now().as_secs());
        let permit = permit.map_err(|refusal| {
            tracing::warn!(coordinator = name, target = %task.target.addr, "refused: {refusal}");
            Status::failed_precondition(refusal.to_string())
        })?;
        tracing::info!(coordinator = name, target = %task.target.addr, "measuring");
        let (reports, stream) = mpsc::channel(REPORTS);
        let myself = self
            .myself
            .upgrade()
            .ok_or_else(|| Status::unavailable("the measurer is shutting down"))?;
        let stopped = myself.stopped(ended);
        let order = self.host.order(&task);
        tokio::spawn(async move {
            run::run(order, instructions, reports, stopped).await;
            drop(permit);
        });
        Ok(Response::new(stream))
    }

    type ExchangeStream = mpsc::Receiver<Result<Report, Status>>;

    async fn exchange(
        &self,
        request: Request<Streaming<Instruction>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let Asked { peer, name, first, instructions } = self.asked(request).await?;
        let instruction::Instruction::Bind(bind) = first else {
            return Err(Status::invalid_argument("the first instruction must be Bind"));
        };
        let part =
            ExchangePart::try_from(bind).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let limits = self.limits();
        let permit = self.admission.admit_exchange(part.rate, &limits, now().as_secs());
        let permit = permit.map_err(|refusal| {
            tracing::warn!(coordinator = name, "no exchange: {refusal}");
            Status::failed_precondition(refusal.to_string())
        })?;
        let listening = Listening::new(part, peer.to, limits, permit);
        let listening = listening
            .map_err(|e| Status::failed_precondition(format!("{:#}", anyhow::Error::from(e))))?;
        tracing::info!(coordinator = name, rate = %part.rate, "exchanging with other measurers");
        let (reports, stream) = mpsc::channel(REPORTS);
        let myself = self
            .myself
            .upgrade()
            .ok_or_else(|| Status::unavailable("the measurer is shutting down"))?;
        let stopped = myself.stopped(self.gone(&peer));
        tokio::spawn(exchange::run(listening, instructions, reports, stopped));
        Ok(Response::new(stream))
    }
}

/// A coordinator's request in a stream.
struct Asked {
    peer: Peer,
    /// The operator's name for it.
    name: String,
    first: instruction::Instruction,
    /// The following instructions.
    instructions: Streaming<Instruction>,
}

/// The time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A value below /proc/sys.
fn kernel(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default()
}

/// The largest sizes to which the kernel enlarges a TCP socket's buffers by itself.
fn greatest_buffers() -> (u64, u64) {
    (last_number(&kernel("net/ipv4/tcp_wmem")), last_number(&kernel("net/ipv4/tcp_rmem")))
}

/// The last of several numbers; 0 without one.
fn last_number(text: &str) -> u64 {
    text.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Accepts connections and passes on those of coordinators.
async fn accept(
    service: Arc<Service>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    incoming: mpsc::Sender<std::io::Result<PeerStream>>,
) {
    let mut handshakes = Handshakes::default();
    let mut told = None::<Instant>;
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= REPEATED) {
                    told = Some(Instant::now());
                    tracing::warn!("cannot accept a connection: {error}");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (service, acceptor, mut incoming) =
            (service.clone(), acceptor.clone(), incoming.clone());
        let shaking = tokio::spawn(async move {
            match timeout(HANDSHAKE_TIMEOUT, handshake(&service, tcp, &acceptor)).await {
                Ok(Ok(stream)) => {
                    // This fails only when the service has ended.
                    let _ = incoming.try_send(Ok(stream));
                }
                Ok(Err(error)) => {
                    let own = measurer_id(&service.host.key);
                    service.refuse(from, &words::for_measurer(&error, &own));
                }
                Err(_) => service.refuse(from, "it did not prove its identity in time"),
            }
        });
        handshakes.add(from.ip(), shaking.abort_handle());
    }
}

/// The running handshakes, the oldest first.
#[derive(Default)]
struct Handshakes(VecDeque<(IpAddr, AbortHandle)>);

impl Handshakes {
    /// Adds one. If there are then too many, aborts the oldest of the host with the most: so a host
    /// with many silent connections does not keep others out.
    fn add(&mut self, from: IpAddr, shaking: AbortHandle) {
        self.0.retain(|(_, shaking)| !shaking.is_finished());
        self.0.push_back((network(from), shaking));
        if self.0.len() <= HANDSHAKES {
            return;
        }
        let count = |of: &IpAddr| self.0.iter().filter(|(from, _)| from == of).count();
        // Of equal ones, `max_by_key` returns the last.
        let oldest = (0..self.0.len()).rev().max_by_key(|&index| count(&self.0[index].0));
        if let Some((_, shaking)) = oldest.and_then(|index| self.0.remove(index)) {
            shaking.abort();
        }
    }
}

/// The network that counts as one host: an IPv4 address, or the /64 of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Does the TLS handshake of a connection.
async fn handshake(
    service: &Service,
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
) -> std::io::Result<PeerStream> {
    tcp.set_nodelay(true)?;
    let (from, to) = (tcp.peer_addr()?, tcp.local_addr()?);
    let tls = match acceptor.accept(tcp).into_fallible().await {
        Ok(tls) => tls,
        Err((error, tcp)) => {
            say_farewell(tcp).await;
            return Err(error);
        }
    };
    let id = tls::peer_id(tls.get_ref().1.peer_certificates());
    let id = id.ok_or_else(|| std::io::Error::other("the peer has no key"))?;
    let known = service.new_connection(id);
    let (connection, place) = known.ok_or_else(|| {
        std::io::Error::other(format!("its coordinator has {CONNECTIONS} connections already"))
    })?;
    let peer = Peer { id, connection, from, to };
    Ok(PeerStream { tls, peer, _place: place })
}

/// Closes a connection after its peer has read the reason, which would be lost if the socket were
/// closed with unread bytes.
async fn say_farewell(mut tcp: TcpStream) {
    let ending = async {
        tcp.shutdown().await?;
        let mut rest = [0; 1024];
        while tcp.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // The connection ends in any case.
    let _ = timeout(FAREWELL, ending).await;
}

/// The peer of a coordinator's connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    id: Ed25519Id,
    connection: u64,
    /// The peer's address.
    pub from: SocketAddr,
    /// The local address of the connection.
    to: SocketAddr,
}

/// An accepted connection of a coordinator.
struct PeerStream {
    tls: TlsStream<TcpStream>,
    peer: Peer,
    /// Its permit among its coordinator's connections.
    _place: OwnedSemaphorePermit,
}

impl Connected for PeerStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_those_that_the_kernel_says_with_tabs_between_them() {
        assert_eq!(last_number("4096\t131072\t6291456\n"), 6_291_456);
        assert_eq!((last_number(""), last_number("x")), (0, 0));
        let (sent, received) = greatest_buffers();
        assert!(sent > 4096 && received > 4096, "{sent} {received}");
    }

    #[tokio::test]
    async fn whoever_has_most_handshakes_loses_one_first() {
        let mut handshakes = Handshakes::default();
        let mut shake = |address: &str| {
            let shaking = tokio::spawn(std::future::pending::<()>());
            let handle = shaking.abort_handle();
            handshakes.add(address.parse().expect("an address"), handle);
            shaking
        };
        let alone = shake("192.0.2.1");
        // One host can use a whole /64.
        let many: Vec<_> = (0..50).map(|n| shake(&format!("2001:db8::{n}"))).collect();
        let late = shake("192.0.2.2");
        tokio::task::yield_now().await;
        assert!(!alone.is_finished() && !late.is_finished());
        assert_eq!(many.iter().filter(|one| !one.is_finished()).count(), HANDSHAKES - 2);
        assert!(many[..20].iter().all(tokio::task::JoinHandle::is_finished), "the oldest");
    }
}
