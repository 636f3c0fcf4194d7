//! How soon new relays have been measured in spare slots, as the paper counts it (§7).
//!
//! Those of one consensus are put into as few empty slots as hold them, and those whose
//! measurement is not conclusive into as few slots after these, until none is left. Coordinators
//! that keep their slots secret need longer for the second measurement: [`super::replay`] has that.

use ff_base::identity::Fingerprint;
use ff_plan::period::schedule::pack;
use ff_plan::period::{demand, next_guess_within};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::errors::{DrawKey, Errors};
use super::outcome::is_conclusive;

/// How new relays are measured.
#[derive(Clone, Debug)]
pub struct Newcomers<'a> {
    /// z0.
    pub guess: BytesPerSec,
    /// The team's capacity.
    pub team: BytesPerSec,
    /// The rules.
    pub params: Params,
    /// How far measurements are off.
    pub errors: &'a Errors,
    /// What errors follow from.
    pub seed: [u8; 32],
}

/// What became of those of one consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Slots until all have been measured.
    pub slots: u32,
    /// How many needed one measurement, how many two, and so on.
    pub measurements: Vec<usize>,
    /// Those that are too fast for the team.
    pub too_fast: Vec<Fingerprint>,
}

impl Newcomers<'_> {
    /// Measures relays, of which this is the truth.
    #[must_use]
    pub fn measure(&self, relays: &[(Fingerprint, BytesPerSec)]) -> Wait {
        let mut wait = Wait::default();
        let mut left: Vec<_> =
            relays.iter().map(|&(name, truth)| (name, truth, self.guess)).collect();
        // Each guess at least doubles, so there are at most as many rounds as a rate has bits.
        for earlier in 0..64 {
            if left.is_empty() {
                break;
            }
            let before = left.len() + wait.too_fast.len();
            left = self.round(&left, earlier, &mut wait);
            wait.measurements.push(before - left.len() - wait.too_fast.len());
        }
        wait
    }

    /// Measures these once; returns those that are to be measured again, with their next guesses.
    fn round(
        &self,
        relays: &[(Fingerprint, BytesPerSec, BytesPerSec)],
        earlier: u32,
        wait: &mut Wait,
    ) -> Vec<(Fingerprint, BytesPerSec, BytesPerSec)> {
        let demands: Vec<_> =
            relays.iter().map(|&(.., guess)| demand(guess, &self.params).min(self.team)).collect();
        let (_, slots) = pack(&demands, self.team);
        wait.slots = wait.slots.saturating_add(slots);
        let mut again = Vec::new();
        for (&(relay, truth, guess), allocated) in relays.iter().zip(demands) {
            let attempt = DrawKey { relay, coordinator: 0, earlier };
            let z = truth.scale(self.errors.ratio(&self.seed, &attempt)).min(allocated);
            if is_conclusive(z, allocated, &self.params) {
                continue;
            }
            match next_guess_within(z, guess, self.team, &self.params) {
                Some(next) => again.push((relay, truth, next)),
                None => wait.too_fast.push(relay),
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's team and guess.
    fn newcomers(errors: &Errors) -> Newcomers<'_> {
        Newcomers {
            guess: BytesPerSec::from_mbit(51),
            team: BytesPerSec::from_mbit(3000),
            params: Params::PAPER,
            errors,
            seed: [0; 32],
        }
    }

    /// Relays of these Mbit/s.
    fn relays(mbit: &[u64]) -> Vec<(Fingerprint, BytesPerSec)> {
        (0..).zip(mbit).map(|(id, &mbit)| ([id; 20], BytesPerSec::from_mbit(mbit))).collect()
    }

    #[test]
    fn each_round_doubles_what_was_too_little() {
        let found = newcomers(&Errors::Exact).measure(&relays(&[1, 53, 54, 400, 3000]));
        // 53 < 51 · 1.05 < 54: one more for that, 400 is its own guess, 3000 are too much for any
        // team of 3 Gbit/s.
        assert_eq!(found.measurements, [2, 1, 1]);
        assert_eq!(found.too_fast, [[4; 20]]);
        assert_eq!(newcomers(&Errors::Exact).measure(&[]), Wait::default());
    }

    #[test]
    fn three_slow_ones_need_a_slot_and_a_hundred_five() {
        let slots =
            |count: usize| newcomers(&Errors::Exact).measure(&relays(&vec![10; count])).slots;
        // 19 measurements of 150.6 Mbit/s fit into 3 Gbit/s.
        assert_eq!([0, 1, 3, 19, 20, 95, 98].map(slots), [0, 1, 1, 1, 2, 5, 6]);
    }
}
