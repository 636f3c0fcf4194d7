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

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tor_rtcompat::tls::{TlsAcceptorSettings, TlsConnector};
use tor_rtcompat::{StreamOps, TlsProvider};

use super::extension::Extension;
use super::link::LinkStream;

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
