//! An onion service by Arti.
//!
//! Its key is in Arti's key store, in the folder of the client's state, with mode 0600. Streams of
//! clients are connections like others, with the same bounds. Circuits of clients, and streams on
//! one of them, are bounded here.

use std::future::{pending, ready};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arti_client::TorClient;
use arti_client::config::onion_service::OnionServiceConfigBuilder;
use ff_operator::http::Accept;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use safelog::DisplayRedacted as _;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tor_cell::relaycell::msg::Connected;
use tor_hsservice::{HsNickname, RendRequest, RunningOnionService, StreamRequest};
use tor_proto::client::stream::DataStream;
use tor_proto::stream::IncomingStreamRequest;
use tor_rtcompat::PreferredRuntime;

use super::PORT;

/// The service's name in Arti's key store.
const NICKNAME: &str = "ff-perf";
/// Circuits of clients at once. A client keeps the circuit of a download for ten minutes or so, and
/// has another one for the next download.
const CIRCUITS: usize = 512;
/// Streams of a circuit at once: as many as connections. Arti ends a circuit with more.
const STREAMS: u32 = 64;
/// How long a circuit to a client's rendezvous point may take, and then its first stream.
const RENDEZVOUS: Duration = Duration::from_secs(60);

/// A running service. It ends when this is dropped.
pub struct ArtiService {
    /// Its address, with `.onion`.
    pub address: String,
    /// The streams of its clients.
    pub streams: Streams,
    /// Comes when the service has ended by itself.
    pub ended: oneshot::Receiver<()>,
    /// Ends the service when it is dropped.
    _running: Arc<RunningOnionService>,
    /// What keeps the network's documents new.
    _client: Arc<TorClient<PreferredRuntime>>,
}

/// Streams of clients.
pub struct Streams {
    /// One after the other, from all circuits.
    streams: BoxStream<'static, DataStream>,
    /// Dropped after the last one.
    end: Option<oneshot::Sender<()>>,
}

impl Accept for Streams {
    type Stream = DataStream;

    async fn next_connection(&mut self) -> io::Result<DataStream> {
        if let Some(stream) = self.streams.next().await {
            return Ok(stream);
        }
        drop(self.end.take());
        pending().await
    }
}

/// Launches a service. After its first stream a circuit on which no stream is opened for `idle` is
/// ended, with its downloads: take longer than one may.
///
/// # Errors
/// One sentence with what Arti says.
pub fn launch(
    client: Arc<TorClient<PreferredRuntime>>,
    idle: Duration,
) -> Result<ArtiService, String> {
    let nickname = HsNickname::new(NICKNAME.to_owned()).map_err(|error| error.to_string())?;
    let config = OnionServiceConfigBuilder::default()
        .nickname(nickname)
        .max_concurrent_streams_per_circuit(STREAMS)
        .build();
    let config = config.map_err(|error| error.to_string())?;
    let launched = client.launch_onion_service(config);
    let launched = launched.map_err(|error| crate::client::arti::reason(&error))?;
    let (running, requests) = launched.ok_or("Arti does not launch it")?;
    let address = running.onion_address().ok_or("Arti does not tell its address")?;
    let address = address.display_unredacted().to_string();
    let streams = requests.map(move |request| session(request, idle));
    let (end, ended) = oneshot::channel();
    let streams = Streams { streams: streams.flatten_unordered(CIRCUITS).boxed(), end: Some(end) };
    Ok(ArtiService { address, streams, ended, _running: running, _client: client })
}

/// The streams of a client's circuit.
fn session(request: RendRequest, idle: Duration) -> BoxStream<'static, DataStream> {
    let accepted = async move {
        let requests = timeout(RENDEZVOUS, request.accept()).await.ok()?.ok()?;
        Some(stream::unfold((requests, RENDEZVOUS), move |(mut requests, time)| async move {
            let next = timeout(time, requests.next()).await.ok()??;
            Some((next, (requests, idle)))
        }))
    };
    stream::once(accepted).filter_map(ready).flatten().filter_map(open).boxed()
}

/// A stream of a client. Another port ends the circuit, as at a tor, which tells least to scanners.
async fn open(request: StreamRequest) -> Option<DataStream> {
    let is_ours =
        matches!(request.request(), IncomingStreamRequest::Begin(begin) if begin.port() == PORT);
    if !is_ours {
        let _ = request.shutdown_circuit();
        return None;
    }
    request.accept(Connected::new_empty()).await.ok()
}
