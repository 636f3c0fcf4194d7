//! The measurer's end: lets coordinators in, and measures for them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ed25519_dalek::SigningKey;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use futures::channel::mpsc;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, Server};
use tonic::{Request, Response, Status, Streaming};

use super::admission::{Admission, Limits};
use super::exchange::{self, Listening};
use super::run;
use super::tls;
use super::wire::exchange::ExchangePart;
use super::wire::measurer_server::{Measurer, MeasurerServer};
use super::wire::{Capability, DescribeRequest, Instruction, Report, instruction};
use crate::task::{Host, Task};

/// How long a coordinator may take for its TLS handshake, and for the first instruction of a stream.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that may be in their handshakes at once.
const HANDSHAKES: usize = 32;
/// How often a quiet connection is asked whether it lives, and how long it may take to say so.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// Streams of one connection.
const STREAMS: u32 = 128;
/// The longest instruction: an exchange with as many peers as may be.
const MAX_INSTRUCTION_BYTES: usize = 8192;
/// Reports that wait for a coordinator to read them.
const REPORTS: usize = 64;

/// A coordinator that may give work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinator {
    /// How the operator calls it.
    pub name: String,
    /// Its key.
    pub id: Ed25519Id,
}

/// What of the config may change while the service runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Who may give work.
    pub coordinators: Vec<Coordinator>,
    /// How much.
    pub limits: Limits,
}

/// A measurer that serves coordinators.
pub struct Service {
    /// Its key and cores.
    host: Host,
    /// What the operator allows now.
    settings: RwLock<Settings>,
    /// What of it is taken.
    admission: Arc<Admission>,
    /// The number of each coordinator's newest connection: an older one's measurements end.
    connections: Mutex<HashMap<Ed25519Id, watch::Sender<u64>>>,
    /// Whether the service is to end.
    ending: watch::Sender<bool>,
    /// The service itself, for the measurements that it starts.
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
            ending: watch::Sender::new(false),
            myself: myself.clone(),
        })
    }

    /// Takes new settings. What goes on goes on, unless its coordinator is not among them any more.
    pub fn set(&self, settings: Settings) {
        let gone: Vec<_> = {
            let mut old = self.settings.write().unwrap_or_else(PoisonError::into_inner);
            let stays = |id| settings.coordinators.iter().any(|coordinator| coordinator.id == id);
            let ids = old.coordinators.iter().map(|coordinator| coordinator.id);
            let gone = ids.filter(|&id| !stays(id)).collect();
            *old = settings;
            gone
        };
        for id in gone {
            self.new_connection(id);
        }
    }

    /// How many relays are being measured.
    #[must_use]
    pub fn relays(&self) -> u16 {
        self.admission.relays()
    }

    /// Whether it exchanges with other measurers.
    #[must_use]
    pub fn is_exchanging(&self) -> bool {
        self.admission.is_exchanging()
    }

    /// Ends all measurements and, a moment later, the service.
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
                // An error means that nobody can end it any more.
                let _ = ending.wait_for(|ending| *ending).await;
            })
            .await;
        accepting.abort();
        result.map_err(Into::into)
    }

    /// How the operator calls a coordinator, if it may give work.
    fn name_of(&self, id: &Ed25519Id) -> Option<String> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        let coordinator = settings.coordinators.iter().find(|coordinator| coordinator.id == *id);
        coordinator.map(|coordinator| coordinator.name.clone())
    }

    /// What the operator allows now.
    fn limits(&self) -> Limits {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).limits.clone()
    }

    /// Who asks by a stream, and for what.
    async fn asked(&self, request: Request<Streaming<Instruction>>) -> Result<Asked, Status> {
        let peer =
            *request.extensions().get::<Peer>().ok_or_else(|| Status::internal("no peer"))?;
        let name = self.name_of(&peer.id);
        let name =
            name.ok_or_else(|| Status::permission_denied("not this coordinator any more"))?;
        let mut instructions = request.into_inner();
        let first = timeout(HANDSHAKE_TIMEOUT, instructions.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("nothing was asked for"))??;
        let first = first.and_then(|message| message.instruction);
        let first = first.ok_or_else(|| Status::invalid_argument("an unknown instruction"))?;
        Ok(Asked { peer, name, first, instructions })
    }

    /// Notes a coordinator's new connection, and returns its number.
    fn new_connection(&self, id: Ed25519Id) -> u64 {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = connections.entry(id).or_default();
        newest.send_modify(|number| *number += 1);
        *newest.borrow()
    }

    /// Waits until a measurement of this connection is to end, and says why.
    async fn stopped(self: Arc<Self>, peer: Peer) -> &'static str {
        let newest = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.entry(peer.id).or_default().subscribe()
        };
        let (mut newest, mut ending) = (newest, self.ending.subscribe());
        tokio::select! {
            _ = newest.wait_for(|newest| *newest != peer.connection) => {
                "its coordinator has connected anew, or may not give work any more"
            }
            _ = ending.wait_for(|ending| *ending) => "it is being shut down",
        }
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
            congestion_control: kernel("net/ipv4/tcp_congestion_control"),
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
        let permit = self.admission.admit(&task, &self.limits(), now().as_secs());
        let permit = permit.map_err(|refusal| {
            tracing::warn!(coordinator = name, target = %task.target.addr, "refused: {refusal}");
            Status::failed_precondition(refusal.to_string())
        })?;
        tracing::info!(coordinator = name, target = %task.target.addr, "measuring");
        let (reports, stream) = mpsc::channel(REPORTS);
        let myself = self.myself.upgrade().ok_or_else(|| Status::unavailable("it is ending"))?;
        let stopped = myself.stopped(peer);
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
        let myself = self.myself.upgrade().ok_or_else(|| Status::unavailable("it is ending"))?;
        let stopped = myself.stopped(peer);
        tokio::spawn(exchange::run(listening, instructions, reports, stopped));
        Ok(Response::new(stream))
    }
}

/// What a coordinator asks for by a stream.
struct Asked {
    /// Its connection.
    peer: Peer,
    /// How the operator calls it.
    name: String,
    /// Its first instruction.
    first: instruction::Instruction,
    /// The others.
    instructions: Streaming<Instruction>,
}

/// The time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A setting of the kernel's.
fn kernel(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}"));
    text.map_or(String::new(), |text| super::wire::printable(text.trim()))
}

/// The greatest buffers of a socket: what the kernel enlarges those of TCP to by itself.
fn greatest_buffers() -> (u64, u64) {
    let greatest = |name| {
        kernel(name).split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    (greatest("net/ipv4/tcp_wmem"), greatest("net/ipv4/tcp_rmem"))
}

/// Accepts connections and gives those of coordinators on.
async fn accept(
    service: Arc<Service>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    incoming: mpsc::Sender<std::io::Result<PeerStream>>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (service, acceptor, mut incoming) =
            (service.clone(), acceptor.clone(), incoming.clone());
        tokio::spawn(async move {
            let _place = place;
            match timeout(HANDSHAKE_TIMEOUT, handshake(&service, tcp, &acceptor)).await {
                Ok(Ok(stream)) => {
                    // It fails when the service has ended.
                    let _ = incoming.try_send(Ok(stream));
                }
                Ok(Err(error)) => tracing::warn!(%from, "a connection was not let in: {error}"),
                Err(_) => tracing::warn!(%from, "a connection took too long to say who it is"),
            }
        });
    }
}

/// Does TLS on a connection.
async fn handshake(
    service: &Service,
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
) -> std::io::Result<PeerStream> {
    tcp.set_nodelay(true)?;
    let (from, to) = (tcp.peer_addr()?, tcp.local_addr()?);
    let tls = acceptor.accept(tcp).await?;
    let id = tls::peer_id(tls.get_ref().1.peer_certificates());
    let id = id.ok_or_else(|| std::io::Error::other("the peer has no key"))?;
    let peer = Peer { id, connection: service.new_connection(id), from, to };
    Ok(PeerStream { tls, peer })
}

/// A coordinator's connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Whose.
    id: Ed25519Id,
    /// Which of its connections.
    connection: u64,
    /// From where.
    pub from: SocketAddr,
    /// The address here that it has come to.
    to: SocketAddr,
}

/// A connection that has been let in.
struct PeerStream {
    /// Its bytes.
    tls: TlsStream<TcpStream>,
    /// Whose it is.
    peer: Peer,
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
