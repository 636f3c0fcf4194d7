//! A link that the relay has opened to another relay.
//!
//! Its traffic is clients' traffic as on accepted links, with the same limits and counts: a
//! client's cell that goes to another relay is received on an accepted link and sent on this one.
//! It cannot be used for measuring: its cells are not examined.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ff_proto::cell::{Boundaries, CMD_DESTROY};
use futures::io::{AsyncRead, AsyncWrite};

use super::Moved;
use super::extension::{Extension, LinkHandle};
use super::gate::{Admitted, At, Gate};
use super::greeting::Greeting;
use super::inner_link::as_its_inner_link;
use super::limit::{Direction, Traffic};
use super::link::bytes_moved;

/// The kind of all its traffic.
const TRAFFIC: Traffic = Traffic::Background;

/// A TLS connection whose bytes count as clients'.
#[derive(Debug)]
pub struct OpenedLink<T> {
    /// The TLS connection.
    inner: T,
    /// Without an extension, nothing is counted.
    counted: Option<Counted>,
}

/// The extension's part in a link.
#[derive(Debug)]
struct Counted {
    extension: Arc<Extension>,
    handle: Arc<LinkHandle>,
    /// Who is at the other end, and what its limit holds back.
    gate: Gate,
    /// Cell boundaries of the bytes that have been read.
    passed_in: Boundaries,
    /// Cell boundaries of the bytes that have been taken from tor-proto.
    passed_out: Boundaries,
}

impl<T> OpenedLink<T> {
    /// Adds the extension, if there is one, to a connection that was just opened.
    pub(super) fn new(inner: T, extension: Option<Arc<Extension>>) -> Self {
        let counted = extension.map(|extension| Counted {
            handle: extension.open_link(),
            extension,
            gate: Gate::new(Greeting::of_accepting()),
            passed_in: Boundaries::default(),
            passed_out: Boundaries::default(),
        });
        Self { inner, counted }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.extension.close_link(self.handle.id);
    }
}

impl Counted {
    /// Sends cells that have waited for the link's own limit, unless another is partly sent.
    fn drain<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        if !self.gate.is_busy() || !self.passed_out.at_boundary() {
            return Ok(());
        }
        let at = At { extension: &self.extension, link: self.handle.id, traffic: TRAFFIC };
        self.gate.drain(inner, at, cx)
    }

    /// Reads as much as the limits allow.
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Moved {
        let at = At { extension: &self.extension, link: self.handle.id, traffic: TRAFFIC };
        let room = at.room(Direction::Received, out.len(), cx);
        if room == 0 {
            at.give_back(Direction::Received);
            return Poll::Pending;
        }
        let allowed = at.extension.claim(at.link, Direction::Received, TRAFFIC, room, cx);
        if allowed == 0 {
            return Poll::Pending;
        }
        let result = Pin::new(inner).poll_read(cx, &mut out[..allowed]);
        let len = bytes_moved(&result);
        at.extension.moved(at.link, Direction::Received, TRAFFIC, len);
        self.gate.greet(&out[..len], at);
        self.on_passed_in(&out[..len]);
        result
    }

    /// Drops the waiting cells of circuits that the peer has destroyed.
    fn on_passed_in(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.passed_in.advance(&bytes[at..]);
            if let (circuit, CMD_DESTROY) = self.passed_in.last_header() {
                self.gate.drop_circuit(circuit);
            }
        }
    }

    /// Writes as much as the limits allow; what exceeds the link's own waits in its gate.
    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Moved {
        let may_be_limited = self.extension.limits_links() || self.gate.holds_cells();
        if !may_be_limited {
            return self.poll_write_now(inner, cx, bytes);
        }
        if !self.passed_out.at_boundary() {
            // The rest of a partly sent cell waits for nothing.
            let rest = self.passed_out.clone().advance(bytes);
            return self.poll_write_now(inner, cx, &bytes[..rest]);
        }
        let at = At { extension: &self.extension, link: self.handle.id, traffic: TRAFFIC };
        match ready!(self.gate.poll_admit(inner, at, bytes, cx))? {
            Admitted::Direct(len) => self.poll_write_now(inner, cx, &bytes[..len]),
            Admitted::Taken(len) => {
                self.on_passed_out(&bytes[..len]);
                Poll::Ready(Ok(len))
            }
        }
    }

    /// Writes as much as the relay's limits allow.
    fn poll_write_now<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Moved {
        let (link, wanted) = (self.handle.id, bytes.len());
        let allowed = self.extension.claim(link, Direction::Sent, TRAFFIC, wanted, cx);
        if allowed == 0 {
            return Poll::Pending;
        }
        let result = Pin::new(inner).poll_write(cx, &bytes[..allowed]);
        let len = bytes_moved(&result);
        self.on_passed_out(&bytes[..len]);
        self.extension.moved(link, Direction::Sent, TRAFFIC, len);
        result
    }

    /// Notes bytes that tor-proto need not write again.
    fn on_passed_out(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.passed_out.advance(&bytes[at..]);
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for OpenedLink<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Moved {
        let this = self.get_mut();
        let Some(counted) = this.counted.as_mut().filter(|_| !out.is_empty()) else {
            return Pin::new(&mut this.inner).poll_read(cx, out);
        };
        counted.drain(&mut this.inner, cx)?;
        counted.poll_read(&mut this.inner, cx, out)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for OpenedLink<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
        let this = self.get_mut();
        let result = match this.counted.as_mut().filter(|_| !bytes.is_empty()) {
            Some(counted) => counted.poll_write(&mut this.inner, cx, bytes),
            None => Pin::new(&mut this.inner).poll_write(cx, bytes),
        };
        if result.is_pending() {
            // Bytes that TLS has accepted have had their turn, and wait only for the socket.
            let _ = Pin::new(&mut this.inner).poll_flush(cx)?;
        }
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(counted) = &mut this.counted {
            counted.drain(&mut this.inner, cx)?;
        }
        // Cells that wait for the link's limit are not waited for: tor-proto would do nothing else.
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

as_its_inner_link!(OpenedLink);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::task::Waker;

    use ff_proto::cell::{CELL_LEN, CMD_VERSIONS, fixed_cell, variable_cell};
    use ff_proto::units::BytesPerSec;

    use super::super::gate;
    use super::*;
    use crate::options::TargetOptions;

    /// A connection that accepts all bytes.
    #[derive(Default)]
    struct Sink {
        /// Bytes written.
        written: usize,
        /// The number of flushes.
        flushed: usize,
        /// Bytes to read.
        incoming: Vec<u8>,
    }

    impl AsyncWrite for Sink {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Moved {
            self.written += bytes.len();
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushed += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Sink {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut [u8]) -> Moved {
            let len = self.incoming.len().min(out.len());
            self.incoming.drain(..len).zip(out).for_each(|(byte, out)| *out = byte);
            Poll::Ready(Ok(len))
        }
    }

    /// The extension of a relay with this limit.
    fn extension(limit: Option<u64>) -> Arc<Extension> {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        Extension::new(policy, None, limit.map(BytesPerSec::new)).expect("it reads no file")
    }

    /// Writes 10,000 bytes; returns the result and the link.
    fn write(extension: Option<Arc<Extension>>) -> (Moved, OpenedLink<Sink>) {
        let mut link = OpenedLink::new(Sink::default(), extension);
        let mut cx = Context::from_waker(Waker::noop());
        (Pin::new(&mut link).poll_write(&mut cx, &[0; 10_000]), link)
    }

    #[test]
    fn it_keeps_to_the_limits_of_the_relay() {
        for unlimited in [None, Some(extension(None))] {
            let (result, link) = write(unlimited);
            assert!(matches!(result, Poll::Ready(Ok(10_000))), "{result:?}");
            assert_eq!((link.inner.written, link.inner.flushed), (10_000, 0));
        }
        let (result, link) = write(Some(extension(Some(50_000))));
        let Poll::Ready(Ok(len)) = result else { panic!("{result:?}") };
        assert!(len < 10_000 && len == link.inner.written, "{len}");
    }

    #[test]
    fn cells_of_a_circuit_that_the_peer_has_ended_do_not_go_out() {
        let extension = gate::tests::extension(Some((10_000, 2000)));
        let mut link = OpenedLink::new(Sink::default(), Some(Arc::clone(&extension)));
        extension.greet(link.counted.as_ref().unwrap().handle.id, None);
        let mut cx = Context::from_waker(Waker::noop());
        let versions = variable_cell(CMD_VERSIONS, &[0, 4]).unwrap();
        let versions = &versions[2..];
        let cells = gate::tests::cells(0, 100);
        for mut bytes in [versions, &cells] {
            while !bytes.is_empty() {
                let written = Pin::new(&mut link).poll_write(&mut cx, bytes);
                let Poll::Ready(Ok(len)) = written else { panic!("{written:?}") };
                bytes = &bytes[len..];
            }
        }
        let before = link.inner.written;
        let end = |circuit| fixed_cell(circuit, CMD_DESTROY, &[]).unwrap();
        link.inner.incoming = [versions, &[0; CELL_LEN], &end(2), &end(3), &end(9)].concat();
        let mut byte = [0];
        while let Poll::Ready(Ok(1)) = Pin::new(&mut link).poll_read(&mut cx, &mut byte) {}
        extension.set_ingress(None);
        assert!(Pin::new(&mut link).poll_flush(&mut cx).is_ready());
        let after = link.inner.written - before;
        let held = versions.len() + cells.len() - before;
        let gone = held / CELL_LEN * 2 / 5;
        assert!((held - after).abs_diff(gone * CELL_LEN) <= 2 * CELL_LEN, "{held} {after}");
    }

    #[test]
    fn what_has_had_its_turn_goes_out_while_the_link_waits_for_another() {
        let (result, link) = write(Some(extension(Some(1))));
        assert!(result.is_pending(), "{result:?}");
        assert_eq!((link.inner.written, link.inner.flushed), (0, 1));
    }
}
