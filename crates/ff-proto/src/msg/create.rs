//! MEAS_CREATE and MEAS_CREATED: the measurement circuit of one link.

use super::Payload;
use super::fields::fields;
use crate::circuit::CONFIRMATION_LEN;
use crate::ids::MeasurementId;

/// MEAS_CREATE: a measurer of the team opens its circuit on this link.
///
/// It uses the circuit id of the MEAS_ECHO cells, whose high bit is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasCreate {
    /// The measurement to which the link belongs.
    pub measurement: MeasurementId,
    /// The measurer's ephemeral X25519 key.
    pub public: [u8; 32],
}

fields!(MeasCreate { measurement: "measurement id", public: "public key" });

impl Payload for MeasCreate {
    const COMMAND: u8 = 3;
}

/// MEAS_CREATED: the target's half of the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasCreated {
    /// The target's ephemeral X25519 key.
    pub public: [u8; 32],
    /// Proves that the target derived the same keys.
    pub confirmation: [u8; CONFIRMATION_LEN],
}

fields!(MeasCreated { public: "public key", confirmation: "confirmation" });

impl Payload for MeasCreated {
    const COMMAND: u8 = 4;
}
