//! Means of relays by label: flag, country, family, version, age, or a label of the caller's.

use std::collections::BTreeMap;

use ff_base::utc::DAY_SECS;
use ff_report::stats;

use super::outcome::{ErrorAnalysis, Mean, RelayWindow};

/// The count, mean and percentiles of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    /// The number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// The percentiles of [`Self::PERCENTILES`].
    pub percentiles: [f64; 7],
}

impl Distribution {
    /// The percentiles that are computed.
    pub const PERCENTILES: [f64; 7] = [0.0, 5.0, 25.0, 50.0, 75.0, 95.0, 100.0];

    /// The distribution of sorted values; `None` if there are none.
    #[must_use]
    pub fn of(sorted: &[f64]) -> Option<Self> {
        let mean = stats::mean(sorted)?;
        let percentiles = Self::PERCENTILES.map(|p| stats::percentile(sorted, p).unwrap_or(mean));
        Some(Self { count: sorted.len(), mean, percentiles })
    }

    /// The median.
    #[must_use]
    pub const fn median(&self) -> f64 {
        let [_, _, _, median, ..] = self.percentiles;
        median
    }
}

/// The relays of one label, with the capacities of one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelledRelays {
    /// The number of relays with the label that were ever listed.
    pub relays: usize,
    /// Relays' means of RCE, Eq. 2.
    pub capacity_error: Option<Distribution>,
    /// The error of all these relays together: 1 - ΣA / ΣC, summed over relays and times.
    pub joint_capacity_error: Option<f64>,
    /// Relays' means of RWE, Eq. 5.
    pub weight_error: Option<Distribution>,
    /// The sums of their mean shares of total weight and of total capacity. Because relays come and
    /// go, these sums over all groups can exceed 1.
    pub shares: (f64, f64),
    /// Relays' means of RSD(A), Eq. 7.
    pub advertised_deviation: Option<Distribution>,
    /// Relays' means of RSD(W), Eq. 7.
    pub weight_deviation: Option<Distribution>,
}

/// Groups relays by label, with the capacities of one window; relays without a label and relays
/// that were never listed are left out.
#[must_use]
pub fn by_label<L: Ord>(
    outcome: &ErrorAnalysis,
    window: usize,
    label: impl Fn(u32) -> Option<L>,
) -> BTreeMap<L, LabelledRelays> {
    let mut members: BTreeMap<L, Vec<RelayWindow>> = BTreeMap::new();
    for (number, relay) in (0..).zip(&outcome.relays).filter(|(_, relay)| relay.listed > 0) {
        let (Some(label), Some(&seen)) = (label(number), relay.windows.get(window)) else {
            continue;
        };
        members.entry(label).or_default().push(seen);
    }
    members.into_iter().map(|(label, relays)| (label, group(&relays))).collect()
}

/// A label for the age of a relay: the time between its first and its last listing. `None` if it
/// was never listed.
#[must_use]
pub fn age_label(outcome: &ErrorAnalysis, relay: u32) -> Option<&'static str> {
    let relay = outcome.relays.get(relay as usize)?;
    let begin = outcome.steps.first()?.time;
    let (first, last) = (relay.first_seen?, relay.last_seen?);
    // A relay that was listed from the beginning may be of any age.
    if first == begin {
        return Some("from the beginning");
    }
    Some(match (last - first) / DAY_SECS {
        0 => "below 1 day",
        1..7 => "1 to 7 days",
        7..30 => "7 to 30 days",
        30..365 => "30 to 365 days",
        _ => "365 days or more",
    })
}

/// A sum that is 0 for no values; that of the standard library is -0.
fn sum(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |sum, value| sum + value)
}

fn group(relays: &[RelayWindow]) -> LabelledRelays {
    let means = |of: fn(&RelayWindow) -> Mean| {
        stats::sorted(relays.iter().filter_map(|relay| of(relay).get()).collect())
    };
    let distribution = |of| Distribution::of(&means(of));
    let advertised: u128 = relays.iter().map(|relay| relay.advertised).sum();
    let capacity: u128 = relays.iter().map(|relay| relay.capacity).sum();
    LabelledRelays {
        relays: relays.len(),
        capacity_error: distribution(|relay| relay.capacity_error),
        joint_capacity_error: super::quotient::quotient(advertised, capacity)
            .map(|part| 1.0 - part),
        weight_error: distribution(|relay| relay.weight_error),
        shares: (
            sum(&means(|relay| relay.weight_share)),
            sum(&means(|relay| relay.capacity_share)),
        ),
        advertised_deviation: distribution(|relay| relay.advertised_deviation),
        weight_deviation: distribution(|relay| relay.weight_deviation),
    }
}
