//! A measurer in this process.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use ed25519_dalek::SigningKey;
use ff_measurer::{
    Host, Measurer, MeasurerError, MeasurerEvent, PartFailure, START_LEAD, Task, measurer_id,
};
use ff_proto::ids::Ed25519Id;

use super::{PartEvent, ReadyPart, TeamMeasurer};

/// A measurer in this process.
pub struct LocalMeasurer {
    /// How people call it.
    name: String,
    /// Its key and cores.
    host: Host,
}

impl LocalMeasurer {
    /// A measurer with this key on these cores.
    #[must_use]
    pub fn new(name: &str, key: SigningKey, cores: Vec<usize>) -> Self {
        Self { name: name.to_owned(), host: Host::new(key, cores) }
    }
}

#[async_trait]
impl TeamMeasurer for LocalMeasurer {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> Ed25519Id {
        measurer_id(&self.host.key)
    }

    async fn prepare(&self, task: &Task) -> Result<Box<dyn ReadyPart>, PartFailure> {
        let measurer = Measurer::prepare(&self.host.order(task)).await?;
        Ok(Box::new(LocalPart(measurer)))
    }
}

/// An open measurer of this process.
struct LocalPart(Measurer);

#[async_trait]
impl ReadyPart for LocalPart {
    fn opened(&self) -> u16 {
        self.0.opened()
    }

    fn start_lead(&self) -> Duration {
        START_LEAD
    }

    fn start(&mut self, at: Instant) -> Instant {
        self.0.start(at);
        at
    }

    async fn next_event(&mut self) -> PartEvent {
        match self.0.next_event().await {
            MeasurerEvent::Second(report) => PartEvent::Second(report),
            MeasurerEvent::Done(totals) => PartEvent::Done(totals),
            MeasurerEvent::Failed(error) => PartEvent::Failed(error.into()),
            _ => PartEvent::Failed(unknown_event().into()),
        }
    }
}

/// A measurer said something that this coordinator does not know.
fn unknown_event() -> MeasurerError {
    let source = std::io::Error::other("an unknown event");
    MeasurerError::Host { what: "it speaks of something unknown", source }
}
