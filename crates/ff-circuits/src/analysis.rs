//! The analysis of measured circuits (NavigaTor, section 7): fits, correlations, selections,
//! anonymity.
//!
//! ```text
//!   Circuits ─┬─▶ fit      Fits: build, rtt, congestion, ttfb
//!             ├─▶ rank     Spearman's rho with TTFB
//!             ├─▶ buckets  token buckets (sections 7.1 and 8)
//!             ├─▶ congested  congestion by relay
//!             └─▶ replay ─▶ rules ─▶ selected ─┬─▶ performance: TTFB, throughput, latency   tables 1, 3, 4, 5
//!                                              └─▶ anonymity: published, thinned, corrected, attackers   table 2
//! ```
//!
//! The result is a [`Report`], which `text`, `tables` and `figures` show. Only circuits of
//! [`AnalysisOptions::hops`] relays are analysed, because the build time grows with the number of
//! hops; the others are counted.

mod analysed;
pub mod congested;
pub mod figures;
mod options;
pub mod paper;
pub mod performance;
mod rules;
pub mod selected;
pub mod tables;
pub mod text;

use std::collections::BTreeMap;

use ff_archives::network::Network;
use serde::Serialize;

use self::analysed::{Hosts, host_name, values};
use self::congested::Congested;
use self::selected::{Found, Kruskal, Selection};
use crate::buckets::Buckets;
use crate::fit::{Fits, GevFit};
use crate::rank::{Spearman, spearman};
use crate::read::{Circuits, Damaged, Seen};
use crate::replay::Measure;

pub(crate) use self::analysed::hosts;
pub use self::options::AnalysisOptions;

/// The result of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The number of analysed circuits: those that were built, with [`Report::hops`] relays.
    pub circuits: u64,
    /// The number of relays of the analysed circuits.
    pub hops: u8,
    /// Counts of all circuits that were read.
    pub read: CircuitCounts,
    /// The hosts that measured.
    pub hosts: Vec<MeasuringHost>,
    /// Fits: `build`, `build_with_timeouts` (given-up circuits are right-censored),
    /// `build_without_link`, `rtt`, `congestion`, `ttfb`. If the intended number of relays of some
    /// given-up circuits is unknown, each of them counts in `build_with_timeouts` as the share of
    /// built circuits that have [`Report::hops`] relays; `build_with_timeouts_least` leaves them
    /// out, and in `build_with_timeouts_most` each counts fully.
    pub fits: BTreeMap<&'static str, Fits>,
    /// Spearman's rho of each measure and time to first byte.
    pub spearman_with_ttfb: BTreeMap<&'static str, Spearman>,
    /// The length of the window of selections, in circuits.
    pub window: u64,
    /// Why selections decide nothing, if so.
    pub not_decided: Option<String>,
    /// Hosts with no circuit that a selection decides, while other hosts have some: `all` excludes
    /// them too.
    pub undecided_hosts: Vec<String>,
    /// The number of circuits of each selection that `corrected` compares; none if even `all` has
    /// too few.
    pub common_size: Option<u64>,
    /// Selections, all circuits first.
    pub selections: Vec<Selection>,
    /// Tests whether times to first byte differ between the measures, for each host and share.
    pub kruskal_wallis: Vec<Kruskal>,
    /// Relays that hold cells back until a refill, if circuits have enough round trips; includes
    /// circuits of any number of hops.
    pub token_buckets: Option<Buckets>,
    /// Congestion by relay, if the lines have it; includes circuits of any number of hops.
    pub congested: Option<Congested>,
    /// Records of OnionPerf's files that cannot be read.
    pub damaged: Damaged,
    /// Random seed.
    pub seed: u64,
}

/// Counts of the circuits that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CircuitCounts {
    /// Circuits.
    pub all: u64,
    /// Built circuits of any length.
    pub built: u64,
    /// Built circuits with another number of hops.
    pub other_hops: u64,
    /// Given-up circuits that were intended to have this number of hops.
    pub given_up: u64,
    /// Given-up circuits with fewer hops whose intended number of hops is unknown, as in
    /// OnionPerf's files.
    pub unknown_hops_given_up: u64,
    /// Given-up circuits that were intended to have another number of hops.
    pub other_hops_given_up: u64,
    /// Circuits that failed otherwise.
    pub failed: u64,
    /// Incomplete last lines of files.
    pub half_lines: u64,
    /// Circuits that are left out: those that OnionPerf filters out, and those that tor launched
    /// for onion services.
    pub left_out: u64,
    /// The number of relays of all circuits.
    pub relays: u64,
    /// The number of them that the network has, if one is given.
    pub relays_in_network: Option<u64>,
}

/// A host that measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuringHost {
    /// A directory, or the name in OnionPerf's files.
    pub name: String,
    /// The number of its analysed circuits.
    pub circuits: u64,
    /// The GEV distribution of only this host's build times: its parameters differ between hosts
    /// (NavigaTor, section 7.2).
    pub build_gev: Option<GevFit>,
    /// The GEV distribution of its round trips.
    pub rtt_gev: Option<GevFit>,
}

impl Report {
    /// Analyses circuits; with a network, also attackers with families, /16s and countries.
    #[must_use]
    pub fn of(circuits: &Circuits, network: Option<&Network>, options: &AnalysisOptions) -> Self {
        let hosts = hosts(circuits, options.hops);
        let whole: Vec<&Seen> = hosts.iter().flat_map(|(_, all)| all.iter().copied()).collect();
        let (fits, of_hosts) = std::thread::scope(|scope| {
            let of_hosts = scope.spawn(|| described(circuits, &hosts));
            (fits(circuits, &whole, options.hops), of_hosts.join().unwrap_or_default())
        });
        let found = Found::of(circuits, &hosts, network, options);
        Self {
            circuits: whole.len() as u64,
            hops: options.hops,
            read: counts(circuits, network, whole.len(), options.hops),
            hosts: of_hosts,
            fits,
            spearman_with_ttfb: correlations(&whole),
            window: options.window as u64,
            not_decided: found.not_decided,
            undecided_hosts: found.undecided_hosts,
            common_size: found.common_size.map(|size| size as u64),
            selections: found.selections,
            kruskal_wallis: found.kruskal_wallis,
            token_buckets: Buckets::of(circuits, options.refill_ms),
            congested: Congested::of(circuits),
            damaged: circuits.damaged.clone(),
            seed: options.seed,
        }
    }
}

/// Whether a circuit was given up and was certainly intended to have this number of hops.
fn was_given_up(seen: &Seen, hops: u8) -> bool {
    seen.given_up_ms.is_some() && seen.has(hops)
}

/// Whether a circuit was given up and may have been intended to have this number of hops.
fn was_perhaps_given_up(seen: &Seen, hops: u8) -> bool {
    seen.given_up_ms.is_some() && seen.may_have(hops) && !seen.has(hops)
}

/// Counts of the circuits that were read.
fn counts(circuits: &Circuits, network: Option<&Network>, whole: usize, hops: u8) -> CircuitCounts {
    let count =
        |is: &dyn Fn(&Seen) -> bool| circuits.all.iter().filter(|seen| is(seen)).count() as u64;
    let built = count(&|seen| seen.build_ms.is_some());
    let given_up = count(&|seen| was_given_up(seen, hops));
    let unknown = count(&|seen| was_perhaps_given_up(seen, hops));
    let other = count(&|seen| seen.given_up_ms.is_some()) - given_up - unknown;
    let all = circuits.all.len() as u64;
    CircuitCounts {
        all,
        built,
        other_hops: built - whole as u64,
        given_up,
        unknown_hops_given_up: unknown,
        other_hops_given_up: other,
        failed: all - built - given_up - unknown - other,
        half_lines: circuits.half_lines,
        left_out: circuits.left_out,
        relays: circuits.relays.len() as u64,
        relays_in_network: network.map(|network| circuits.known(network)),
    }
}

/// The hosts with their own fits.
fn described(circuits: &Circuits, hosts: &Hosts<'_>) -> Vec<MeasuringHost> {
    let host = |(host, all): &(usize, Vec<&Seen>)| MeasuringHost {
        name: host_name(circuits, *host),
        circuits: all.len() as u64,
        build_gev: GevFit::of(&values(all, |seen| seen.build_ms)),
        rtt_gev: GevFit::of(&values(all, |seen| seen.rtt_ms)),
    };
    hosts.iter().map(host).collect()
}

/// The fits of all measures.
fn fits(circuits: &Circuits, whole: &[&Seen], hops: u8) -> BTreeMap<&'static str, Fits> {
    let mut all = with_timeouts(circuits, whole, hops);
    let mut add = |name, values: &[f64]| {
        if !values.is_empty() {
            all.insert(name, Fits::of(values, &[]));
        }
    };
    add("build", &values(whole, |seen| seen.build_ms));
    add("build_without_link", &values(whole, |seen| seen.build_without_link_ms));
    add("rtt", &values(whole, |seen| seen.rtt_ms));
    add("congestion", &values(whole, |seen| seen.congestion_ms));
    add("ttfb", &values(whole, |seen| seen.ttfb_ms));
    all
}

/// The fits of build times with given-up circuits; with bounds if the intended number of hops of
/// some is unknown.
fn with_timeouts(circuits: &Circuits, whole: &[&Seen], hops: u8) -> BTreeMap<&'static str, Fits> {
    let bounds = |is: fn(&Seen, u8) -> bool| -> Vec<f64> {
        let those = circuits.all.iter().filter(|seen| is(seen, hops));
        those.filter_map(|seen| seen.given_up_ms).collect()
    };
    let (build, known) = (values(whole, |seen| seen.build_ms), bounds(was_given_up));
    let perhaps = bounds(was_perhaps_given_up);
    let mut all = BTreeMap::new();
    if build.is_empty() || known.is_empty() && perhaps.is_empty() {
        return all;
    }
    let built = circuits.all.iter().filter(|seen| seen.build_ms.is_some()).count();
    let part = build.len() as f64 / built as f64;
    all.insert("build_with_timeouts", Fits::of_parts(&build, &known, &perhaps, part));
    if !perhaps.is_empty() {
        all.insert("build_with_timeouts_least", Fits::of(&build, &known));
        all.insert("build_with_timeouts_most", Fits::of_parts(&build, &known, &perhaps, 1.0));
    }
    all
}

/// Spearman's rho of each measure and time to first byte.
fn correlations(whole: &[&Seen]) -> BTreeMap<&'static str, Spearman> {
    let of = |measure: Measure| {
        let pairs: Vec<(f64, f64)> =
            whole.iter().filter_map(|seen| Some((measure.of(seen)?, seen.ttfb_ms?))).collect();
        Some((measure.name(), spearman(&pairs)?))
    };
    Measure::ALL.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Timeout;

    /// The report about circuits of one host.
    fn report(all: Vec<Seen>) -> Report {
        let mut circuits = Circuits::default();
        circuits.host("a");
        circuits.all = all;
        let (shares, timeout) = (vec![0.8], Timeout::Percentile);
        let options =
            AnalysisOptions { hops: 3, window: 1000, shares, timeout, seed: 1, refill_ms: 100 };
        Report::of(&circuits, None, &options)
    }

    #[test]
    fn circuits_of_other_lengths_that_were_given_up_did_not_fail_otherwise() {
        let of = |hops, build_ms, given_up_ms| Seen {
            hops: Some(hops),
            build_ms,
            given_up_ms,
            ..Seen::default()
        };
        let mut all =
            vec![of(3, Some(300.0), None), of(3, None, Some(60_000.0)), of(3, None, None)];
        all.extend((0..20).map(|_| of(2, None, Some(60_000.0))));
        let report = report(all);
        let read = report.read;
        assert_eq!(
            [read.built, read.given_up, read.other_hops_given_up, read.failed],
            [1, 1, 20, 1]
        );
        let text = text::text(&report);
        assert!(
            text.contains("given up: 1 of 3 hops, 20 of other numbers of hops; 1 failed otherwise"),
            "{text}"
        );
        assert!(!report.fits.contains_key("build_with_timeouts_most"), "all lengths are known");
    }

    /// For a given-up circuit that reached fewer than three relays, an OnionPerf file does not have
    /// the intended number. Half of the built ones have three.
    #[test]
    fn circuits_of_unknown_length_that_were_given_up_count_in_part_and_with_bounds() {
        let mut all = Vec::new();
        for number in 0..200_u32 {
            let build_ms = Some(300.0 + f64::from(number * 37 % 211));
            for hops in [3, 4] {
                all.push(Seen { hops: Some(hops), build_ms, ..Seen::default() });
            }
        }
        let given_up = |reached: u32| Seen {
            path: (0..reached).collect(),
            given_up_ms: Some(600.0),
            ..Seen::default()
        };
        all.extend((0..60).map(|number| given_up(number % 3)));
        // This one had three relays and was intended to have more.
        all.push(given_up(3));
        let report = report(all);
        let read = report.read;
        assert_eq!(
            [read.given_up, read.unknown_hops_given_up, read.other_hops_given_up, read.failed],
            [0, 60, 1, 0]
        );
        let counts = ["_least", "", "_most"].map(|end| {
            let fits = &report.fits[format!("build_with_timeouts{end}").as_str()];
            (fits.values, fits.given_up)
        });
        assert_eq!(counts, [(200, 0), (200, 30), (200, 60)]);
        let text = text::text(&report);
        assert!(text.contains("60 of an unknown number of hops"), "{text}");
    }

    #[test]
    fn columns_of_great_values_are_apart() {
        let built = |number: u32| Seen {
            hops: Some(3),
            build_ms: Some(1e12 * (1.0 + f64::from(number * 7_919 % 101))),
            ..Seen::default()
        };
        let text = text::text(&report((0..200).map(built).collect()));
        let row = text.lines().find(|line| line.starts_with("  lognormal")).expect("a fit");
        assert_eq!(row.split_whitespace().count(), 8, "{row}");
    }
}
