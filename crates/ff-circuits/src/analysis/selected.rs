//! Selections: accepted circuits, the performance for users, and the cost in anonymity.

use std::collections::BTreeMap;

use ff_archives::network::Network;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::analysed::{Hosts, host_name, values};
use super::options::AnalysisOptions;
use super::performance::Performance;
use super::rules::{self, Decided, kept, overall};
use crate::anonymity::attacker::{Attackers, Gain};
use crate::anonymity::{
    Corrected, Ends, Published, Whole, common_size, corrected, published, thinned,
};
use crate::rank::{KruskalWallis, kruskal_wallis};
use crate::read::{Circuits, Latency, Seen};
use crate::replay::{Decisions, Measure, Rule};

/// A selection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// Its name: `all`, `rtt80`, `build_rtt80`, `congestion_best_of_3`.
    pub name: String,
    /// The share to accept; none if the rule has none.
    pub asked_share: Option<f64>,
    /// The accepted share of the decided circuits. None if no circuit has the measure that it
    /// needs; then the other values are unknown too.
    pub accepted_share: Option<f64>,
    /// The performance for users: means over hosts.
    pub performance: Performance,
    /// The performance at each host with circuits.
    pub hosts: BTreeMap<String, Performance>,
    /// The cost in anonymity; none without an accepted share.
    pub anonymity: Option<Anonymity>,
    /// The decisions on each host's analysed circuits, in the order in which they were read.
    #[serde(skip)]
    pub decisions: Vec<Decisions>,
    /// The distribution of times to first byte in ms, for figures.
    #[serde(skip)]
    pub ttfb: Vec<(f64, f64)>,
    /// The distribution of throughput in Mbit/s, for figures.
    #[serde(skip)]
    pub throughput: Vec<(f64, f64)>,
    /// The distribution of circuits' mean times to first byte over their life in ms, for figures.
    #[serde(skip)]
    pub latency: Vec<(f64, f64)>,
}

/// Four measures of a selection's cost in anonymity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Anonymity {
    /// The published measures.
    pub published: Published,
    /// The published measures if as many circuits are chosen at random.
    pub at_random: Published,
    /// Measures of equally many circuits of each selection; none if this one has too few.
    pub corrected: Option<Corrected>,
    /// How often an attacker has both ends.
    pub attackers: Vec<Gain>,
}

/// The Kruskal-Wallis test of times to first byte with selection by round trips against selection
/// by build times. Most circuits are in both groups, so they are not independent and p is too
/// large.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kruskal {
    /// The host.
    pub host: String,
    /// The accepted share.
    pub share: f64,
    /// The test.
    #[serde(flatten)]
    pub test: KruskalWallis,
}

/// The results of all rules.
pub(super) struct Found {
    /// Selections, all circuits first.
    pub(super) selections: Vec<Selection>,
    /// Tests of times to first byte.
    pub(super) kruskal_wallis: Vec<Kruskal>,
    /// Why selections decide nothing, if so.
    pub(super) not_decided: Option<String>,
    /// Hosts with no circuit that a selection decides, while other hosts have some.
    pub(super) undecided_hosts: Vec<String>,
    /// The number of circuits of each selection that entropies compare.
    pub(super) common_size: Option<usize>,
}

impl Found {
    /// Of these circuits, by host; with a network, also attackers with families, /16s and
    /// countries.
    pub(super) fn of(
        circuits: &Circuits,
        hosts: &Hosts<'_>,
        network: Option<&Network>,
        options: &AnalysisOptions,
    ) -> Self {
        let rules = rules::decide(hosts, options);
        let (anonymity, common_size) = anonymity(circuits, hosts, network, &rules, options.seed);
        let selection = |((rule, decisions), anonymity): (&Decided, Anonymity)| {
            selection(circuits, hosts, *rule, decisions, anonymity)
        };
        Self {
            selections: rules.iter().zip(anonymity).filter_map(selection).collect(),
            kruskal_wallis: tests(circuits, hosts, &rules, options),
            not_decided: rules::not_decided(hosts, &rules, options),
            undecided_hosts: rules::undecided_hosts(circuits, hosts, &rules[0].1),
            common_size,
        }
    }
}

/// A selection; none if it decides nothing although circuits have its measure.
fn selection(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    rule: Rule,
    decisions: &[Decisions],
    anonymity: Anonymity,
) -> Option<Selection> {
    let accepted_share = overall(decisions);
    if accepted_share.is_none() && rules::is_measured(rule, hosts) {
        return None;
    }
    let per_host = per_host(circuits, hosts, decisions);
    let averaged: Vec<Performance> = per_host.values().copied().collect();
    Some(Selection {
        name: rule.name(),
        asked_share: asked(rule),
        accepted_share,
        performance: Performance::average(&averaged),
        hosts: per_host,
        anonymity: accepted_share.map(|_| anonymity),
        decisions: decisions.to_vec(),
        ttfb: drawn(hosts, decisions, |seen| seen.ttfb_ms),
        throughput: drawn(hosts, decisions, |seen| seen.mbit_per_sec),
        latency: drawn(hosts, decisions, |seen| {
            seen.latency.filter(Latency::is_series).map(|one| one.mean_ms)
        }),
    })
}

/// The cost in anonymity of each rule, and the number of circuits that entropies compare.
fn anonymity(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    network: Option<&Network>,
    rules: &[Decided],
    seed: u64,
) -> (Vec<Anonymity>, Option<usize>) {
    let ends: Vec<Vec<Option<Ends>>> =
        hosts.iter().map(|(_, all)| all.iter().map(|seen| ends(seen)).collect()).collect();
    let accepted: Vec<Vec<Ends>> = rules.iter().map(|(_, all)| accepted(&ends, all)).collect();
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let all = &accepted[0];
    let whole = Whole::of(all);
    let attackers = Attackers::of(all, &circuits.relays, network);
    let size = common_size(accepted.iter().map(Vec::len), all.len());
    let of = |accepted: &Vec<Ends>| Anonymity {
        published: published(accepted, &whole),
        at_random: thinned(all, accepted.len(), &whole, &mut rng),
        corrected: size
            .filter(|size| accepted.len() >= *size)
            .map(|size| corrected(accepted, size, &whole, &mut rng)),
        attackers: attackers.gains(accepted),
    };
    (accepted.iter().map(of).collect(), size)
}

/// The share that a rule should accept.
fn asked(rule: Rule) -> Option<f64> {
    match rule {
        Rule::All => Some(1.0),
        Rule::Fastest(_, share) => Some(share),
        Rule::BuildAndRtt(_) => None,
        Rule::BestOfThree => Some(1.0 / 3.0),
    }
}

/// The performance at each host.
fn per_host(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    decisions: &[Decisions],
) -> BTreeMap<String, Performance> {
    let mut found = BTreeMap::new();
    for ((host, all), decisions) in hosts.iter().zip(decisions) {
        let accepted = kept(all, decisions);
        if !accepted.is_empty() {
            let name = host_name(circuits, *host);
            found.insert(name, Performance::of(&accepted));
        }
    }
    found
}

/// The distribution of values of accepted circuits.
fn drawn(
    hosts: &Hosts<'_>,
    decisions: &[Decisions],
    of: impl Fn(&Seen) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let kept = hosts.iter().zip(decisions).flat_map(|((_, all), is)| kept(all, is));
    let values: Vec<f64> = kept.filter_map(of).collect();
    ff_report::figure::distribution(&ff_report::stats::sorted(values))
}

/// A circuit's first and last relay.
fn ends(seen: &Seen) -> Option<Ends> {
    Some((*seen.path.first()?, *seen.path.last()?))
}

/// The ends of accepted circuits.
fn accepted(ends: &[Vec<Option<Ends>>], decisions: &[Decisions]) -> Vec<Ends> {
    let of = |(ends, decisions): (&Vec<Option<Ends>>, &Decisions)| {
        let both = ends.iter().zip(decisions);
        both.filter(|(_, is)| **is == Some(true)).filter_map(|(ends, _)| *ends).collect::<Vec<_>>()
    };
    ends.iter().zip(decisions).flat_map(of).collect()
}

/// Tests of times to first byte with both measures.
fn tests(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    rules: &[Decided],
    options: &AnalysisOptions,
) -> Vec<Kruskal> {
    let mut found = Vec::new();
    for share in rules::shares(options) {
        let of = |measure, place: usize| {
            let rule = Rule::Fastest(measure, share);
            let decisions = &rules.iter().find(|(other, _)| *other == rule)?.1[place];
            Some(values(&kept(&hosts[place].1, decisions), |seen| seen.ttfb_ms))
        };
        for (place, (host, _)) in hosts.iter().enumerate() {
            let groups = of(Measure::Build, place).zip(of(Measure::Rtt, place));
            if let Some(test) = groups.and_then(|(build, rtt)| kruskal_wallis(&[&build, &rtt])) {
                let host = host_name(circuits, *host);
                found.push(Kruskal { host, share, test });
            }
        }
    }
    found
}
