//! A stream through a SocksPort, and what tor tells of it.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::table::{Slot, StreamState};
use crate::client::{Fault, by_exit};

/// How long after its socket tor may tell why a stream has ended.
const TOLD: Duration = Duration::from_secs(2);

/// What is told of a stream that belongs on a circuit.
pub(super) struct News {
    /// Where it comes.
    slot: Slot<StreamState>,
    /// The circuit.
    circuit: String,
}

impl News {
    /// Of a stream that belongs on this circuit.
    pub(super) fn of(slot: Slot<StreamState>, circuit: &str) -> Self {
        Self { slot, circuit: circuit.to_owned() }
    }

    /// The next one, and when it came.
    ///
    /// # Errors
    /// When there is none any more, and when the stream is on another circuit, of which nothing is to be measured.
    pub(super) async fn next(&mut self) -> Result<(Instant, StreamState), Fault> {
        let (at, state) = self.slot.next().await?;
        match state.circuit().filter(|circuit| *circuit != self.circuit) {
            Some(other) => Err(astray(other)),
            None => Ok((at, state)),
        }
    }

    /// Why the stream ends, and whether its exit has said so, or tor itself.
    ///
    /// # Errors
    /// As [`Self::next`].
    async fn end(&mut self) -> Result<(String, bool), Fault> {
        loop {
            if let (_, StreamState::Ended { reason, by_exit, .. }) = self.next().await? {
                return Ok((reason, by_exit));
            }
        }
    }
}

/// A stream that is connected.
pub struct Stream {
    /// What is told of it; dropped before the socket, whose port another one may have then.
    news: News,
    /// To the SocksPort.
    socket: TcpStream,
}

impl Stream {
    /// Of a socket on which nothing has come yet.
    pub(super) const fn new(socket: TcpStream, news: News) -> Self {
        Self { news, socket }
    }

    /// What it says that it has ended, if it was not the target that has ended it.
    pub(super) async fn lost(&mut self) -> Option<Fault> {
        match timeout(TOLD, self.news.end()).await {
            Ok(Ok((reason, true))) => by_exit(reason),
            Ok(Ok((reason, false))) => {
                Some(by_tor(reason, || "the exit broke Tor's protocol".to_owned()))
            }
            Ok(Err(fault)) => Some(fault),
            Err(_) => Some(Fault::timeout("tor does not tell why the stream has ended")),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// A circuit that has ended.
pub(super) fn ended(reason: String) -> Fault {
    if reason == "timeout" { Fault::timeout(reason) } else { Fault::circuit(reason) }
}

/// A stream that tor itself has ended, after it was sent. `breach` is what the exit has done if that was against Tor's
/// protocol.
pub(super) fn by_tor(reason: String, breach: impl FnOnce() -> String) -> Fault {
    match reason.as_str() {
        // With its circuit.
        "timeout" | "destroy" => ended(reason),
        "torprotocol" => Fault::relay(format!("{} ({reason})", breach())),
        _ => Fault::client(format!("tor itself ended the stream: {reason}")),
    }
}

/// What an exit has done that tor does not believe when it is to connect to a host.
pub(super) fn false_address(host: impl Display) -> String {
    format!("the exit answered for {host} with a false address, or with none")
}

/// tor has put a stream on a circuit itself.
pub(super) fn astray(circuit: &str) -> Fault {
    Fault::client(format!(
        "tor put the stream on its circuit {circuit} itself: was it sent SIGHUP, or given other options?"
    ))
}
