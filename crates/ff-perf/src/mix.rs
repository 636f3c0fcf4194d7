//! Sizes of downloads: how often each occurs, and in which order.
//!
//! The order is random, and the same for the same seed. A round is as long as the sum of the
//! weights, and each size occurs in it as often as its weight says, so a run of any length has the
//! requested shares.

use std::fmt;
use std::str::FromStr;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha12Rng;

use crate::sizes::{bytes, size_text};

/// OnionPerf's sizes in bytes, to which `A:B:C` gives weights.
const ONIONPERF: [u64; 3] = [51_200, 1_048_576, 5_242_880];
/// Largest sum of weights, and so length of a round.
const MOST_WEIGHT: u32 = 1000;
/// Largest download in bytes.
const MOST_BYTES: u64 = 1_000_000_000_000;

/// Sizes of downloads in bytes with their weights.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mix(Vec<(u64, u32)>);

impl Mix {
    /// Downloads of one size, in bytes.
    #[must_use]
    pub fn of(size: u64) -> Self {
        Self(vec![(size, 1)])
    }

    /// Sizes in bytes with their weights, in the given order.
    #[must_use]
    pub fn sizes(&self) -> &[(u64, u32)] {
        &self.0
    }

    /// Downloads per round: the sum of the weights.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.0.iter().map(|(_, weight)| u64::from(*weight)).sum()
    }

    /// Bytes of payload per round.
    #[must_use]
    pub fn round_bytes(&self) -> u64 {
        self.0.iter().map(|(size, weight)| size * u64::from(*weight)).sum()
    }

    /// Largest size in bytes.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.0.iter().map(|(size, _)| *size).max().unwrap_or_default()
    }

    /// Size in bytes of the download at this index in the seed's order.
    #[must_use]
    pub fn at(&self, place: u64, seed: u64) -> u64 {
        let repeated =
            |(size, weight): &(u64, u32)| (0..*weight).map(|_| *size).collect::<Vec<_>>();
        let mut round: Vec<u64> = self.0.iter().flat_map(repeated).collect();
        let length = self.round().max(1);
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        rng.set_stream(place / length);
        round.shuffle(&mut rng);
        usize::try_from(place % length)
            .ok()
            .and_then(|at| round.get(at))
            .copied()
            .unwrap_or_default()
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = if text.contains(':') { weights(text)? } else { named(text)? };
        all.retain(|(_, weight)| *weight > 0);
        if all.is_empty() {
            return Err("give at least one size with a weight above 0".to_owned());
        }
        if let Some((size, _)) = all.iter().find(|(size, _)| !(1..=MOST_BYTES).contains(size)) {
            return Err(format!("a download has 1 to {MOST_BYTES} bytes, not {size}"));
        }
        let twice = |at: usize, size: u64| all.iter().skip(at + 1).any(|(other, _)| *other == size);
        if let Some((_, (size, _))) =
            all.iter().enumerate().find(|(at, (size, _))| twice(*at, *size))
        {
            return Err(format!("{} is named twice: give it one weight", size_text(*size)));
        }
        let sum: u64 = all.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if sum > u64::from(MOST_WEIGHT) {
            return Err(format!("the weights add up to {sum}; at most {MOST_WEIGHT}"));
        }
        Ok(Self(all))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (size, weight)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}={weight}", size_text(*size))?;
        }
        Ok(())
    }
}

/// Parses `12:2:1`, weights of OnionPerf's sizes.
fn weights(text: &str) -> Result<Vec<(u64, u32)>, String> {
    let weights = text.split(':').map(weight).collect::<Result<Vec<_>, _>>()?;
    if weights.len() != ONIONPERF.len() {
        return Err(
            "A:B:C has the weights of 50KiB, 1MiB and 5MiB; name other sizes, as 50KiB=12,1MiB=2"
                .to_owned(),
        );
    }
    Ok(ONIONPERF.into_iter().zip(weights).collect())
}

/// Parses `50KiB=12,1MiB=2`.
fn named(text: &str) -> Result<Vec<(u64, u32)>, String> {
    let one = |part: &str| -> Result<(u64, u32), String> {
        let (size, times) = part.split_once('=').unwrap_or((part, "1"));
        let size = bytes(size).map_err(|reason| format!("{size:?} is not a size: {reason}"))?;
        Ok((size, weight(times)?))
    };
    text.split(',').map(one).collect()
}

fn weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok().filter(|weight| *weight <= MOST_WEIGHT);
    weight
        .ok_or_else(|| format!("{text:?} is not a weight: give a whole number up to {MOST_WEIGHT}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn mix(text: &str) -> Mix {
        text.parse().expect("a mix")
    }

    #[test]
    fn both_forms_are_read_and_one_is_written() {
        assert_eq!(mix("12:2:1"), mix("50KiB=12,1MiB=2,5MiB=1"));
        assert_eq!(mix("12:2:1").to_string(), "50KiB=12,1MiB=2,5MiB=1");
        assert_eq!(mix("0:0:1"), Mix::of(5_242_880));
        assert_eq!(mix("20kB,3=2").to_string(), "20000=1,3=2");
        assert_eq!(mix("12:2:1").largest(), 5_242_880);
        for odd in [
            "",
            ":",
            "1:2",
            "1:2:3:4",
            "0:0:0",
            "-1:2:3",
            "1:2:x",
            "5MiB=",
            "5MiB=0",
            "0=1",
            "5MiB=1,5MiB=2",
            "5MiB=1,",
            "=1",
            "5MiB=1001",
            "1=600,2=600",
            "2000000000MB=1",
            "5MiB=1;1MiB=2",
            "nan",
        ] {
            assert!(odd.parse::<Mix>().is_err(), "{odd}");
        }
    }

    #[test]
    fn each_round_has_each_size_as_often_as_its_weight() {
        let mix = mix("12:2:1");
        let mut orders = Vec::new();
        for round in 0..40 {
            let order: Vec<u64> = (0..15).map(|at| mix.at(round * 15 + at, 7)).collect();
            let mut counts = BTreeMap::new();
            order.iter().for_each(|size| *counts.entry(*size).or_insert(0) += 1);
            assert_eq!(counts, BTreeMap::from([(51_200, 12), (1_048_576, 2), (5_242_880, 1)]));
            orders.push(order);
        }
        assert!(orders.windows(2).any(|pair| pair[0] != pair[1]), "rounds are drawn anew");
        assert_eq!(mix.at(33, 7), mix.at(33, 7), "the same seed draws the same order");
        assert!((0..60).any(|at| mix.at(at, 7) != mix.at(at, 8)), "another seed draws another one");
    }
}
