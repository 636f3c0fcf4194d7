//! A running measurement.

use ff_base::identity::Fingerprint;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;

use crate::watch::status::SecondShown;

/// A running measurement.
#[derive(Clone, Debug)]
pub struct RunningMeasurement {
    /// The relay.
    pub fingerprint: Fingerprint,
    /// Its nickname.
    pub nickname: String,
    /// The period.
    pub period: u64,
    /// The slot.
    pub slot: u32,
    /// The head of its group.
    pub head: u32,
    /// When the measurement began, in seconds since 1970.
    pub started: u64,
    /// Length of the measurement in seconds.
    pub of_secs: u16,
    /// The measurers that take part.
    pub measurers: Vec<Ed25519Id>,
    /// The expected capacity of the relay.
    pub guess: BytesPerSec,
    /// The seconds so far.
    pub seconds: Vec<SecondShown>,
}
