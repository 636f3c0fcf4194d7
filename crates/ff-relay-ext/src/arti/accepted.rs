//! A link that the relay has accepted: with the extension, or without it in a relay that has none.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::{CertifiedConn, StreamOps};

use super::Moved;
use super::link::LinkStream;

/// An accepted TLS connection.
#[derive(Debug)]
pub enum AcceptedLink<T> {
    /// Without the extension.
    Plain(T),
    /// With the extension.
    Measured(Box<LinkStream<T>>),
}

/// Calls the same method on either kind of link.
macro_rules! either {
    ($link:expr, $inner:ident => $call:expr) => {
        match $link {
            Self::Plain($inner) => $call,
            Self::Measured($inner) => $call,
        }
    };
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for AcceptedLink<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Moved {
        either!(self.get_mut(), link => Pin::new(link).poll_read(cx, out))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for AcceptedLink<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
        either!(self.get_mut(), link => Pin::new(link).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), link => Pin::new(link).poll_flush(cx))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), link => Pin::new(link).poll_close(cx))
    }
}

impl<T: StreamOps> StreamOps for AcceptedLink<T> {
    fn set_tcp_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        either!(self, link => link.set_tcp_notsent_lowat(bytes))
    }

    fn new_handle(&self) -> Box<dyn StreamOps + Send + Unpin> {
        either!(self, link => link.new_handle())
    }
}

impl<T: CertifiedConn> CertifiedConn for AcceptedLink<T> {
    fn export_keying_material(
        &self,
        len: usize,
        label: &[u8],
        context: Option<&[u8]>,
    ) -> io::Result<Vec<u8>> {
        either!(self, link => link.export_keying_material(len, label, context))
    }

    fn peer_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        either!(self, link => link.peer_certificate())
    }

    fn own_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        either!(self, link => link.own_certificate())
    }
}
