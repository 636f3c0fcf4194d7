//! The coordinator's end: a measurer on another host.

mod exchange;
mod way;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use futures::channel::mpsc;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint, Uri};

use self::way::{Noting, Way};
use super::server::KEEP_ALIVE;
use super::tls;
use super::wire::measurer_client::MeasurerClient;
use super::wire::{
    Capability, DescribeRequest, Instruction, Ping, Prepare, Report, Start, instruction, millis,
    report,
};
use crate::dial;
use crate::measurer::measurer_id;
use crate::order::{SecondReport, WorkerTotals};
use crate::task::{PartFailure, Task};

pub use self::exchange::{RemoteExchange, RemoteExchangeEvent};

/// How long a connection to a measurer may take, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long each address of a measurer's name may take to accept a connection.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a measurer may take to answer what it can answer at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a running measurement may go without a second from this measurer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest report: the round trips of a whole measurement.
const MAX_REPORT_BYTES: usize = 1 << 20;
/// Instructions that wait to be sent; a measurement has three.
const INSTRUCTIONS: usize = 8;
/// How often the way to a measurer is looked at.
const PINGS: u32 = 3;
/// How far ahead of the start a measurer is told, apart from the way there.
const START_LEAD: Duration = Duration::from_millis(150);

/// A measurer on another host. It connects when it is needed, and again when the connection has
/// ended.
#[derive(Clone)]
pub struct RemoteMeasurer {
    /// The connection.
    client: MeasurerClient<Channel>,
    /// Its address, and the state of the connections to it.
    way: Arc<Way>,
}

impl RemoteMeasurer {
    /// The measurer with this key at `HOST:PORT`, for the coordinator with that key.
    ///
    /// # Errors
    /// A text that says what is wrong with the address.
    pub fn new(address: &str, id: Ed25519Id, key: &SigningKey) -> Result<Self, String> {
        let config = tls::client_config(key, id).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(config));
        let way = Arc::new(Way::new(address, id, measurer_id(key)));
        // The connector below knows where to go; HTTP wants a name all the same.
        let endpoint = Endpoint::from_static("http://measurer")
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        let noted = way.clone();
        let connect = tower::service_fn(move |_: Uri| {
            let (connector, way) = (connector.clone(), noted.clone());
            async move {
                way.begin();
                let reached = reach(&connector, &way).await;
                let stream = reached.inspect_err(|error| way.note(error))?;
                Ok::<_, io::Error>(TokioIo::new(Noting::new(stream, way)))
            }
        });
        let channel = endpoint.connect_with_connector_lazy(connect);
        let client = MeasurerClient::new(channel).max_decoding_message_size(MAX_REPORT_BYTES);
        Ok(Self { client, way })
    }

    /// The address that it was reached at last, if it ever was.
    #[must_use]
    pub fn reached_at(&self) -> Option<IpAddr> {
        self.way.reached_at()
    }

    /// Its key.
    #[must_use]
    pub fn id(&self) -> Ed25519Id {
        self.way.measurer()
    }

    /// Its description and its operator's limits.
    ///
    /// # Errors
    /// [`PartFailure`], when it does not answer in time.
    pub async fn describe(&self) -> Result<Capability, PartFailure> {
        let mut client = self.client.clone();
        let asking = client.describe(DescribeRequest {});
        let answer =
            timeout(CONNECT_TIMEOUT, asking).await.map_err(|_| late("to describe itself"))?;
        let answer = answer.map_err(|status| self.way.failure(&status))?;
        Ok(answer.into_inner().printable())
    }

    /// Has it open the links of a task.
    ///
    /// # Errors
    /// [`PartFailure`], when it cannot or does not want to.
    pub async fn prepare(&self, task: &Task) -> Result<RemotePart, PartFailure> {
        let prepare = instruction::Instruction::Prepare(Prepare::from(task));
        let mut client = self.client.clone();
        let talk = Talk::open(&self.way, prepare, |stream| async move {
            let asking = timeout(CONNECT_TIMEOUT + ANSWER_TIMEOUT, client.measure(stream)).await;
            asking
                .map_err(|_| late("to accept a task"))?
                .map_err(|status| self.way.failure(&status))
        });
        let mut part = RemotePart {
            talk: talk.await?,
            way: Duration::ZERO,
            opened: 0,
            asked: task.sockets,
            seconds: task.duration_secs.into(),
            next: VecDeque::new(),
            deadline: None,
        };
        let ready = part.talk.next_report().await?;
        let report::Report::Ready(ready) = ready else {
            return Err(odd("it sent an unexpected message instead of opening its links"));
        };
        let opened = u16::try_from(ready.links).unwrap_or(u16::MAX);
        if opened > task.sockets {
            return Err(odd("it reported more links than requested"));
        }
        part.opened = opened;
        part.way = part.talk.measure_the_way().await?;
        Ok(part)
    }
}

/// A measurer on another host whose links are open. Dropping it closes them.
pub struct RemotePart {
    /// The streams.
    talk: Talk,
    /// How long an instruction is on its way.
    way: Duration,
    /// Links that are open.
    opened: u16,
    /// Links that it was asked for.
    asked: u16,
    /// How many seconds it is to measure.
    seconds: usize,
    /// Events that are due before the next report.
    next: VecDeque<RemoteEvent>,
    /// When it must have said something.
    deadline: Option<Instant>,
}

/// The events of a measurer on another host.
#[derive(Debug)]
pub enum RemoteEvent {
    /// A second is full.
    Second(SecondReport),
    /// It is over.
    Done(Box<WorkerTotals>),
    /// It has failed.
    Failed(PartFailure),
}

impl RemotePart {
    /// Links that are open.
    #[must_use]
    pub fn opened(&self) -> u16 {
        self.opened
    }

    /// How long before the start it must be told of it.
    #[must_use]
    pub fn start_lead(&self) -> Duration {
        START_LEAD + 2 * self.way
    }

    /// Starts the sending at a moment that lies ahead. It begins then if the way is as long as it
    /// was, and in no case before the moment that is returned.
    pub fn start(&mut self, at: Instant) -> Instant {
        let now = Instant::now();
        let lead = at.saturating_duration_since(now).saturating_sub(self.way);
        let start = instruction::Instruction::Start(Start { in_millis: millis(lead) });
        if let Err(failure) = self.talk.instruct(start) {
            self.next.push_back(RemoteEvent::Failed(failure));
        }
        self.deadline = Some(at + Duration::from_secs(1) + SILENCE_TIMEOUT);
        now + lead
    }

    /// The next event; cancel-safe. `Done` and `Failed` are the last ones.
    pub async fn next_event(&mut self) -> RemoteEvent {
        if let Some(event) = self.next.pop_front() {
            return event;
        }
        match self.next_running().await {
            Ok(event) => event,
            Err(failure) => RemoteEvent::Failed(failure),
        }
    }

    /// The next event of a measurement that runs.
    async fn next_running(&mut self) -> Result<RemoteEvent, PartFailure> {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + SILENCE_TIMEOUT);
        let report = timeout_at(deadline.into(), self.talk.next_report()).await;
        let report = report.map_err(|_| late("to report a second"))??;
        self.deadline = Some(Instant::now() + SILENCE_TIMEOUT);
        match report {
            report::Report::Second(second) => {
                let second =
                    SecondReport::try_from(second).map_err(|error| odd(&error.to_string()))?;
                if usize::from(second.second) >= self.seconds || second.sockets_alive > self.asked {
                    return Err(odd("it reported an impossible second"));
                }
                Ok(RemoteEvent::Second(second))
            }
            report::Report::Done(done) => {
                let totals =
                    WorkerTotals::try_from(done).map_err(|error| odd(&error.to_string()))?;
                Ok(RemoteEvent::Done(Box::new(totals)))
            }
            _ => Err(odd("it sent an unexpected message during the measurement")),
        }
    }
}

/// The two streams of a measurement or an exchange. When this is dropped, they end.
struct Talk {
    /// Where instructions go; the stream ends with it.
    instructions: mpsc::Sender<Instruction>,
    reports: Streaming<Report>,
    /// Its address, and the state of the connections to it.
    way: Arc<Way>,
}

impl Talk {
    /// Opens them with a first instruction, by this call.
    async fn open<F>(
        way: &Arc<Way>,
        first: instruction::Instruction,
        call: impl FnOnce(mpsc::Receiver<Instruction>) -> F,
    ) -> Result<Self, PartFailure>
    where
        F: Future<Output = Result<tonic::Response<Streaming<Report>>, PartFailure>>,
    {
        let (mut instructions, stream) = mpsc::channel(INSTRUCTIONS);
        instruct(&mut instructions, first)?;
        let reports = call(stream).await?.into_inner();
        Ok(Self { instructions, reports, way: way.clone() })
    }

    /// Sends an instruction.
    fn instruct(&mut self, instruction: instruction::Instruction) -> Result<(), PartFailure> {
        instruct(&mut self.instructions, instruction)
    }

    /// Finds out how long instructions are on their way: the shortest time, because one of two
    /// hosts that is stopped for a moment makes it longer.
    async fn measure_the_way(&mut self) -> Result<Duration, PartFailure> {
        let mut way = Duration::MAX;
        for _ in 0..PINGS {
            way = way.min(self.ping().await?);
        }
        Ok(way)
    }

    /// How long an instruction was on its way, if the answer took as long.
    async fn ping(&mut self) -> Result<Duration, PartFailure> {
        let (asked, nonce) = (Instant::now(), rand::random());
        self.instruct(instruction::Instruction::Ping(Ping { nonce }))?;
        let answer = timeout(ANSWER_TIMEOUT, self.next_report()).await;
        match answer.map_err(|_| late("to answer a ping"))?? {
            report::Report::Pong(pong) if pong.nonce == nonce => Ok(asked.elapsed() / 2),
            _ => Err(odd("it sent an unexpected answer to a ping")),
        }
    }

    /// The next report that is not a failure.
    async fn next_report(&mut self) -> Result<report::Report, PartFailure> {
        match self.reports.message().await {
            Ok(Some(Report { report: Some(report::Report::Failure(failure)) })) => {
                Err(failure.into())
            }
            Ok(Some(Report { report: Some(report) })) => Ok(report),
            Ok(Some(_)) => {
                Err(odd("it sent an unknown message: check that it has this version of FlashFlow"))
            }
            Ok(None) => Err(odd("it ended its stream early")),
            Err(status) => Err(self.way.failure(&status)),
        }
    }
}

/// Sends an instruction.
fn instruct(
    instructions: &mut mpsc::Sender<Instruction>,
    instruction: instruction::Instruction,
) -> Result<(), PartFailure> {
    let message = Instruction { instruction: Some(instruction) };
    instructions.try_send(message).map_err(|_| odd("its connection has ended"))
}

async fn reach(connector: &TlsConnector, way: &Way) -> io::Result<TlsStream<TcpStream>> {
    let found = dial::lookup(way.address()).await?;
    let tcp = dial::connect(&found, ADDRESS_TIMEOUT).await?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from("measurer").map_err(io::Error::other)?;
    let peer = tcp.peer_addr()?.ip().to_canonical();
    let stream = timeout(CONNECT_TIMEOUT, connector.connect(name, tcp)).await??;
    way.note_reached(peer);
    Ok(stream)
}

/// It did something that it should not.
fn odd(what: &str) -> PartFailure {
    let message = what.to_owned();
    PartFailure { kind: FailureKind::MeasurerFailed, relay_code: None, message }
}

/// It took too long.
fn late(what: &str) -> PartFailure {
    odd(&format!("it took too long {what}"))
}
