//! A proxy between two processes: it forwards connections, and can hold, slow or reset them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ff_proto::units::BytesPerSec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// Bytes passed on at once.
const READ_LEN: usize = 64 * 1024;
/// How long each read waits while connections are slow.
const SLOWNESS: Duration = Duration::from_millis(120);

/// The treatment of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Forward them.
    Pass,
    /// Nothing passes, and nothing is said of it.
    Stall,
    /// All that is there is slow.
    Slow,
    /// Reset them, new ones too.
    Cut,
}

/// Bytes that a line takes from one connection at once.
const PACKET: usize = 1500;

/// A line: what all connections over it carry together, each way.
pub(crate) struct Line {
    /// To its targets.
    there: Way,
    /// And from them.
    back: Way,
}

/// One direction of a line.
struct Way {
    /// How long a byte takes, in seconds.
    byte_secs: f64,
    /// When it is free.
    free: Mutex<Instant>,
}

impl Line {
    /// A line with this capacity each way.
    pub(crate) fn new(rate: BytesPerSec) -> Self {
        let byte_secs = 1.0 / rate.get() as f64;
        let way = || Way { byte_secs, free: Mutex::new(Instant::now()) };
        Self { there: way(), back: way() }
    }
}

impl Way {
    /// Waits until the line has carried these bytes, after all earlier ones.
    async fn carry(&self, bytes: usize) {
        let until = {
            let mut free = self.free.lock().expect("nobody panicked with it");
            *free = (*free).max(Instant::now())
                + Duration::from_secs_f64(bytes as f64 * self.byte_secs);
            *free
        };
        tokio::time::sleep_until(until).await;
    }
}

/// A way from one process to another; it ends with the runtime that it was started in.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    /// The present mode.
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// A way from this address, whose port is drawn if it is 0, to that one.
    pub(crate) async fn start(from: SocketAddr, to: SocketAddr) -> Self {
        Self::over(None, from, to).await
    }

    /// As [`Self::start`], over a line that others may share.
    pub(crate) async fn over(line: Option<Arc<Line>>, from: SocketAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(from).await.expect("a port");
        let addr = listener.local_addr().expect("the port");
        let (mode, modes) = watch::channel(Mode::Pass);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, to, modes.clone(), line.clone()));
            }
        });
        Self { addr, mode }
    }

    /// Sets what happens from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// Serves one connection.
async fn connection(
    mut client: TcpStream,
    to: SocketAddr,
    mut modes: watch::Receiver<Mode>,
    line: Option<Arc<Line>>,
) {
    let line = line.as_deref();
    let is_cut = |mode: &Mode| *mode == Mode::Cut;
    if is_cut(&modes.borrow()) {
        // Without this the end of the connection would be a polite one.
        let _ = client.set_zero_linger();
        return;
    }
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let others = (modes.clone(), modes.clone());
    let was_cut = {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::select! {
            _ = async {
                tokio::try_join!(
                    pass(from_client, to_server, others.0, line.map(|line| &line.there)),
                    pass(from_server, to_client, others.1, line.map(|line| &line.back))
                )
            } => false,
            _ = modes.wait_for(is_cut) => true,
        }
    };
    if was_cut {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Passes bytes on in one direction until its end.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut modes: watch::Receiver<Mode>,
    way: Option<&Way>,
) -> io::Result<()> {
    let mut bytes = vec![0; if way.is_some() { PACKET } else { READ_LEN }];
    loop {
        let read = from.read(&mut bytes).await?;
        if *modes.borrow() == Mode::Slow {
            tokio::time::sleep(SLOWNESS).await;
        }
        // If nobody can change it any more, the test is over.
        let _ = modes.wait_for(|mode| *mode != Mode::Stall).await;
        if read == 0 {
            return to.shutdown().await;
        }
        if let Some(way) = way {
            way.carry(read).await;
        }
        to.write_all(&bytes[..read]).await?;
    }
}
