//! A stream through a SocksPort, with tor's events.

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

/// Longest wait, after a stream's end, for tor's reason.
pub(super) const TOLD: Duration = Duration::from_secs(5);

/// Events of a stream that belongs on a given circuit.
pub(super) struct News {
    slot: Slot<StreamState>,
    circuit: String,
}

impl News {
    /// Events of a stream that belongs on this circuit.
    pub(super) fn of(slot: Slot<StreamState>, circuit: &str) -> Self {
        Self { slot, circuit: circuit.to_owned() }
    }

    /// Next event, with its time.
    ///
    /// # Errors
    /// If no more come, or the stream is on another circuit, which must not be measured.
    pub(super) async fn next(&mut self) -> Result<(Instant, StreamState), Fault> {
        let (at, state) = self.slot.next().await?;
        match state.circuit().filter(|circuit| *circuit != self.circuit) {
            Some(other) => Err(astray(other)),
            None => Ok((at, state)),
        }
    }

    /// Why the stream ended, and whether its exit ended it, not tor.
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

/// A connected stream.
pub struct Stream {
    /// Dropped before the socket, whose port another stream may then have.
    news: News,
    /// Connection to the SocksPort.
    socket: TcpStream,
}

impl Stream {
    /// A stream on which nothing has been received.
    pub(super) const fn new(socket: TcpStream, news: News) -> Self {
        Self { news, socket }
    }

    /// Why the stream ended; `None` if the target ended it. `destroyed` returns why its circuit
    /// ended, if that is the cause.
    pub(super) async fn lost(&mut self, destroyed: impl FnOnce() -> Fault) -> Option<Fault> {
        match timeout(TOLD, self.news.end()).await {
            Ok(Ok((reason, true))) => by_exit(reason),
            Ok(Ok((reason, false))) => {
                let breach = || "the exit broke Tor's protocol".to_owned();
                Some(by_tor(reason, destroyed, breach))
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

/// The fault of a circuit that a relay or tor ended. A relay may give any reason. Some of tor's own
/// reasons have no relay as cause. `internal` may be an error of tor, or a cell that no hop's key
/// decrypts, which any relay of the circuit may have corrupted.
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

/// The fault of a stream that tor ended after it was sent. `destroyed` returns why its circuit
/// ended, `breach` the exit's violation, if one of these is the cause.
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

/// Text on an exit that answers a connect request with an address that tor does not accept.
pub(super) fn false_address(host: impl Display) -> String {
    format!("the exit answered for {host} with a false address, or with none")
}

/// The fault if tor attached a stream to a circuit itself.
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
