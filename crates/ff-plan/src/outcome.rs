//! The outcome of one measurement, from which the screen, the JSON, the results file, the bandwidth
//! file and the report are made; and its row in files.
//!
//! ```text
//!   Asked, MeasuredSeconds ─▶ Outcome ◀─▶ AttemptRow ◀─▶ results files; ─▶ JSON
//!                                └◀─▶ store/columns.rs ◀─▶ SQL; ─▶ exports
//! ```

mod json;
mod meaning;
mod parts;

use base64ct::{Base64Unpadded, Encoding};
use ff_base::utc::Utc;
use ff_proto::aggregate::{Draw, Estimator, Partial, SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::{CryptoKind, Ed25519Id};
use ff_proto::msg::MeasParamsOk;
use ff_proto::units::{BytesPerSec, Ratio};
use serde::{Deserialize, Serialize};

pub use self::json::failed_json;
pub use self::parts::{
    CellCounts, ClientTraffic, CpuSeconds, Dispute, DrawRow, Failure, FailureRow, Method, PathRow,
    RoundTrip, SampleRow, SecondRow, SocketCounts, TargetInfo,
};

/// Used instead of a verdict's name if there is no verdict.
pub const FAILED: &str = "failed";

/// The outcome of one measurement.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The relay.
    pub target: TargetInfo,
    /// When the relay was asked, or when cells began to flow if they did, in seconds since 1970.
    pub started_unix_secs: u64,
    /// When the first second that counts began, in milliseconds since 1970, if it is known.
    pub counted_unix_millis: Option<u64>,
    /// Requested seconds that should count.
    pub asked_secs: u16,
    /// Granted seconds that count; `None` without a grant.
    pub granted_secs: Option<u16>,
    /// Requested seconds in addition to these, in which measurers find the relay's rate.
    pub settle_secs: u16,
    /// Echo bytes in each second before the counted ones.
    pub settling_bytes: Vec<u64>,
    /// The background ratio used.
    pub ratio: Ratio,
    /// The estimator used.
    pub estimator: Estimator,
    /// The cipher of the measurement circuits; `None` without a grant.
    pub crypto: Option<CryptoKind>,
    /// Σa over the team; `None` if no measurer's rate was limited.
    pub allocated: Option<BytesPerSec>,
    /// The method of the measurement.
    pub method: Method,
    /// The estimate; `None` when it failed.
    pub estimate: Option<BytesPerSec>,
    /// How this attempt counts when the relay is measured again.
    pub draw: Draw,
    /// The relay's known limit, if known.
    pub limit: Option<BytesPerSec>,
    /// The estimate's verdict, or the failure.
    pub result: Result<Verdict, Failure>,
    /// The samples of the counted seconds, with the measurers' counts reduced to what the relay
    /// does not dispute.
    pub seconds: Vec<SecondSample>,
    /// The measurers that report more received cells than the relay reports as echoed to them.
    pub disputes: Vec<Dispute>,
    /// The measurer on whose word alone it failed by the relay or the path to it, if so.
    pub accuser: Option<Ed25519Id>,
    /// Cells over all links.
    pub cells: CellCounts,
    /// Round-trip times of the timed cells.
    pub round_trip: RoundTrip,
    /// CPU time spent.
    pub cpu: CpuSeconds,
    /// Links.
    pub sockets: SocketCounts,
    /// The paths between measurers and the relay, as far as measurers know them.
    pub paths: Vec<PathRow>,
}

/// The data of a measurement that are known before the relay answers.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The relay.
    pub target: TargetInfo,
    /// When the relay is asked, or when cells began to flow, in seconds since 1970.
    pub started_unix_secs: u64,
    /// The method of the measurement.
    pub method: Method,
    /// Requested seconds that should count.
    pub asked_secs: u16,
    /// The background ratio.
    pub ratio: Ratio,
    /// The estimator.
    pub estimator: Estimator,
    /// Σa over the team; `None` if no measurer's rate was limited.
    pub allocated: Option<BytesPerSec>,
}

impl Asked {
    /// Before anything is requested from a relay.
    pub fn nothing(target: TargetInfo) -> Self {
        Self {
            target,
            started_unix_secs: 0,
            method: Method::Echo,
            asked_secs: 0,
            ratio: Ratio::ZERO,
            estimator: Estimator::default(),
            allocated: None,
        }
    }
}

/// The data of a measurement up to its end.
#[derive(Debug, Default)]
pub struct MeasuredSeconds {
    /// The relay's grant.
    pub grant: Option<MeasParamsOk>,
    /// The granted seconds in which measurers find the relay's rate.
    pub settle_secs: u16,
    /// Whether measurers have begun to send.
    pub has_started: bool,
    /// The counted seconds.
    pub seconds: Vec<SecondSample>,
    /// The measurers that report more received cells than the relay reports as echoed to them.
    pub disputes: Vec<Dispute>,
}

impl Outcome {
    /// A measurement that failed before cells began to flow.
    #[must_use]
    pub fn failed(asked: Asked, failure: Failure) -> Self {
        Self::of(asked, MeasuredSeconds::default(), Err(failure))
    }

    /// The outcome of a measurement with this result. The draw follows from the result.
    #[must_use]
    pub fn of(
        asked: Asked,
        measured: MeasuredSeconds,
        found: Result<(BytesPerSec, Verdict), Failure>,
    ) -> Self {
        let settle_secs = measured.settle_secs;
        let grant = measured.grant.as_ref();
        let granted_secs = grant.map(|grant| grant.duration_secs.saturating_sub(settle_secs));
        let crypto = grant.map(|grant| grant.crypto);
        let draw = draw(&asked, &measured, granted_secs, &found);
        let MeasuredSeconds { seconds, disputes, .. } = measured;
        let found = unless_disputed(found, &disputes);
        Self {
            target: asked.target,
            started_unix_secs: asked.started_unix_secs,
            counted_unix_millis: None,
            asked_secs: asked.asked_secs,
            granted_secs,
            settle_secs,
            settling_bytes: Vec::new(),
            ratio: asked.ratio,
            estimator: asked.estimator,
            crypto,
            allocated: asked.allocated,
            method: asked.method,
            estimate: found.as_ref().ok().map(|(estimate, _)| *estimate),
            draw,
            limit: None,
            result: found.map(|(_, verdict)| verdict),
            seconds,
            disputes,
            accuser: None,
            cells: CellCounts::default(),
            round_trip: RoundTrip::default(),
            cpu: CpuSeconds::default(),
            sockets: SocketCounts::default(),
            paths: Vec::new(),
        }
    }
}

/// How a measurement with this result counts as a draw. In a dispute the measurers' counts are
/// used, because a relay must not get another attempt by reporting fewer echoes.
fn draw(
    asked: &Asked,
    measured: &MeasuredSeconds,
    granted_secs: Option<u16>,
    found: &Result<(BytesPerSec, Verdict), Failure>,
) -> Draw {
    match found {
        // The relay was not asked.
        _ if asked.method == Method::Transit => Draw::Void,
        // Nor by losing cells and disputing the counts at the same time.
        Ok((estimate, Verdict::PathLimited)) if !measured.disputes.is_empty() => {
            Draw::Value(*estimate)
        }
        Ok((estimate, verdict)) => verdict.draw(*estimate),
        Err(failure) => {
            let granted_secs = granted_secs.filter(|_| measured.has_started);
            let Asked { estimator, ratio, .. } = *asked;
            let seconds = &measured.seconds;
            let partial = |granted_secs| Partial { seconds, granted_secs, estimator, ratio };
            Draw::of_failure(failure.kind, granted_secs.map(partial))
        }
    }
}

/// The result, or else the dispute. A violation of the protocol is reported before a dispute, and a
/// missing echo after it, because it may be the reason for the dispute.
fn unless_disputed<T>(result: Result<T, Failure>, disputes: &[Dispute]) -> Result<T, Failure> {
    let is_disputable =
        result.as_ref().err().is_none_or(|failure| failure.kind == FailureKind::NoEcho);
    match disputes {
        [_, ..] if is_disputable => Err(Failure::of_disputes(disputes)),
        _ => result,
    }
}

/// An attempt in files and JSON. Keys contain their units and are never renamed; new keys may be
/// added, so readers must ignore unknown ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttemptRow {
    /// The measurement's parameters.
    #[serde(flatten)]
    pub measurement: MeasurementRow,
    /// The counted seconds.
    pub seconds: Vec<SampleRow>,
    /// The result.
    #[serde(flatten)]
    pub result: ResultRow,
}

/// The parameters of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasurementRow {
    /// `host:port` of the relay.
    pub address: String,
    /// Its nickname.
    pub nickname: Option<String>,
    /// Its Ed25519 identity in unpadded base64, as in tor's files.
    pub ed25519_base64: String,
    /// Its RSA fingerprint in upper-case hexadecimal.
    pub fingerprint_hex: Option<String>,
    /// When it began, in seconds since 1970.
    pub started_unix_secs: u64,
    /// The same time in ISO 8601.
    #[serde(skip_deserializing)]
    pub started_utc: Option<String>,
    /// Seconds measured.
    pub duration_secs: u64,
    /// The terms that were requested and granted.
    #[serde(flatten)]
    pub terms: TermsRow,
    /// The background ratio r, in percent.
    pub ratio_percent: u8,
    /// The method of the measurement.
    pub method: Method,
    /// The cipher of the measurement circuits.
    pub crypto: Option<String>,
    /// Σa.
    pub allocated_bytes_per_sec: Option<BytesPerSec>,
    /// The relay's known limit.
    pub limit_bytes_per_sec: Option<BytesPerSec>,
    /// Echo bytes in each second before the counted ones.
    #[serde(default)]
    pub settling_bytes: Vec<u64>,
}

/// The terms of a measurement: the request, the grant, and the estimator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TermsRow {
    /// Requested seconds that should count.
    pub asked_secs: u16,
    /// Granted seconds that count.
    pub granted_secs: Option<u16>,
    /// Requested seconds in addition to these, in which the relay's rate was searched for.
    #[serde(default)]
    pub settle_secs: u16,
    /// When the first counted second began, in milliseconds since 1970.
    #[serde(default)]
    pub counted_unix_millis: Option<u64>,
    /// The estimator, if not the default.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub estimator: Estimator,
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultRow {
    /// The verdict's name, or `failed`.
    pub verdict: String,
    /// Why it failed.
    pub failure: Option<FailureRow>,
    /// How the attempt counts as a draw.
    pub draw: DrawRow,
    /// The measurers whose counts the relay disputes.
    #[serde(default)]
    pub disputes: Vec<Dispute>,
    /// The key of the measurer on whose word alone it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuser_ed25519_base64: Option<String>,
    /// The estimate (PROTOCOL.md §9).
    pub estimate_bytes_per_sec: Option<u64>,
    /// The rate of cells in transit.
    pub lower_bound_bytes_per_sec: Option<u64>,
    /// The difference to the known limit, in percent of it.
    #[serde(skip_deserializing)]
    pub error_percent: Option<f64>,
    /// Whether it may be in a bandwidth file.
    #[serde(skip_deserializing)]
    pub publishable: bool,
    /// Cells over all links.
    pub cells: CellCounts,
    /// Round-trip times of the timed cells.
    pub rtt_ms: RoundTrip,
    /// CPU time.
    pub cpu_seconds: CpuSeconds,
    /// Links.
    pub sockets: SocketCounts,
    /// The paths between measurers and the relay.
    #[serde(default)]
    pub paths: Vec<PathRow>,
}

/// Whether files can leave out the estimator.
fn is_usual(estimator: &Estimator) -> bool {
    *estimator == Estimator::default()
}

impl From<&Outcome> for AttemptRow {
    fn from(outcome: &Outcome) -> Self {
        let rows = outcome.second_rows().into_iter().zip(&outcome.seconds);
        Self {
            measurement: outcome.into(),
            seconds: rows.map(|(row, sample)| SampleRow::new(row, sample)).collect(),
            result: outcome.into(),
        }
    }
}

impl From<&Outcome> for MeasurementRow {
    fn from(outcome: &Outcome) -> Self {
        let (target, started) = (&outcome.target, outcome.started_unix_secs);
        Self {
            address: target.address.clone(),
            nickname: target.nickname.clone(),
            ed25519_base64: Base64Unpadded::encode_string(&target.ed_identity),
            fingerprint_hex: target.rsa_fingerprint.map(hex::encode_upper),
            started_unix_secs: started,
            started_utc: Utc::from_unix_secs(started).ok().map(|utc| utc.to_string()),
            duration_secs: outcome.seconds.len() as u64,
            terms: outcome.into(),
            ratio_percent: outcome.ratio.percent(),
            method: outcome.method,
            crypto: outcome.crypto.map(|crypto| crypto.name().to_owned()),
            allocated_bytes_per_sec: outcome.allocated,
            limit_bytes_per_sec: outcome.limit,
            settling_bytes: outcome.settling_bytes.clone(),
        }
    }
}

impl From<&Outcome> for TermsRow {
    fn from(outcome: &Outcome) -> Self {
        Self {
            asked_secs: outcome.asked_secs,
            granted_secs: outcome.granted_secs,
            settle_secs: outcome.settle_secs,
            counted_unix_millis: outcome.counted_unix_millis,
            estimator: outcome.estimator,
        }
    }
}

impl From<&Outcome> for ResultRow {
    fn from(outcome: &Outcome) -> Self {
        let [estimate_bytes_per_sec, lower_bound_bytes_per_sec] = outcome.estimate_or_bound();
        Self {
            verdict: outcome.verdict_name().to_owned(),
            failure: outcome.result.as_ref().err().map(FailureRow::from),
            draw: outcome.draw.into(),
            disputes: outcome.disputes.clone(),
            accuser_ed25519_base64: outcome.accuser.map(|id| Base64Unpadded::encode_string(&id.0)),
            estimate_bytes_per_sec,
            lower_bound_bytes_per_sec,
            error_percent: outcome.error_percent(),
            publishable: outcome.publishable().is_some(),
            cells: outcome.cells,
            rtt_ms: outcome.round_trip,
            cpu_seconds: outcome.cpu,
            sockets: outcome.sockets,
            paths: outcome.paths.clone(),
        }
    }
}

impl TryFrom<AttemptRow> for Outcome {
    /// The problem with the row.
    type Error = String;

    fn try_from(row: AttemptRow) -> Result<Self, String> {
        let AttemptRow { measurement, seconds, result } = row;
        let estimate = result.estimate_bytes_per_sec.or(result.lower_bound_bytes_per_sec);
        Ok(Self {
            target: measurement.target()?,
            started_unix_secs: measurement.started_unix_secs,
            counted_unix_millis: measurement.terms.counted_unix_millis,
            asked_secs: measurement.terms.asked_secs,
            granted_secs: measurement.terms.granted_secs,
            settle_secs: measurement.terms.settle_secs,
            ratio: measurement.ratio()?,
            estimator: measurement.terms.estimator,
            crypto: measurement.crypto()?,
            allocated: measurement.allocated_bytes_per_sec,
            method: measurement.method,
            estimate: estimate.map(BytesPerSec::new),
            draw: result.draw.into(),
            limit: measurement.limit_bytes_per_sec,
            result: result.result()?,
            accuser: result.accuser()?,
            settling_bytes: measurement.settling_bytes,
            seconds: seconds.into_iter().map(SecondSample::from).collect(),
            disputes: result.disputes,
            cells: result.cells,
            round_trip: result.rtt_ms,
            cpu: result.cpu_seconds,
            sockets: result.sockets,
            paths: result.paths,
        })
    }
}

impl MeasurementRow {
    /// The relay.
    pub(crate) fn target(&self) -> Result<TargetInfo, String> {
        let ed_identity = Base64Unpadded::decode_vec(&self.ed25519_base64);
        let ed_identity = ed_identity.ok().and_then(|bytes| bytes.try_into().ok());
        let fingerprint = |text: &String| {
            let bytes = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
            bytes.ok_or("fingerprint_hex is not a fingerprint")
        };
        Ok(TargetInfo {
            address: self.address.clone(),
            ed_identity: ed_identity.ok_or("ed25519_base64 is no Ed25519 identity")?,
            rsa_fingerprint: self.fingerprint_hex.as_ref().map(fingerprint).transpose()?,
            nickname: self.nickname.clone(),
        })
    }

    /// The background ratio r.
    pub(crate) fn ratio(&self) -> Result<Ratio, String> {
        Ratio::from_percent(self.ratio_percent).ok_or("ratio_percent is above 99".to_owned())
    }

    /// The cipher.
    fn crypto(&self) -> Result<Option<CryptoKind>, String> {
        let Some(name) = &self.crypto else { return Ok(None) };
        let kind = CryptoKind::SUPPORTED.iter().find(|kind| kind.name() == name);
        kind.copied().map(Some).ok_or_else(|| {
            let known = CryptoKind::SUPPORTED.iter().map(|kind| kind.name()).collect::<Vec<_>>();
            format!("unknown cipher {name:?}; this program knows {}", known.join(", "))
        })
    }
}

impl ResultRow {
    /// The measurer on whose word alone it failed.
    fn accuser(&self) -> Result<Option<Ed25519Id>, String> {
        let Some(text) = &self.accuser_ed25519_base64 else { return Ok(None) };
        let bytes = Base64Unpadded::decode_vec(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(|id| Some(Ed25519Id(id))).ok_or("accuser_ed25519_base64 is not a key".to_owned())
    }

    /// The verdict and the failure of the row.
    fn result(&self) -> Result<Result<Verdict, Failure>, String> {
        let verdict = match (self.verdict.as_str(), &self.failure) {
            (FAILED, Some(row)) => return Failure::try_from(row).map(Err),
            (FAILED, None) => return Err("it failed, but no failure stands there".to_owned()),
            (verdict, Some(_)) => {
                return Err(format!("it is {verdict:?}, but a failure stands there"));
            }
            (verdict, None) => verdict,
        };
        let found = Verdict::ALL.iter().find(|known| known.name() == verdict);
        found.map(|verdict| Ok(*verdict)).ok_or_else(|| {
            let known = Verdict::ALL.iter().map(|known| known.name()).collect::<Vec<_>>();
            format!("unknown verdict {verdict:?}; this program knows {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::ids::MeasurementId;

    use super::*;

    /// A request to a relay.
    fn asked(method: Method) -> Asked {
        Asked {
            target: TargetInfo {
                address: "192.0.2.1:9001".to_owned(),
                ed_identity: [1; 32],
                rsa_fingerprint: None,
                nickname: None,
            },
            started_unix_secs: 1_795_167_000,
            method,
            asked_secs: 4,
            ratio: Ratio::ZERO,
            estimator: Estimator::default(),
            allocated: None,
        }
    }

    /// A failure of this kind.
    fn failure(kind: FailureKind) -> Failure {
        Failure { kind, relay_code: None, message: String::new() }
    }

    /// Two seconds with this number of bytes, of four granted ones after one for settling.
    fn measured(has_started: bool, disputes: usize) -> MeasuredSeconds {
        let second = SecondSample { measurement_bytes: 100, ..SecondSample::default() };
        let dispute = Dispute {
            measurer: 0,
            measurer_id: Ed25519Id([1; 32]),
            claimed_cells: 2,
            reported_cells: 1,
        };
        MeasuredSeconds {
            grant: Some(MeasParamsOk {
                measurement: MeasurementId([0; 16]),
                duration_secs: 5,
                ratio: Ratio::ZERO,
                crypto: CryptoKind::AES128_CTR,
            }),
            settle_secs: 1,
            has_started,
            seconds: vec![second; 2],
            disputes: vec![dispute; disputes],
        }
    }

    #[test]
    fn the_draw_of_a_failed_measurement_follows_from_its_failure() {
        for &kind in FailureKind::ALL {
            let of = |method| Outcome::failed(asked(method), failure(kind)).draw;
            assert_eq!(of(Method::Echo), Draw::of_failure(kind, None), "{}", kind.code());
            assert_eq!(of(Method::Transit), Draw::Void, "nobody has asked the relay");
        }
        let of = |has_started| {
            let measured = measured(has_started, 0);
            Outcome::of(asked(Method::Echo), measured, Err(failure(FailureKind::RelayAborted)))
        };
        assert_eq!(of(false).draw, Draw::Blank);
        // 1.05 times the mean, with two missing seconds.
        assert_eq!(of(true).draw, Draw::Value(BytesPerSec::new(50)));
        let (granted, crypto) = (of(true).granted_secs, of(true).crypto);
        assert_eq!((granted, crypto), (Some(4), Some(CryptoKind::AES128_CTR)));
    }

    #[test]
    fn a_dispute_takes_the_result_and_leaves_the_draw() {
        let rate = BytesPerSec::new(100);
        for (verdict, draw) in [
            (Verdict::Conclusive, Draw::Value(rate)),
            (Verdict::NeedsMoreCapacity, Draw::Void),
            (Verdict::PathLimited, Draw::Value(rate)),
        ] {
            let of = |disputes| {
                Outcome::of(asked(Method::Echo), measured(true, disputes), Ok((rate, verdict)))
            };
            let (calm, disputed) = (of(0), of(1));
            assert_eq!((calm.result, calm.estimate), (Ok(verdict), Some(rate)));
            assert_eq!((disputed.draw, disputed.estimate), (draw, None));
            let failure = disputed.result.expect_err("it is disputed");
            assert_eq!(failure.kind, FailureKind::CountsDisagree);
            assert!(failure.message.ends_with("has echoed 1 to it: one of them is wrong"));
        }
        for (kind, said) in [
            (FailureKind::NoEcho, FailureKind::CountsDisagree),
            (FailureKind::WrongContent, FailureKind::WrongContent),
        ] {
            let of = Outcome::of(asked(Method::Echo), measured(true, 1), Err(failure(kind)));
            assert_eq!(of.result.expect_err("it failed").kind, said);
        }
    }
}
