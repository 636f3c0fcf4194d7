//! Sends what tor-proto writes on a link, within the limits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};

use super::super::gate::{Admitted, At};
use super::super::limit::{Direction, Traffic};
use super::{LinkStream, Mode, bytes_moved};

impl<T: AsyncRead + AsyncWrite + Unpin> LinkStream<T> {
    /// Sends bytes of tor-proto's; what exceeds the link's own limit or clients' share waits in the
    /// gate.
    pub(super) fn poll_write_ours(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.extension.limits_clients() || self.gate.holds_cells() {
            self.poll_write_limited(cx, bytes)
        } else {
            self.poll_write_now(cx, bytes)
        }
    }

    /// Sends bytes of tor-proto's to TLS once the relay's limits allow it.
    fn poll_write_now(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let traffic = self.traffic(Direction::Sent);
        let at = At { extension: &self.extension, link: self.handle.id, traffic };
        match at.claim(bytes.len(), cx) {
            0 if self.may_hold() => self.poll_write_limited(cx, bytes),
            0 => self.wait(cx),
            allowed => self.poll_write_claimed(cx, traffic, &bytes[..allowed]),
        }
    }

    /// Whether bytes may wait in the gate: a measurement holds clients to their share, and a cell
    /// begins here that is none of VERSIONS.
    fn may_hold(&self) -> bool {
        let is_cell = self.passed_out.at_boundary() && self.passed_out.versions_done();
        is_cell && self.extension.holds_to_share()
    }

    /// Sends bytes of tor-proto's that have been claimed.
    fn poll_write_claimed(
        &mut self,
        cx: &mut Context<'_>,
        traffic: Traffic,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        let len = bytes_moved(&result);
        self.on_passed_out(&bytes[..len]);
        self.on_moved(Direction::Sent, traffic, len);
        result
    }

    /// Waits for a turn. Bytes that TLS has accepted have had theirs, and wait only for the socket.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let _ = Pin::new(&mut self.inner).poll_flush(cx)?;
        Poll::Pending
    }

    /// As [`poll_write_now`](Self::poll_write_now) on a link that may have a limit of its own or is
    /// held to clients' share; the rest of a partly sent cell waits for neither.
    fn poll_write_limited(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let traffic = self.traffic(Direction::Sent);
        let at = At { extension: &self.extension, link: self.handle.id, traffic };
        if !self.passed_out.at_boundary() {
            let rest = self.passed_out.clone().advance(bytes);
            return match at.claim_rest(rest, cx) {
                0 => self.wait(cx),
                allowed => self.poll_write_claimed(cx, traffic, &bytes[..allowed]),
            };
        }
        if !self.passed_out.versions_done() {
            return self.poll_write_now(cx, bytes);
        }
        match self.gate.poll_admit(&mut self.inner, at, bytes, cx)? {
            Poll::Pending => self.wait(cx),
            Poll::Ready(Admitted::Direct(len)) => {
                self.poll_write_claimed(cx, traffic, &bytes[..len])
            }
            Poll::Ready(Admitted::Taken(len)) => {
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
