//! How `analyse` says things: spreads of values, and what not every source says.

use serde::Serialize;

use crate::analysis::groups::Distribution;

/// Something that not every source says.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Said<T> {
    Known(T),
    /// It is not known.
    Unknown {
        /// Why.
        not_known: String,
    },
}

impl<T> Said<T> {
    /// It is not known, and why.
    pub(super) fn unknown(reason: &str) -> Self {
        Self::Unknown { not_known: reason.to_owned() }
    }

    /// It, if it is known.
    pub(super) const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(found) => Some(found),
            Self::Unknown { .. } => None,
        }
    }
}

/// Some values.
#[derive(Serialize)]
pub(super) struct Summary {
    /// Which part of them is not zero.
    pub(super) non_zero: f64,
    #[serde(flatten)]
    pub(super) spread: Spread,
}

/// How values are spread.
#[derive(Serialize)]
pub(super) struct Spread {
    /// How many there are.
    pub(super) count: usize,
    pub(super) mean: f64,
    /// The least.
    min: f64,
    /// Their 5th percentile.
    p5: f64,
    /// Their quartiles.
    pub(super) p25: f64,
    /// See there.
    pub(super) median: f64,
    /// See there.
    pub(super) p75: f64,
    /// Their 95th percentile.
    p95: f64,
    /// The greatest.
    pub(super) max: f64,
}

impl From<Distribution> for Spread {
    fn from(Distribution { count, mean, percentiles }: Distribution) -> Self {
        let [min, p5, p25, median, p75, p95, max] = percentiles;
        Self { count, mean, min, p5, p25, median, p75, p95, max }
    }
}

impl Spread {
    /// Of sorted values; nothing of none.
    pub(super) fn of(sorted: &[f64]) -> Option<Self> {
        Distribution::of(sorted).map(Self::from)
    }
}

impl Summary {
    /// Of sorted values; nothing of none.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub(super) fn of(sorted: &[f64]) -> Option<Self> {
        let spread = Spread::of(sorted)?;
        let non_zero = sorted.iter().filter(|value| **value != 0.0).count();
        Some(Self { non_zero: non_zero as f64 / spread.count as f64, spread })
    }
}

/// A number, or nothing.
pub(super) fn optional(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
