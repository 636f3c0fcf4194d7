//! A link that the relay has accepted, with the extension on it or, in a relay without one, as it is.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::{CertifiedConn, StreamOps};

use super::link::LinkStream;

/// Has a struct say of its TLS connection what the field `inner` says.
macro_rules! as_its_inner_link {
    ($link:ident) => {
        impl<T: tor_rtcompat::StreamOps> tor_rtcompat::StreamOps for $link<T> {
            fn set_tcp_notsent_lowat(&self, bytes: u32) -> std::io::Result<()> {
                self.inner.set_tcp_notsent_lowat(bytes)
            }

            fn new_handle(&self) -> Box<dyn tor_rtcompat::StreamOps + Send + Unpin> {
                self.inner.new_handle()
            }
        }

        impl<T: tor_rtcompat::CertifiedConn> tor_rtcompat::CertifiedConn for $link<T> {
            fn export_keying_material(
                &self,
                len: usize,
                label: &[u8],
                context: Option<&[u8]>,
            ) -> std::io::Result<Vec<u8>> {
                self.inner.export_keying_material(len, label, context)
            }

            fn peer_certificate(&self) -> std::io::Result<Option<std::borrow::Cow<'_, [u8]>>> {
                self.inner.peer_certificate()
            }

            fn own_certificate(&self) -> std::io::Result<Option<std::borrow::Cow<'_, [u8]>>> {
                self.inner.own_certificate()
            }
        }
    };
}
pub(super) use as_its_inner_link;

/// An accepted TLS connection.
#[derive(Debug)]
pub enum AcceptedLink<T> {
    /// As TLS has it.
    Plain(T),
    /// With the extension on it.
    Measured(Box<LinkStream<T>>),
}

/// Calls the same function of whatever link it is.
macro_rules! either {
    ($link:expr, $inner:ident => $call:expr) => {
        match $link {
            Self::Plain($inner) => $call,
            Self::Measured($inner) => $call,
        }
    };
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for AcceptedLink<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), link => Pin::new(link).poll_read(cx, out))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for AcceptedLink<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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
