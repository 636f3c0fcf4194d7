//! A measurer of the team, as the coordinator knows it.

use std::sync::Arc;

use ff_coordinator::team::TeamMeasurer;
use ff_measurer::service::wire::Capability;
use ff_plan::period::carried::Carried;
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use ff_store::Measured;

/// A measurer of the team and its state.
pub struct Member {
    /// The connection to the measurer.
    pub measurer: Arc<dyn TeamMeasurer>,
    /// The measurer's address.
    pub address: String,
    /// The capacity that its operator has configured.
    pub stated: BytesPerSec,
    /// The last description of its state.
    pub capability: Option<Box<Capability>>,
    /// How far its clock is ahead of ours, in milliseconds.
    pub clock_ahead_millis: i64,
    /// Why it does not respond, if it does not.
    pub error: Option<String>,
    /// Time of the last answer or error, in seconds since 1970.
    pub described: Option<u64>,
    /// The measured capacity of its network.
    pub measured: Option<Measured>,
    /// Why the last exchange did not measure it, if so.
    pub not_measured: Option<String>,
}

impl Member {
    /// A measurer that has not been asked yet.
    #[must_use]
    pub fn new(measurer: Arc<dyn TeamMeasurer>, address: &str, stated: BytesPerSec) -> Self {
        Self {
            measurer,
            address: address.to_owned(),
            stated,
            capability: None,
            clock_ahead_millis: 0,
            error: None,
            described: None,
            measured: None,
            not_measured: None,
        }
    }

    /// a_i: the measured capacity, at most the configured one.
    #[must_use]
    pub fn capacity(&self) -> BytesPerSec {
        Carried::capacity(self.measured.as_ref().map(|measured| &measured.carried), self.stated)
    }

    /// Whether its network was measured at its present address.
    pub(super) fn is_measured_here(&self) -> bool {
        self.measured.as_ref().is_some_and(|measured| measured.address == self.address)
    }

    /// The configured identity, name, address and capacity.
    pub(super) fn place(&self) -> (Ed25519Id, &str, &str, BytesPerSec) {
        (self.measurer.id(), self.measurer.name(), &self.address, self.stated)
    }
}
