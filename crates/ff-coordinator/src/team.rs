//! The team: measurers that can be given work, in this process or on other hosts.
//!
//! ```text
//!   Task ─▶ TeamMeasurer::prepare ─▶ ReadyPart::start ─▶ PartEvent::{Second, Done, Failed}
//!             ├ LocalMeasurer: ff_measurer::Measurer
//!             └ RemoteMeasurer: the same on another host, by gRPC
//! ```
//!
//! A measurement is over for a measurer when its [`ReadyPart`] is dropped, whatever has happened
//! before.

mod local;
mod share;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ff_measurer::{PartFailure, SecondReport, Task, WorkerTotals};
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;

pub use local::LocalMeasurer;
pub use share::{cores, expected, params, share_out, sockets};

/// A measurer, wherever it runs.
#[async_trait]
pub trait TeamMeasurer: Send + Sync {
    /// How people call it.
    fn name(&self) -> &str;

    /// Its identity, by which relays know it.
    fn id(&self) -> Ed25519Id;

    /// The addresses from which its links may come, as far as they are known.
    fn addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Opens the links of a task.
    ///
    /// # Errors
    /// [`PartFailure`], when it cannot or does not want to.
    async fn prepare(&self, task: &Task) -> Result<Box<dyn ReadyPart>, PartFailure>;
}

/// A measurer whose links are open. Dropping it closes them.
#[async_trait]
pub trait ReadyPart: Send {
    /// Links that are open.
    fn opened(&self) -> u16;

    /// How long before the start it must be told of it.
    fn start_lead(&self) -> Duration;

    /// Starts the sending at a moment that lies ahead; returns when it can begin at the earliest,
    /// as far as is known here.
    fn start(&mut self, at: Instant) -> Instant;

    /// Waits for the next event; cancel-safe. There are none after `Done` or `Failed`.
    async fn next_event(&mut self) -> PartEvent;
}

/// An event of a measurer's part of a measurement.
#[derive(Debug)]
pub enum PartEvent {
    /// A second is full.
    Second(SecondReport),
    /// The part is over.
    Done(Box<WorkerTotals>),
    /// The part has failed, and its links are closing.
    Failed(PartFailure),
}

/// A measurer with its share of one measurement.
#[derive(Clone)]
pub struct TeamMember {
    /// The measurer.
    pub measurer: Arc<dyn TeamMeasurer>,
    /// Its share of the sockets.
    pub sockets: u16,
    /// Its share of the rate; `None` for as fast as it goes.
    pub rate: Option<BytesPerSec>,
}
