//! MEAS_CREATE and MEAS_CREATED: the measurement circuit of one link.

use super::{Payload, put_extensions, read_extensions};
use crate::circuit::CONFIRMATION_LEN;
use crate::codec::{DecodeError, Reader};
use crate::ids::MeasurementId;

/// MEAS_CREATE: a measurer of the team opens its circuit on this link.
///
/// It travels on the circuit id that the MEAS_ECHO cells will have, whose high bit is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasCreate {
    /// The measurement the link belongs to.
    pub measurement: MeasurementId,
    /// The measurer's ephemeral X25519 key.
    pub public: [u8; 32],
}

impl Payload for MeasCreate {
    const COMMAND: u8 = 3;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.measurement.0);
        out.extend_from_slice(&self.public);
        put_extensions(&[], out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let measurement = MeasurementId(reader.array("measurement id")?);
        let public = reader.array("public key")?;
        read_extensions(reader, |_, _| Ok(()))?;
        Ok(Self { measurement, public })
    }
}

/// MEAS_CREATED: the target's half of the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasCreated {
    /// The target's ephemeral X25519 key.
    pub public: [u8; 32],
    /// Shows that the target derived the same keys.
    pub confirmation: [u8; CONFIRMATION_LEN],
}

impl Payload for MeasCreated {
    const COMMAND: u8 = 4;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.public);
        out.extend_from_slice(&self.confirmation);
        put_extensions(&[], out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let public = reader.array("public key")?;
        let confirmation = reader.array("confirmation")?;
        read_extensions(reader, |_, _| Ok(()))?;
        Ok(Self { public, confirmation })
    }
}
