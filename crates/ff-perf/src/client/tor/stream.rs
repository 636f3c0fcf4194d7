//! A stream through a SocksPort, and what tor tells of it.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::TorCircuit;
use super::table::{Slot, StreamState};
use crate::client::{Fault, by_exit};

/// How long after its socket tor may tell why a stream has ended.
pub(super) const TOLD: Duration = Duration::from_secs(5);

/// The events of a stream that belongs on a circuit.
pub(super) struct News {
    /// Where it comes.
    slot: Slot<StreamState>,
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
    /// When no more come, and when the stream is on another circuit, which must not be measured.
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
    /// Events of it; dropped before the socket, whose port another one may have then.
    news: News,
    /// To the SocksPort.
    socket: TcpStream,
}

impl Stream {
    /// Of a socket on which nothing has come yet.
    pub(super) const fn new(socket: TcpStream, news: News) -> Self {
        Self { news, socket }
    }

    /// Why it has ended, which was on this circuit, if it was not the target that has ended it.
    pub(super) async fn lost(&mut self, circuit: &TorCircuit) -> Option<Fault> {
        match timeout(TOLD, self.news.end()).await {
            Ok(Ok((reason, true))) => by_exit(reason),
            Ok(Ok((reason, false))) => {
                let breach = || "the exit broke Tor's protocol".to_owned();
                Some(by_tor(reason, || circuit.destroyed(), breach))
            }
            Ok(Err(fault)) => Some(fault),
            Err(_) => Some(Fault::timeout("tor did not report why the stream ended")),
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

/// A circuit that has ended: a relay says so, or tor itself. A relay may give any reason; tor has
/// some of its own, which no relay has brought about, and one that may be an error of its own or a
/// cell that no hop's key fits, which any relay of the circuit may have spoilt.
pub(super) fn ended(reason: String, by_relay: bool) -> Fault {
    match reason.as_str() {
        _ if by_relay => Fault::circuit(reason),
        "timeout" | "measurement_expired" => Fault::timeout(reason),
        "internal" => Fault::unknown(reason),
        "requested" | "nopath" | "resourcelimit" | "finished" | "hibernating" => {
            Fault::client(format!("tor itself ended the circuit: {reason}"))
        }
        _ => Fault::circuit(reason),
    }
}

/// A stream that tor itself has ended, after it was sent. `destroyed` is why its circuit has ended,
/// `breach` what the exit has done, if one of these was it.
pub(super) fn by_tor(
    reason: String,
    destroyed: impl FnOnce() -> Fault,
    breach: impl FnOnce() -> String,
) -> Fault {
    match reason.as_str() {
        "timeout" => Fault::timeout(reason),
        "destroy" => destroyed(),
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
        "tor attached the stream to its circuit {circuit} itself: did it get SIGHUP or other options?"
    ))
}

#[cfg(test)]
mod tests {
    use ff_circuits::record::Whose;

    use super::*;

    #[test]
    fn a_relay_is_at_fault_whatever_reason_it_gives() {
        for (reason, by_relay, whose) in [
            ("requested", true, Whose::Relay),
            ("timeout", true, Whose::Relay),
            ("resourcelimit", true, Whose::Relay),
            ("requested", false, Whose::Client),
            ("resourcelimit", false, Whose::Client),
            ("timeout", false, Whose::Unknown),
            ("internal", false, Whose::Unknown),
            ("internal", true, Whose::Relay),
            ("channel_closed", false, Whose::Relay),
        ] {
            assert_eq!(ended(reason.to_owned(), by_relay).whose, whose, "{reason}, {by_relay}");
        }
    }
}
