//! What one measurement came to: the one value that the screen, the JSON, the results file, the
//! bandwidth file and the report are all made from.

mod parts;

use std::path::PathBuf;

use ff_proto::aggregate::{Draw, SecondSample, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::ids::CryptoKind;
use ff_proto::units::{BytesPerSec, Ratio};

pub use self::parts::{
    CellCounts, ClientTraffic, CpuSeconds, Dispute, DrawRow, Failure, Method, PathRow, RoundTrip,
    SecondRow, SocketCounts, TargetInfo,
};

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
