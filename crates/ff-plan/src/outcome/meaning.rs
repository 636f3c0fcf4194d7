//! Values that follow from an outcome.

use ff_proto::aggregate::{SecondSample, Verdict};
use ff_proto::units::BytesPerSec;

use super::{FAILED, Outcome, SecondRow};

impl Outcome {
    /// The [`Verdict`]'s name, or `failed`.
    #[must_use]
    pub fn verdict_name(&self) -> &'static str {
        self.result.as_ref().map_or(FAILED, |verdict| verdict.name())
    }

    /// The exit status of a program with this outcome, as listed in `--help`.
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

    /// The estimate and the lower bound; at most one of them exists, because they must not be
    /// confused.
    pub fn estimate_or_bound(&self) -> [Option<u64>; 2] {
        let rate = self.estimate.map(BytesPerSec::get);
        if self.result == Ok(Verdict::LowerBound) { [None, rate] } else { [rate, None] }
    }

    /// The difference between the estimate and the limit, in percent of the limit.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates lie far below 2^53")]
    pub fn error_percent(&self) -> Option<f64> {
        let (estimate, limit) = (self.estimate?.get() as f64, self.limit?.get() as f64);
        Some((estimate / limit - 1.0) * 100.0)
    }

    /// The rows of the seconds, with the values computed from each.
    #[must_use]
    pub fn second_rows(&self) -> Vec<SecondRow> {
        (0..).zip(&self.seconds).map(|(second, sample)| self.second_row(second, sample)).collect()
    }

    /// The row of a second.
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
