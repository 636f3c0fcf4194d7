//! Sums over relays at the times of a batch, and what weights and capacities are of them: Eq. 3 to
//! 6.

use super::super::batch::{Each, Mask, SLOTS, slots};
use super::super::outcome::{NetworkStep, RelayWindow};
use super::super::quotient::unit;

/// This number of capacities, each up to 2^53, fits a sum of 64 bits.
pub(super) const MOST_AT_ONCE: usize = 1 << 10;

/// The sums of one window at each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Of capacities that were not carried yet.
    some: Each<u64>,
    /// Of the others.
    all: Each<Sum>,
}

/// Sums over relays, in one window at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) capacity: u128,
    /// Of the capacities of those that have no weight.
    unweighted: u128,
    /// Of the weights of those that have no capacity.
    pub(super) left_out: u128,
}

impl Sums {
    /// Adds a relay's capacities, each for a number of times.
    #[inline]
    pub(super) fn add(&mut self, capacities: &Each<u64>, count: usize) {
        for (sum, capacity) in self.some.iter_mut().zip(capacities).take(count) {
            *sum += capacity;
        }
    }

    /// Adds what a relay has of only one of both, at the times with weights.
    #[inline]
    pub(super) fn add_exceptions(
        &mut self,
        capacities: &Each<u64>,
        weighted: Mask,
        weights: &Each<u64>,
        with_weights: Mask,
    ) {
        let bits = capacities.iter().enumerate().map(|(slot, &one)| Mask::from(one > 0) << slot);
        let known = bits.fold(0, |all, bit| all | bit) & with_weights;
        for slot in slots(known ^ weighted) {
            let Some(sum) = self.all.get_mut(slot) else { continue };
            if known >> slot & 1 == 0 {
                sum.left_out += u128::from(weights.get(slot).copied().unwrap_or(0));
            } else {
                sum.unweighted += u128::from(capacities.get(slot).copied().unwrap_or(0));
            }
        }
    }

    /// Carries sums over before they become too great.
    pub(super) fn carry(&mut self) {
        for (some, all) in self.some.iter_mut().zip(&mut self.all) {
            all.capacity += u128::from(std::mem::take(some));
        }
    }

    /// Adds those of other relays, which were carried.
    pub(super) fn add_all(&mut self, others: &Self) {
        for (all, other) in self.all.iter_mut().zip(&others.all) {
            all.capacity += other.capacity;
            all.unweighted += other.unweighted;
            all.left_out += other.left_out;
        }
    }

    /// The sums at a time.
    pub(super) fn at(&self, slot: usize) -> Sum {
        self.all.get(slot).copied().unwrap_or_default()
    }

    /// What weights and capacities count for at these times; relays' means have those of
    /// `in_means`.
    pub(super) fn units(&self, steps: &[NetworkStep], in_means: Mask) -> Shares {
        let mut shares = Shares { in_means, ..Shares::default() };
        for (slot, (step, sum)) in steps.iter().zip(&self.all).enumerate() {
            let weight = unit(step.weight - sum.left_out);
            let capacity = unit(sum.capacity - sum.unweighted);
            if let (Some(weight), Some(capacity), Some(units)) =
                (weight, capacity, shares.units.get_mut(slot))
            {
                *units = (weight, capacity);
                shares.known |= 1 << slot;
            }
        }
        shares
    }
}

/// The shares of relays in one window at each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// What a unit of weight is of all weight, and one of capacity of all capacity.
    units: Each<(f64, f64)>,
    /// At which times both are known.
    known: Mask,
    /// Which of them relays' means have.
    in_means: Mask,
    /// The sum of all distances between both.
    distances: Each<f64>,
}

impl Shares {
    /// Adds a relay's weights and capacities at some of the times: Eq. 5.
    #[inline]
    pub(super) fn add(
        &mut self,
        at: Mask,
        weights: &Each<u64>,
        capacities: &Each<u64>,
        means: &mut RelayWindow,
    ) {
        for slot in slots(at & self.known) {
            let slot = slot % SLOTS;
            let (weight, capacity) = (weights[slot], capacities[slot]);
            if capacity == 0 {
                continue;
            }
            let units = self.units[slot];
            let (share, fair) = (float(weight) * units.0, float(capacity) * units.1);
            self.distances[slot] += (share - fair).abs();
            if self.in_means >> slot & 1 == 1 {
                means.weight_error.add(share / fair);
                means.weight_share.add(share);
                means.capacity_share.add(fair);
            }
        }
    }

    /// The network's error at a time: Eq. 6.
    pub(super) fn error(&self, slot: usize) -> Option<f64> {
        let is_known = self.known >> slot & 1 == 1;
        self.distances.get(slot).filter(|_| is_known).map(|distance| distance / 2.0)
    }
}

/// A number, rounded if it lies above 2^53.
#[expect(clippy::cast_precision_loss, reason = "weights above 2^53 are rounded, to one in 2^53")]
const fn float(number: u64) -> f64 {
    number as f64
}
