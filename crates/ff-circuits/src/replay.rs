//! Selections of circuits, replayed on measured circuits (NavigaTor, algorithm 2 and section 7.6).
//!
//! The value of each circuit enters a window of the last 1,000, whose quantile is the timeout: a
//! circuit with a greater value is discarded. Nothing is decided until the window is full. The
//! paper uses the quantile of a GEV distribution fitted to the window; [`Timeout::Percentile`] uses
//! the window's own, which accepts the requested share for any distribution.

pub mod window;

use self::window::{GevWindow, Window};
use crate::fit::estimator::Estimate;
use crate::read::Seen;

/// The length of the window in the paper.
pub const WINDOW: usize = 1000;
/// The number of circuits from which the congestion-aware scheme chooses one.
const SET: usize = 3;

/// A measure by which circuits are selected.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Measure {
    /// Build time.
    Build,
    /// Round trip.
    Rtt,
    /// Congestion delay.
    Congestion,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 3] = [Self::Build, Self::Rtt, Self::Congestion];

    /// The value for a circuit, in ms.
    #[must_use]
    pub fn of(self, seen: &Seen) -> Option<f64> {
        match self {
            Self::Build => seen.build_ms,
            Self::Rtt => seen.rtt_ms,
            Self::Congestion => seen.congestion_ms,
        }
    }

    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Rtt => "rtt",
            Self::Congestion => "congestion",
        }
    }
}

/// The source of the timeout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Timeout {
    /// The window's own percentile, linear between ranks as in numpy.
    Percentile,
    /// The quantile of a GEV distribution fitted to the window (NavigaTor, algorithm 2).
    Gev,
    /// tor's estimator (path-spec 2.4).
    Tor,
}

/// A rule of selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// All circuits.
    All,
    /// Circuits whose value is at or below the timeout for this share.
    Fastest(Measure, f64),
    /// Circuits whose build time and round trip are both at or below their timeouts for this share.
    BuildAndRtt(f64),
    /// Of each three consecutive circuits the one with the least congestion delay.
    BestOfThree,
}

impl Rule {
    /// The name in results: `rtt80`, `build_rtt80`, `congestion_best_of_3`.
    #[must_use]
    pub fn name(self) -> String {
        let percent = |share: f64| format!("{}", (share * 1000.0).round() / 10.0);
        match self {
            Self::All => "all".to_owned(),
            Self::Fastest(measure, share) => format!("{}{}", measure.name(), percent(share)),
            Self::BuildAndRtt(share) => format!("build_rtt{}", percent(share)),
            Self::BestOfThree => "congestion_best_of_3".to_owned(),
        }
    }
}

/// The decision on each circuit: whether it is accepted, or none if it was not decided.
pub type Decisions = Vec<Option<bool>>;

/// The timeout by which each circuit is judged, computed with its own value; none until the window
/// is full, and for circuits without a value.
#[must_use]
pub fn timeouts(
    circuits: &[&Seen],
    measure: Measure,
    shares: &[f64],
    kind: Timeout,
    length: usize,
) -> Vec<Vec<Option<f64>>> {
    let mut all = vec![Vec::with_capacity(circuits.len()); shares.len()];
    let mut window = Window::new(length);
    let mut fitted = GevWindow::new(length);
    for circuit in circuits {
        let value = measure.of(circuit);
        let found: Vec<Option<f64>> = match (value, kind) {
            (None, _) => vec![None; shares.len()],
            (Some(value), Timeout::Gev) => {
                let gev = fitted.push(value);
                shares.iter().map(|share| gev.map(|gev| gev.quantile(*share))).collect()
            }
            (Some(value), _) => {
                let is_full = window.push(value);
                let estimate = (is_full && kind == Timeout::Tor)
                    .then(|| Estimate::of(window.sorted()))
                    .flatten();
                let of = |share: &f64| match kind {
                    Timeout::Tor => estimate.map(|found| found.timeout_ms(*share)),
                    _ => window.percentile(share * 100.0).filter(|_| is_full),
                };
                shares.iter().map(of).collect()
            }
        };
        all.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
    }
    all
}

/// Whether each circuit's value is at or below its timeout.
#[must_use]
pub fn accepted(circuits: &[&Seen], measure: Measure, timeouts: &[Option<f64>]) -> Decisions {
    let judge =
        |(circuit, timeout): (&&Seen, &Option<f64>)| Some(measure.of(circuit)? <= (*timeout)?);
    circuits.iter().zip(timeouts).map(judge).collect()
}

/// Whether each circuit is accepted by both selections; circuits that one does not decide are not
/// decided.
#[must_use]
pub fn both(one: &Decisions, other: &Decisions) -> Decisions {
    let both = |(one, other): (Option<bool>, Option<bool>)| {
        one.zip(other).map(|(one, other)| one && other)
    };
    one.iter().copied().zip(other.iter().copied()).map(both).collect()
}

/// Of each three consecutive circuits the one with the least congestion delay; remaining circuits
/// are not decided.
#[must_use]
pub fn best_of_three(circuits: &[&Seen]) -> Decisions {
    let mut decisions = vec![None; circuits.len()];
    let with_value: Vec<(usize, f64)> = circuits
        .iter()
        .enumerate()
        .filter_map(|(place, circuit)| Some((place, circuit.congestion_ms?)))
        .collect();
    for set in with_value.chunks_exact(SET) {
        let best = set.iter().min_by(|one, other| one.1.total_cmp(&other.1)).map(|best| best.0);
        for (place, _) in set {
            decisions[*place] = Some(Some(*place) == best);
        }
    }
    decisions
}

/// The accepted share of the decided circuits.
#[must_use]
pub fn share(decisions: &Decisions) -> Option<f64> {
    let decided = decisions.iter().flatten().count();
    let accepted = decisions.iter().flatten().filter(|is| **is).count();
    (decided > 0).then(|| accepted as f64 / decided as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Circuits with these round trips.
    fn circuits(values: impl IntoIterator<Item = f64>) -> Vec<Seen> {
        let seen = |rtt| Seen { rtt_ms: Some(rtt), congestion_ms: Some(rtt), ..Seen::default() };
        values.into_iter().map(seen).collect()
    }

    #[test]
    fn the_asked_share_is_accepted_once_the_window_is_full() {
        let all = circuits((0..20_000_u64).map(|k| ((k * 7919 + 13) % 10_007) as f64));
        let all: Vec<&Seen> = all.iter().collect();
        for asked in [0.8, 0.5, 0.33] {
            let timeouts =
                timeouts(&all, Measure::Rtt, &[asked], Timeout::Percentile, WINDOW).remove(0);
            assert_eq!(timeouts.iter().position(Option::is_some), Some(WINDOW - 1));
            let got = share(&accepted(&all, Measure::Rtt, &timeouts)).expect("some");
            assert!((got - asked).abs() < 0.01, "{asked}: {got}");
        }
    }

    #[test]
    fn circuits_without_a_value_are_not_judged() {
        let mut all = circuits([5.0, 1.0, 9.0]);
        all[1].rtt_ms = None;
        let all: Vec<&Seen> = all.iter().collect();
        let timeouts = timeouts(&all, Measure::Rtt, &[0.5], Timeout::Percentile, 2).remove(0);
        assert_eq!(timeouts, [None, None, Some(7.0)]);
        assert_eq!(accepted(&all, Measure::Rtt, &timeouts), [None, None, Some(false)]);
    }

    #[test]
    fn the_best_of_each_three_is_taken() {
        let all = circuits([3.0, 1.0, 2.0, 9.0, 8.0, 8.0, 1.0]);
        let all: Vec<&Seen> = all.iter().collect();
        let yes = [false, true, false, false, true, false].map(Some);
        let expected: Decisions = yes.into_iter().chain([None]).collect();
        assert_eq!(best_of_three(&all), expected);
    }

    #[test]
    fn both_needs_both() {
        let one = vec![Some(true), Some(true), Some(false), None, Some(false)];
        let other = vec![Some(true), Some(false), Some(true), Some(true), None];
        let expected = [Some(true), Some(false), Some(false), None, None];
        assert_eq!(both(&one, &other), expected);
        assert_eq!(both(&other, &one), expected);
        assert_eq!(Rule::Fastest(Measure::Congestion, 0.33).name(), "congestion33");
        assert_eq!(Rule::BuildAndRtt(0.8).name(), "build_rtt80");
    }
}
