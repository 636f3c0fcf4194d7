//! Cells in transit: from a measurer through a relay without FlashFlow to a sink, and back.
//!
//! ```text
//!   measurer ── links as a client, CREATE2, EXTEND2 ──▶ any relay ── links of its own ──▶ sink
//!     cells of random content ═══▶ a layer of its crypto, its queues ═══▶ counted, a sample checked
//!                            and the same the other way
//! ```
//!
//! [`Transit::prepare`] starts the sinks and opens links and circuits; [`Listening`] does so in two
//! steps. Then two [`Measurer`]s run, one at each end. The cells that arrive at one end determine
//! how many the other may have in flight, so both are in one process.

mod build;
mod order;
mod sink;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ff_proto::onion::circuit::CircuitError;
use tokio::time::timeout;

use self::build::Links;
pub use self::order::{DEFAULT_LINKS, Direction, MAX_PUBLIC_LINKS, TransitOrder};
use crate::link::control::ControlError;
use crate::link::{IdentityError, LinkError};
use crate::measurer::{Measurer, MeasurerEvent};
use crate::order::{Flow, MeasurerError, WorkerTotals};

/// How long to wait for the other end's error.
const REASON_TIME: Duration = Duration::from_millis(500);

/// The cause of a failure: an end that has found an error closes its links, and the other end may
/// notice that first.
async fn reason(error: MeasurerError, other: &mut Measurer) -> MeasurerError {
    if is_found(&error) {
        return error;
    }
    let found = async {
        loop {
            match other.next_event().await {
                MeasurerEvent::Second(_) => {}
                MeasurerEvent::Failed(error) if is_found(&error) => return Some(error),
                _ => return None,
            }
        }
    };
    timeout(REASON_TIME, found).await.ok().flatten().unwrap_or(error)
}

/// Whether an error is a fault of the relay.
fn is_found(error: &MeasurerError) -> bool {
    matches!(error, MeasurerError::Session(_))
}

/// Why cells could not be sent through a relay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransitError {
    /// The order is not valid, or is not allowed.
    #[error("{0}")]
    Order(String),
    /// A task of this program panicked.
    #[error("a task of this program has ended")]
    TaskGone,
    /// The two ends do not count the same seconds, which depends only on this program.
    #[error("the two ends do not count the same seconds")]
    OutOfStep,
    /// A sink cannot listen.
    #[error("the sink cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The identity of a sink cannot be made.
    #[error("the sink has no identity")]
    Identity(#[from] IdentityError),
    /// A link could not be opened.
    #[error("a link to the relay could not be opened")]
    Link(#[from] LinkError),
    /// A link broke while circuits were opened.
    #[error("a link broke while circuits were opened")]
    Control(#[from] ControlError),
    /// A circuit did not open. It is not replaced, because a relay would take further circuits for
    /// an attack.
    #[error("circuit {number} of {wanted} did not open")]
    Circuit {
        /// The circuit's number on its link, from 1.
        number: u32,
        /// The number of circuits wanted on its link.
        wanted: u32,
        /// The reason.
        source: CircuitError,
    },
    /// A relay did not answer in time.
    #[error("the relay did not open its circuits within {0:?}")]
    Timeout(Duration),
    /// Open circuits did not reach one of our sinks.
    #[error(
        "{missing} circuits do not end at our sinks: they were closed, or another program answered"
    )]
    Elsewhere {
        /// The number of these circuits.
        missing: usize,
    },
    /// No cell has arrived in one direction.
    #[error("no cell has arrived {0}: the relay forwards none")]
    NothingArrived(&'static str),
    /// One of the ends failed, or the relay changed cells in a way that no relay does.
    #[error(transparent)]
    Measurer(#[from] MeasurerError),
}

/// One second, with the cells that arrived in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransitSecond {
    /// The number of the second, from 0.
    pub second: u16,
    /// Cells that arrived at the sink.
    pub forward_cells: u64,
    /// Cells that arrived at the measurer.
    pub backward_cells: u64,
    /// CPU time of both ends in microseconds.
    pub cpu_micros: u64,
}

/// The events of the two ends.
#[derive(Debug)]
pub enum TransitEvent {
    /// A second is over.
    Second(TransitSecond),
    /// The measurement has ended: the totals of the measurer and of the sink.
    Done(Box<[WorkerTotals; 2]>),
}

/// The listening sinks of an order, before any link is open. Dropping this ends them.
pub struct Listening {
    order: TransitOrder,
    sinks: build::Sinks,
}

impl Listening {
    /// Starts the order's sinks; must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`TransitError`].
    pub async fn start(order: &TransitOrder) -> Result<Self, TransitError> {
        order.check().map_err(TransitError::Order)?;
        Ok(Self { order: order.clone(), sinks: build::Sinks::start(order).await? })
    }

    /// The sinks' addresses, with the ports that the system chose.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.sinks.addrs()
    }

    /// Opens links and circuits.
    ///
    /// # Errors
    /// [`TransitError`].
    pub async fn open(self) -> Result<Transit, TransitError> {
        let links = self.sinks.open(&self.order).await?;
        Transit::over(links, &self.order).await
    }
}

/// Circuits through a relay, with both ends in this process.
#[derive(Debug)]
pub struct Transit {
    /// The measurer, then the sink.
    ends: [Measurer; 2],
    /// The direction of cells.
    direction: Direction,
}

impl Transit {
    /// Starts the sinks and opens links and circuits; must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`TransitError`].
    pub async fn prepare(order: &TransitOrder) -> Result<Self, TransitError> {
        Listening::start(order).await?.open().await
    }

    /// Takes over the links of both ends.
    async fn over(
        [measurer, sink]: [Links; 2],
        order: &TransitOrder,
    ) -> Result<Self, TransitError> {
        let flow = |links: usize, is_sending: bool, cores: &[usize]| Flow {
            sockets: u16::try_from(links).unwrap_or(u16::MAX),
            rate: order.rate.filter(|_| is_sending),
            duration: order.duration,
            cells_per_record: order.cells_per_record,
            cores: cores.to_vec(),
        };
        let [ours, theirs] = &order.cores;
        let flows = [
            flow(measurer.len(), order.direction.is_forward(), ours),
            flow(sink.len(), order.direction.is_backward(), theirs),
        ];
        let ends = [
            Measurer::in_transit(&flows[0], measurer).await?,
            Measurer::in_transit(&flows[1], sink).await?,
        ];
        Ok(Self { ends, direction: order.direction })
    }

    /// Starts sending at this time.
    pub fn start(&self, at: Instant) {
        self.ends.iter().for_each(|end| end.start(at));
    }

    /// The next event. There is none after `Done` or an error.
    ///
    /// # Errors
    /// [`TransitError::Measurer`] and [`TransitError::NothingArrived`].
    pub async fn next_event(&mut self) -> Result<TransitEvent, TransitError> {
        let [measurer, sink] = &mut self.ends;
        match tokio::join!(measurer.next_event(), sink.next_event()) {
            (MeasurerEvent::Failed(ours), MeasurerEvent::Failed(theirs)) => {
                Err(if is_found(&theirs) { theirs } else { ours }.into())
            }
            (MeasurerEvent::Failed(error), _) => Err(reason(error, sink).await.into()),
            (_, MeasurerEvent::Failed(error)) => Err(reason(error, measurer).await.into()),
            (MeasurerEvent::Second(ours), MeasurerEvent::Second(theirs)) => {
                Ok(TransitEvent::Second(TransitSecond {
                    second: ours.second,
                    forward_cells: theirs.echoed_cells,
                    backward_cells: ours.echoed_cells,
                    cpu_micros: ours.cpu_micros + theirs.cpu_micros,
                }))
            }
            (MeasurerEvent::Done(ours), MeasurerEvent::Done(theirs)) => {
                if self.direction.is_forward() && theirs.echoed_cells == 0 {
                    return Err(TransitError::NothingArrived("from the measurer to the sink"));
                }
                if self.direction.is_backward() && ours.echoed_cells == 0 {
                    return Err(TransitError::NothingArrived("from the sink to the measurer"));
                }
                Ok(TransitEvent::Done(Box::new([*ours, *theirs])))
            }
            _ => Err(TransitError::OutOfStep),
        }
    }

    /// Waits for the end, and returns the totals of the measurer and of the sink; `on_second` gets
    /// each second.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub async fn finish(
        &mut self,
        mut on_second: impl FnMut(TransitSecond),
    ) -> Result<Box<[WorkerTotals; 2]>, TransitError> {
        loop {
            match self.next_event().await? {
                TransitEvent::Second(second) => on_second(second),
                TransitEvent::Done(totals) => return Ok(totals),
            }
        }
    }
}
