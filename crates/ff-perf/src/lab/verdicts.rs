//! What has to come out of `lab navigator`: 002's orders, each with our numbers and the paper's.
//!
//! Orders hold or do not hold; how far apart numbers are depends on the network. Too few circuits say nothing of orders, so
//! below some number of values a verdict is not given.

use std::fmt::Write as _;

use serde::Serialize;

use crate::analysis::paper::{RHO, printed};
use crate::analysis::performance::Performance;
use crate::analysis::{Report, selected::Selection};
use crate::rank::Spearman;

/// The selections of tables 1 and 3, in the order of both.
const ORDER: [&str; 5] = ["all", "build80", "rtt80", "build50", "rtt50"];
/// Spearman's rho of round trips with time to first byte is at least that.
const LEAST_RHO: f64 = 0.8;
/// Deviations on each side within which a normal number is 99 times in 100.
const DEVIATIONS_99: f64 = 2.5758;
/// An accepted share may be off the one that was asked for by this.
const SHARE_OFF: f64 = 0.01;
/// Of fewer decisions the accepted share is no figure: at 80 % one deviation of 1,600 is a point.
const LEAST_DECIDED: u64 = 1600;
/// Selections differ by some percent of a median; with fewer circuits in the smallest one chance decides which is less.
const LEAST_CIRCUITS: u64 = 1000;
/// The same for throughputs: one circuit in forty has one.
const LEAST_WITH_DOWNLOADS: u64 = 8000;

/// Something that has to hold, and whether it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What has to hold.
    pub what: String,
    /// Our numbers, in the order of the sentence; none where nothing was measured.
    pub ours: Vec<Option<f64>>,
    /// The paper's.
    pub paper: Vec<f64>,
    /// Whether it holds; none if the values are too few to say.
    pub holds: Option<bool>,
}

impl Verdict {
    /// Each number is to be less than the one before.
    fn falls(what: String, ours: Vec<Option<f64>>, paper: Vec<f64>, is_enough: bool) -> Self {
        let is_less = |pair: &[Option<f64>]| matches!(pair, [Some(one), Some(next)] if next < one);
        let holds = is_enough.then(|| ours.windows(2).all(is_less));
        Self { what, ours, paper, holds }
    }

    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let verdict = match self.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None => "not judged, too few values",
        };
        // As many digits as the paper has.
        let number = |one: &Option<f64>| match one {
            Some(one) if one.abs() < 1.0 => format!("{one:.3}"),
            Some(one) if one.abs() < 100.0 => format!("{one:.2}"),
            Some(one) => format!("{one:.0}"),
            None => "-".to_owned(),
        };
        let ours: Vec<String> = self.ours.iter().map(number).collect();
        let paper: Vec<String> = self.paper.iter().map(f64::to_string).collect();
        let mut line = format!("{verdict}: {}: {}", self.what, ours.join(", "));
        if !paper.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(line, " | 002: {}", paper.join(", "));
        }
        line
    }
}

/// All verdicts on what circuits say.
#[must_use]
pub fn verdicts(report: &Report) -> Vec<Verdict> {
    let mut all = rho(report);
    all.extend([
        order(report, "median time to first byte, ms", true, |of| of.ttfb_median_ms, |row| row.0),
        order(report, "90th percentile of it, ms", true, |of| of.ttfb_p90_ms, |row| row.1),
    ]);
    let mbit = |of: &Performance| of.throughput_median_mbit_per_sec;
    all.push(order(report, "median throughput, Mbit/s", false, mbit, |row| row.2));
    all.extend(report.selections.iter().filter_map(accepted));
    all
}

/// Whether any of them is that something does not hold.
#[must_use]
pub fn any_fails(all: &[Verdict]) -> bool {
    all.iter().any(|verdict| verdict.holds == Some(false))
}

/// What goes with time to first byte (section 7.2).
fn rho(report: &Report) -> Vec<Verdict> {
    let ours = RHO.map(|(name, _)| report.spearman_with_ttfb.get(name).map(|found| found.rho));
    let what = "rho with time to first byte: round trip > build time > congestion".to_owned();
    let paper = RHO.map(|(_, rho)| rho).to_vec();
    let holds = report.spearman_with_ttfb.get(RHO[0].0).map_or(Some(false), is_high);
    let least = format!("the first of them is at least {LEAST_RHO}");
    vec![
        Verdict::falls(what, ours.to_vec(), paper.clone(), true),
        Verdict { what: least, ours: vec![ours[0]], paper: vec![paper[0]], holds },
    ]
}

/// Whether a rho is at least [`LEAST_RHO`]; no verdict if it is less, but so little that chance may have done it.
///
/// 99 of 100 intervals by Fisher's z with the standard error of Bonett and Wright (2000) hold the true one.
#[expect(clippy::cast_precision_loss, reason = "pairs lie far below 2^53")]
fn is_high(found: &Spearman) -> Option<bool> {
    if found.rho >= LEAST_RHO {
        return Some(true);
    }
    let error = ((1.0 + found.rho.powi(2) / 2.0) / (found.pairs as f64 - 3.0)).sqrt();
    let most = (found.rho.atanh() + DEVIATIONS_99 * error).tanh();
    (most < LEAST_RHO).then_some(false)
}

/// Selections in the order of the paper's table: by times each is faster than the one before, by throughputs too.
fn order(
    report: &Report,
    name: &str,
    is_time: bool,
    of: fn(&Performance) -> Option<f64>,
    printed_of: fn((f64, f64, f64)) -> f64,
) -> Verdict {
    let found = ORDER.map(|name| report.selections.iter().find(|one| one.name == name));
    let ours: Vec<_> = found.iter().map(|one| one.and_then(|one| of(&one.performance))).collect();
    let row = |name: &&str| {
        let row = printed(name)?;
        Some(printed_of((row.ttfb_median_ms?, row.ttfb_p90_ms?, row.mbit?)))
    };
    let paper: Vec<f64> = ORDER.iter().filter_map(row).collect();
    let least = found.iter().map(|one| one.map_or(0, |one| one.performance.circuits)).min();
    let is_enough = least >= Some(if is_time { LEAST_CIRCUITS } else { LEAST_WITH_DOWNLOADS });
    let between = if is_time { " > " } else { " < " };
    let what = format!("{name}: {}", ORDER.join(between));
    if is_time {
        return Verdict::falls(what, ours, paper, is_enough);
    }
    let rising = ours.iter().rev().copied().collect();
    let Verdict { holds, .. } = Verdict::falls(String::new(), rising, Vec::new(), is_enough);
    Verdict { what, ours, paper, holds }
}

/// Whether a selection accepts what it was asked for (ledger row N14); none of those that were not.
fn accepted(selection: &Selection) -> Option<Verdict> {
    let asked = selection.asked_share.filter(|share| *share < 1.0)?;
    // Of three circuits one is taken, whatever they are.
    if selection.name.ends_with("best_of_3") {
        return None;
    }
    let (accepted, circuits) = (selection.accepted_share, selection.performance.circuits as f64);
    let is_enough = circuits / accepted.max(f64::MIN_POSITIVE) >= LEAST_DECIDED as f64;
    Some(Verdict {
        what: format!(
            "{} accepts {:.1} % within {} point",
            selection.name,
            asked * 100.0,
            SHARE_OFF * 100.0
        ),
        ours: vec![Some(accepted * 100.0)],
        paper: Vec::new(),
        holds: is_enough.then(|| (accepted - asked).abs() <= SHARE_OFF),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Options;
    use crate::read::{Circuits, Seen};
    use crate::replay::Timeout;

    /// Circuits of which times follow the round trip as far as these say: build time by `noise` of its own.
    fn circuits(count: u32, noise: f64) -> Circuits {
        let seen = |number: u32| {
            // Some numbers that have nothing to do with each other.
            let draw = |step: u32| f64::from(number.wrapping_mul(step) % 10_007) / 10_007.0;
            let rtt_ms = 100.0 + 300.0 * draw(2_654_435_761);
            let ttfb_ms = rtt_ms + 20.0 * draw(40_503);
            Seen {
                path: vec![0, 1, 2],
                hops: Some(3),
                build_ms: Some(2.0 * rtt_ms + noise * draw(69_069)),
                rtt_ms: Some(rtt_ms),
                congestion_ms: Some(5.0 + draw(7_919)),
                ttfb_ms: Some(ttfb_ms),
                mbit_per_sec: number.is_multiple_of(20).then(|| 1000.0 / ttfb_ms),
                ..Seen::default()
            }
        };
        let mut circuits = Circuits::default();
        circuits.hosts.push("host".to_owned());
        circuits.relays = vec![String::new(); 3];
        circuits.all = (0..count).map(seen).collect();
        circuits
    }

    /// What is said of them.
    fn of(circuits: &Circuits) -> Vec<Verdict> {
        let timeout = Timeout::Percentile;
        let options = Options {
            hops: 3,
            window: 1000,
            shares: vec![0.8, 0.5],
            timeout,
            seed: 1,
            refill_ms: 100,
        };
        verdicts(&Report::of(circuits, None, &options))
    }

    #[test]
    fn orders_hold_or_do_not() {
        let all = of(&circuits(20_000, 600.0));
        assert!(all.iter().all(|verdict| verdict.holds == Some(true)), "{all:#?}");
        assert!(!any_fails(&all));
        assert_eq!(all.len(), 5 + 9, "two of rho, three orders, and what nine selections accept");
        assert_eq!(all[4].paper, [2.72, 3.24, 3.30, 4.30, 4.70]);
        // Build times that say more than round trips: both orders turn round.
        let mut odd = circuits(20_000, 600.0);
        for seen in &mut odd.all {
            std::mem::swap(&mut seen.build_ms, &mut seen.rtt_ms);
        }
        let odd = of(&odd);
        assert!(any_fails(&odd));
        assert_eq!((odd[0].holds, odd[2].holds), (Some(false), Some(false)), "{odd:#?}");
        assert!(odd[0].line().starts_with("DOES NOT HOLD: rho"), "{}", odd[0].line());
    }

    #[test]
    fn a_rho_that_chance_may_have_made_too_small_is_not_judged() {
        let of = |rho, pairs| is_high(&Spearman { rho, p: 0.0, pairs });
        assert_eq!([of(0.8, 10), of(0.85, 20_000)], [Some(true); 2]);
        // By hand: 0.792 of 1,000 reaches up to tanh(1.0768 + 2.5758 * 0.0363) = 0.824; of 50,000 to 0.797.
        assert_eq!([of(0.792, 1000), of(0.792, 50_000)], [None, Some(false)]);
        assert_eq!(of(0.7, 1000), Some(false));
        assert_eq!([of(f64::NAN, 1000), of(0.5, 2)], [None; 2]);
    }

    #[test]
    fn few_circuits_say_nothing_of_orders() {
        let all = of(&circuits(1500, 600.0));
        let judged = all.iter().filter(|verdict| verdict.holds.is_some()).count();
        assert_eq!(judged, 2, "rho alone: {all:#?}");
        assert!(all[4].line().contains("not judged"), "{}", all[4].line());
        let nothing = of(&Circuits::default());
        assert_eq!(nothing[1].holds, Some(false), "nothing was measured");
    }
}
