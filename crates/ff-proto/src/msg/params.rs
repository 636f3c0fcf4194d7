//! MEAS_PARAMS and its answer.
//!
//! Decisions: doc/decisions.md, "MEAS_PARAMS is one cell".

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Payload, put_extensions, read_extensions};
use crate::codec::{DecodeError, Reader};
use crate::ids::{CryptoKind, Ed25519Id, MeasurementId};
use crate::params::{DURATION_SECS, SOCKETS};
use crate::units::Ratio;

/// The most measurers of one team: what fits into one cell.
pub const MAX_MEASURERS: u8 = 8;

/// The most crypto kinds one request may list; more than there will ever be.
pub const MAX_CRYPTO_KINDS: u8 = 16;

/// Extension of MEAS_PARAMS: `measurer index [1] address [4 or 16]`.
const EXT_ADDRESS: u8 = 1;
/// Extension of MEAS_PARAMS: `crypto kind [1]`, so many times.
const EXT_CRYPTO: u8 = 2;
/// What a request without [`EXT_CRYPTO`] accepts.
const DEFAULT_CRYPTO: &[CryptoKind] = &[CryptoKind::AES128_CTR];

/// What one measurer may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurerGrant {
    /// Its key.
    pub id: Ed25519Id,
    /// How many links it will open.
    pub sockets: u16,
    /// Where they will come from, if the coordinator says so: the target then exempts the address
    /// from its denial-of-service defences while it is measured.
    pub address: Option<IpAddr>,
}

/// MEAS_PARAMS: what the coordinator asks the target to grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasParams {
    /// A fresh name for the measurement.
    pub measurement: MeasurementId,
    /// How long to measure, in seconds.
    pub duration_secs: u16,
    /// The team.
    pub measurers: Vec<MeasurerGrant>,
    /// The ciphers it accepts, the preferred one first. Unknown ones are kept.
    pub crypto: Vec<CryptoKind>,
}

impl Payload for MeasParams {
    const COMMAND: u8 = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.measurement.0);
        out.extend_from_slice(&self.duration_secs.to_be_bytes());
        out.push(u8::try_from(self.measurers.len()).unwrap_or(u8::MAX));
        for measurer in &self.measurers {
            out.extend_from_slice(&measurer.id.0);
            out.extend_from_slice(&measurer.sockets.to_be_bytes());
        }
        let addresses = (0_u8..).zip(&self.measurers).filter_map(|(index, measurer)| {
            let mut value = vec![index];
            match measurer.address? {
                IpAddr::V4(address) => value.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => value.extend_from_slice(&address.octets()),
            }
            Some((EXT_ADDRESS, value))
        });
        let crypto = (self.crypto != DEFAULT_CRYPTO).then(|| {
            // Too many do not decode, whether all of them are here or not.
            let kinds = self.crypto.iter().take(usize::from(u8::MAX));
            (EXT_CRYPTO, kinds.map(|kind| kind.0).collect())
        });
        let extensions: Vec<_> = addresses.chain(crypto).collect();
        put_extensions(&extensions, out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let measurement = MeasurementId(reader.array("measurement id")?);
        // PROTOCOL.md §4.1 has these three bounds; the first is the greatest FFMaxMeasurementDuration.
        let duration_secs = reader.u16("duration")?;
        in_range("duration", duration_secs, *DURATION_SECS.start(), *DURATION_SECS.end())?;
        let count = reader.u8("number of measurers")?;
        in_range("number of measurers", u16::from(count), 1, u16::from(MAX_MEASURERS))?;
        let mut measurers = (0..count)
            .map(|_| {
                let id = Ed25519Id(reader.array("measurer id")?);
                let sockets = reader.u16("sockets")?;
                in_range("sockets", sockets, *SOCKETS.start(), *SOCKETS.end())?;
                Ok(MeasurerGrant { id, sockets, address: None })
            })
            .collect::<Result<Vec<_>, DecodeError>>()?;
        let mut crypto = DEFAULT_CRYPTO.to_vec();
        read_extensions(reader, |kind, value| match kind {
            EXT_ADDRESS => read_address(value, &mut measurers),
            EXT_CRYPTO => read_crypto(value).map(|kinds| crypto = kinds),
            _ => Ok(()),
        })?;
        Ok(Self { measurement, duration_secs, measurers, crypto })
    }
}

/// Puts an address extension to its measurer.
fn read_address(value: &[u8], measurers: &mut [MeasurerGrant]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(value);
    let index = reader.u8("measurer index")?;
    // §4.1: an index of the list, and an address by its length.
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

/// Reads the crypto kinds extension, with the bounds of §4.1.
fn read_crypto(value: &[u8]) -> Result<Vec<CryptoKind>, DecodeError> {
    let count = u16::try_from(value.len()).unwrap_or(u16::MAX);
    in_range("number of crypto kinds", count, 1, u16::from(MAX_CRYPTO_KINDS))?;
    Ok(value.iter().copied().map(CryptoKind).collect())
}

/// MEAS_PARAMS_OK: what the target grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasParamsOk {
    /// The measurement it answers to.
    pub measurement: MeasurementId,
    /// How long it may be measured, in seconds; not more than was asked for.
    pub duration_secs: u16,
    /// The background ratio it will keep to.
    pub ratio: Ratio,
    /// The cipher of its measurement circuits.
    pub crypto: CryptoKind,
}

impl Payload for MeasParamsOk {
    const COMMAND: u8 = 2;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.measurement.0);
        out.extend_from_slice(&self.duration_secs.to_be_bytes());
        out.extend_from_slice(&[self.ratio.percent(), self.crypto.0]);
        put_extensions(&[], out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let measurement = MeasurementId(reader.array("measurement id")?);
        // PROTOCOL.md §4.2 has the bounds of both.
        let duration_secs = reader.u16("duration")?;
        in_range("duration", duration_secs, *DURATION_SECS.start(), *DURATION_SECS.end())?;
        let percent = reader.u8("background percent")?;
        let ratio = Ratio::from_percent(percent).ok_or(DecodeError::OutOfRange {
            field: "background percent",
            value: percent.into(),
            min: 0,
            max: Ratio::MAX.percent().into(),
        })?;
        let crypto = CryptoKind(reader.u8("crypto kind")?);
        read_extensions(reader, |_, _| Ok(()))?;
        Ok(Self { measurement, duration_secs, ratio, crypto })
    }
}

/// Checks a bound of the specification.
fn in_range(field: &'static str, value: u16, min: u16, max: u16) -> Result<(), DecodeError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let (value, min, max) = (value.into(), min.into(), max.into());
    Err(DecodeError::OutOfRange { field, value, min, max })
}
