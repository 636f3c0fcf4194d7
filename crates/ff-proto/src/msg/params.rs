//! MEAS_PARAMS and its answer.
//!
//! Decisions: doc/decisions.md, "MEAS_PARAMS is one cell".

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fields::{Field, Fields, count, fields};
use super::{Extension, Payload};
use crate::codec::{DecodeError, Reader};
use crate::ids::{CryptoKind, Ed25519Id, MeasurementId};
use crate::params::{DURATION_SECS, SOCKETS};
use crate::units::Ratio;

/// The largest number of measurers of one team: as many as fit into one cell.
pub const MAX_MEASURERS: u8 = 8;

/// The largest number of crypto kinds that a request may list.
pub const MAX_CRYPTO_KINDS: u8 = 16;

/// Extension of MEAS_PARAMS: `measurer index [1] address [4 or 16]`.
const EXT_ADDRESS: u8 = 1;
/// Extension of MEAS_PARAMS: `crypto kind [1]`, repeated.
const EXT_CRYPTO: u8 = 2;
/// The ciphers accepted by a request without [`EXT_CRYPTO`].
const DEFAULT_CRYPTO: &[CryptoKind] = &[CryptoKind::AES128_CTR];

/// A measurer in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerGrant {
    /// Its key.
    pub id: Ed25519Id,
    /// The number of links that it will open.
    pub sockets: u16,
    /// The address from which they will come, if the coordinator gives it: the target then exempts
    /// it from its denial-of-service defences during the measurement.
    pub address: Option<IpAddr>,
}

/// MEAS_PARAMS: the coordinator's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasParams {
    /// A new id for the measurement.
    pub measurement: MeasurementId,
    /// The requested duration, in seconds.
    pub duration_secs: u16,
    /// The team.
    pub measurers: Vec<MeasurerGrant>,
    /// The accepted ciphers in order of preference. Unknown ones are kept.
    pub crypto: Vec<CryptoKind>,
}

// The bounds are in PROTOCOL.md §4.1. That of the duration is the greatest
// FFMaxMeasurementDuration.
fields!(MeasParams {
    measurement: "measurement id",
    duration_secs: "duration" in DURATION_SECS,
    measurers: "number of measurers",
} + { crypto: DEFAULT_CRYPTO.to_vec() });

fields!(MeasurerGrant { id: "measurer id", sockets: "sockets" in SOCKETS } + { address: None });

/// Encoded as `count [1]`, and then each of them.
impl Field for Vec<MeasurerGrant> {
    fn write(&self, name: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        out.push(count(name, self.len(), &(1..=MAX_MEASURERS))?);
        self.iter().try_for_each(|measurer| measurer.write_fields(out))
    }

    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let measurers = count(name, reader.u8(name)?.into(), &(1..=MAX_MEASURERS))?;
        (0..measurers).map(|_| MeasurerGrant::read_fields(reader)).collect()
    }
}

impl Payload for MeasParams {
    const COMMAND: u8 = 1;

    fn extensions(&self) -> Result<Vec<Extension>, DecodeError> {
        check_crypto(self.crypto.len())?;
        let addresses = (0_u8..).zip(&self.measurers).filter_map(|(index, measurer)| {
            let mut value = vec![index];
            match measurer.address? {
                IpAddr::V4(address) => value.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => value.extend_from_slice(&address.octets()),
            }
            Some((EXT_ADDRESS, value))
        });
        let crypto = (self.crypto != DEFAULT_CRYPTO)
            .then(|| (EXT_CRYPTO, self.crypto.iter().map(|kind| kind.0).collect()));
        Ok(addresses.chain(crypto).collect())
    }

    fn extend(&mut self, kind: u8, value: &[u8]) -> Result<(), DecodeError> {
        match kind {
            EXT_ADDRESS => read_address(value, &mut self.measurers)?,
            EXT_CRYPTO => {
                check_crypto(value.len())?;
                self.crypto = value.iter().copied().map(CryptoKind).collect();
            }
            _ => {}
        }
        Ok(())
    }
}

/// Adds the address in an extension to its measurer.
fn read_address(value: &[u8], measurers: &mut [MeasurerGrant]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(value);
    let index = reader.u8("measurer index")?;
    // §4.1: an index into the list, and an address by its length.
    let max = u64::try_from(measurers.len().saturating_sub(1)).unwrap_or(0);
    let address = match value.len() {
        5 => IpAddr::V4(Ipv4Addr::from(reader.array::<4>("address")?)),
        _ => IpAddr::V6(Ipv6Addr::from(reader.array::<16>("address")?)),
    };
    reader.finish()?;
    let out_of_range =
        DecodeError::OutOfRange { field: "measurer index", value: index.into(), min: 0, max };
    measurers.get_mut(usize::from(index)).ok_or(out_of_range)?.address = Some(address);
    Ok(())
}

/// Checks the number of crypto kinds (§4.1).
fn check_crypto(kinds: usize) -> Result<(), DecodeError> {
    count("number of crypto kinds", kinds, &(1..=MAX_CRYPTO_KINDS)).map(|_| ())
}

/// MEAS_PARAMS_OK: the target's grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasParamsOk {
    /// The measurement of the request.
    pub measurement: MeasurementId,
    /// The granted duration, in seconds; at most the requested one.
    pub duration_secs: u16,
    /// The background ratio that the target will keep.
    pub ratio: Ratio,
    /// The cipher of its measurement circuits.
    pub crypto: CryptoKind,
}

// The bounds are in PROTOCOL.md §4.2.
fields!(MeasParamsOk {
    measurement: "measurement id",
    duration_secs: "duration" in DURATION_SECS,
    ratio: "background percent",
    crypto: "crypto kind",
});

impl Payload for MeasParamsOk {
    const COMMAND: u8 = 2;
}
