//! Computes an estimate from the seconds of a measurement (PROTOCOL.md §9).

use super::SecondSample;
use crate::params::{EPSILON2_PERCENT, Estimator};
use crate::units::{BytesPerSec, Ratio};

impl Estimator {
    /// The estimate from these seconds; `None` without seconds.
    #[must_use]
    pub fn estimate(self, seconds: &[SecondSample], ratio: Ratio) -> Option<BytesPerSec> {
        Some(self.basis(seconds, ratio)?.estimate())
    }

    /// The numbers from which the estimate is computed; `None` without seconds.
    #[must_use]
    pub fn basis(self, seconds: &[SecondSample], ratio: Ratio) -> Option<Basis> {
        let mut totals: Vec<u64> = seconds.iter().map(|second| second.total_bytes(ratio)).collect();
        totals.sort_unstable();
        let central = match self {
            Self::BoundedMedian => median(&totals)?,
        };
        let [median, most_by_mean] = [central, most_by_mean(&totals)?].map(BytesPerSec::new);
        Some(Basis { median, most_by_mean })
    }
}

/// The estimate of [`Estimator::default`]; `None` without seconds.
#[must_use]
pub fn estimate(seconds: &[SecondSample], ratio: Ratio) -> Option<BytesPerSec> {
    Estimator::default().estimate(seconds, ratio)
}

/// Two numbers, the lesser of which is the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The median second.
    pub median: BytesPerSec,
    /// 1 + ε2 times the mean second.
    pub most_by_mean: BytesPerSec,
}

impl Basis {
    /// The estimate.
    #[must_use]
    pub fn estimate(self) -> BytesPerSec {
        self.median.min(self.most_by_mean)
    }
}

/// The median of sorted numbers; for an even count the mean of the two in the middle, rounded down.
pub(super) fn median(sorted: &[u64]) -> Option<u64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(lower + (upper - lower) / 2)
}

/// 1 + ε2 times the mean, rounded down once.
fn most_by_mean(totals: &[u64]) -> Option<u64> {
    let sum: u128 = totals.iter().map(|&total| u128::from(total)).sum();
    let percent = 100 + u128::from(EPSILON2_PERCENT);
    let most = (sum * percent).checked_div(100 * totals.len() as u128)?;
    Some(u64::try_from(most).unwrap_or(u64::MAX))
}
