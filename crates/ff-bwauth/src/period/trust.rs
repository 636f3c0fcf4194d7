//! Which measurers are believed, after what relays have said of them.
//!
//! A relay that reports fewer echoes than a measurer counted *disputes* it: one of the two is wrong, and one dispute does not
//! show which. So the relay is measured again by others:
//!
//! ```text
//!   disputes m ─▶ measured again without m ─┬▶ agrees with one of them: its word about m counts
//!                                           └▶ disputes them, too: the relay is doubted
//! ```
//!
//! - Relays that share an address, a network or a family have one word together.
//! - A measurer is put aside when so many words dispute it that, if half of all relays were to frame it, chance would bring
//!   as many in fewer than 1 of 1000 cases: the binomial distribution with 1/2. Ten words are the fewest that do.
//! - Where all of a team would be put aside, the one that is disputed least stays.

use std::collections::{BTreeMap, BTreeSet};

use ff_proto::ids::Ed25519Id;
use statrs::function::beta::beta_reg;

use super::Fingerprint;

/// How seldom chance may put a measurer aside that half of all relays frame.
const CHANCE: f64 = 0.001;

/// What one measurement of a relay says of one of its measurers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The relay.
    pub relay: Fingerprint,
    /// The measurer.
    pub measurer: Ed25519Id,
    /// Whether the relay disputes it.
    pub is_dispute: bool,
    /// When the measurement began, in seconds since 1970.
    pub unix_secs: u64,
}

/// What is thought of a measurer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The measurer.
    pub measurer: Ed25519Id,
    /// Groups of relays that were measured with it and whose word counts.
    pub words: u64,
    /// Those of them that dispute it.
    pub disputes: u64,
    /// How probable at least as many are if each disputes with probability 1/2.
    pub chance: f64,
    /// Whether nothing is measured with it.
    pub is_aside: bool,
}

/// What a group of relays has said.
#[derive(Default)]
struct Said {
    /// The measurers that it has met.
    met: BTreeSet<Ed25519Id>,
    /// Those of them that it disputes.
    disputed: BTreeSet<Ed25519Id>,
}

impl Said {
    /// Whether it agrees with a measurer that it does not dispute.
    fn agrees(&self) -> bool {
        self.met.len() > self.disputed.len()
    }
}

/// Judges the measurers of a team. `group_of` numbers relays by their group; a measurer that a group disputes once is disputed
/// by it.
#[must_use]
pub fn judge(
    words: &[Word],
    group_of: impl Fn(&Fingerprint) -> u64,
    team: &[Ed25519Id],
) -> Vec<Standing> {
    let mut said = BTreeMap::<u64, Said>::new();
    for word in words.iter().filter(|word| team.contains(&word.measurer)) {
        let said = said.entry(group_of(&word.relay)).or_default();
        said.met.insert(word.measurer);
        if word.is_dispute {
            said.disputed.insert(word.measurer);
        }
    }
    let said: Vec<_> = said.into_values().filter(Said::agrees).collect();
    let standing = |&measurer: &Ed25519Id| {
        let count = |is: fn(&Said) -> &BTreeSet<Ed25519Id>| {
            said.iter().filter(|said| is(said).contains(&measurer)).count() as u64
        };
        let (words, disputes) = (count(|said| &said.met), count(|said| &said.disputed));
        let chance = chance_of(disputes, words);
        Standing { measurer, words, disputes, chance, is_aside: chance < CHANCE }
    };
    let mut all: Vec<_> = team.iter().map(standing).collect();
    if all.iter().all(|one| one.is_aside) {
        // The greatest probability is that of the one that is disputed least.
        let least = all.iter_mut().max_by(|one, other| one.chance.total_cmp(&other.chance));
        if let Some(least) = least {
            least.is_aside = false;
        }
    }
    all
}

/// The measurers that a relay disputes, with which it is not measured again.
pub fn disputed_by<'a>(
    words: &'a [Word],
    relay: &'a Fingerprint,
) -> impl Iterator<Item = Ed25519Id> + 'a {
    words
        .iter()
        .filter(move |word| word.is_dispute && word.relay == *relay)
        .map(|word| word.measurer)
}

/// Whether a relay disputes all measurers that it has met, two at least.
#[must_use]
pub fn is_doubted(words: &[Word], relay: &Fingerprint) -> bool {
    let mut said = Said::default();
    for word in words.iter().filter(|word| word.relay == *relay) {
        said.met.insert(word.measurer);
        if word.is_dispute {
            said.disputed.insert(word.measurer);
        }
    }
    said.met.len() > 1 && !said.agrees()
}

/// How probable `least` heads or more are of so many throws of a coin.
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

    /// What relay number `relay` says of a measurer.
    fn word(relay: u32, number: u8, is_dispute: bool) -> Word {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&relay.to_be_bytes());
        Word { relay: name, measurer: measurer(number), is_dispute, unix_secs: 0 }
    }

    /// Each relay is a group of its own.
    fn alone(relay: &Fingerprint) -> u64 {
        u64::from(u32::from_be_bytes([relay[0], relay[1], relay[2], relay[3]]))
    }

    /// Which of two measurers are put aside.
    fn aside(words: &[Word], group_of: impl Fn(&Fingerprint) -> u64) -> [bool; 2] {
        let all = judge(words, group_of, &[measurer(1), measurer(2)]);
        [all[0].is_aside, all[1].is_aside]
    }

    #[test]
    fn one_that_lies_is_put_aside_once_ten_groups_say_so() {
        let lies = |relays: u32| -> Vec<Word> {
            (0..relays).flat_map(|relay| [word(relay, 1, true), word(relay, 2, false)]).collect()
        };
        assert_eq!(aside(&lies(9), alone), [false, false]);
        assert_eq!(aside(&lies(10), alone), [true, false]);
        assert_eq!(aside(&lies(1000), |_| 7), [false, false], "all are one group");
    }

    #[test]
    fn as_many_framers_as_honest_relays_put_nobody_aside() {
        for framers in [3, 10, 30] {
            let honest = (0..30).map(|relay| word(relay, 1 + (relay % 2) as u8, false));
            let honest =
                honest.chain((0..30).map(|relay| word(relay, 2 - (relay % 2) as u8, false)));
            let framing = (100..100 + framers)
                .flat_map(|relay| [word(relay, 1, true), word(relay, 2, false)]);
            let words: Vec<_> = honest.chain(framing).collect();
            assert_eq!(aside(&words, alone), [false, false], "{framers}");
        }
    }

    #[test]
    fn who_has_met_nobody_that_it_believes_has_no_word() {
        let words: Vec<_> = (0..1000).map(|relay| word(relay, 1, true)).collect();
        assert_eq!(aside(&words, alone), [false, false]);
        let words: Vec<_> =
            (0..1000).flat_map(|relay| [word(relay, 1, true), word(relay, 2, true)]).collect();
        assert_eq!(aside(&words, alone), [false, false]);
        assert!(is_doubted(&words, &word(7, 1, true).relay));
        assert!(!is_doubted(&words[..1], &word(0, 1, true).relay), "it has met one");
    }

    #[test]
    fn one_of_a_team_always_stays() {
        // Half of the relays dispute the one, half the other, and a third measurer that has left is believed by all.
        let words: Vec<_> = (0..1000)
            .flat_map(|relay| {
                [word(relay, 1, true), word(relay, 3, false), word(relay, 2, relay > 9)]
            })
            .collect();
        let team = [measurer(1), measurer(2), measurer(3)];
        let all = judge(&words, alone, &team);
        assert_eq!([all[0].is_aside, all[1].is_aside, all[2].is_aside], [true, true, false]);
        assert_eq!((all[1].words, all[1].disputes), (1000, 990));
        let words: Vec<_> = words.iter().copied().filter(|word| alone(&word.relay) < 10).collect();
        assert_eq!(aside(&words, alone), [true, false]);
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
            assert!((found - expected).abs() < 1e-4, "{least} of {throws}: {found}");
        }
    }
}
