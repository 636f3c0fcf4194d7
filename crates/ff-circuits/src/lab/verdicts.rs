//! The rankings of NavigaTor that `lab navigator` must reproduce, each with our numbers and the
//! paper's.
//!
//! Only orders are judged; differences depend on the network. An order of selections holds if the
//! 99 % interval of each difference ([`orders`]) is on the right side of 0, it does not hold if one
//! is on the other side, and otherwise it is undecided. Rho and accepted shares are compared
//! directly, but a rho counts as too small only if that is unlikely by chance.

use std::fmt::Write as _;

use serde::Serialize;

use super::orders::{self, Step};
use crate::analysis::paper::{RHO, printed};
use crate::analysis::performance::Performance;
use crate::analysis::{Report, hosts, selected::Selection};
use crate::rank::Spearman;
use crate::read::{Circuits, Seen};

/// The selections of tables 1 and 3, in their order.
const ORDER: [&str; 5] = ["all", "build80", "rtt80", "build50", "rtt50"];
/// The least value of Spearman's rho of round trips and time to first byte.
const LEAST_RHO: f64 = 0.8;
/// The quantile of the normal distribution for a 99 % interval.
const DEVIATIONS_99: f64 = 2.5758;
/// The largest difference between the accepted and the requested share.
const SHARE_OFF: f64 = 0.01;
/// The least number of decisions for an accepted share: at 80 % the standard deviation for 1,600 is
/// one percentage point.
const LEAST_DECIDED: u64 = 1600;

/// A value by which selections are ordered.
struct Ordered {
    /// The name of the value, with its unit.
    name: &'static str,
    /// Whether values fall from each selection to the next, as times do; throughputs rise.
    falls: bool,
    /// A circuit's value.
    value: fn(&Seen) -> Option<f64>,
    /// The percentile that is a selection's value.
    percentile: f64,
    /// A selection's value.
    of: fn(&Performance) -> Option<f64>,
    /// The paper's value, of median time to first byte, its 90th percentile, and throughput.
    printed: fn([f64; 3]) -> f64,
}

/// Tables 1 and 3.
const ORDERED: [Ordered; 3] = [
    Ordered {
        name: "median time to first byte, ms",
        falls: true,
        value: |seen| seen.ttfb_ms,
        percentile: 50.0,
        of: |found| found.ttfb_median_ms,
        printed: |[median, ..]| median,
    },
    Ordered {
        name: "90th percentile of time to first byte, ms",
        falls: true,
        value: |seen| seen.ttfb_ms,
        percentile: 90.0,
        of: |found| found.ttfb_p90_ms,
        printed: |[_, p90, _]| p90,
    },
    Ordered {
        name: "median throughput, Mbit/s",
        falls: false,
        value: |seen| seen.mbit_per_sec,
        percentile: 50.0,
        of: |found| found.throughput_median_mbit_per_sec,
        printed: |[.., mbit]| mbit,
    },
];

/// A claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimVerdict {
    /// The claim.
    pub what: String,
    /// Our values, in the order of the sentence; none if not measured.
    pub ours: Vec<Option<f64>>,
    /// The paper's values.
    pub paper: Vec<f64>,
    /// The difference of each value from the previous one, if the claim is an order of selections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Option<Step>>,
    /// Whether it holds; none if that may be by chance.
    pub holds: Option<bool>,
}

impl ClaimVerdict {
    /// The verdict as a line of text.
    #[must_use]
    pub fn line(&self) -> String {
        let verdict = match self.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "undecided",
        };
        let ours: Vec<String> = self.ours.iter().map(number).collect();
        let paper: Vec<String> = self.paper.iter().map(f64::to_string).collect();
        let mut line = format!("{verdict}: {}: {}", self.what, ours.join(", "));
        if !paper.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(line, " | NavigaTor: {}", paper.join(", "));
        }
        if self.holds != Some(true) && !self.steps.is_empty() {
            let steps: Vec<String> = self.steps.iter().map(interval).collect();
            let _ = write!(line, " | from each to the next, 99 %: {}", steps.join(", "));
        }
        line
    }
}

/// A number with as many digits as in the paper.
fn number(one: &Option<f64>) -> String {
    match one {
        Some(one) if one.abs() < 1.0 => format!("{one:.3}"),
        Some(one) if one.abs() < 100.0 => format!("{one:.2}"),
        Some(one) => format!("{one:.0}"),
        None => "-".to_owned(),
    }
}

/// The interval of a difference.
fn interval(one: &Option<Step>) -> String {
    let text = |one: &Step| format!("{}..{}", number(&Some(one.low)), number(&Some(one.high)));
    one.as_ref().map_or_else(|| "-".to_owned(), text)
}

/// All verdicts on circuits and their report.
#[must_use]
pub fn verdicts(circuits: &Circuits, report: &Report) -> Vec<ClaimVerdict> {
    let mut all = rho(report);
    all.extend(ORDERED.iter().map(|ordered| order(circuits, report, ordered)));
    all.extend(report.selections.iter().filter_map(accepted));
    all
}

/// Whether any claim does not hold.
#[must_use]
pub fn any_fails(all: &[ClaimVerdict]) -> bool {
    all.iter().any(|verdict| verdict.holds == Some(false))
}

/// The verdicts on correlations with time to first byte (section 7.2).
fn rho(report: &Report) -> Vec<ClaimVerdict> {
    let ours = RHO.map(|(name, _)| report.spearman_with_ttfb.get(name).map(|found| found.rho));
    let what = "rho with time to first byte: round trip > build time > congestion".to_owned();
    let paper = RHO.map(|(_, rho)| rho).to_vec();
    let holds = report.spearman_with_ttfb.get(RHO[0].0).map_or(Some(false), is_high);
    let least = format!("the first rho is at least {LEAST_RHO}");
    let falls = |pair: &[Option<f64>]| matches!(pair, [Some(one), Some(next)] if next < one);
    let is_order = Some(ours.windows(2).all(falls));
    let (first, first_paper) = (vec![ours[0]], vec![paper[0]]);
    let steps = Vec::new;
    vec![
        ClaimVerdict { what, ours: ours.to_vec(), paper, steps: steps(), holds: is_order },
        ClaimVerdict { what: least, ours: first, paper: first_paper, steps: steps(), holds },
    ]
}

/// Whether a rho is at least [`LEAST_RHO`]; none if it is less by so little that this may be by
/// chance.
///
/// 99 % intervals are by Fisher's z with the standard error of Bonett and Wright (2000).
#[expect(clippy::cast_precision_loss, reason = "pairs lie far below 2^53")]
fn is_high(found: &Spearman) -> Option<bool> {
    if found.rho >= LEAST_RHO {
        return Some(true);
    }
    let error = ((1.0 + found.rho.powi(2) / 2.0) / (found.pairs as f64 - 3.0)).sqrt();
    let most = (found.rho.atanh() + DEVIATIONS_99 * error).tanh();
    (most < LEAST_RHO).then_some(false)
}

/// Selections in the order of the paper's table: each is faster than the previous one by times, and
/// by throughputs too.
fn order(circuits: &Circuits, report: &Report, ordered: &Ordered) -> ClaimVerdict {
    let found = ORDER.map(|name| report.selections.iter().find(|one| one.name == name));
    let ours = |one: &Option<&Selection>| one.and_then(|one| (ordered.of)(&one.performance));
    let row = |name: &&str| {
        let row = printed(name)?;
        Some((ordered.printed)([row.ttfb_median_ms?, row.ttfb_p90_ms?, row.mbit?]))
    };
    let steps = steps(circuits, report, &found, ordered);
    let is_as_printed = |step: &Option<Step>| Some(step.as_ref()?.rises()? != ordered.falls);
    let steps_are: Vec<_> = steps.iter().map(is_as_printed).collect();
    let between = if ordered.falls { " > " } else { " < " };
    ClaimVerdict {
        what: format!("{}: {}", ordered.name, ORDER.join(between)),
        ours: found.iter().map(ours).collect(),
        paper: ORDER.iter().filter_map(row).collect(),
        holds: all_hold(&steps_are),
        steps,
    }
}

/// The difference of each selection from the previous one.
fn steps(
    circuits: &Circuits,
    report: &Report,
    selections: &[Option<&Selection>],
    ordered: &Ordered,
) -> Vec<Option<Step>> {
    let host = |(at, (_, all)): (usize, &(usize, Vec<&Seen>))| {
        let values: Vec<_> = all.iter().map(|seen| (ordered.value)(seen)).collect();
        let decisions = |one: &Selection| one.decisions.get(at).cloned().unwrap_or_default();
        let decisions = |one: &Option<&Selection>| one.map(decisions).unwrap_or_default();
        let decisions: Vec<_> = selections.iter().map(decisions).collect();
        orders::HostValues::of(&values, &decisions)
    };
    let hosts: Vec<_> = hosts(circuits, report.hops).iter().enumerate().map(host).collect();
    orders::steps(&hosts, ordered.percentile, report.seed)
}

/// Whether all hold; false if one does not, and none if one is undecided.
fn all_hold(all: &[Option<bool>]) -> Option<bool> {
    if all.contains(&Some(false)) {
        return Some(false);
    }
    (!all.is_empty() && !all.contains(&None)).then_some(true)
}

/// Whether a selection accepts the requested share (ledger row N14); none for selections without
/// one.
fn accepted(selection: &Selection) -> Option<ClaimVerdict> {
    let asked = selection.asked_share.filter(|share| *share < 1.0)?;
    // One circuit of three is accepted, fast or slow.
    if selection.name.ends_with("best_of_3") {
        return None;
    }
    let (accepted, circuits) = (selection.accepted_share?, selection.performance.circuits as f64);
    let is_enough = circuits / accepted.max(f64::MIN_POSITIVE) >= LEAST_DECIDED as f64;
    Some(ClaimVerdict {
        what: format!(
            "{} accepts {:.1} % within {} point",
            selection.name,
            asked * 100.0,
            SHARE_OFF * 100.0
        ),
        ours: vec![Some(accepted * 100.0)],
        paper: Vec::new(),
        steps: Vec::new(),
        holds: is_enough.then(|| (accepted - asked).abs() <= SHARE_OFF),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::AnalysisOptions;
    use crate::read::{Circuits, Seen};
    use crate::replay::Timeout;

    /// Circuits whose times to first byte follow round trips; so do build times, except for this
    /// share of them, which are random.
    fn circuits(count: u32, chance: f64) -> Circuits {
        let seen = |number: u32| {
            // Numbers that are independent of each other.
            let draw = |step: u32| f64::from(number.wrapping_mul(step) % 10_007) / 10_007.0;
            let is_chance = draw(69_069) < chance;
            let drawn = if is_chance { 16_807 } else { 2_654_435_761 };
            let rtt_ms = 100.0 + 300.0 * draw(2_654_435_761);
            let ttfb_ms = rtt_ms + 20.0 * draw(40_503);
            Seen {
                path: vec![0, 1, 2],
                hops: Some(3),
                build_ms: Some(200.0 + 600.0 * draw(drawn)),
                rtt_ms: Some(rtt_ms),
                congestion_ms: Some(5.0 + draw(7_919)),
                ttfb_ms: Some(ttfb_ms),
                mbit_per_sec: number.is_multiple_of(2).then(|| 1000.0 / ttfb_ms),
                ..Seen::default()
            }
        };
        let mut circuits = Circuits::default();
        circuits.hosts.push("host".to_owned());
        circuits.relays = vec![String::new(); 3];
        circuits.all = (0..count).map(seen).collect();
        circuits
    }

    /// The verdicts on these circuits.
    fn of(circuits: &Circuits) -> Vec<ClaimVerdict> {
        let timeout = Timeout::Percentile;
        let options = AnalysisOptions {
            hops: 3,
            window: 1000,
            shares: vec![0.8, 0.5],
            timeout,
            seed: 1,
            refill_ms: 100,
        };
        verdicts(circuits, &Report::of(circuits, None, &options))
    }

    #[test]
    fn orders_hold_or_do_not() {
        let all = of(&circuits(10_000, 0.3));
        assert!(all.iter().all(|verdict| verdict.holds == Some(true)), "{all:#?}");
        assert!(!any_fails(&all));
        assert_eq!(all.len(), 5 + 9, "two of rho, three orders, and what nine selections accept");
        assert_eq!(all[4].paper, [2.72, 3.24, 3.30, 4.30, 4.70]);
        let step = all[2].steps[0].expect("many circuits");
        let difference = all[2].ours[1].expect("measured") - all[2].ours[0].expect("measured");
        assert!((step.difference - difference).abs() < 1e-9, "the tables' numbers: {:?}", all[2]);
        // Build times are better predictors than round trips: both orders are reversed.
        let mut odd = circuits(10_000, 0.3);
        for seen in &mut odd.all {
            std::mem::swap(&mut seen.build_ms, &mut seen.rtt_ms);
        }
        let odd = of(&odd);
        assert!(any_fails(&odd));
        assert_eq!([0, 2, 3, 4].map(|at| odd[at].holds), [Some(false); 4], "{odd:#?}");
        assert!(odd[0].line().starts_with("DOES NOT HOLD: rho"), "{}", odd[0].line());
    }

    #[test]
    fn what_chance_may_have_put_in_order_is_undecided() {
        // Throughputs that do not depend on the selections' measures; then so few that no order is
        // significant.
        let mut equal = circuits(10_000, 0.3);
        for (number, seen) in equal.all.iter_mut().enumerate() {
            let draw = (number * 7_001 % 9_973) as f64 / 9_973.0;
            seen.mbit_per_sec = seen.mbit_per_sec.map(|_| 1.0 + draw);
        }
        let mut few = circuits(10_000, 0.3);
        for (number, seen) in few.all.iter_mut().enumerate() {
            seen.mbit_per_sec = seen.mbit_per_sec.filter(|_| number % 200 == 0);
        }
        for circuits in [equal, few] {
            let all = of(&circuits);
            assert_eq!((all[2].holds, all[4].holds), (Some(true), None), "{:#?}", all[4]);
            assert!(!any_fails(&all));
            let line = all[4].line();
            assert!(
                line.starts_with("undecided: median throughput") && line.contains("99 %"),
                "{line}"
            );
        }
    }

    #[test]
    fn one_step_the_wrong_way_is_enough_that_an_order_does_not_hold() {
        assert_eq!(all_hold(&[Some(true), None, Some(false)]), Some(false));
        assert_eq!(all_hold(&[Some(true), None]), None);
        assert_eq!((all_hold(&[Some(true)]), all_hold(&[])), (Some(true), None));
    }

    #[test]
    fn a_rho_that_chance_may_have_made_too_small_is_not_judged() {
        let of = |rho, pairs| is_high(&Spearman { rho, p: 0.0, pairs });
        assert_eq!([of(0.8, 10), of(0.85, 20_000)], [Some(true); 2]);
        // By hand: the interval of 0.792 with 1,000 pairs reaches tanh(1.0768 + 2.5758 * 0.0363) =
        // 0.824; with 50,000, 0.797.
        assert_eq!([of(0.792, 1000), of(0.792, 50_000)], [None, Some(false)]);
        assert_eq!(of(0.7, 1000), Some(false));
        assert_eq!([of(f64::NAN, 1000), of(0.5, 2)], [None; 2]);
    }

    #[test]
    fn nothing_measured_is_no_order() {
        let nothing = of(&Circuits::default());
        assert_eq!(
            (nothing[1].holds, nothing[2].holds),
            (Some(false), None),
            "nothing was measured"
        );
        // Too few to decide whether 80 % are accepted.
        let few = of(&circuits(1500, 0.3));
        assert_eq!(few[5].holds, None, "{few:#?}");
        assert!(few[5].line().starts_with("undecided: "), "{}", few[5].line());
    }
}
