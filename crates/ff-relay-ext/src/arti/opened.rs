//! A link that the relay has opened to another relay.
//!
//! Its traffic is clients' traffic as on accepted links, with the same limits and counts: a
//! client's cell that goes to another relay is received on an accepted link and sent on this one.
//! It cannot be used for measuring: its cells are not examined.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};

use super::extension::{Extension, LinkHandle};
use super::inner_link::as_its_inner_link;
use super::limit::{Direction, Traffic};

/// A TLS connection whose bytes count as clients'.
#[derive(Debug)]
pub struct OpenedLink<T> {
    /// The TLS connection.
    inner: T,
    /// The extension, and the link's handle in it; without one, nothing is counted.
    counted: Option<(Arc<Extension>, Arc<LinkHandle>)>,
}

impl<T> OpenedLink<T> {
    /// Adds the extension, if there is one, to a connection that was just opened.
    pub(super) fn new(inner: T, extension: Option<Arc<Extension>>) -> Self {
        let counted = extension.map(|extension| {
            let handle = extension.open_link();
            (extension, handle)
        });
        Self { inner, counted }
    }

    /// Moves at most `wanted` bytes by `action`, if the limits allow it.
    fn moving(
        &mut self,
        direction: Direction,
        wanted: usize,
        cx: &mut Context<'_>,
        action: impl FnOnce(&mut T, usize, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Some((extension, handle)) = self.counted.as_ref().filter(|_| wanted > 0) else {
            return action(&mut self.inner, wanted, cx);
        };
        let allowed = extension.claim(handle.id, direction, Traffic::Background, wanted, cx);
        if allowed == 0 {
            return Poll::Pending;
        }
        let result = action(&mut self.inner, allowed, cx);
        let moved = if let Poll::Ready(Ok(len)) = &result { *len } else { 0 };
        extension.moved(handle.id, direction, Traffic::Background, moved);
        result
    }
}

impl<T> Drop for OpenedLink<T> {
    fn drop(&mut self) {
        if let Some((extension, handle)) = &self.counted {
            extension.close_link(handle.id);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for OpenedLink<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().moving(Direction::Received, out.len(), cx, |inner, allowed, cx| {
            Pin::new(inner).poll_read(cx, &mut out[..allowed])
        })
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for OpenedLink<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = this.moving(Direction::Sent, bytes.len(), cx, |inner, allowed, cx| {
            Pin::new(inner).poll_write(cx, &bytes[..allowed])
        });
        if result.is_pending() {
            // Bytes that TLS has accepted have had their turn, and wait only for the socket.
            let _ = Pin::new(&mut this.inner).poll_flush(cx)?;
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
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

    use ff_proto::units::BytesPerSec;

    use super::*;
    use crate::options::TargetOptions;

    /// A connection that accepts all bytes.
    #[derive(Default)]
    struct Sink {
        /// Bytes written.
        written: usize,
        /// The number of flushes.
        flushed: usize,
    }

    impl AsyncWrite for Sink {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
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

    /// The extension of a relay with this limit.
    fn extension(limit: Option<u64>) -> Arc<Extension> {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        Extension::new(policy, None, limit.map(BytesPerSec::new)).expect("it reads no file")
    }

    /// Writes 10,000 bytes; returns the result and the link.
    fn write(extension: Option<Arc<Extension>>) -> (Poll<io::Result<usize>>, OpenedLink<Sink>) {
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
    fn what_has_had_its_turn_goes_out_while_the_link_waits_for_another() {
        let (result, link) = write(Some(extension(Some(1))));
        assert!(result.is_pending(), "{result:?}");
        assert_eq!((link.inner.written, link.inner.flushed), (0, 1));
    }
}
