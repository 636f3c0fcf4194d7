//! The parts of an outcome.

use std::fmt;

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::aggregate::{Draw, PathSeen, SecondSample};
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use ff_proto::msg::ErrCode;
use ff_proto::units::BytesPerSec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The method of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The relay echoes cells.
    Echo,
    /// The relay forwards cells like any others: the result may not be published.
    Transit,
}

impl Method {
    /// All methods.
    pub const ALL: &[Self] = &[Self::Echo, Self::Transit];

    /// The name in JSON and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Transit => "transit",
        }
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The measured relay.
#[derive(Clone, Debug)]
pub struct TargetInfo {
    /// `host:port` of its ORPort.
    pub address: String,
    /// Its Ed25519 identity.
    pub ed_identity: [u8; 32],
    /// The SHA-1 fingerprint of its RSA identity, once a link has shown it.
    pub rsa_fingerprint: Option<[u8; 20]>,
    /// Its nickname, where it is known.
    pub nickname: Option<String>,
}

/// Why a measurement failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "FailureRow")]
pub struct Failure {
    /// The kind, for programs.
    pub kind: FailureKind,
    /// The relay's error code, if it gave one.
    pub relay_code: Option<ErrCode>,
    /// The text, for people.
    pub message: String,
}

impl Failure {
    /// The failure of a measurement in which measurers counted more than the relay.
    pub(super) fn of_disputes(disputes: &[Dispute]) -> Self {
        let disputes: Vec<_> = disputes.iter().map(Dispute::to_string).collect();
        let message = format!("{}: one of them is wrong", disputes.join("; "));
        Self { kind: FailureKind::CountsDisagree, relay_code: None, message }
    }

    /// The stable name of the kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The name of the relay's error code.
    #[must_use]
    pub fn relay_code_name(&self) -> Option<String> {
        self.relay_code.map(|code| code.to_string())
    }
}

/// A failure in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailureRow {
    /// The kind's name, for programs.
    pub code: String,
    /// The name of the relay's error code.
    pub relay_code: Option<String>,
    /// The text, for people.
    pub message: String,
}

impl From<&Failure> for FailureRow {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code().to_owned(),
            relay_code: failure.relay_code_name(),
            message: failure.message.clone(),
        }
    }
}

impl From<Failure> for FailureRow {
    fn from(failure: Failure) -> Self {
        (&failure).into()
    }
}

impl TryFrom<&FailureRow> for Failure {
    /// The problem with the row.
    type Error = String;

    fn try_from(row: &FailureRow) -> Result<Self, String> {
        let kind = FailureKind::ALL.iter().find(|kind| kind.code() == row.code);
        let kind = *kind.ok_or_else(|| {
            format!("unknown failure {:?}: a newer program may have written this", row.code)
        })?;
        let code = |text: &String| {
            let named = ErrCode::ALL.iter().find(|code| code.name() == text).copied();
            let number = || text.strip_prefix("code ")?.parse().ok().map(ErrCode);
            named.or_else(number).ok_or_else(|| {
                format!("unknown code {text:?} of a relay: neither a name nor \"code NUMBER\"")
            })
        };
        let relay_code = row.relay_code.as_ref().map(code).transpose()?;
        Ok(Self { kind, relay_code, message: row.message.clone() })
    }
}

/// A contradiction between a measurer's count and the relay's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispute {
    /// The measurer's index in the team.
    pub measurer: usize,
    /// The measurer's key.
    #[serde(rename = "measurer_ed25519_base64", with = "base64")]
    pub measurer_id: Ed25519Id,
    /// Cells that it received in all seconds, by its report.
    pub claimed_cells: u64,
    /// Cells that the relay reports as echoed to it in these seconds.
    pub reported_cells: u64,
}

impl fmt::Display for Dispute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measurer, measurer_id, claimed_cells, reported_cells } = self;
        write!(
            f,
            "measurer {measurer} (key {measurer_id}) says that {claimed_cells} cells came back to \
             it, and the relay that it has echoed {reported_cells} to it"
        )
    }
}

/// Keys in the form of tor's files.
mod base64 {
    use serde::de::Error;

    use super::*;

    /// Writes a key.
    pub(super) fn serialize<S: Serializer>(id: &Ed25519Id, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&Base64Unpadded::encode_string(&id.0))
    }

    /// Reads a key.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ed25519Id, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = Base64Unpadded::decode_vec(&text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Ed25519Id).ok_or_else(|| D::Error::custom("it is not a measurer's key"))
    }
}

/// A draw in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawRow {
    /// Whether the attempt counts.
    pub counts: bool,
    /// Its value, if it has one.
    pub bytes_per_sec: Option<u64>,
}

impl From<Draw> for DrawRow {
    fn from(draw: Draw) -> Self {
        Self { counts: draw.counts(), bytes_per_sec: draw.value().map(BytesPerSec::get) }
    }
}

impl From<DrawRow> for Draw {
    fn from(row: DrawRow) -> Self {
        match (row.counts, row.bytes_per_sec) {
            (false, _) => Self::Void,
            (true, None) => Self::Blank,
            (true, Some(bytes)) => Self::Value(BytesPerSec::new(bytes)),
        }
    }
}

/// The clients' traffic around a measurement, counted by the clients, in bytes per second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientTraffic {
    /// The rate that the clients send; the relay sends back as much.
    pub offered_bytes_per_sec: u64,
    /// Bytes that came back in the seconds before the measurement.
    pub before_bytes: Vec<u64>,
    /// Bytes that came back in each second of the measurement.
    pub during_bytes: Vec<u64>,
    /// Bytes that came back in the seconds after the measurement.
    pub after_bytes: Vec<u64>,
}

/// Cells of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellCounts {
    /// Sent by the measurers.
    pub sent: u64,
    /// Returned by the target.
    pub echoed: u64,
    /// Of these, checked ones.
    pub checked: u64,
    /// Of these, wrong ones.
    pub bad: u64,
}

/// Round-trip times in milliseconds; `None` when no cell was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Greatest.
    pub max: Option<f64>,
}

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// All measurer threads; a value that is not finite is written as null.
    #[serde(deserialize_with = "number_or_nan")]
    pub measurers: f64,
    /// The target, if this program runs it.
    pub target: Option<f64>,
}

/// Reads a number; null is read as NaN.
fn number_or_nan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Links of the team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketCounts {
    /// Wanted links.
    pub asked: u64,
    /// Opened links.
    pub opened: u64,
}

/// The path between one measurer and the relay, measured by TCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRow {
    /// The measurer's key.
    #[serde(rename = "measurer_ed25519_base64", with = "base64")]
    pub measurer_id: Ed25519Id,
    /// The shortest round trip, in milliseconds.
    pub round_trip_ms: f64,
    /// Part of the segments that were lost on the way to the relay.
    pub loss_out: f64,
    /// Part of the segments that were lost on the way back.
    pub loss_back: f64,
    /// The rate that TCP could carry with these losses, divided by the carried rate; `None` if
    /// losses set no bound.
    pub headroom: Option<f64>,
    /// Whether the path broke, or its round trip is too long for measurers' windows; more links
    /// would not help.
    pub is_too_far: bool,
}

impl PathRow {
    /// The row of a measurer.
    #[must_use]
    pub fn new(measurer_id: Ed25519Id, path: &PathSeen, is_too_far: bool) -> Self {
        Self {
            measurer_id,
            round_trip_ms: path.round_trip.as_secs_f64() * 1e3,
            loss_out: path.loss_out(),
            loss_back: path.loss_back(),
            headroom: Some(path.headroom()).filter(|headroom| headroom.is_finite()),
            is_too_far,
        }
    }
}

/// From this headroom on the path is not a limit, and the headroom is not shown.
const AMPLE_HEADROOM: f64 = 100.0;

impl fmt::Display for PathRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round_trip_ms, loss_out, loss_back, headroom, .. } = self;
        let (out, back) = (loss_out * 100.0, loss_back * 100.0);
        write!(f, "{round_trip_ms:.1} ms, {out:.3} % lost there, {back:.3} % back")?;
        if let Some(times) = headroom.filter(|&times| times < AMPLE_HEADROOM) {
            write!(f, "; could carry {times:.1} times as much")?;
        }
        if self.is_too_far { f.write_str("; cut, or too long") } else { Ok(()) }
    }
}

/// A second in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondRow {
    /// The number of the second, from 0.
    pub second: u16,
    /// x: echoed bytes.
    pub measurement_bytes: u64,
    /// y: reported background bytes.
    #[serde(skip_deserializing)]
    pub background_reported_bytes: u64,
    /// ȳ: counted background bytes.
    #[serde(skip_deserializing)]
    pub background_counted_bytes: u64,
    /// z = x + ȳ.
    #[serde(skip_deserializing)]
    pub total_bytes: u64,
}

/// A second with the relay's report on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRow {
    /// The second.
    #[serde(flatten)]
    pub row: SecondRow,
    /// The relay's report of sent bytes.
    pub background_sent_bytes: u64,
    /// The relay's report of received bytes.
    pub background_received_bytes: u64,
}

impl SampleRow {
    /// The row of a second.
    #[must_use]
    pub fn new(row: SecondRow, sample: &SecondSample) -> Self {
        Self {
            row,
            background_sent_bytes: sample.background_sent_bytes,
            background_received_bytes: sample.background_received_bytes,
        }
    }
}

impl From<SampleRow> for SecondSample {
    fn from(row: SampleRow) -> Self {
        Self {
            measurement_bytes: row.row.measurement_bytes,
            background_sent_bytes: row.background_sent_bytes,
            background_received_bytes: row.background_received_bytes,
        }
    }
}
