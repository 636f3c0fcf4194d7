//! The gain of attackers: how often one has both the first and the last relay of an accepted
//! circuit.
//!
//! Intervals are from the bootstrap over accepted circuits, or Wilson's if hits or misses are few.
//! The attackers are chosen from all circuits. Of relays that are used equally often, the one with
//! the lesser fingerprint is chosen, and [`Tie`] has the effect of another choice. Tor puts no two
//! relays of a family or a /16 into a circuit, so a single family or /16 gains nothing; several
//! that cooperate do.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ff_archives::network::{Network, Relay};
use serde::Serialize;
use statrs::function::beta::checked_beta_reg;

use super::Ends;
use crate::interval::wilson;
use crate::read::hex;

/// The numbers of most used relays that an attacker has.
const RELAYS: [usize; 4] = [1, 5, 10, 20];
/// The numbers of families, /16s or countries that an attacker has.
const GROUPS: [usize; 3] = [1, 3, 5];
/// With fewer hits, or misses, the bootstrap is not reliable, and with none it gives no interval.
pub const FEW: u64 = 10;
/// The part outside of a 95 % interval at each end.
const TAIL: f64 = 0.025;

/// Attackers that might have both ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attackers {
    /// Their names in results, and their tie, if there is one: of the groups used as often as their
    /// last one, how many they have and how many there are.
    all: Vec<(String, Option<(u64, u64)>)>,
    /// The attackers of each relay, one bit each: without those of the tie, with some of them, and
    /// with all.
    owned: Vec<[u64; 3]>,
}

/// How often an attacker has both ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The attacker's name.
    pub attacker: String,
    /// The part of accepted circuits with both ends of the attacker.
    pub chance: f64,
    /// The lower bound of the 95 % interval.
    pub low: f64,
    /// The upper bound of the 95 % interval.
    pub high: f64,
    /// The effect of a tie, if there is one.
    pub tie: Option<Tie>,
}

/// Relays or groups that are used equally often, some of which an attacker has; the choice is
/// arbitrary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tie {
    /// The number that the attacker has.
    pub chosen: u64,
    /// The number that there are.
    pub of: u64,
    /// The part of accepted circuits with both ends of the attacker if it has none of them.
    pub least: f64,
    /// The same part if it has all of them.
    pub most: f64,
}

impl Attackers {
    /// The attackers with the most used relays, and with a network's most used families, /16s and
    /// countries.
    #[must_use]
    pub fn of(all: &[Ends], relays: &[String], network: Option<&Network>) -> Self {
        let mut uses = vec![0_u64; relays.len()];
        for end in all.iter().flat_map(|ends| [ends.0, ends.1]) {
            if let Some(count) = uses.get_mut(end as usize) {
                *count += 1;
            }
        }
        let mut found = Self { all: Vec::new(), owned: vec![[0; 3]; relays.len()] };
        // In the order of fingerprints, so that the order of files does not matter.
        let single: Vec<Option<String>> = relays.iter().cloned().map(Some).collect();
        found.add("relays", &single, &uses, &RELAYS);
        if let Some(network) = network {
            for (kind, of) in groups(network, relays) {
                found.add(kind, &of, &uses, &GROUPS);
            }
        }
        found
    }

    /// Adds attackers with the most used groups.
    fn add(&mut self, kind: &str, group_of: &[Option<String>], uses: &[u64], sizes: &[usize]) {
        let mut by_use: BTreeMap<&str, u64> = BTreeMap::new();
        for (group, count) in group_of.iter().zip(uses) {
            if let Some(group) = group {
                *by_use.entry(group).or_default() += count;
            }
        }
        let mut order: Vec<(&str, u64)> = by_use.into_iter().collect();
        order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rank: HashMap<&str, usize> =
            order.iter().enumerate().map(|(rank, (group, _))| (*group, rank)).collect();
        for size in sizes.iter().filter(|size| **size <= order.len()) {
            let bit = 1 << self.all.len();
            let last = order[size - 1].1;
            let surely = order.iter().filter(|(_, count)| *count > last).count();
            let perhaps = order.iter().filter(|(_, count)| *count >= last).count();
            // Groups at no end of a circuit change nothing.
            let is_tie = perhaps > *size && last > 0;
            let tie = is_tie.then(|| ((size - surely) as u64, (perhaps - surely) as u64));
            self.all.push((format!("top {size} {kind}"), tie));
            for (owned, group) in self.owned.iter_mut().zip(group_of) {
                let Some(rank) = group.as_deref().and_then(|group| rank.get(group)) else {
                    continue;
                };
                for (owned, size) in owned.iter_mut().zip([surely, *size, perhaps]) {
                    *owned |= if *rank < size { bit } else { 0 };
                }
            }
        }
    }

    /// The gain of each attacker from accepted circuits.
    #[must_use]
    pub fn gains(&self, accepted: &[Ends]) -> Vec<Gain> {
        let owner = |end: u32| self.owned.get(end as usize).copied().unwrap_or_default();
        let mut hits = vec![[0_u64; 3]; self.all.len()];
        for ends in accepted {
            let (first, last) = (owner(ends.0), owner(ends.1));
            for (way, (first, last)) in first.into_iter().zip(last).enumerate() {
                let mut both = first & last;
                while both != 0 {
                    hits[both.trailing_zeros() as usize][way] += 1;
                    both &= both - 1;
                }
            }
        }
        let n = accepted.len() as u64;
        let gain = |(place, hits): (usize, [u64; 3])| {
            let (attacker, tie) = &self.all[place];
            let (low, high) = interval(hits[1], n);
            let [least, chance, most] = hits.map(|hits| hits as f64 / n.max(1) as f64);
            let tie = tie.map(|(chosen, of)| Tie { chosen, of, least, most });
            Gain { attacker: attacker.clone(), chance, low, high, tie }
        };
        hits.into_iter().enumerate().map(gain).collect()
    }
}

/// The 95 % interval of a probability with this many hits in `n`.
fn interval(hits: u64, n: u64) -> (f64, f64) {
    let (part, all) = (hits as f64 / n as f64, n as f64);
    if hits.min(n - hits) < FEW {
        let found = wilson(hits as f64, all);
        return (found.low.unwrap_or(0.0), found.high.unwrap_or(1.0));
    }
    // The number of hits in a resample is Binomial(n, part), so these are the percentiles for
    // infinitely many resamples.
    (binomial(n, part, TAIL) as f64 / all, binomial(n, part, 1.0 - TAIL) as f64 / all)
}

/// The least number that the hits of `n` draws do not exceed with at least this probability, if
/// each draw hits with probability `part`.
fn binomial(n: u64, part: f64, chance: f64) -> u64 {
    // The probability of at most k < n hits, as an incomplete beta function.
    let at_most =
        |k: u64| checked_beta_reg((n - k) as f64, k as f64 + 1.0, 1.0 - part).unwrap_or(1.0);
    let (mut low, mut high) = (0, n);
    while low < high {
        let k = low.midpoint(high);
        if at_most(k) >= chance { high = k } else { low = k + 1 }
    }
    low
}

/// The family, the /16 and the country of each relay, as far as the network has them.
fn groups(network: &Network, relays: &[String]) -> Vec<(&'static str, Vec<Option<String>>)> {
    let places: HashMap<String, usize> = network
        .relays
        .iter()
        .enumerate()
        .map(|(place, relay)| (hex(&relay.fingerprint), place))
        .collect();
    // Without descriptors, families are unknown.
    let has_one = |relay: &Relay| !relay.family.is_empty() || !relay.family_ids.is_empty();
    let families = if network.relays.iter().any(has_one) { network.families() } else { Vec::new() };
    let group = |of: &dyn Fn(usize) -> Option<String>| -> Vec<Option<String>> {
        relays.iter().map(|id| of(*places.get(id)?)).collect()
    };
    let subnet = |place: usize| {
        network.relays[place].addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(format!("{}.{}", v4.octets()[0], v4.octets()[1])),
            IpAddr::V6(_) => None,
        })
    };
    let country =
        |place: usize| network.relays[place].country.map(|_| network.relays[place].country_name());
    let all = [
        ("families", group(&|place| families.get(place).map(usize::to_string))),
        ("/16s", group(&subnet)),
        ("countries", group(&country)),
    ];
    all.into_iter().filter(|(_, of)| of.iter().any(Option::is_some)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_is_the_part_with_both_ends_and_lies_in_its_interval() {
        // Relays 0 and 1 are used most; one circuit in four has both.
        let all: Vec<Ends> =
            (0..400).map(|k| if k % 4 == 0 { (0, 1) } else { (k % 2, 2 + k % 50) }).collect();
        let relays: Vec<String> = (0..60).map(|k| format!("{k:040X}")).collect();
        let attackers = Attackers::of(&all, &relays, None);
        let gains = attackers.gains(&all);
        let names: Vec<&str> = gains.iter().map(|gain| gain.attacker.as_str()).collect();
        assert_eq!(names, ["top 1 relays", "top 5 relays", "top 10 relays", "top 20 relays"]);
        assert!(gains[0].chance == 0.0 && gains[1].chance >= 0.25, "{gains:?}");
        for gain in &gains {
            assert!(gain.low <= gain.chance && gain.chance <= gain.high, "{gain:?}");
        }
        let width = gains[1].high - gains[1].low;
        let expected = 2.0 * 1.96 * (gains[1].chance * (1.0 - gains[1].chance) / 400.0_f64).sqrt();
        assert!((width / expected - 1.0).abs() < 0.3, "{width} {expected}");
    }

    #[test]
    fn a_tie_is_said_with_what_it_decides_and_does_not_hang_on_the_order() {
        let ring = |ends: [u32; 3], times: usize| {
            let [a, b, c] = ends;
            [(a, b), (b, c), (c, a)].repeat(times)
        };
        let all = [ring([0, 1, 2], 10), ring([3, 4, 5], 2), vec![(6, 7)]].concat();
        let relays: Vec<String> = (0..8).map(|k| format!("{k:040X}")).collect();
        let gains = Attackers::of(&all, &relays, None).gains(&all);
        let [one, five] = &gains[..] else { panic!("two: {gains:?}") };
        let part = |hits: f64| hits / 37.0;
        let tie = |chosen, of, least, most| {
            Some(Tie { chosen, of, least: part(least), most: part(most) })
        };
        assert_eq!((one.chance, one.tie), (0.0, tie(1, 3, 0.0, 30.0)));
        assert_eq!((five.chance, five.tie), (part(32.0), tie(2, 3, 30.0, 36.0)));
        let turned: Vec<Ends> = all.iter().map(|ends| (7 - ends.0, 7 - ends.1)).collect();
        let relays: Vec<String> = relays.into_iter().rev().collect();
        assert_eq!(Attackers::of(&turned, &relays, None).gains(&turned), gains);
        let sure = Attackers::of(&all[..30], &relays[5..], None).gains(&[]);
        assert_eq!(sure[0].tie.map(|tie| (tie.chosen, tie.of)), Some((1, 3)), "{sure:?}");
    }

    #[test]
    fn an_interval_is_what_samples_drawn_again_have() {
        // qbinom of R: c(0.025, 0.975) of 400 draws at 1/4, of 60 at 1/5, of 1,000 at 1 %.
        for (hits, n, low, high) in
            [(100, 400, 83.0, 117.0), (12, 60, 6.0, 18.0), (10, 1000, 4.0, 17.0)]
        {
            assert_eq!(interval(hits, n), (low / n as f64, high / n as f64), "{hits} of {n}");
        }
        let (low, high) = interval(250_000, 1_000_000);
        let half = 1.96 * (0.25 * 0.75 / 1e6_f64).sqrt();
        assert!((low - 0.25 + half).abs() < 2e-6 && (high - 0.25 - half).abs() < 2e-6);
    }

    #[test]
    fn what_was_never_seen_or_always_may_yet_be_otherwise() {
        // Wilson's upper bound for 0 of n is z²/(n + z²).
        let (low, high) = interval(0, 1000);
        assert!(low.abs() < 1e-12 && (high - 0.003_826_758).abs() < 1e-8, "{low} {high}");
        let (low, high) = interval(1000, 1000);
        assert!((low - 0.996_173_241).abs() < 1e-8 && (high - 1.0).abs() < 1e-12, "{low} {high}");
        assert_eq!(interval(0, 0), (0.0, 1.0));
    }

    #[test]
    fn nobody_gains_of_nothing() {
        let attackers = Attackers::of(&[], &[], None);
        assert!(attackers.gains(&[]).is_empty());
    }
}
