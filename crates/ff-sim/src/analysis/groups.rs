//! Means of relays by label: flag, country, family, version, age, or a label of the caller's.

use std::collections::BTreeMap;

use ff_base::utc::DAY_SECS;
use ff_report::stats;

use super::outcome::{ErrorAnalysis, Mean, RelayWindow};

/// A distribution in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    /// How many values there are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Percentiles 0, 5, 25, 50, 75, 95 and 100.
    pub percentiles: [f64; 7],
}

impl Distribution {
    /// Which percentiles there are.
    pub const PERCENTILES: [f64; 7] = [0.0, 5.0, 25.0, 50.0, 75.0, 95.0, 100.0];

    /// Of values that are sorted; nothing of none.
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

/// The relays of one label, as one window sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelledRelays {
    /// How many relays have the label and were listed.
    pub relays: usize,
    /// Means of RCE.
    pub capacity_error: Option<Distribution>,
    /// The error of all of them together: 1 less the sum of A over that of C, over relays and
    /// times.
    pub joint_capacity_error: Option<f64>,
    /// Means of RWE.
    pub weight_error: Option<Distribution>,
    /// Sums of their mean parts of all weight and of all capacity. Relays that come and go make
    /// sums of all groups greater than 1.
    pub shares: (f64, f64),
    /// Means of RSD(A).
    pub advertised_deviation: Option<Distribution>,
    /// Means of RSD(W).
    pub weight_deviation: Option<Distribution>,
}

/// The relays by label, as one window sees them; relays with no label, and those never listed, are
/// left out.
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

/// A label for ages: how long relays of this age had been seen at most, in days.
#[must_use]
pub fn age_label(outcome: &ErrorAnalysis, relay: u32) -> Option<&'static str> {
    let relay = outcome.relays.get(relay as usize)?;
    let begin = outcome.steps.first()?.time;
    let (first, last) = (relay.first_seen?, relay.last_seen?);
    // It may be of any age that was there from the beginning.
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

/// A sum that is 0 of nothing, where the library's is -0.
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
