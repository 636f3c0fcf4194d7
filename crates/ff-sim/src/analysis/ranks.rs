//! Rankings of relays by the error of their weights, and the weight errors of overloaded relays.

use ff_report::stats;

use super::groups::Distribution;
use super::outcome::{ErrorAnalysis, RelayWindow};

/// The criterion of a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankedBy {
    /// The mean of RWE, Eq. 5: weight share over capacity share.
    Ratio,
    /// The mean weight share minus the mean capacity share: the relay's part of the network's
    /// error.
    Points,
}

/// A relay in a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The number of the relay.
    pub relay: u32,
    /// The mean of RWE.
    pub weight_error: f64,
    /// The mean share of total weight.
    pub weight_share: f64,
    /// The mean share of total capacity.
    pub capacity_share: f64,
    /// The number of times over which the means are taken.
    pub times: u32,
}

impl Ranked {
    /// `None` if the relay has no weights or was listed less than `least_times` times.
    fn new(relay: u32, seen: &RelayWindow, least_times: u32) -> Option<Self> {
        let times = seen.weight_error.count();
        if times < least_times {
            return None;
        }
        Some(Self {
            relay,
            weight_error: seen.weight_error.get()?,
            weight_share: seen.weight_share.get()?,
            capacity_share: seen.capacity_share.get()?,
            times,
        })
    }

    fn key(&self, by: RankedBy) -> f64 {
        match by {
            RankedBy::Ratio => self.weight_error,
            RankedBy::Points => self.weight_share - self.capacity_share,
        }
    }
}

/// All relays with weights at `least_times` times or more, from the most under-weighted to the most
/// over-weighted; ties by number.
#[must_use]
pub fn by_weight_error(
    outcome: &ErrorAnalysis,
    window: usize,
    least_times: u32,
    by: RankedBy,
) -> Vec<Ranked> {
    let windows = (0..).zip(&outcome.relays);
    let mut ranked: Vec<Ranked> = windows
        .filter_map(|(number, relay)| Ranked::new(number, relay.windows.get(window)?, least_times))
        .collect();
    ranked.sort_by(|one, other| one.key(by).total_cmp(&other.key(by)));
    ranked
}

/// The share of relays that are under-weighted (paper §3.2: more than 85 %); `None` without relays.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub fn under_weighted(errors: &[f64]) -> Option<f64> {
    let under = errors.iter().filter(|error| **error < 1.0).count();
    (!errors.is_empty()).then(|| under as f64 / errors.len() as f64)
}

/// Overloaded relays compared with the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overload {
    /// Weight errors of relays that report overload.
    pub overloaded: Option<Distribution>,
    /// Weight errors of relays that do not.
    pub others: Option<Distribution>,
    /// For each tenth of the relays by weight error, most under-weighted first: the greatest error
    /// in it, the number of relays, and the number of overloaded relays.
    pub tenths: Vec<(f64, usize, usize)>,
    /// The probability that an overloaded relay has a greater error than another relay; 0.5 means
    /// no relation.
    pub likely_greater: Option<f64>,
}

/// Overload by weight error; relays with unknown overload are left out.
#[must_use]
pub fn overload(
    outcome: &ErrorAnalysis,
    window: usize,
    is_overloaded: impl Fn(u32) -> Option<bool>,
) -> Overload {
    let known: Vec<(f64, bool)> = by_weight_error(outcome, window, 1, RankedBy::Ratio)
        .into_iter()
        .filter_map(|ranked| Some((ranked.weight_error, is_overloaded(ranked.relay)?)))
        .collect();
    let errors = |which: bool| {
        let some = known.iter().filter(|(_, overloaded)| *overloaded == which);
        Distribution::of(&stats::sorted(some.map(|&(error, _)| error).collect()))
    };
    let tenths = (0..10)
        .filter_map(|tenth| {
            let part = known.get(known.len() * tenth / 10..known.len() * (tenth + 1) / 10)?;
            let count = part.iter().filter(|(_, overloaded)| *overloaded).count();
            Some((part.last()?.0, part.len(), count))
        })
        .collect();
    let (overloaded, others) = (errors(true), errors(false));
    Overload { overloaded, others, tenths, likely_greater: likely_greater(&known) }
}

/// The share of all pairs of an overloaded relay and another in which the first has the greater
/// error; ties count half. The errors must be sorted.
#[expect(clippy::cast_precision_loss, reason = "pairs of a million relays lie below 2^53")]
fn likely_greater(known: &[(f64, bool)]) -> Option<f64> {
    let (mut others, mut overloaded, mut twice) = (0_u64, 0_u64, 0_u64);
    for equal in known.chunk_by(|one, other| one.0.total_cmp(&other.0).is_eq()) {
        let here = equal.iter().filter(|(_, overloaded)| *overloaded).count() as u64;
        let beside = equal.len() as u64 - here;
        twice += here * (2 * others + beside);
        (others, overloaded) = (others + beside, overloaded + here);
    }
    let pairs = others * overloaded;
    (pairs > 0).then(|| twice as f64 / (2 * pairs) as f64)
}
