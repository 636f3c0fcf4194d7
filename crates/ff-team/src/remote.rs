//! A measurer on another host.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ed25519_dalek::SigningKey;
use ff_coordinator::team::{PartEvent, ReadyPart, TeamMeasurer};
use ff_measurer::service::client::{self, RemoteEvent};
use ff_measurer::service::wire::Capability;
use ff_measurer::{PartFailure, Task, dial};
use ff_proto::ids::Ed25519Id;

/// A measurer on another host.
#[derive(Clone)]
pub struct RemoteMeasurer {
    /// How people call it.
    name: String,
    /// Where it is.
    address: Arc<str>,
    /// What that name stood for last; one of these is where its links to relays come from, unless
    /// its host has others for that.
    addresses: Arc<Mutex<Vec<IpAddr>>>,
    /// The connection to it.
    client: client::RemoteMeasurer,
}

impl RemoteMeasurer {
    /// The measurer with this key at `HOST:PORT`, for the coordinator with that key.
    ///
    /// # Errors
    /// A text that says what is wrong with the address.
    pub fn new(name: &str, address: &str, id: Ed25519Id, key: &SigningKey) -> Result<Self, String> {
        let client = client::RemoteMeasurer::new(address, id, key)?;
        let literal = address.parse::<SocketAddr>().map(|addr| vec![addr.ip()]);
        let addresses = Arc::new(Mutex::new(literal.unwrap_or_default()));
        Ok(Self { name: name.to_owned(), address: address.into(), addresses, client })
    }

    /// The connection to it.
    pub(super) fn client(&self) -> &client::RemoteMeasurer {
        &self.client
    }

    /// Asks for the measurer's properties and its operator's limits.
    ///
    /// # Errors
    /// [`PartFailure`], when it does not answer in time.
    pub async fn describe(&self) -> Result<Capability, PartFailure> {
        self.resolve().await;
        self.client.describe().await
    }

    /// Looks up where it is; what cannot be looked up now stays as it was.
    async fn resolve(&self) {
        let Ok(found) = dial::lookup(&self.address).await else { return };
        let addresses = found.into_iter().map(|addr| addr.ip().to_canonical()).collect();
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }
}

#[async_trait]
impl TeamMeasurer for RemoteMeasurer {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> Ed25519Id {
        self.client.id()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn prepare(&self, task: &Task) -> Result<Box<dyn ReadyPart>, PartFailure> {
        Ok(Box::new(RemotePart(self.client.prepare(task).await?)))
    }
}

/// An open measurer on another host.
struct RemotePart(client::RemotePart);

#[async_trait]
impl ReadyPart for RemotePart {
    fn opened(&self) -> u16 {
        self.0.opened()
    }

    fn start_lead(&self) -> Duration {
        self.0.start_lead()
    }

    fn start(&mut self, at: Instant) -> Instant {
        self.0.start(at)
    }

    async fn next_event(&mut self) -> PartEvent {
        match self.0.next_event().await {
            RemoteEvent::Second(report) => PartEvent::Second(report),
            RemoteEvent::Done(totals) => PartEvent::Done(totals),
            RemoteEvent::Failed(failure) => PartEvent::Failed(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_addresses_are_those_of_its_name() {
        let measurer = |address: &str| {
            let key = SigningKey::from_bytes(&[1; 32]);
            RemoteMeasurer::new("m", address, Ed25519Id([2; 32]), &key).expect("an address")
        };
        let literal = measurer("192.0.2.7:9230").addresses();
        assert_eq!(literal, [IpAddr::from([192, 0, 2, 7])], "nothing has to be looked up");
        // Nobody listens there, which does not matter.
        let named = measurer("localhost:1");
        assert!(named.addresses().is_empty(), "it has not been looked up yet");
        named.describe().await.expect_err("nobody is there");
        assert!(named.addresses().iter().any(IpAddr::is_loopback), "{:?}", named.addresses());
    }
}
