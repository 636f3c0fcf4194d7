//! A link that the relay has opened itself, to another relay.
//!
//! What passes there is clients' traffic as on accepted links, and has the same limits and the same count: a client's cell
//! that goes on to another relay is received on an accepted link and sent on this one. Nobody can measure by it: its
//! cells are not looked at.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::{CertifiedConn, StreamOps};

use super::extension::{Extension, LinkHandle};
use super::limit::{Direction, Traffic};

/// A TLS connection whose bytes count as clients'.
#[derive(Debug)]
pub struct OpenedLink<T> {
    /// The TLS connection.
    inner: T,
    /// The extension, and what the link is there; without one nothing counts.
    counted: Option<(Arc<Extension>, Arc<LinkHandle>)>,
}

impl<T> OpenedLink<T> {
    /// Puts the extension, if there is one, on a connection that was just opened.
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
        self.get_mut().moving(Direction::Sent, bytes.len(), cx, |inner, allowed, cx| {
            Pin::new(inner).poll_write(cx, &bytes[..allowed])
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

impl<T: StreamOps> StreamOps for OpenedLink<T> {
    fn set_tcp_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        self.inner.set_tcp_notsent_lowat(bytes)
    }

    fn new_handle(&self) -> Box<dyn StreamOps + Send + Unpin> {
        self.inner.new_handle()
    }
}

impl<T: CertifiedConn> CertifiedConn for OpenedLink<T> {
    fn export_keying_material(
        &self,
        len: usize,
        label: &[u8],
        context: Option<&[u8]>,
    ) -> io::Result<Vec<u8>> {
        self.inner.export_keying_material(len, label, context)
    }

    fn peer_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        self.inner.peer_certificate()
    }

    fn own_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        self.inner.own_certificate()
    }
}
