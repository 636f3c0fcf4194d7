//! The point where the measurement extension gets between TLS and Tor.
//!
//! [`MeasuringTls`] wraps any [`TlsProvider`]. Outgoing connections pass straight through it.
//! Every accepted one comes back as a [`LinkStream`], which has the same face as the provider's
//! own stream, so that `tor-chanmgr` and `tor-proto` run on top of it unchanged:
//!
//! ```text
//!   tor-proto  <-  LinkStream  <-  P::TlsServerStream  <-  TCP
//!                      |
//!                  Extension (shared by all links of the relay)
//! ```
//!
//! Limit: the extension sees accepted links only. A relay also carries clients' traffic on links
//! it opened itself to other relays.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::tls::{TlsAcceptorSettings, TlsConnector};
use tor_rtcompat::{CertifiedConn, StreamOps, TlsProvider};

/// What all measured links of one relay share.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Extension {}

/// A [`TlsProvider`] whose accepted connections carry the measurement extension.
#[derive(Clone, Debug)]
pub struct MeasuringTls<P> {
    /// Does the TLS itself.
    provider: P,
    /// Handed to every accepted link.
    extension: Arc<Extension>,
}

impl<P> MeasuringTls<P> {
    /// Wraps `provider`; every link it accepts from now on gets `extension`.
    pub fn new(provider: P, extension: Arc<Extension>) -> Self {
        Self { provider, extension }
    }
}

impl<S, P> TlsProvider<S> for MeasuringTls<P>
where
    S: StreamOps + Send + 'static,
    P: TlsProvider<S>,
{
    type Connector = P::Connector;
    type TlsStream = P::TlsStream;
    type Acceptor = MeasuringAcceptor<P::Acceptor>;
    type TlsServerStream = LinkStream<P::TlsServerStream>;

    fn tls_connector(&self) -> Self::Connector {
        self.provider.tls_connector()
    }

    fn tls_acceptor(&self, settings: TlsAcceptorSettings) -> io::Result<Self::Acceptor> {
        let inner = self.provider.tls_acceptor(settings)?;
        Ok(MeasuringAcceptor { inner, extension: Arc::clone(&self.extension) })
    }

    fn supports_keying_material_export(&self) -> bool {
        self.provider.supports_keying_material_export()
    }
}

/// Accepts TLS connections as the wrapped acceptor does and makes each a [`LinkStream`].
#[derive(Clone, Debug)]
pub struct MeasuringAcceptor<A> {
    /// Does the TLS handshake.
    inner: A,
    /// Handed to every accepted link.
    extension: Arc<Extension>,
}

#[async_trait]
impl<S, A> TlsConnector<S> for MeasuringAcceptor<A>
where
    S: Send + 'static,
    A: TlsConnector<S> + Send + Sync,
{
    type Conn = LinkStream<A::Conn>;

    async fn negotiate_unvalidated(&self, stream: S, sni: &str) -> io::Result<Self::Conn> {
        let inner = self.inner.negotiate_unvalidated(stream, sni).await?;
        Ok(LinkStream::new(inner, Arc::clone(&self.extension)))
    }
}

/// One accepted link: a TLS connection and the measurement extension on it.
#[derive(Debug)]
pub struct LinkStream<T> {
    /// The TLS connection.
    inner: T,
    /// Shared with the relay's other links.
    #[expect(dead_code, reason = "read once measurement cells are taken out here")]
    extension: Arc<Extension>,
}

impl<T> LinkStream<T> {
    /// Puts `extension` on the freshly accepted connection `inner`.
    pub fn new(inner: T, extension: Arc<Extension>) -> Self {
        Self { inner, extension }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for LinkStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for LinkStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

impl<T: StreamOps> StreamOps for LinkStream<T> {
    fn set_tcp_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        self.inner.set_tcp_notsent_lowat(bytes)
    }

    fn new_handle(&self) -> Box<dyn StreamOps + Send + Unpin> {
        self.inner.new_handle()
    }
}

impl<T: CertifiedConn> CertifiedConn for LinkStream<T> {
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
