//! Distance: a forwarder that delays all bytes, by half the round trip in each direction.
//!
//! ```text
//!   client ──▶ reader ── (when due, bytes) ──▶ writer ──▶ server
//!          ◀── writer ◀── (when due, bytes) ── reader ◀──
//! ```
//!
//! What is under way is not bounded, as on a path with large buffers, and its rate neither. One
//! connection may become a black hole, as behind a firewall that has forgotten it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Bytes read at once.
const READ_LEN: usize = 64 * 1024;

/// A running forwarder; it ends, with its connections, when this is dropped.
pub(crate) struct Forwarder {
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    /// Dropped to end it.
    stop: Option<oneshot::Sender<()>>,
    /// Its thread.
    thread: Option<std::thread::JoinHandle<()>>,
    /// When the client has closed the connection that loses everything.
    given_up: Arc<OnceLock<std::time::Instant>>,
}

/// What happens to the connection that loses everything.
#[derive(Clone)]
struct Loss {
    /// Since when.
    from: Instant,
    /// When its client has closed it.
    given_up: Arc<OnceLock<std::time::Instant>>,
}

impl Forwarder {
    /// Forwards connections to `to`, which then is as far away as the round trip says.
    pub(crate) fn start(to: SocketAddr, round_trip: Duration) -> Self {
        Self::start_losing(to, round_trip, None)
    }

    /// As [`Self::start`], and the connection with this number loses everything from some time
    /// after its beginning.
    pub(crate) fn start_losing(
        to: SocketAddr,
        round_trip: Duration,
        lost: Option<(usize, Duration)>,
    ) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let addr = listener.local_addr().expect("the port");
        listener.set_nonblocking(true).expect("a listener for tokio");
        let (stop, stopped) = oneshot::channel::<()>();
        let given_up = Arc::new(OnceLock::new());
        let shared = given_up.clone();
        let thread = crate::in_thread(async move || {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let accepting = async {
                let mut number = 0;
                while let Ok((client, _)) = listener.accept().await {
                    let lost = lost.filter(|(which, _)| *which == number);
                    let loss = lost.map(|(_, after)| Loss {
                        from: Instant::now() + after,
                        given_up: shared.clone(),
                    });
                    tokio::spawn(forward(client, to, round_trip / 2, loss));
                    number += 1;
                }
            };
            tokio::select! {
                () = accepting => {}
                _ = stopped => {}
            }
        });
        Self { addr, stop: Some(stop), thread: Some(thread), given_up }
    }

    /// When the client has closed the connection that loses everything, if it has.
    pub(crate) fn given_up(&self) -> Option<std::time::Instant> {
        self.given_up.get().copied()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking(), "it panicked");
    }
}

/// Forwards one connection.
async fn forward(client: TcpStream, to: SocketAddr, delay: Duration, loss: Option<Loss>) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    for tcp in [&client, &server] {
        tcp.set_nodelay(true).expect("a socket");
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    for (reader, writer) in [(from_client, to_server), (from_server, to_client)] {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(read(reader, sender, delay, loss.clone()));
        tokio::spawn(write(writer, receiver));
    }
}

/// Takes what comes, and says when it is due.
async fn read(
    mut reader: OwnedReadHalf,
    sender: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    delay: Duration,
    loss: Option<Loss>,
) {
    loop {
        let mut bytes = Vec::with_capacity(READ_LEN);
        match reader.read_buf(&mut bytes).await {
            Ok(1..) if loss.as_ref().is_some_and(|loss| loss.from <= Instant::now()) => {}
            Ok(1..) if sender.send((Instant::now() + delay, bytes)).is_ok() => {}
            _ => break,
        }
    }
    if let Some(loss) = loss {
        let _ = loss.given_up.set(std::time::Instant::now());
    }
}

/// Gives it on when it is due; closes that direction behind it.
async fn write(
    mut writer: OwnedWriteHalf,
    mut receiver: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
) {
    while let Some((due, bytes)) = receiver.recv().await {
        sleep_until(due).await;
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
