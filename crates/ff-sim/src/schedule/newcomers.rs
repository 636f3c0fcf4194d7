//! How soon new relays are measured in unused slots, as computed by the paper (§7).
//!
//! The new relays of a consensus are put into as few empty slots as possible, and those with
//! inconclusive measurements into as few slots after these, until none is left. Coordinators that
//! keep slots secret need longer for the second measurement: see [`super::replay`].

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
    /// z0 of new relays.
    pub guess: BytesPerSec,
    /// The team's capacity.
    pub team: BytesPerSec,
    /// The parameters of measurements.
    pub params: Params,
    /// Errors of measurements.
    pub errors: &'a Errors,
    /// Random seed of errors.
    pub seed: [u8; 32],
}

/// Results for the new relays of a consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The number of slots until all have been measured.
    pub slots: u32,
    /// The numbers of relays that needed one measurement, two, and so on.
    pub measurements: Vec<usize>,
    /// The relays that are too fast for the team.
    pub too_fast: Vec<Fingerprint>,
}

impl Newcomers<'_> {
    /// Measures relays with these true capacities.
    #[must_use]
    pub fn measure(&self, relays: &[(Fingerprint, BytesPerSec)]) -> Wait {
        let mut wait = Wait::default();
        let mut left: Vec<_> =
            relays.iter().map(|&(name, truth)| (name, truth, self.guess)).collect();
        // Each guess is at least twice the last, so there are at most as many rounds as a rate has
        // bits.
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

    /// Measures these once; returns those with inconclusive measurements, with their next guesses.
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

    /// Relays with these capacities in Mbit/s.
    fn relays(mbit: &[u64]) -> Vec<(Fingerprint, BytesPerSec)> {
        (0..).zip(mbit).map(|(id, &mbit)| ([id; 20], BytesPerSec::from_mbit(mbit))).collect()
    }

    #[test]
    fn each_round_doubles_what_was_too_little() {
        let found = newcomers(&Errors::Exact).measure(&relays(&[1, 53, 54, 400, 3000]));
        // 53 < 51 · 1.05 < 54: the latter needs one more measurement; 400 is its own next guess;
        // 3000 is too much for a team of 3 Gbit/s.
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
