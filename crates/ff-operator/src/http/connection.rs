//! Connections: a bounded number, each with deadlines, so that whoever is slow costs little.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Sleep, sleep};

/// Connections at once; who comes then takes the place of one that has not asked for anything: of
/// the peer with most of these the oldest, so that nobody drives out others by being silent.
const MAX_CONNECTIONS: usize = 64;

/// How long a slow client may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For a request's head; a connection may wait as long for the next one.
    pub head: Duration,
    /// For taking anything of an answer.
    pub stall: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), stall: Duration::from_secs(20) }
    }
}

/// The most that a request's head may have.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The most lines that it may have.
const MAX_HEADERS: usize = 64;
/// How long nobody is accepted when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(200);
/// The same if a descriptor is about to become free.
const SHORT_PAUSE: Duration = Duration::from_millis(2);
/// How often it is logged that nobody is accepted.
const REPEATED: Duration = Duration::from_secs(60);

/// Where connections come from.
pub trait Accept: Send {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Waits for the next connection, and gives its peer's address if that is known.
    ///
    /// # Errors
    /// When one cannot be accepted; the next one may be.
    fn next_connection(
        &mut self,
    ) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn next_connection(&mut self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        self.accept().await.map(|(stream, peer)| (stream, Some(peer.ip())))
    }
}

/// Answers all connections. They end when this is dropped.
pub async fn serve(mut listener: impl Accept, router: Router, deadlines: Deadlines) -> Infallible {
    let mut connections = JoinSet::new();
    let mut places = VecDeque::new();
    let mut told = None::<Instant>;
    loop {
        match listener.next_connection().await {
            Ok((stream, peer)) => {
                while connections.try_join_next().is_some() {}
                make_room(&mut places);
                let has_asked = Arc::new(AtomicBool::new(false));
                let router = noting(&router, has_asked.clone());
                let answering = connections.spawn(answer(stream, router, deadlines));
                places.push_back(Place { answering, has_asked, peer: peer.map(network) });
            }
            Err(_) if end_silent(&mut places) => sleep(SHORT_PAUSE).await,
            Err(error) => {
                if told.is_none_or(|told| told.elapsed() >= REPEATED) {
                    told = Some(Instant::now());
                    tracing::warn!("cannot accept connections: {error}");
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// A connection.
struct Place {
    /// Answers its requests.
    answering: AbortHandle,
    /// Whether it has asked for anything.
    has_asked: Arc<AtomicBool>,
    /// The network of its peer, if that is known.
    peer: Option<IpAddr>,
}

impl Place {
    fn is_silent(&self) -> bool {
        !self.has_asked.load(Ordering::Relaxed)
    }
}

/// What one peer has: an address, or of IPv6 a network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Ends a connection that has not asked for anything, or if all have the oldest, when there are too
/// many.
fn make_room(places: &mut VecDeque<Place>) {
    places.retain(|place| !place.answering.is_finished());
    if places.len() < MAX_CONNECTIONS || end_silent(places) {
        return;
    }
    if let Some(place) = places.pop_front() {
        place.answering.abort();
    }
}

/// Ends the oldest connection without a request of the peer that has most of these, if there is
/// one.
fn end_silent(places: &mut VecDeque<Place>) -> bool {
    places.retain(|place| !place.answering.is_finished());
    let mut counts = HashMap::<Option<IpAddr>, usize>::new();
    for place in places.iter().filter(|place| place.is_silent()) {
        *counts.entry(place.peer).or_default() += 1;
    }
    let most = counts.values().max();
    let is_of_most = |place: &Place| place.is_silent() && counts.get(&place.peer) == most;
    let silent = places.iter().position(is_of_most).and_then(|at| places.remove(at));
    silent.inspect(|place| place.answering.abort()).is_some()
}

/// The same answers, and a note when something is asked.
fn noting(router: &Router, has_asked: Arc<AtomicBool>) -> Router {
    router.clone().layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        has_asked.store(true, Ordering::Relaxed);
        next.run(request)
    }))
}

/// Answers the requests of a connection.
async fn answer<S>(stream: S, router: Router, deadlines: Deadlines)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.head)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let stream = TokioIo::new(Stalled { stream, deadline: deadlines.stall, stall: None });
    let service = TowerToHyperService::new(router);
    if let Err(error) = builder.http1_only().serve_connection(stream, service).await {
        tracing::debug!("a connection to the page ended: {error}");
    }
}

/// A stream that fails when nothing can be written to it for too long.
struct Stalled<S> {
    /// The stream.
    stream: S,
    /// For how long.
    deadline: Duration,
    /// Until when something must have been written, while it is full.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalled<S> {
    /// Passes on how a write went, unless it has waited for too long.
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let deadline = self.deadline;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(deadline)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watched(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watched(cx, closed)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::mpsc;

    use super::*;

    impl Accept for mpsc::Receiver<(DuplexStream, Option<IpAddr>)> {
        type Stream = DuplexStream;

        async fn next_connection(&mut self) -> io::Result<(DuplexStream, Option<IpAddr>)> {
            self.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
        }
    }

    /// A server of a page with the text `here`; connections go through this channel.
    fn served() -> mpsc::Sender<(DuplexStream, Option<IpAddr>)> {
        let (connect, connections) = mpsc::channel(1);
        let router = Router::new().route("/", get(|| async { "here" }));
        // The test's runtime ends it.
        drop(tokio::spawn(serve(connections, router, Deadlines::default())));
        connect
    }

    /// Connects from this address.
    async fn client(
        connect: &mpsc::Sender<(DuplexStream, Option<IpAddr>)>,
        peer: Option<&str>,
    ) -> DuplexStream {
        let (client, server) = duplex(1024);
        let peer = peer.map(|peer| peer.parse().expect("an address"));
        connect.send((server, peer)).await.expect("it is served");
        client
    }

    /// The answer to a request; empty if the connection has ended.
    async fn answer_to(mut client: DuplexStream) -> String {
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let mut answer = String::new();
        if client.write_all(request).await.is_ok() {
            client.read_to_string(&mut answer).await.expect("an answer");
        }
        answer
    }

    #[tokio::test]
    async fn a_connection_may_come_from_elsewhere_than_tcp() {
        let connect = served();
        let answer = answer_to(client(&connect, None).await).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn whoever_is_silent_often_drives_out_only_their_own_connections() {
        for [silent, other] in [
            ["192.0.2.1", "192.0.2.2"],
            ["2001:db8::1", "2001:db8:0:1::1"],
            ["::ffff:192.0.2.1", "::ffff:192.0.2.2"],
        ] {
            let connect = served();
            let mut before = Vec::new();
            for _ in 0..MAX_CONNECTIONS {
                before.push(client(&connect, Some(silent)).await);
            }
            let slow = client(&connect, Some(other)).await;
            let mut after = Vec::new();
            for _ in 0..MAX_CONNECTIONS {
                after.push(client(&connect, Some(silent)).await);
            }
            // Once this one has its answer, all connections before it have their places.
            let last = answer_to(client(&connect, Some(silent)).await).await;
            assert!(last.ends_with("here"), "{silent}: {last}");
            let answer = answer_to(slow).await;
            assert!(answer.ends_with("here"), "{other}: {answer}");
            let first = answer_to(before.swap_remove(0)).await;
            assert_eq!(first, "", "{silent} has lost its own");
        }
    }

    /// A stream whose peer takes nothing.
    struct Stuck;

    impl AsyncRead for Stuck {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Stuck {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn nobody_keeps_a_connection_by_taking_nothing() {
        let deadline = Duration::from_millis(10);
        let stalled = || Stalled { stream: Stuck, deadline, stall: None };
        for result in
            [stalled().write_all(b"x").await, stalled().flush().await, stalled().shutdown().await]
        {
            assert_eq!(result.expect_err("it ends").kind(), io::ErrorKind::TimedOut);
        }
    }
}
