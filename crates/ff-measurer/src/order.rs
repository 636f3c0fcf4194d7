//! What a measurer is asked to do, and what it reports.

mod kind;

use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::onion::circuit::CircuitError;
use ff_proto::session::SessionFailure;
use ff_proto::units::BytesPerSec;
use hdrhistogram::Histogram;

use crate::link::{LinkError, LinkOptions, TargetAddr};
use crate::tcp::TcpSecond;

/// One measurer's part in a measurement.
#[derive(Clone)]
pub struct Order {
    /// The measurement.
    pub measurement: MeasurementId,
    /// The relay.
    pub target: TargetAddr,
    /// The measurer's key, which the coordinator has announced.
    pub key: SigningKey,
    /// This measurer's share of the sockets.
    pub sockets: u16,
    /// This measurer's share of the rate; `None` for as fast as it goes.
    pub rate: Option<BytesPerSec>,
    /// How long to send.
    pub duration: Duration,
    /// Cells per TLS record, 1 to 31.
    pub cells_per_record: usize,
    /// The cipher of the measurement circuits, which the relay has granted.
    pub crypto: CryptoKind,
    /// With which probability a cell is checked at least.
    pub check_probability: f64,
    /// The processor cores to run on, one thread each; empty for one thread, not pinned.
    pub cores: Vec<usize>,
    /// How to open links.
    pub link: LinkOptions,
}

/// How cells flow over a measurer's links, whatever the other end does with them.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Links, as many as are wanted.
    pub(crate) sockets: u16,
    /// The rate; `None` for as fast as it goes.
    pub(crate) rate: Option<BytesPerSec>,
    /// How long to send.
    pub(crate) duration: Duration,
    /// Cells per TLS record, 1 to 31.
    pub(crate) cells_per_record: usize,
    /// The processor cores to run on, one thread each; empty for one thread, not pinned.
    pub(crate) cores: Vec<usize>,
}

impl From<&Order> for Flow {
    fn from(order: &Order) -> Self {
        let Order { sockets, rate, duration, cells_per_record, ref cores, .. } = *order;
        Self { sockets, rate, duration, cells_per_record, cores: cores.clone() }
    }
}

/// One second of one worker thread, or of all of a measurer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondReport {
    /// Seconds since the start.
    pub second: u16,
    /// Cells sent in it.
    pub sent_cells: u64,
    /// Cells that came back in it.
    pub echoed_cells: u64,
    /// Checked cells among these.
    pub checked_cells: u64,
    /// Median round trip of the cells that were timed in microseconds; 0 when none was.
    pub round_trip_p50_micros: u64,
    /// The 90th percentile of them.
    pub round_trip_p90_micros: u64,
    /// The 99th percentile of them.
    pub round_trip_p99_micros: u64,
    /// CPU time of the thread in it, in microseconds.
    pub cpu_micros: u64,
    /// How long the thread waited for the target in it, or let echoes gather, in microseconds.
    pub idle_micros: u64,
    /// Links alive at its end.
    pub sockets_alive: u16,
    /// Whether every link in it was held back by the greatest window.
    pub window_limited: bool,
    /// Whether at its end the target's rate was still being looked for.
    pub is_starting: bool,
    /// What TCP says of its links.
    pub tcp: TcpSecond,
}

/// What a worker did over the whole measurement.
#[derive(Clone, Debug)]
pub struct WorkerTotals {
    /// Cells sent, also those after the last full second.
    pub sent_cells: u64,
    /// Cells that came back.
    pub echoed_cells: u64,
    /// Checked cells among these.
    pub checked_cells: u64,
    /// Round trips of the cells that were timed, in microseconds.
    pub round_trip_micros: Histogram<u64>,
    /// CPU time of the thread in microseconds, with the opening of the circuits.
    pub cpu_micros: u64,
    /// The most bytes of our own memory that one link took; the kernel's buffers are not in it.
    pub held_bytes_per_socket: usize,
}

/// Why a measurer gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasurerError {
    /// Too few links could be opened; the reason is the last one's.
    #[error("only {opened} of {asked} links could be opened, and half of them are needed")]
    TooFewLinks {
        /// Links that were opened.
        opened: u16,
        /// Links that were wanted.
        asked: u16,
        /// Why the last of the others was not.
        source: Box<LinkFailure>,
    },
    /// Too many links broke.
    #[error("only {alive} of {opened} links are left")]
    LinksLost {
        /// Links that are left.
        alive: u16,
        /// Links there were.
        opened: u16,
        /// Why the last of the others broke.
        source: Box<LinkFailure>,
    },
    /// The target failed a check, refused or broke the protocol.
    #[error(transparent)]
    Session(#[from] SessionFailure),
    /// The measurer's own machine failed it.
    #[error("the measurer cannot work: {what}")]
    Host {
        /// What failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Why one link is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFailure {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] LinkError),
    /// The TLS records do not decode.
    #[error("the TLS connection broke")]
    Record(#[from] crate::link::record::RecordError),
    /// The socket failed.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    /// The target closed it.
    #[error("the target closed the connection")]
    Closed,
    /// The target ended the measurement.
    #[error("the target ended the measurement")]
    Ended,
    /// Nothing came back over it while the others went on.
    #[error("the connection fell silent without an end")]
    Silent,
    /// One of its circuits through the relay did not open, or ended.
    #[error("a circuit through the relay failed")]
    Circuit(#[from] CircuitError),
    /// The circuit did not open in time.
    #[error("the target did not answer MEAS_CREATE in time")]
    Timeout,
}
