//! A measurer's order, its reports and its errors.

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
    /// The relay to measure.
    pub target: TargetAddr,
    /// The measurer's key, which the coordinator has announced to the relay.
    pub key: SigningKey,
    /// The number of links of this measurer.
    pub sockets: u16,
    /// The rate of this measurer; `None` for no limit.
    pub rate: Option<BytesPerSec>,
    /// How long cells are sent.
    pub duration: Duration,
    /// Cells per TLS record, 1 to 31.
    pub cells_per_record: usize,
    /// The cipher of the measurement circuits, which the relay has granted.
    pub crypto: CryptoKind,
    /// The least probability with which a cell is checked.
    pub check_probability: f64,
    /// The processor cores to run on, one thread each; empty for one thread, not pinned.
    pub cores: Vec<usize>,
    /// Options for opening links.
    pub link: LinkOptions,
}

/// How cells are sent over a measurer's links, independent of the other end.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// The number of wanted links.
    pub(crate) sockets: u16,
    /// The rate; `None` for no limit.
    pub(crate) rate: Option<BytesPerSec>,
    /// How long cells are sent.
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

/// One second of one worker, or of all workers of a measurer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondReport {
    /// The number of the second, from 0.
    pub second: u16,
    /// Cells sent in this second.
    pub sent_cells: u64,
    /// Cells that came back in this second.
    pub echoed_cells: u64,
    /// Of these, the checked ones.
    pub checked_cells: u64,
    /// Median round trip of the timed cells, in microseconds; 0 if none was timed.
    pub round_trip_p50_micros: u64,
    /// Their 90th percentile, in microseconds.
    pub round_trip_p90_micros: u64,
    /// Their 99th percentile, in microseconds.
    pub round_trip_p99_micros: u64,
    /// CPU time of the thread in this second, in microseconds.
    pub cpu_micros: u64,
    /// How long the thread waited for the target or napped in this second, in microseconds.
    pub idle_micros: u64,
    /// Links alive at the end of the second.
    pub sockets_alive: u16,
    /// Whether the largest window limited every link in this second.
    pub window_limited: bool,
    /// Whether at its end the start-up had not ended: the target's rate was not yet known.
    pub is_starting: bool,
    /// TCP's data about its links.
    pub tcp: TcpSecond,
}

/// A worker's totals of the whole measurement.
#[derive(Clone, Debug)]
pub struct WorkerTotals {
    /// Cells sent, also those after the last full second.
    pub sent_cells: u64,
    /// Cells that came back.
    pub echoed_cells: u64,
    /// Of these, the checked ones.
    pub checked_cells: u64,
    /// Round trips of the timed cells, in microseconds.
    pub round_trip_micros: Histogram<u64>,
    /// CPU time of the thread in microseconds, including the opening of the circuits.
    pub cpu_micros: u64,
    /// The largest memory of one link in bytes, without the kernel's buffers.
    pub held_bytes_per_socket: usize,
}

/// Why a measurer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasurerError {
    /// Too few links could be opened; the reason is the last failed link's.
    #[error("only {opened} of {asked} links could be opened, and half of them are needed")]
    TooFewLinks {
        /// Links that were opened.
        opened: u16,
        /// Links that were ordered.
        asked: u16,
        /// Why the last of the others did not open.
        source: Box<LinkFailure>,
    },
    /// Too many links broke.
    #[error("only {alive} of {opened} links are left")]
    LinksLost {
        /// Links that are left.
        alive: u16,
        /// Links that had been opened.
        opened: u16,
        /// Why the last of the others broke.
        source: Box<LinkFailure>,
    },
    /// The target failed a check, refused, or broke the protocol.
    #[error(transparent)]
    Session(#[from] SessionFailure),
    /// An operation of this host failed.
    #[error("the measurer cannot work: {what}")]
    Host {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Why a link cannot be used.
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
    /// Nothing came back over it, while other links worked.
    #[error("the connection went silent without closing")]
    Silent,
    /// One of its circuits through the relay did not open, or ended.
    #[error("a circuit through the relay failed")]
    Circuit(#[from] CircuitError),
    /// The circuit did not open in time.
    #[error("the target did not answer MEAS_CREATE in time")]
    Timeout,
}
