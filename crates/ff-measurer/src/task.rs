//! A measurer's part of a measurement, in a form that can be sent to another host.
//!
//! A [`Task`] has nothing that belongs to one host: no key, no processor cores, no times of a
//! clock. These are in a [`Host`]; both together make an [`Order`].

use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::ErrCode;
use ff_proto::units::BytesPerSec;

use crate::link::{LinkOptions, TargetAddr};
use crate::order::{MeasurerError, Order};

/// A coordinator's request to one measurer.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The measurement.
    pub measurement: MeasurementId,
    /// The relay to measure.
    pub target: TargetAddr,
    /// The number of links of this measurer.
    pub sockets: u16,
    /// The rate of this measurer; `None` for no limit.
    pub rate: Option<BytesPerSec>,
    /// How long cells are sent, in seconds.
    pub duration_secs: u16,
    /// Cells per TLS record, 1 to 31.
    pub cells_per_record: u8,
    /// The cipher of the measurement circuits, which the relay has granted.
    pub crypto: CryptoKind,
    /// The least probability with which a cell is checked.
    pub check_probability: f64,
    /// Time limit of a link's TCP connection.
    pub connect_timeout: Duration,
    /// Time limit of a link's TLS and Tor handshakes together.
    pub handshake_timeout: Duration,
}

/// A host's own settings for any task.
#[derive(Clone)]
pub struct Host {
    /// Its key, which coordinators announce to relays.
    pub key: SigningKey,
    /// The processor cores to run on, one thread each; empty for one thread, not pinned.
    pub cores: Vec<usize>,
    /// Bytes of each link's send and receive buffer; the kernel's choice when `None`.
    pub buffers: (Option<u32>, Option<u32>),
}

impl Host {
    /// A host with this key and these cores.
    #[must_use]
    pub fn new(key: SigningKey, cores: Vec<usize>) -> Self {
        Self { key, cores, buffers: (None, None) }
    }

    /// The order for a task on this host.
    #[must_use]
    pub fn order(&self, task: &Task) -> Order {
        let (sndbuf, rcvbuf) = self.buffers;
        Order {
            measurement: task.measurement,
            target: task.target,
            key: self.key.clone(),
            sockets: task.sockets,
            rate: task.rate,
            duration: Duration::from_secs(task.duration_secs.into()),
            cells_per_record: task.cells_per_record.into(),
            crypto: task.crypto,
            check_probability: task.check_probability,
            cores: self.cores.clone(),
            link: LinkOptions {
                connect_timeout: task.connect_timeout,
                handshake_timeout: task.handshake_timeout,
                sndbuf,
                rcvbuf,
            },
        }
    }
}

/// Why a measurer failed, in a form that can be sent to another host: without the errors that
/// caused it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PartFailure {
    /// Its kind.
    pub kind: FailureKind,
    /// The relay's error code, if it gave one.
    pub relay_code: Option<ErrCode>,
    /// The error and all its causes, as text.
    pub message: String,
}

impl From<MeasurerError> for PartFailure {
    fn from(error: MeasurerError) -> Self {
        let relay_code = match &error {
            MeasurerError::Session(failure) => failure.relay_code(),
            _ => None,
        };
        let kind = error.kind();
        Self { kind, relay_code, message: format!("{:#}", anyhow::Error::from(error)) }
    }
}
