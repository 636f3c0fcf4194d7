//! The source of links for a relay's circuits: the relay's own channel manager, or this process for
//! circuits of measurements.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use safelog::MaybeSensitive;
use tor_linkspec::{HasAddrs as _, HasRelayIds as _, OwnedChanTarget};
use tor_proto::channel::Channel;
use tor_proto::circuit::UniqId;
use tor_proto::memquota::{ChannelAccount, SpecificAccount as _, ToplevelAccount};
use tor_proto::peer::PeerAddr;
use tor_proto::relay::channel_provider::{ChannelProvider, OutboundChanSender};
use tor_proto::{ClientChannelBuilder, Error};
use tor_rtcompat::{Runtime, SpawnExt as _};
use tracing::debug;

use super::extension::Extension;
use super::keys::KeyError;
use super::next_hop::{HopIdentity, NextHop};

/// Gives circuits of measurements a next hop in this process, and asks the relay's own provider for
/// all others.
///
/// With a [`CreateRequestHandler`](tor_proto::relay::CreateRequestHandler) made with it, the
/// relay's circuits carry echoes. Without it no measurement is granted.
pub struct MeasuringProvider<R> {
    /// The relay's own provider.
    inner: Weak<dyn ChannelProvider<BuildSpec = OwnedChanTarget> + Send + Sync>,
    /// Knows the far ends of echoes.
    extension: Arc<Extension>,
    /// Runs the links' tasks.
    runtime: R,
    /// The memory account of the links' queues.
    memory: ToplevelAccount,
}

impl<R: Runtime> MeasuringProvider<R> {
    /// Wraps the provider `inner` of a relay with this extension.
    ///
    /// # Errors
    /// [`KeyError`], which depends only on this program.
    pub fn new(
        inner: Weak<dyn ChannelProvider<BuildSpec = OwnedChanTarget> + Send + Sync>,
        extension: Arc<Extension>,
        runtime: R,
        memory: ToplevelAccount,
    ) -> Result<Arc<Self>, KeyError> {
        extension.set_hop(HopIdentity::generate()?);
        Ok(Arc::new(Self { inner, extension, runtime, memory }))
    }

    /// Opens a link to the next hop at this address.
    async fn open(
        self: Arc<Self>,
        identity: Arc<HopIdentity>,
        hop: NextHop,
        addr: SocketAddr,
    ) -> tor_proto::Result<Arc<Channel>> {
        let memory = ChannelAccount::new(&self.memory)?;
        let (channel, reactor) = ClientChannelBuilder::new()
            .launch(hop, self.runtime.clone(), memory)
            .connect(|| identity.made())
            .await?
            .verify(&identity.target(), identity.tls_cert(), Some(identity.made()))?
            .finish(MaybeSensitive::not_sensitive(PeerAddr::from(addr)))
            .await?;
        let run = async move {
            if let Err(error) = reactor.run().await {
                debug!("FlashFlow: a measurement's next hop is gone: {error}");
            }
        };
        self.runtime.spawn(run).map_err(|_| no_hop())?;
        Ok(channel)
    }
}

#[async_trait]
impl<R: Runtime> ChannelProvider for MeasuringProvider<R> {
    type BuildSpec = OwnedChanTarget;

    fn get_or_launch(
        self: Arc<Self>,
        reactor_id: UniqId,
        target: OwnedChanTarget,
        tx: OutboundChanSender,
    ) -> tor_proto::Result<()> {
        let hop = self.extension.hop();
        let Some(identity) = hop.filter(|hop| target.ed_identity() == Some(&hop.ed_identity()))
        else {
            let inner = self.inner.upgrade().ok_or_else(no_hop)?;
            return inner.get_or_launch(reactor_id, target, tx);
        };
        let addr = target.addrs().next().ok_or_else(no_hop)?;
        let hop = self.extension.next_hop(addr).ok_or_else(no_hop)?;
        let runtime = self.runtime.clone();
        let open = async move { tx.send(self.open(identity, hop, addr).await) };
        runtime.spawn(open).map_err(|_| no_hop())
    }
}

/// The error of a circuit that requests an unknown next hop.
fn no_hop() -> Error {
    Error::ChanProto("there is no such next hop".to_owned())
}
