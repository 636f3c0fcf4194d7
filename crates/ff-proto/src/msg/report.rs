//! Messages sent while a measurement runs and when it ends.

use core::fmt;

use super::fields::{Field, count, fields};
use super::{Extension, MAX_MEASURERS, Payload, TeamCells};
use crate::codec::{DecodeError, Reader};
use crate::ids::MeasurementId;

/// Extension of MEAS_BG: `cells [8]` for each measurer of the request, in its order.
const EXT_ECHOED: u8 = 1;

/// MEAS_BG: the target's background traffic of one second.
///
/// prop316 has 32-bit numbers, which overflow at 34 Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasBg {
    /// The number of the second, from 0.
    pub second: u16,
    /// Background bytes sent in this second.
    pub sent: u64,
    /// Background bytes received in this second.
    pub received: u64,
    /// The cells echoed in this second, by measurer; `None` from older targets.
    pub echoed: Option<TeamCells>,
}

fields!(
    MeasBg { second: "second", sent: "sent bytes", received: "received bytes" } + { echoed: None }
);

impl Payload for MeasBg {
    const COMMAND: u8 = 5;

    fn extensions(&self) -> Result<Vec<Extension>, DecodeError> {
        let lists = self.echoed.iter().map(|echoed| {
            let cells = echoed.as_slice().iter().flat_map(|cells| cells.to_be_bytes());
            (EXT_ECHOED, cells.collect())
        });
        Ok(lists.collect())
    }

    fn extend(&mut self, kind: u8, value: &[u8]) -> Result<(), DecodeError> {
        match kind {
            EXT_ECHOED => read_echoed(value, &mut self.echoed),
            _ => Ok(()),
        }
    }
}

/// Reads the extension with the echoed cells; a report has at most one (PROTOCOL.md §4.5).
fn read_echoed(value: &[u8], echoed: &mut Option<TeamCells>) -> Result<(), DecodeError> {
    if echoed.is_some() {
        let field = "number of lists of echoed cells";
        return Err(DecodeError::OutOfRange { field, value: 2, min: 0, max: 1 });
    }
    let (cells, rest) = value.as_chunks();
    if !rest.is_empty() {
        return Err(DecodeError::Truncated { field: "echoed cells" });
    }
    let cells: Vec<_> = cells.iter().map(|cells| u64::from_be_bytes(*cells)).collect();
    let (field, max) = ("measurers with echoed cells", u64::from(MAX_MEASURERS));
    let out_of_range = DecodeError::OutOfRange { field, value: cells.len() as u64, min: 1, max };
    *echoed = Some(TeamCells::from_slice(&cells).ok_or(out_of_range)?);
    Ok(())
}

/// MEAS_STATS: the target's load in one second. Optional; may only lower a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasStats {
    /// The number of the second, from 0.
    pub second: u16,
    /// CPU time used in this second, in thousandths of one core.
    pub cpu_permille: u16,
    /// Whether the relay considers itself overloaded.
    pub overloaded: bool,
}

fields!(MeasStats { second: "second", cpu_permille: "CPU permille", overloaded: "overload flag" });

impl Payload for MeasStats {
    const COMMAND: u8 = 6;
}

/// MEAS_END: the measurement ended as planned. It is a message because tor drops an unknown
/// DESTROY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasEnd {
    /// The measurement that ended.
    pub measurement: MeasurementId,
}

fields!(MeasEnd { measurement: "measurement id" });

impl Payload for MeasEnd {
    const COMMAND: u8 = 7;
}

/// Why a measurement failed. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrCode(pub u16);

/// Declares the codes with their meaning and names.
macro_rules! err_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $text:literal;)+) => {
        impl ErrCode {
            $($(#[doc = $doc])+ pub const $name: Self = Self($value);)+

            /// All codes that have a name.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// A stable name for logs and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => $text,)+
                    _ => "unknown",
                }
            }
        }
    };
}

err_codes! {
    /// The relay does not take part in measurements (`FFMeasurementsAllowed 0`).
    DISABLED = 1, "disabled";
    /// The coordinator is not on the relay's list (`FFAllowedCoordinators`).
    COORDINATOR_NOT_ALLOWED = 2, "coordinator_not_allowed";
    /// The coordinator has used up its measurements of this period.
    TOO_SOON = 3, "too_soon";
    /// Another measurement is going on.
    BUSY = 4, "busy";
    /// The signature is not good on this link.
    BAD_SIGNATURE = 5, "bad_signature";
    /// The message does not decode.
    MALFORMED = 6, "malformed";
    /// The version is not spoken.
    UNKNOWN_VERSION = 7, "unknown_version";
    /// The command is not known.
    UNKNOWN_COMMAND = 8, "unknown_command";
    /// The message does not belong here or now.
    UNEXPECTED_MESSAGE = 9, "unexpected_message";
    /// The measurement is not known, or not the sender's.
    UNKNOWN_MEASUREMENT = 10, "unknown_measurement";
    /// The measurer was not announced.
    UNKNOWN_MEASURER = 11, "unknown_measurer";
    /// The measurer has opened all sockets it was announced with.
    TOO_MANY_SOCKETS = 12, "too_many_sockets";
    /// The key exchange failed.
    KEY_EXCHANGE = 13, "key_exchange";
    /// The circuit id has no high bit, or is in use.
    BAD_CIRCUIT_ID = 14, "bad_circuit_id";
    /// Nobody used the grant in time.
    NOT_STARTED = 15, "not_started";
    /// The coordinator's link closed.
    COORDINATOR_GONE = 16, "coordinator_gone";
    /// The relay's own limit on a measurement's length was reached.
    TIME_LIMIT = 17, "time_limit";
    /// Something inside the relay went wrong; it is back in normal service.
    INTERNAL = 18, "internal";
    /// The sender gave the measurement up.
    ABORTED = 19, "aborted";
    /// None of the crypto kinds that the request lists is spoken.
    NO_COMMON_CRYPTO = 20, "no_common_crypto";
    /// The coordinator's link brought too many messages that had to be refused.
    TOO_MANY_ERRORS = 21, "too_many_errors";
    /// The measurement held clients back and did not use what it took from them.
    TOO_LITTLE_TRAFFIC = 22, "too_little_traffic";
}

impl fmt::Display for ErrCode {
    /// The name, or the number of an unknown code (PROTOCOL.md §4.9).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if Self::ALL.contains(self) {
            f.write_str(self.name())
        } else {
            write!(f, "code {}", self.0)
        }
    }
}

/// The number.
impl Field for ErrCode {
    fn write(&self, name: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.0.write(name, out)
    }

    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Field::read(name, reader).map(Self)
    }
}

/// The longest text in a MEAS_ERR, in bytes.
const MAX_TEXT_LEN: u8 = 200;

/// MEAS_ERR: the measurement failed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasErr {
    /// The reason for programs.
    pub code: ErrCode,
    /// The reason for people: printable ASCII; other bytes are replaced by `?` when it is read.
    pub text: String,
}

impl MeasErr {
    /// An error with the first 200 bytes of a text, in which unprintable bytes become `?`.
    #[must_use]
    pub fn new(code: ErrCode, text: &str) -> Self {
        Self { code, text: printable(text.as_bytes()) }
    }
}

/// Replaces bytes of a hostile text that could control a terminal.
fn printable(bytes: &[u8]) -> String {
    let clean = |&byte: &u8| if (b' '..=b'~').contains(&byte) { char::from(byte) } else { '?' };
    bytes.iter().take(MAX_TEXT_LEN.into()).map(clean).collect()
}

fields!(MeasErr { code: "error code", text: "text" });

impl Payload for MeasErr {
    const COMMAND: u8 = 8;
}

/// Encoded as `length [1] text [length]`, with at most 200 bytes; of a longer text the first 200
/// are read.
impl Field for String {
    fn write(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        out.push(count("text length", self.len(), &(0..=MAX_TEXT_LEN))?);
        out.extend_from_slice(printable(self.as_bytes()).as_bytes());
        Ok(())
    }

    fn read(name: &'static str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = reader.u8("text length")?;
        reader.take(length.into(), name).map(printable)
    }
}
