//! What selections accept, what users get of it, and what it takes from anonymity.

use std::collections::BTreeMap;

use ff_sim::network::Network;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::performance::Performance;
use super::{Hosts, Options, values};
use crate::anonymity::attacker::{Attackers, Gain};
use crate::anonymity::{Corrected, Ends, Published, Whole, corrected, published, thinned};
use crate::rank::{KruskalWallis, kruskal_wallis};
use crate::read::{Circuits, Latency, Seen};
use crate::replay::{self, Decisions, Measure, Rule};

/// The share of the congestion-aware scheme by quantile that stands beside the best of three (002, section 7.6).
const THIRD: f64 = 0.33;

/// A selection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// Its name: `all`, `rtt80`, `build_rtt80`, `congestion_best_of_3`.
    pub name: String,
    /// The share that it was to accept; none where it does not say.
    pub asked_share: Option<f64>,
    /// The share that it has accepted of what it decided.
    pub accepted_share: f64,
    /// What users get: means over hosts.
    pub performance: Performance,
    /// What users get at each host that has circuits for it.
    pub hosts: BTreeMap<String, Performance>,
    /// What it takes from anonymity.
    pub anonymity: Anonymity,
    /// What it has decided of each host's circuits that count, in the order in which they were read.
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

/// Four ways to say what a selection takes from anonymity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Anonymity {
    /// The published measures.
    pub published: Published,
    /// The published measures if as many circuits are accepted at random.
    pub at_random: Published,
    /// Measures that do not depend on how many are accepted.
    pub corrected: Corrected,
    /// How often both ends are an attacker's.
    pub attackers: Vec<Gain>,
}

/// Kruskal and Wallis' test of times to first byte with round trips against those with build times. Most circuits are
/// in both groups, so they are not independent and p is too great.
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

/// A rule with what it decides at each host.
type Decided = (Rule, Vec<Decisions>);

/// All selections, tests of times to first byte, and why nothing is decided, if that is so.
pub(super) fn all(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    network: Option<&Network>,
    options: &Options,
) -> (Vec<Selection>, Vec<Kruskal>, Option<String>) {
    let rules = decide(hosts, options);
    let most = hosts.iter().map(|(_, all)| all.len()).max().unwrap_or(0);
    let is_decided =
        rules.iter().skip(1).any(|(_, all)| all.iter().any(|one| replay::share(one).is_some()));
    let not_decided = (!is_decided).then(|| {
        format!(
            "no selection decides: its window takes {} circuits and there are {most}; --window N takes a shorter one",
            options.window
        )
    });
    let ends: Vec<Vec<Option<Ends>>> =
        hosts.iter().map(|(_, all)| all.iter().map(|seen| ends(seen)).collect()).collect();
    let mut rng = ChaCha12Rng::seed_from_u64(options.seed);
    let accepted: Vec<Vec<Ends>> = rules.iter().map(|(_, all)| accepted(&ends, all)).collect();
    let whole = Whole::of(&accepted[0]);
    let attackers = Attackers::of(&accepted[0], &circuits.relays, network);
    // Measures are compared at the size of the smallest selection that has any circuit.
    let size = accepted.iter().map(Vec::len).filter(|len| *len > 0).min().unwrap_or(0);
    let selection = |((rule, decisions), accepted_ends): (&Decided, &Vec<Ends>)| {
        let share = overall(decisions)?;
        let per_host = per_host(circuits, hosts, decisions);
        let averaged: Vec<Performance> = per_host.values().copied().collect();
        let anonymity = Anonymity {
            published: published(accepted_ends, &whole),
            at_random: thinned(&accepted[0], accepted_ends.len(), &whole, &mut rng),
            corrected: corrected(accepted_ends, size, &whole, &mut rng),
            attackers: attackers.gains(accepted_ends, &mut rng),
        };
        Some(Selection {
            name: rule.name(),
            asked_share: asked(*rule),
            accepted_share: share,
            performance: Performance::average(&averaged),
            hosts: per_host,
            anonymity,
            decisions: decisions.clone(),
            ttfb: drawn(hosts, decisions, |seen| seen.ttfb_ms),
            throughput: drawn(hosts, decisions, |seen| seen.mbit_per_sec),
            latency: drawn(hosts, decisions, |seen| {
                seen.latency.filter(Latency::is_series).map(|one| one.mean_ms)
            }),
        })
    };
    let selections = rules.iter().zip(&accepted).filter_map(selection).collect();
    (selections, tests(circuits, hosts, &rules, options), not_decided)
}

/// The rules with what they decide; all circuits that any of them decides come first.
fn decide(hosts: &Hosts<'_>, options: &Options) -> Vec<Decided> {
    let mut shares = options.shares.clone();
    shares.push(THIRD);
    let mut rules: Vec<Decided> = Vec::new();
    for measure in Measure::ALL {
        let of_host = |(_, all): &(usize, Vec<&Seen>)| {
            let timeouts = replay::timeouts(all, measure, &shares, options.timeout, options.window);
            timeouts.iter().map(|timeouts| replay::accepted(all, measure, timeouts)).collect()
        };
        let found: Vec<Vec<Decisions>> = hosts.iter().map(of_host).collect();
        for (place, share) in shares.iter().enumerate() {
            // The published third is for congestion alone.
            if place < options.shares.len() || measure == Measure::Congestion {
                let decisions = found.iter().map(|host| host[place].clone()).collect();
                rules.push((Rule::Fastest(measure, *share), decisions));
            }
        }
    }
    for share in &options.shares {
        combine(hosts, options, *share, &mut rules);
    }
    let best = hosts.iter().map(|(_, all)| replay::best_of_three(all)).collect();
    rules.push((Rule::BestOfThree, best));
    let base = base(hosts, &rules);
    rules.insert(0, (Rule::All, base));
    rules
}

/// Adds build time and round trip together, and the round trip alone at the share that both accept (002, section 7.3).
fn combine(hosts: &Hosts<'_>, options: &Options, share: f64, rules: &mut Vec<Decided>) {
    let find = |measure| {
        let rule = Rule::Fastest(measure, share);
        rules.iter().find(|(other, _)| *other == rule).map(|(_, decisions)| decisions)
    };
    let Some((build, rtt)) = find(Measure::Build).zip(find(Measure::Rtt)) else { return };
    let both: Vec<Decisions> =
        build.iter().zip(rtt).map(|(build, rtt)| replay::both(build, rtt)).collect();
    let Some(effective) = overall(&both) else { return };
    let effective = (effective * 1000.0).round() / 1000.0;
    rules.push((Rule::BuildAndRtt(share), both));
    let rule = Rule::Fastest(Measure::Rtt, effective);
    if rules.iter().any(|(other, _)| *other == rule) || effective <= 0.0 {
        return;
    }
    let of_host = |(_, all): &(usize, Vec<&Seen>)| {
        let timeouts =
            replay::timeouts(all, Measure::Rtt, &[effective], options.timeout, options.window);
        replay::accepted(all, Measure::Rtt, &timeouts[0])
    };
    rules.push((rule, hosts.iter().map(of_host).collect()));
}

/// All circuits that any timeout decides; all there are if none does.
fn base(hosts: &Hosts<'_>, rules: &[Decided]) -> Vec<Decisions> {
    let is_timeout = |rule: &Rule| matches!(rule, Rule::Fastest(..));
    let of_host = |(host, (_, all)): (usize, &(usize, Vec<&Seen>))| {
        let timeouts =
            || rules.iter().filter(|(rule, _)| is_timeout(rule)).map(|(_, all)| &all[host]);
        let decided = |place: usize| timeouts().any(|all| all[place].is_some());
        let any = (0..all.len()).any(decided);
        (0..all.len()).map(|place| (!any || decided(place)).then_some(true)).collect()
    };
    hosts.iter().enumerate().map(of_host).collect()
}

/// The share that a rule is to accept.
fn asked(rule: Rule) -> Option<f64> {
    match rule {
        Rule::All => Some(1.0),
        Rule::Fastest(_, share) => Some(share),
        Rule::BuildAndRtt(_) => None,
        Rule::BestOfThree => Some(1.0 / 3.0),
    }
}

/// The share that is accepted over all hosts; none if nothing is decided.
fn overall(decisions: &[Decisions]) -> Option<f64> {
    replay::share(&decisions.iter().flatten().copied().collect())
}

/// What users get at each host.
fn per_host(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    decisions: &[Decisions],
) -> BTreeMap<String, Performance> {
    let mut found = BTreeMap::new();
    for ((host, all), decisions) in hosts.iter().zip(decisions) {
        let accepted = kept(all, decisions);
        if !accepted.is_empty() {
            let name = circuits.hosts.get(*host).cloned().unwrap_or_default();
            found.insert(name, Performance::of(&accepted));
        }
    }
    found
}

/// The circuits that are accepted.
pub(crate) fn kept<'a>(all: &[&'a Seen], decisions: &Decisions) -> Vec<&'a Seen> {
    all.iter().zip(decisions).filter(|(_, is)| **is == Some(true)).map(|(seen, _)| *seen).collect()
}

/// The distribution of values of accepted circuits.
fn drawn(
    hosts: &Hosts<'_>,
    decisions: &[Decisions],
    of: impl Fn(&Seen) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let kept = hosts.iter().zip(decisions).flat_map(|((_, all), is)| kept(all, is));
    let values: Vec<f64> = kept.filter_map(of).collect();
    ff_sim::figure::distribution(&ff_sim::stats::sorted(values))
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
    options: &Options,
) -> Vec<Kruskal> {
    let mut found = Vec::new();
    for share in &options.shares {
        let of = |measure, place: usize| {
            let rule = Rule::Fastest(measure, *share);
            let decisions = &rules.iter().find(|(other, _)| *other == rule)?.1[place];
            Some(values(&kept(&hosts[place].1, decisions), |seen| seen.ttfb_ms))
        };
        for (place, (host, _)) in hosts.iter().enumerate() {
            let groups = of(Measure::Build, place).zip(of(Measure::Rtt, place));
            if let Some(test) = groups.and_then(|(build, rtt)| kruskal_wallis(&[&build, &rtt])) {
                let host = circuits.hosts.get(*host).cloned().unwrap_or_default();
                found.push(Kruskal { host, share: *share, test });
            }
        }
    }
    found
}
