//! Sends what tor-proto writes on a link, within the limits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};

use super::super::Moved;
use super::super::gate::{Admitted, At};
use super::super::limit::Direction;
use super::{LinkStream, Mode, bytes_moved};

impl<T: AsyncRead + AsyncWrite + Unpin> LinkStream<T> {
    /// Sends bytes of tor-proto's; what exceeds the link's own limit waits in the gate.
    pub(super) fn poll_write_ours(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
        if self.extension.limits_links() || self.gate.holds_cells() {
            self.poll_write_limited(cx, bytes)
        } else {
            self.poll_write_now(cx, bytes)
        }
    }

    /// Sends bytes of tor-proto's to TLS.
    fn poll_write_now(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
        let traffic = self.traffic(Direction::Sent);
        let (link, wanted) = (self.handle.id, bytes.len());
        let allowed = self.extension.claim(link, Direction::Sent, traffic, wanted, cx);
        if allowed == 0 {
            // Bytes that TLS has accepted have had their turn, and wait only for the socket.
            let _ = Pin::new(&mut self.inner).poll_flush(cx)?;
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.inner).poll_write(cx, &bytes[..allowed]);
        let len = bytes_moved(&result);
        self.on_passed_out(&bytes[..len]);
        self.on_moved(Direction::Sent, traffic, len);
        result
    }

    /// As that on a link that may have a limit of its own; the rest of a partly sent cell waits for
    /// nothing.
    fn poll_write_limited(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
        if !self.passed_out.at_boundary() {
            let rest = self.passed_out.clone().advance(bytes);
            return self.poll_write_now(cx, &bytes[..rest]);
        }
        let traffic = self.traffic(Direction::Sent);
        let at = At { extension: &self.extension, link: self.handle.id, traffic };
        match ready!(self.gate.poll_admit(&mut self.inner, at, bytes, cx))? {
            Admitted::Direct(len) => self.poll_write_now(cx, &bytes[..len]),
            Admitted::Taken(len) => {
                self.on_passed_out(&bytes[..len]);
                let fresh = &mut self.fresh[Direction::Sent as usize];
                *fresh = fresh.saturating_sub(len);
                Poll::Ready(Ok(len))
            }
        }
    }

    /// Notes bytes that tor-proto need not write again.
    fn on_passed_out(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.passed_out.advance(&bytes[at..]);
        }
    }

    /// Sends cells that have waited for the link's own limit, unless another cell is partly sent.
    pub(super) fn drain(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.gate.is_busy() || !self.may_drain() {
            return Ok(());
        }
        let traffic = self.traffic(Direction::Sent);
        let at = At { extension: &self.extension, link: self.handle.id, traffic };
        self.gate.drain(&mut self.inner, at, cx)
    }

    /// Whether cells that have waited may be sent now: no other cell is partly sent.
    fn may_drain(&self) -> bool {
        matches!(self.mode, Mode::Ordinary)
            && self.passed_out.at_boundary()
            && !self.outbox.is_mid_cell()
    }
}
