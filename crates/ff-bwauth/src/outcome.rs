//! What one measurement came to: the one value that the screen, the JSON, the results file, the
//! bandwidth file and the report are all made from.

use std::fmt;
use std::path::PathBuf;

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::aggregate::{Draw, PathSeen, SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::msg::ErrCode;
use ff_proto::units::{BytesPerSec, Ratio};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// What stands in place of a verdict where there is none.
pub(crate) const FAILED: &str = "failed";

/// The outcome of one measurement.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The relay.
    pub target: TargetInfo,
    /// When cells began to flow, or where none did when the relay was asked, in seconds since 1970.
    pub started_unix_secs: u64,
    /// When the first second that counts began, in milliseconds since 1970, if it is known.
    pub counted_unix_millis: Option<u64>,
    /// Seconds that should count.
    pub asked_secs: u16,
    /// Seconds that count by the relay's grant; `None` without one.
    pub granted_secs: Option<u16>,
    /// Seconds that it was asked for beyond these, in which measurers find its rate.
    pub settle_secs: u16,
    /// Echo bytes in each second before the first that counts.
    pub settling_bytes: Vec<u64>,
    /// The background ratio counted with.
    pub ratio: Ratio,
    /// The cipher of the measurement circuits; `None` without a grant.
    pub crypto: Option<CryptoKind>,
    /// Σa over the team; `None` when no measurer was limited in rate.
    pub allocated: Option<BytesPerSec>,
    /// How it was measured.
    pub method: Method,
    /// The estimate: the median second, bounded by the mean; `None` when it failed.
    pub estimate: Option<BytesPerSec>,
    /// What this attempt is worth to whoever decides when the relay is measured again.
    pub draw: Draw,
    /// The relay's known limit, where it is known.
    pub limit: Option<BytesPerSec>,
    /// What the estimate is worth, or why there is none.
    pub result: Result<Verdict, Failure>,
    /// The samples of the seconds that count; what measurers counted, as far as the relay does not dispute it.
    pub seconds: Vec<SecondSample>,
    /// The measurers that say that they got more than the relay says that it has echoed to them.
    pub disputes: Vec<Dispute>,
    /// Cells over all links.
    pub cells: CellCounts,
    /// Round-trip times of the cells that were timed.
    pub round_trip: RoundTrip,
    /// CPU time spent.
    pub cpu: CpuSeconds,
    /// Links.
    pub sockets: SocketCounts,
    /// The paths between measurers and the relay, for measurers that know them.
    pub paths: Vec<PathRow>,
}

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

impl Outcome {
    /// A [`Verdict`]'s name, or `failed`.
    #[must_use]
    pub fn verdict_name(&self) -> &'static str {
        self.result.as_ref().map_or(FAILED, |verdict| verdict.name())
    }

    /// The exit status of a program that came to it, as `--help` lists it.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match &self.result {
            Ok(Verdict::Conclusive | Verdict::LowerBound) => 0,
            Ok(Verdict::NeedsMoreCapacity) => 10,
            Ok(Verdict::MeasurerLimited) => 11,
            Ok(Verdict::ShortGrant) => 13,
            Ok(Verdict::PathLimited) => 14,
            Ok(Verdict::Unsettled) => 15,
            Err(failure) => failure.kind.exit_status(),
        }
    }

    /// The estimate, if it may be published as the relay's capacity.
    #[must_use]
    pub fn publishable(&self) -> Option<BytesPerSec> {
        self.estimate.filter(|_| self.result == Ok(Verdict::Conclusive))
    }

    /// The estimate, and the lower bound; one of them at most is there, because neither may be taken for
    /// the other.
    pub(crate) fn estimate_or_bound(&self) -> [Option<u64>; 2] {
        let rate = self.estimate.map(BytesPerSec::get);
        if self.result == Ok(Verdict::LowerBound) { [None, rate] } else { [rate, None] }
    }

    /// How far the estimate is from the limit, in percent of the limit.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    pub fn error_percent(&self) -> Option<f64> {
        let (estimate, limit) = (self.estimate?.get() as f64, self.limit?.get() as f64);
        Some((estimate / limit - 1.0) * 100.0)
    }

    /// The JSON object of `--json`.
    #[must_use]
    pub fn to_json(&self, files: &[PathBuf]) -> serde_json::Value {
        let [estimate, lower_bound] = self.estimate_or_bound();
        serde_json::json!({
            "estimate_bytes_per_sec": estimate,
            "lower_bound_bytes_per_sec": lower_bound,
            "limit_bytes_per_sec": self.limit.map(BytesPerSec::get),
            "method": self.method,
            "crypto": self.crypto.map(CryptoKind::name),
            "verdict": self.verdict_name(),
            "failure": self.result.as_ref().err(),
            "draw": DrawRow::from(self.draw),
            "asked_secs": self.asked_secs,
            "granted_secs": self.granted_secs,
            "settle_secs": self.settle_secs,
            "counted_unix_millis": self.counted_unix_millis,
            "settling_bytes": self.settling_bytes,
            "seconds": self.second_rows(),
            "disputes": self.disputes,
            "cells": self.cells,
            "rtt_ms": self.round_trip,
            "cpu_seconds": self.cpu,
            "sockets": self.sockets,
            "paths": self.paths,
            "files": files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        })
    }

    /// The per-second samples with what was made of them.
    #[must_use]
    pub fn second_rows(&self) -> Vec<SecondRow> {
        (0..).zip(&self.seconds).map(|(second, sample)| self.second_row(second, sample)).collect()
    }

    /// One row of them.
    fn second_row(&self, second: u16, sample: &SecondSample) -> SecondRow {
        SecondRow {
            second,
            measurement_bytes: sample.measurement_bytes,
            background_reported_bytes: sample.background_reported_bytes(),
            background_counted_bytes: sample.background_counted_bytes(self.ratio),
            total_bytes: sample.total_bytes(self.ratio),
        }
    }
}

/// The JSON object of a measurement that did not come about.
#[must_use]
pub fn failed_json(message: &str) -> serde_json::Value {
    let (kind, relay_code, message) = (FailureKind::SetupFailed, None, message.to_owned());
    serde_json::json!({
        "estimate_bytes_per_sec": null,
        "lower_bound_bytes_per_sec": null,
        "limit_bytes_per_sec": null,
        "method": null,
        "crypto": null,
        "verdict": "failed",
        "failure": Failure { kind, relay_code, message },
        "draw": DrawRow::from(Draw::of_failure(kind, None, Ratio::MAX)),
        "asked_secs": null,
        "granted_secs": null,
        "settle_secs": null,
        "counted_unix_millis": null,
        "settling_bytes": [],
        "seconds": [],
        "disputes": [],
        "cells": CellCounts::default(),
        "rtt_ms": RoundTrip::default(),
        "cpu_seconds": CpuSeconds::default(),
        "sockets": SocketCounts::default(),
        "paths": [],
        "files": [],
    })
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
