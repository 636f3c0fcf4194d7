//! The parts of an outcome.

use std::fmt;

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::aggregate::{Draw, PathSeen};
use ff_proto::failure::FailureKind;
use ff_proto::ids::Ed25519Id;
use ff_proto::msg::ErrCode;
use ff_proto::units::BytesPerSec;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// How a relay is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// It echoes cells.
    Echo,
    /// It passes cells on, as it does for everybody: nothing that may be published.
    Transit,
}

impl Method {
    /// Both.
    pub const ALL: &[Self] = &[Self::Echo, Self::Transit];

    /// Its name in JSON and in the store.
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

/// Which relay was measured.
#[derive(Clone, Debug)]
pub struct TargetInfo {
    /// `host:port` of its OR port.
    pub address: String,
    /// Its Ed25519 identity.
    pub ed_identity: [u8; 32],
    /// The SHA-1 fingerprint of its RSA identity, once a link has shown it.
    pub rsa_fingerprint: Option<[u8; 20]>,
    /// Its nickname, where it is known.
    pub nickname: Option<String>,
}

/// Why a measurement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub kind: FailureKind,
    /// The code that the relay gave for it, if it gave one.
    pub relay_code: Option<ErrCode>,
    /// For people.
    pub message: String,
}

impl Failure {
    /// The stable name of its kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Failure", 3)?;
        object.serialize_field("code", self.code())?;
        object.serialize_field("relay_code", &self.relay_code.map(|code| code.to_string()))?;
        object.serialize_field("message", &self.message)?;
        object.end()
    }
}

/// A measurer and the relay, who contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Dispute {
    /// The measurer's index in the team.
    pub measurer: usize,
    /// Its key.
    #[serde(rename = "measurer_ed25519_base64", serialize_with = "serialize_base64")]
    pub measurer_id: Ed25519Id,
    /// Cells that came back to it in all seconds, by its own word.
    pub claimed_cells: u64,
    /// Cells that the relay says that it has echoed to it in these.
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

/// Writes a key as tor's files have it.
fn serialize_base64<S: Serializer>(id: &Ed25519Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&Base64Unpadded::encode_string(&id.0))
}

/// A draw as it stands in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// The clients' traffic around a measurement, as the clients see it: bytes a second.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ClientTraffic {
    /// What they send; the relay sends as much back.
    pub offered_bytes_per_sec: u64,
    /// What came back in the seconds before the measurement.
    pub before_bytes: Vec<u64>,
    /// What came back in each of its seconds.
    pub during_bytes: Vec<u64>,
    /// What came back in the seconds after it.
    pub after_bytes: Vec<u64>,
}

/// Cells of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CellCounts {
    /// Sent by the measurers.
    pub sent: u64,
    /// Returned by the target.
    pub echoed: u64,
    /// Of these, checked.
    pub checked: u64,
    /// Of these, wrong.
    pub bad: u64,
}

/// Round-trip times in milliseconds; `None` when no cell was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CpuSeconds {
    /// Of all measurer threads.
    pub measurers: f64,
    /// Of the target, when this program runs it.
    pub target: Option<f64>,
}

/// Links of the team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SocketCounts {
    /// Wanted.
    pub asked: u64,
    /// Opened.
    pub opened: u64,
}

/// The path between one measurer and the relay, as TCP saw it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct PathRow {
    /// The measurer's key.
    #[serde(rename = "measurer_ed25519_base64", serialize_with = "serialize_base64")]
    pub measurer_id: Ed25519Id,
    /// The shortest round trip, in milliseconds.
    pub round_trip_ms: f64,
    /// Part of the segments that were lost on the way to the relay.
    pub loss_out: f64,
    /// Part of the segments that were lost on the way back.
    pub loss_back: f64,
    /// How many times what it carried it could have carried, by its losses; `None` where these set no bound.
    pub headroom: Option<f64>,
    /// Whether it was cut, or its round trip too long for measurers' windows, which no more links mend.
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

/// A path with this headroom is no limit, and its headroom is not shown.
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

/// A second as it stands in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SecondRow {
    /// From 0.
    pub second: u16,
    /// x.
    pub measurement_bytes: u64,
    /// y.
    pub background_reported_bytes: u64,
    /// ȳ.
    pub background_counted_bytes: u64,
    /// z = x + ȳ.
    pub total_bytes: u64,
}
