//! What an attacker gains: how often the first and the last relay of an accepted circuit are both his.
//!
//! Intervals are from the bootstrap: circuits are drawn again from those accepted. Who the attackers are is fixed by all
//! circuits. Tor puts no two relays of a family or a /16 into a circuit, so a single one gains nothing there: several
//! families that work together do.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ff_sim::network::Network;
use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::Ends;
use crate::read::hex;

/// How many of the most used relays an attacker has.
const RELAYS: [usize; 4] = [1, 5, 10, 20];
/// How many families, /16s or countries.
const GROUPS: [usize; 3] = [1, 3, 5];
/// Bootstrap samples of short lists; long ones have fewer.
const MOST_DRAWS: usize = 1000;
/// Bootstrap samples of long lists.
const LEAST_DRAWS: usize = 100;
/// Circuits that are drawn again, about.
const DRAWN: usize = 4_000_000;

/// Who might own both ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attackers {
    /// What they are called in results.
    names: Vec<String>,
    /// Of each relay, which attackers have it: a bit each.
    owned: Vec<u64>,
}

/// How often both ends are an attacker's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Who he is.
    pub attacker: String,
    /// The part of accepted circuits of which both ends are his.
    pub chance: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Attackers {
    /// Those with the relays, and the families, /16s and countries of a network, that stand most often at an end.
    #[must_use]
    pub fn of(all: &[Ends], relays: &[String], network: Option<&Network>) -> Self {
        let mut uses = vec![0_u64; relays.len()];
        for end in all.iter().flat_map(|ends| [ends.0, ends.1]) {
            if let Some(count) = uses.get_mut(end as usize) {
                *count += 1;
            }
        }
        let mut found = Self { names: Vec::new(), owned: vec![0; relays.len()] };
        let single: Vec<Option<String>> =
            (0..relays.len()).map(|place| Some(place.to_string())).collect();
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
            let bit = 1 << self.names.len();
            self.names.push(format!("top {size} {kind}"));
            for (owned, group) in self.owned.iter_mut().zip(group_of) {
                let is_his = group
                    .as_deref()
                    .and_then(|group| rank.get(group))
                    .is_some_and(|rank| rank < size);
                *owned |= if is_his { bit } else { 0 };
            }
        }
    }

    /// What each gains of accepted circuits.
    #[must_use]
    pub fn gains(&self, accepted: &[Ends], rng: &mut ChaCha12Rng) -> Vec<Gain> {
        let owner = |end: u32| self.owned.get(end as usize).copied().unwrap_or(0);
        let both: Vec<u64> = accepted.iter().map(|ends| owner(ends.0) & owner(ends.1)).collect();
        let n = both.len().max(1);
        let hits = |of: &mut dyn Iterator<Item = u64>| {
            let mut hits = vec![0_u32; self.names.len()];
            for mut bits in of {
                while bits != 0 {
                    hits[bits.trailing_zeros() as usize] += 1;
                    bits &= bits - 1;
                }
            }
            hits.into_iter().map(|count| f64::from(count) / n as f64).collect::<Vec<f64>>()
        };
        let chances = hits(&mut both.iter().copied());
        let draws = if both.is_empty() { 0 } else { (DRAWN / n).clamp(LEAST_DRAWS, MOST_DRAWS) };
        let mut drawn = vec![Vec::with_capacity(draws); self.names.len()];
        for _ in 0..draws {
            let again = hits(&mut (0..n).map(|_| both[rng.random_range(0..n)]));
            drawn.iter_mut().zip(again).for_each(|(drawn, one)| drawn.push(one));
        }
        let gain = |((attacker, chance), drawn): ((&String, f64), Vec<f64>)| {
            let sorted = ff_sim::stats::sorted(drawn);
            let at = |p| ff_sim::stats::percentile(&sorted, p).unwrap_or(chance);
            Gain { attacker: attacker.clone(), chance, low: at(2.5), high: at(97.5) }
        };
        self.names.iter().zip(chances).zip(drawn).map(gain).collect()
    }
}

/// Of each relay, its family, its /16 and its country, as far as a network knows them.
fn groups(network: &Network, relays: &[String]) -> Vec<(&'static str, Vec<Option<String>>)> {
    let places: HashMap<String, usize> = network
        .relays
        .iter()
        .enumerate()
        .map(|(place, relay)| (hex(&relay.fingerprint), place))
        .collect();
    // Without descriptors nobody names a family.
    let families = if network.relays.iter().any(|relay| !relay.family.is_empty()) {
        network.families()
    } else {
        Vec::new()
    };
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
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn the_gain_is_the_part_with_both_ends_and_lies_in_its_interval() {
        // Relay 0 and 1 are used most; one circuit in four has both.
        let all: Vec<Ends> =
            (0..400).map(|k| if k % 4 == 0 { (0, 1) } else { (k % 2, 2 + k % 50) }).collect();
        let relays: Vec<String> = (0..60).map(|k| format!("{k:040X}")).collect();
        let attackers = Attackers::of(&all, &relays, None);
        let gains = attackers.gains(&all, &mut ChaCha12Rng::seed_from_u64(5));
        let names: Vec<&str> = gains.iter().map(|gain| gain.attacker.as_str()).collect();
        assert_eq!(names, ["top 1 relays", "top 5 relays", "top 10 relays", "top 20 relays"]);
        assert!(gains[0].chance == 0.0 && gains[1].chance >= 0.25, "{gains:?}");
        for gain in &gains {
            assert!(gain.low <= gain.chance && gain.chance <= gain.high, "{gain:?}");
        }
        let width = gains[1].high - gains[1].low;
        let expected = 2.0 * 1.96 * (gains[1].chance * (1.0 - gains[1].chance) / 400.0_f64).sqrt();
        assert!((width / expected - 1.0).abs() < 0.3, "{width} {expected}");
        let again = attackers.gains(&all, &mut ChaCha12Rng::seed_from_u64(5));
        assert_eq!(gains, again, "the same seed gives the same intervals");
    }

    #[test]
    fn nobody_gains_of_nothing() {
        let attackers = Attackers::of(&[], &[], None);
        assert!(attackers.gains(&[], &mut ChaCha12Rng::seed_from_u64(6)).is_empty());
    }
}
