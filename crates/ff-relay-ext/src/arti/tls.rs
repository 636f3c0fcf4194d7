//! Inserts the measurement extension between TLS and Tor.
//!
//! [`MeasuringTls`] wraps any [`TlsProvider`]. Its streams have the same interface as that
//! provider's own, so `tor-chanmgr` and `tor-proto` run on top of them unchanged:
//!
//! ```text
//!   tor-proto  <-  LinkStream  <-  P::TlsServerStream  <-  TCP      accepted: measured, and clients'
//!   tor-proto  <-  OpenedLink  <-  P::TlsStream        <-  TCP      opened to another relay: clients'
//!                      |
//!                  Extension (shared by all links of the relay)
//! ```

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tor_rtcompat::tls::{TlsAcceptorSettings, TlsConnector};
use tor_rtcompat::{StreamOps, TlsProvider};

use super::accepted::AcceptedLink;
use super::extension::Extension;
use super::link::LinkStream;
use super::opened::OpenedLink;

/// A [`TlsProvider`] whose connections have the measurement extension, if there is one.
#[derive(Clone, Debug)]
pub struct MeasuringTls<P> {
    /// Does the TLS itself.
    provider: P,
    /// Given to every link.
    extension: Option<Arc<Extension>>,
}

impl<P> MeasuringTls<P> {
    /// Wraps `provider`; every link that it makes gets `extension`.
    pub fn new(provider: P, extension: Option<Arc<Extension>>) -> Self {
        Self { provider, extension }
    }
}

impl<S, P> TlsProvider<S> for MeasuringTls<P>
where
    S: StreamOps + Send + 'static,
    P: TlsProvider<S>,
{
    type Connector = MeasuringConnector<P::Connector>;
    type TlsStream = OpenedLink<P::TlsStream>;
    type Acceptor = MeasuringAcceptor<P::Acceptor>;
    type TlsServerStream = AcceptedLink<P::TlsServerStream>;

    fn tls_connector(&self) -> Self::Connector {
        MeasuringConnector {
            inner: self.provider.tls_connector(),
            extension: self.extension.clone(),
        }
    }

    fn tls_acceptor(&self, settings: TlsAcceptorSettings) -> io::Result<Self::Acceptor> {
        let inner = self.provider.tls_acceptor(settings)?;
        Ok(MeasuringAcceptor { inner, extension: self.extension.clone() })
    }

    fn supports_keying_material_export(&self) -> bool {
        self.provider.supports_keying_material_export()
    }
}

/// Opens TLS connections like the wrapped connector and makes each an [`OpenedLink`].
#[derive(Clone, Debug)]
pub struct MeasuringConnector<C> {
    /// Does the TLS handshake.
    inner: C,
    /// Given to every link.
    extension: Option<Arc<Extension>>,
}

#[async_trait]
impl<S, C> TlsConnector<S> for MeasuringConnector<C>
where
    S: Send + 'static,
    C: TlsConnector<S> + Send + Sync,
{
    type Conn = OpenedLink<C::Conn>;

    async fn negotiate_unvalidated(&self, stream: S, sni: &str) -> io::Result<Self::Conn> {
        let inner = self.inner.negotiate_unvalidated(stream, sni).await?;
        Ok(OpenedLink::new(inner, self.extension.clone()))
    }
}

/// Accepts TLS connections like the wrapped acceptor and makes each an [`AcceptedLink`].
#[derive(Clone, Debug)]
pub struct MeasuringAcceptor<A> {
    /// Does the TLS handshake.
    inner: A,
    /// Given to every link.
    extension: Option<Arc<Extension>>,
}

#[async_trait]
impl<S, A> TlsConnector<S> for MeasuringAcceptor<A>
where
    S: Send + 'static,
    A: TlsConnector<S> + Send + Sync,
{
    type Conn = AcceptedLink<A::Conn>;

    async fn negotiate_unvalidated(&self, stream: S, sni: &str) -> io::Result<Self::Conn> {
        let inner = self.inner.negotiate_unvalidated(stream, sni).await?;
        Ok(match &self.extension {
            Some(extension) => {
                AcceptedLink::Measured(Box::new(LinkStream::new(inner, Arc::clone(extension))))
            }
            None => AcceptedLink::Plain(inner),
        })
    }
}
