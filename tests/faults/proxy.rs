//! What lies between two processes: it passes connections on, and can hold, slow or reset them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes passed on at once.
const READ_LEN: usize = 64 * 1024;
/// How long each read waits while connections are slow.
const SLOWNESS: Duration = Duration::from_millis(120);

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are passed on.
    Pass,
    /// Nothing passes, and nothing is said of it.
    Stall,
    /// All that is there is slow.
    Slow,
    /// They are reset, new ones too.
    Cut,
}

/// A way from one process to another; it ends with the runtime that it was started in.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    /// What happens.
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// A way from this address, whose port is drawn if it is 0, to that one.
    pub(crate) async fn start(from: SocketAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(from).await.expect("a port");
        let addr = listener.local_addr().expect("the port");
        let (mode, modes) = watch::channel(Mode::Pass);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, to, modes.clone()));
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
async fn connection(mut client: TcpStream, to: SocketAddr, mut modes: watch::Receiver<Mode>) {
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
                    pass(from_client, to_server, others.0),
                    pass(from_server, to_client, others.1)
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
) -> io::Result<()> {
    let mut bytes = vec![0; READ_LEN];
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
        to.write_all(&bytes[..read]).await?;
    }
}
