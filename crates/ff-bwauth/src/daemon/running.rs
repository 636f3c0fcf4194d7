//! A measurement while it goes on.

use ff_base::identity::Fingerprint;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;

use crate::watch::status::SecondShown;

/// A measurement that is going on.
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
    /// Of those that are measured with it, the one that they are known by.
    pub head: u32,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// How many seconds it is to have.
    pub of_secs: u16,
    /// By these it is measured.
    pub measurers: Vec<Ed25519Id>,
    /// What the relay is taken for.
    pub guess: BytesPerSec,
    /// Its seconds so far.
    pub seconds: Vec<SecondShown>,
}
