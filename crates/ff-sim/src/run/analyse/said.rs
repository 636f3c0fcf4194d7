//! Types of `analyse`'s results: spreads of values, and results that not every source has.

use serde::Serialize;

use crate::analysis::groups::Distribution;

/// A result that not every source has.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Said<T> {
    Known(T),
    /// The result is unknown.
    Unknown {
        /// The reason.
        not_known: String,
    },
}

impl<T> Said<T> {
    /// An unknown result with its reason.
    pub(super) fn unknown(reason: &str) -> Self {
        Self::Unknown { not_known: reason.to_owned() }
    }

    /// The result, if it is known.
    pub(super) const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(found) => Some(found),
            Self::Unknown { .. } => None,
        }
    }
}

/// A summary of some values.
#[derive(Serialize)]
pub(super) struct Summary {
    /// The share of values that are not zero.
    pub(super) non_zero: f64,
    #[serde(flatten)]
    pub(super) spread: Spread,
}

/// The spread of some values.
#[derive(Serialize)]
pub(super) struct Spread {
    /// The number of values.
    pub(super) count: usize,
    pub(super) mean: f64,
    /// The minimum.
    min: f64,
    /// The 5th percentile.
    p5: f64,
    /// The 25th percentile.
    pub(super) p25: f64,
    /// The median.
    pub(super) median: f64,
    /// The 75th percentile.
    pub(super) p75: f64,
    /// The 95th percentile.
    p95: f64,
    /// The maximum.
    pub(super) max: f64,
}

impl From<Distribution> for Spread {
    fn from(Distribution { count, mean, percentiles }: Distribution) -> Self {
        let [min, p5, p25, median, p75, p95, max] = percentiles;
        Self { count, mean, min, p5, p25, median, p75, p95, max }
    }
}

impl Spread {
    /// The summary of sorted values; `None` without values.
    pub(super) fn of(sorted: &[f64]) -> Option<Self> {
        Distribution::of(sorted).map(Self::from)
    }
}

impl Summary {
    /// The spread of sorted values; `None` without values.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub(super) fn of(sorted: &[f64]) -> Option<Self> {
        let spread = Spread::of(sorted)?;
        let non_zero = sorted.iter().filter(|value| **value != 0.0).count();
        Some(Self { non_zero: non_zero as f64 / spread.count as f64, spread })
    }
}

/// A number, or an empty cell.
pub(super) fn optional(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
