//! A measurer on another host.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use ed25519_dalek::SigningKey;
use ff_measurer::service::client::{self, RemoteEvent};
use ff_measurer::service::wire::Capability;
use ff_measurer::{PartFailure, Task};
use ff_proto::ids::Ed25519Id;

use super::{PartEvent, ReadyPart, TeamMeasurer};

/// A measurer on another host.
#[derive(Clone)]
pub struct RemoteMeasurer {
    /// How people call it.
    name: String,
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
        Ok(Self { name: name.to_owned(), client })
    }

    /// The connection to it.
    pub(super) fn client(&self) -> &client::RemoteMeasurer {
        &self.client
    }

    /// What it is and what its operator allows.
    ///
    /// # Errors
    /// [`PartFailure`], when it does not answer in time.
    pub async fn describe(&self) -> Result<Capability, PartFailure> {
        self.client.describe().await
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

    fn start(&mut self, at: Instant) {
        self.0.start(at);
    }

    async fn next_event(&mut self) -> PartEvent {
        match self.0.next_event().await {
            RemoteEvent::Second(report) => PartEvent::Second(report),
            RemoteEvent::Done(totals) => PartEvent::Done(totals),
            RemoteEvent::Failed(failure) => PartEvent::Failed(failure),
        }
    }
}
