#![doc = include_str!("../README.md")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ff_base::identity::Fingerprint;
use ff_proto::ids::Ed25519Id;
use statrs::function::beta::beta_reg;

/// The probability below which disputes are not explained by lying relays.
pub const CHANCE: f64 = 0.001;

/// A relay's report on one of its measurers, in one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The relay.
    pub relay: Fingerprint,
    /// The measurer.
    pub measurer: Ed25519Id,
    /// Whether the relay disputes it, or the measurement failed on its word alone.
    pub is_dispute: bool,
    /// When the measurement began, in seconds since 1970.
    pub unix_secs: u64,
}

/// The reports of a relay, or a group of relays, on each measurer that it has met.
#[derive(Clone, Debug, Default)]
pub struct Said(BTreeMap<Ed25519Id, Met>);

/// The reports on one measurer; times are in seconds since 1970.
#[derive(Clone, Debug, Default)]
struct Met {
    /// When it agreed last.
    agreed: Option<u64>,
    /// When it disputed.
    disputed: BTreeSet<u64>,
}

impl Met {
    /// Whether anything is known.
    fn is_known(&self) -> bool {
        self.agreed.is_some() || !self.disputed.is_empty()
    }
}

impl Said {
    /// Adds a word.
    pub fn hear(&mut self, word: &Word) {
        let met = self.0.entry(word.measurer).or_default();
        if word.is_dispute {
            met.disputed.insert(word.unix_secs);
        } else {
            met.agreed = met.agreed.max(Some(word.unix_secs));
        }
    }

    /// Adds what another relay of the group has said.
    fn join(&mut self, other: &Self) {
        for (&measurer, met) in &other.0 {
            let known = self.0.entry(measurer).or_default();
            known.agreed = known.agreed.max(met.agreed);
            known.disputed.extend(&met.disputed);
        }
    }

    /// Forgets what was said before this time; whether anything is left.
    pub fn forget(&mut self, before: u64) -> bool {
        self.0.retain(|_, met| {
            met.agreed = met.agreed.filter(|&at| at >= before);
            met.disputed = met.disputed.split_off(&before);
            met.is_known()
        });
        !self.0.is_empty()
    }

    /// Forgets that a measurer was disputed.
    pub fn trust(&mut self, measurer: &Ed25519Id) {
        self.0.retain(|of, met| {
            if of == measurer {
                met.disputed.clear();
            }
            met.is_known()
        });
    }

    /// Whether a measurer is disputed. One that was disputed once is.
    #[must_use]
    pub fn disputes(&self, measurer: &Ed25519Id) -> bool {
        self.0.get(measurer).is_some_and(|met| !met.disputed.is_empty())
    }

    /// Whether any is.
    #[must_use]
    pub fn disputes_any(&self) -> bool {
        self.0.values().any(|met| !met.disputed.is_empty())
    }

    /// Whether all that it has met are disputed, two at least.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.0.len() > 1 && !self.agrees()
    }

    /// Whether it agrees with a measurer.
    fn agrees(&self) -> bool {
        self.0.values().any(|met| met.disputed.is_empty())
    }

    /// The measurer that it disputed first.
    fn first_disputed(&self) -> Option<Ed25519Id> {
        let disputed = self.0.iter().filter_map(|(id, met)| Some((*met.disputed.first()?, *id)));
        disputed.min().map(|(_, id)| id)
    }
}

/// The source of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The number of the relay's group.
    pub group: u64,
    /// The relay's network, if its address is known.
    pub network: Option<IpAddr>,
}

/// The standing of a measurer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The measurer.
    pub measurer: Ed25519Id,
    /// Networks with relays that were measured by it and whose word counts.
    pub words: u64,
    /// Networks among them that dispute it.
    pub disputes: u64,
    /// How probable at least as many are if each disputes with probability 1/2.
    pub chance: f64,
    /// Whether it measures nothing.
    pub is_aside: bool,
}

/// Judges the measurers of a team by what relays have said.
#[must_use]
pub fn judge<'a>(
    said: impl Iterator<Item = (Speaker, &'a Said)>,
    team: &[Ed25519Id],
) -> Vec<Standing> {
    let mut groups = BTreeMap::<u64, (Option<IpAddr>, Said)>::new();
    for (Speaker { group, network }, said) in said {
        let (least, all) = groups.entry(group).or_default();
        *least = least.iter().copied().chain(network).min();
        all.join(said);
    }
    // Groups that agree with a measurer or dispute it, by networks; without an address each is by
    // itself.
    let mut said_in = BTreeMap::<(Ed25519Id, Result<IpAddr, u64>), (u64, u64)>::new();
    for (group, (network, mut said)) in groups {
        said.0.retain(|measurer, _| team.contains(measurer));
        if !said.agrees() {
            continue;
        }
        let first = said.first_disputed();
        for (&measurer, met) in &said.0 {
            let (agree, dispute) = said_in.entry((measurer, network.ok_or(group))).or_default();
            *agree += u64::from(met.disputed.is_empty());
            *dispute += u64::from(first == Some(measurer));
        }
    }
    // Words and disputes of each.
    let mut counts = BTreeMap::<Ed25519Id, (u64, u64)>::new();
    for ((measurer, _), (agree, dispute)) in said_in {
        let count = counts.entry(measurer).or_default();
        match dispute.cmp(&agree) {
            Ordering::Less => count.0 += 1,
            Ordering::Equal => {}
            Ordering::Greater => *count = (count.0 + 1, count.1 + 1),
        }
    }
    let standing = |&measurer: &Ed25519Id| {
        let (words, disputes) = counts.get(&measurer).copied().unwrap_or_default();
        let chance = chance_of(disputes, words);
        Standing { measurer, words, disputes, chance, is_aside: chance < CHANCE }
    };
    let mut all: Vec<_> = team.iter().map(standing).collect();
    if all.iter().all(|one| one.is_aside) {
        let least = all.iter_mut().max_by(|one, other| one.chance.total_cmp(&other.chance));
        if let Some(least) = least {
            least.is_aside = false;
        }
    }
    all
}

/// The probability of `least` heads or more in this many throws of a coin.
#[expect(clippy::cast_precision_loss, reason = "relays are fewer than 2^53")]
fn chance_of(least: u64, throws: u64) -> f64 {
    if least == 0 { 1.0 } else { beta_reg(least as f64, (throws - least + 1) as f64, 0.5) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A measurer.
    fn measurer(number: u8) -> Ed25519Id {
        Ed25519Id([number; 32])
    }

    /// The reports of a relay on these measurers, one after the other.
    fn said(words: &[(u8, bool)]) -> Said {
        let mut said = Said::default();
        for (unix_secs, &(number, is_dispute)) in (0..).zip(words) {
            let (relay, measurer) = ([0; 20], measurer(number));
            said.hear(&Word { relay, measurer, is_dispute, unix_secs });
        }
        said
    }

    /// A relay of this group, whose smallest network has a prefix of this many bits.
    fn speaker(group: u64, of_network: u32) -> Speaker {
        let address = u32::try_from(group).expect("few groups");
        Speaker { group, network: Some(IpAddr::V4((address >> (32 - of_network)).into())) }
    }

    /// The standings of these measurers, if each relay is a group, in networks with a prefix of
    /// this many bits.
    fn judged(said: &[Said], team: &[u8], of_network: u32) -> Vec<Standing> {
        let team: Vec<_> = team.iter().copied().map(measurer).collect();
        judge((0..).map(|group| speaker(group, of_network)).zip(said), &team)
    }

    /// Which of these measurers are set aside, if each relay is a group in a network of its own.
    fn aside(said: &[Said], team: &[u8]) -> Vec<bool> {
        judged(said, team, 32).iter().map(|one| one.is_aside).collect()
    }

    #[test]
    fn one_that_lies_is_set_aside_once_ten_groups_say_so() {
        let lies = |relays: usize| vec![said(&[(1, true), (2, false)]); relays];
        assert_eq!(aside(&lies(9), &[1, 2]), [false, false]);
        assert_eq!(aside(&lies(10), &[1, 2]), [true, false]);
        let team = [measurer(1), measurer(2)];
        let one_group = judge(lies(1000).iter().map(|said| (speaker(7, 32), said)), &team);
        assert!(!one_group[0].is_aside && one_group[0].words == 1);
    }

    #[test]
    fn a_network_has_one_word_however_many_hosts_it_has() {
        let (lie, honest) = (said(&[(1, true), (2, false)]), said(&[(1, false), (2, false)]));
        // All addresses of nine networks, and then of ten.
        let networks = |count: usize| judged(&vec![lie.clone(); 256 * count], &[1, 2], 24);
        assert_eq!((networks(9)[0].words, networks(9)[0].is_aside), (9, false));
        assert!(networks(10)[0].is_aside);
        // A few liars have no word in a network of honest relays, and as many as these leave it
        // without one.
        let mixed = |liars: usize| {
            let mut all = vec![honest.clone(); 256 - liars];
            all.extend(vec![lie.clone(); liars]);
            let one = judged(&all, &[1, 2], 24)[0];
            (one.words, one.disputes)
        };
        assert_eq!([127, 128, 129].map(mixed), [(1, 0), (0, 0), (1, 1)]);
        // A family in many networks is in one of them.
        let family = (0..1000).map(|n| Speaker { group: 0, ..speaker(n, 32) });
        let found = judge(family.zip(std::iter::repeat(&lie)), &[measurer(1)])[0];
        assert_eq!(found.words, 0, "it agrees with nobody of the team");
        let family = (0..1000).map(|n| Speaker { group: 0, ..speaker(n, 32) });
        let found = judge(family.zip(std::iter::repeat(&lie)), &[measurer(1), measurer(2)])[0];
        assert_eq!((found.words, found.disputes), (1, 1));
    }

    #[test]
    fn as_many_framers_as_honest_relays_set_nobody_aside() {
        let honest = said(&[(1, false), (2, false)]);
        for framers in [3, 10, 30] {
            let mut all = vec![honest.clone(); 30];
            all.extend(vec![said(&[(1, true), (2, false)]); framers]);
            assert_eq!(aside(&all, &[1, 2]), [false, false], "{framers}");
        }
    }

    #[test]
    fn who_agrees_with_nobody_has_no_word() {
        assert_eq!(aside(&vec![said(&[(1, true)]); 1000], &[1, 2]), [false, false]);
        let both = said(&[(1, true), (2, true)]);
        assert_eq!(aside(&vec![both.clone(); 1000], &[1, 2]), [false, false]);
        assert!(both.is_doubted());
        assert!(!said(&[(1, true)]).is_doubted(), "it has met one");
    }

    #[test]
    fn a_word_counts_against_the_first_one_that_is_disputed_only() {
        // A small measurer: who disputes a great one is measured by it, and disputes it as well.
        let steered = vec![said(&[(1, true), (2, true), (3, false)]); 20];
        let honest = vec![said(&[(1, false)]); 100];
        let all = [steered, honest].concat();
        assert_eq!(aside(&all, &[1, 2, 3]), [false; 3]);
    }

    #[test]
    fn one_of_a_team_always_stays() {
        // Each relay disputes one of both, and agrees with the other in the same group.
        let first = said(&[(1, true), (2, false)]);
        let second = said(&[(2, true), (1, false)]);
        let only = judge((0..20).map(|group| (speaker(group, 32), &first)), &[measurer(1)]);
        assert!(!only[0].is_aside, "nobody agrees with another one of the team");
        let all = [vec![first; 40], vec![second; 5]].concat();
        assert_eq!(aside(&all, &[1, 2]), [true, false]);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut all = said(&[(1, true), (1, false), (2, false)]);
        assert!(all.forget(0) && all.disputes(&measurer(1)));
        assert!(all.forget(1) && !all.disputes(&measurer(1)), "what it said later stays");
        assert!(!all.forget(9));
        // Of two disputes the later one stays, and trust leaves nothing of a measurer that it only
        // disputed.
        let mut twice = said(&[(1, true), (2, false), (1, true)]);
        assert!(twice.forget(1) && twice.disputes(&measurer(1)));
        twice.trust(&measurer(1));
        assert!(!twice.disputes_any() && twice.0.len() == 1);
    }

    #[test]
    fn the_chance_is_that_of_the_binomial_distribution() {
        // scipy.stats.binom.sf(least - 1, throws, 0.5)
        for (least, throws, expected) in [
            (0, 0, 1.0),
            (0, 5, 1.0),
            (9, 9, 1.0 / 512.0),
            (10, 10, 1.0 / 1024.0),
            (30, 52, 0.165_874_88),
        ] {
            let found = chance_of(least, throws);
            assert!((found - expected).abs() < 1e-6, "{least} of {throws}: {found}");
        }
    }
}
