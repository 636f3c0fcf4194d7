//! Draws relays for one position of a circuit.
//!
//! Uses Walker's alias method with Vose's table (1991): as many equally likely boxes as relays,
//! each shared by two relays. A box contains all data that the rules need (`kin`), so a draw costs
//! one memory access for a network of any size, and several accesses can overlap.

use rand::seq::IndexedRandom as _;
use rand::{Rng, RngExt as _};

use super::kin::{Kin, Tied};

/// After this number of draws that break a rule the rest is searched instead: in real networks
/// fewer than one in 1,000 needs more than a few.
const MOST_DRAWS: u32 = 32;

/// A box of the table, on one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Shared {
    /// The first relay's part of the box, of 2^64.
    part: u64,
    relays: [Tied; 2],
}

/// The relays of one position.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The table: the first relay of each box is the one at the same index in `lengths`.
    boxes: Vec<Shared>,
    /// The length of each relay.
    lengths: Vec<f64>,
    /// Relays of length 0, drawn with equal probability if the rules exclude all others.
    idle: Vec<Tied>,
}

impl Line {
    /// From relays with their lengths.
    pub(super) fn new(lengths: impl Iterator<Item = (u32, f64)>, kin: &Kin) -> Self {
        let mut line = Self::default();
        for (relay, length) in lengths {
            let tied = kin.tied(relay);
            if length > 0.0 {
                line.boxes.push(Shared { part: u64::MAX, relays: [tied; 2] });
                line.lengths.push(length);
            } else {
                line.idle.push(tied);
            }
        }
        line.share();
        line
    }

    /// Fills the boxes of relays shorter than the mean with relays that are longer.
    fn share(&mut self) {
        let mean = self.lengths.iter().sum::<f64>() / self.lengths.len() as f64;
        let mut left: Vec<f64> = self.lengths.iter().map(|length| length / mean).collect();
        let (mut short, mut long): (Vec<_>, Vec<_>) =
            (0..left.len()).partition(|&place| left[place] < 1.0);
        while let (Some(small), Some(&large)) = (short.pop(), long.last()) {
            let relays = [self.boxes[small].relays[0], self.boxes[large].relays[0]];
            self.boxes[small] = Shared { part: whole_part(left[small]), relays };
            left[large] -= 1.0 - left[small];
            if left[large] < 1.0 {
                long.pop();
                short.push(large);
            }
        }
    }

    /// The same relays with other ties.
    pub(super) fn with(mut self, kin: &Kin) -> Self {
        let of_boxes = self.boxes.iter_mut().flat_map(|one| &mut one.relays);
        of_boxes.chain(&mut self.idle).for_each(|tied| *tied = kin.tied(tied.relay));
        self
    }

    /// Whether no relay can be drawn.
    pub(super) const fn is_empty(&self) -> bool {
        self.boxes.is_empty() && self.idle.is_empty()
    }

    /// The relay at a point of the line, which is 2^64 long; a relay has points in proportion to
    /// its length. `None` if the line is empty.
    #[expect(clippy::cast_possible_truncation, reason = "it is split into its halves")]
    pub(super) fn at(&self, point: u64) -> Option<Tied> {
        let place = u128::from(point) * self.boxes.len() as u128;
        let one = self.boxes.get((place >> 64) as usize)?;
        // Without a branch, which could not be predicted.
        Some(one.relays[usize::from(place as u64 >= one.part)])
    }

    /// Draws an allowed relay, if there is one.
    pub(super) fn draw_allowed(
        &self,
        rng: &mut impl Rng,
        is_allowed: impl Fn(Tied) -> bool,
    ) -> Option<Tied> {
        let first = self.at(rng.random());
        self.allowed(first, rng, is_allowed)
    }

    /// The relay of the first draw if it is allowed, otherwise another allowed one, if there is
    /// one.
    pub(super) fn allowed(
        &self,
        first: Option<Tied>,
        rng: &mut impl Rng,
        is_allowed: impl Fn(Tied) -> bool,
    ) -> Option<Tied> {
        let mut drawn = first;
        for _ in 0..MOST_DRAWS {
            let Some(tied) = drawn else { break };
            if is_allowed(tied) {
                return drawn;
            }
            drawn = self.at(rng.random());
        }
        self.search(rng, &is_allowed).or_else(|| self.draw_idle(rng, is_allowed))
    }

    /// Draws from all allowed relays.
    fn search(&self, rng: &mut impl Rng, is_allowed: impl Fn(Tied) -> bool) -> Option<Tied> {
        let relays = self.boxes.iter().map(|one| one.relays[0]).zip(&self.lengths);
        let allowed: Vec<_> = relays.filter(|(tied, _)| is_allowed(*tied)).collect();
        let one = allowed.choose_weighted(rng, |(_, length)| **length);
        one.ok().map(|(tied, _)| *tied)
    }

    /// Draws an allowed relay of length 0.
    fn draw_idle(&self, rng: &mut impl Rng, is_allowed: impl Fn(Tied) -> bool) -> Option<Tied> {
        let one = |rng: &mut _, of: &[Tied]| of.choose(rng).copied();
        (0..MOST_DRAWS).find_map(|_| one(rng, &self.idle).filter(|tied| is_allowed(*tied))).or_else(
            || {
                let allowed = self.idle.iter().copied().filter(|tied| is_allowed(*tied));
                one(rng, &allowed.collect::<Vec<_>>())
            },
        )
    }
}

/// A part of 1 as a part of 2^64.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
fn whole_part(part: f64) -> u64 {
    (part * 2_f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use ff_archives::network::{Network, Relay};
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    /// Relays that share nothing.
    fn kin(relays: usize) -> Kin {
        Kin::of(&Network { relays: vec![Relay::default(); relays], ..Network::default() })
    }

    proptest! {
        /// Boxes give each relay its share of the total length, and other relays nothing.
        #[test]
        fn boxes_are_shared_by_length(
            lengths in proptest::collection::vec((0_u32..40, 0_u32..1000), 1..200),
        ) {
            let lengths = lengths.iter().map(|&(power, part)| f64::from(power).exp2() * f64::from(part));
            let lengths: Vec<f64> = lengths.collect();
            let line = Line::new((0..).zip(lengths.iter().copied()), &kin(lengths.len()));
            let mut found = vec![0.0; lengths.len()];
            for one in &line.boxes {
                let part = one.part as f64 / 2_f64.powi(64);
                for (tied, part) in one.relays.iter().zip([part, 1.0 - part]) {
                    found[tied.relay as usize] += part / line.boxes.len() as f64;
                }
            }
            let all: f64 = lengths.iter().sum();
            for (found, length) in found.iter().zip(&lengths) {
                prop_assert!((found - length / all.max(1.0)).abs() < 1e-12, "{found}, {length} of {all}");
            }
            prop_assert_eq!(line.at(1 << 63).is_none(), all <= 0.0);
        }

        /// A point's relay is one of the two in its box, by the point's place within the box.
        #[test]
        fn points_lie_in_boxes(lengths in proptest::collection::vec(1_u32..1000, 1..50), seed: u64) {
            let count = lengths.len();
            let line = Line::new((0..).zip(lengths.iter().map(|&one| f64::from(one))), &kin(count));
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            for place in 0..count {
                let within: u64 = rng.random();
                let one = line.boxes[place];
                let point = ((place as u128) << 64 | u128::from(within)).div_ceil(count as u128);
                let expected = one.relays[usize::from(within >= one.part)];
                // A point stands for as many others as there are boxes.
                if within.abs_diff(one.part) > 100 && within < u64::MAX - 100 {
                    prop_assert_eq!(line.at(point.try_into().expect("it lies on the line")), Some(expected));
                }
            }
            prop_assert!(line.at(u64::MAX).is_some());
        }
    }
}
