//! An onion service run by Arti.
//!
//! Its key is in Arti's key store, in the folder of the client's state, with mode 0600. Streams of
//! clients count against the same limits as connections. This module limits circuits of clients and
//! streams per circuit.

use std::future::{pending, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arti_client::TorClient;
use arti_client::config::onion_service::OnionServiceConfigBuilder;
use ff_operator::http::Accept;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, Stream};
use safelog::DisplayRedacted as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tor_cell::relaycell::msg::Connected;
use tor_hsservice::{HsNickname, RendRequest, RunningOnionService, StreamRequest};
use tor_proto::client::stream::DataStream;
use tor_proto::stream::IncomingStreamRequest;
use tor_rtcompat::PreferredRuntime;

use super::PORT;

/// Name of the service in Arti's key store.
const NICKNAME: &str = "ff-perf";
/// Most circuits of clients at once; clients have one per download.
const CIRCUITS: usize = 512;
/// Most streams per circuit at once: as many as connections. Arti closes a circuit with more.
const STREAMS: u32 = 64;
/// Longest wait for a circuit to a client's rendezvous point, and then for its first stream.
const RENDEZVOUS: Duration = Duration::from_secs(60);
/// How long a circuit without open streams is kept. A client whose next download comes later builds
/// another one, and strangers cannot hold all circuits for long.
const UNUSED: Duration = Duration::from_secs(180);

/// A running service; dropping it ends the service.
pub struct ArtiService {
    /// Address with `.onion`.
    pub address: String,
    /// Streams of clients.
    pub streams: Streams,
    /// Resolves when the service has ended by itself.
    pub ended: oneshot::Receiver<()>,
    /// Ends the service when dropped.
    _running: Arc<RunningOnionService>,
    /// Keeps the network's documents up to date.
    _client: Arc<TorClient<PreferredRuntime>>,
}

/// Streams of clients, from all circuits.
pub struct Streams {
    streams: BoxStream<'static, ClientStream>,
    /// Dropped after the last stream.
    end: Option<oneshot::Sender<()>>,
}

impl Accept for Streams {
    type Stream = ClientStream;

    async fn next_connection(&mut self) -> io::Result<(ClientStream, Option<IpAddr>)> {
        if let Some(stream) = self.streams.next().await {
            return Ok((stream, None));
        }
        drop(self.end.take());
        pending().await
    }
}

/// An open stream of a client; its circuit is in use until this is dropped.
pub struct ClientStream {
    stream: DataStream,
    _in_use: Use,
}

/// Marks a circuit as in use until dropped.
type Use = watch::Receiver<()>;

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.stream), cx, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.stream), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.stream), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.stream), cx)
    }
}

/// Launches a service.
///
/// # Errors
/// One sentence with Arti's message.
pub fn launch(client: Arc<TorClient<PreferredRuntime>>) -> Result<ArtiService, String> {
    let nickname = HsNickname::new(NICKNAME.to_owned()).map_err(|error| error.to_string())?;
    let config = OnionServiceConfigBuilder::default()
        .nickname(nickname)
        .max_concurrent_streams_per_circuit(STREAMS)
        .build();
    let config = config.map_err(|error| error.to_string())?;
    let launched = client.launch_onion_service(config);
    let launched = launched.map_err(|error| crate::client::arti::reason(&error))?;
    let (running, requests) = launched.ok_or("Arti did not launch it")?;
    let address = running.onion_address().ok_or("Arti did not report its address")?;
    let address = address.display_unredacted().to_string();
    let streams = requests.map(session);
    let (end, ended) = oneshot::channel();
    let streams = Streams { streams: streams.flatten_unordered(CIRCUITS).boxed(), end: Some(end) };
    Ok(ArtiService { address, streams, ended, _running: running, _client: client })
}

/// Streams of a client's circuit, which ends when no more are requested.
fn session(request: RendRequest) -> BoxStream<'static, ClientStream> {
    let accepted = async move {
        let requests = timeout(RENDEZVOUS, request.accept()).await.ok()?.ok()?;
        Some(while_used(requests, [RENDEZVOUS, UNUSED]))
    };
    stream::once(accepted).filter_map(ready).flatten().filter_map(open).boxed()
}

/// Requests for streams on a circuit, until no stream has been open for `first` before the first
/// request, or for `later` after it.
fn while_used<R: Send + 'static>(
    requests: impl Stream<Item = R> + Send + Unpin + 'static,
    [first, later]: [Duration; 2],
) -> impl Stream<Item = (R, Use)> + Send + 'static {
    let uses = watch::Sender::new(());
    stream::unfold((requests, uses, first), move |(mut requests, uses, time)| async move {
        let unused = async {
            uses.closed().await;
            sleep(time).await;
        };
        let request = tokio::select! {
            biased;
            request = requests.next() => request?,
            () = unused => return None,
        };
        let in_use = uses.subscribe();
        Some(((request, in_use), (requests, uses, later)))
    })
}

/// Accepts a stream of a client. A request for another port closes the circuit, as in tor, which
/// tells scanners least.
async fn open((request, in_use): (StreamRequest, Use)) -> Option<ClientStream> {
    let is_ours =
        matches!(request.request(), IncomingStreamRequest::Begin(begin) if begin.port() == PORT);
    if !is_ours {
        let _ = request.shutdown_circuit();
        return None;
    }
    let stream = timeout(RENDEZVOUS, request.accept(Connected::new_empty())).await.ok()?.ok()?;
    Some(ClientStream { stream, _in_use: in_use })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_circuit_ends_a_time_after_its_last_stream() {
        let moment = Duration::from_millis(1);
        let requests = stream::iter(["one", "two"]).chain(stream::pending());
        let mut requests = while_used(requests, [Duration::from_secs(3600), moment]).boxed();
        let (_, one) = requests.next().await.expect("a request");
        let (_, two) = requests.next().await.expect("a request");
        drop(one);
        timeout(20 * moment, requests.next()).await.expect_err("the other one is in use");
        drop(two);
        assert!(requests.next().await.is_none());
    }

    #[tokio::test]
    async fn a_circuit_without_a_stream_ends() {
        let times = [Duration::from_millis(1), Duration::from_secs(3600)];
        let mut requests = while_used(stream::pending::<()>(), times).boxed();
        assert!(requests.next().await.is_none());
    }
}
