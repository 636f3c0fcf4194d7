//! Sums over relays at the times of a batch, and shares of weight and capacity: Eq. 3 to 6.

use super::super::batch::{Each, Mask, SLOTS, slots};
use super::super::outcome::{NetworkStep, RelayWindow};
use super::super::quotient::unit;

/// The sum of this number of capacities, each at most 2^53, fits 64 bits.
pub(super) const MOST_AT_ONCE: usize = 1 << 10;

/// The sums of one window at each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Sums of capacities that were not carried yet.
    some: Each<u64>,
    /// All other sums.
    all: Each<Sum>,
}

/// Sums over relays in one window at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) capacity: u128,
    /// The sum of capacities of relays without a weight.
    unweighted: u128,
    /// The sum of weights of relays without a capacity.
    pub(super) left_out: u128,
}

impl Sums {
    /// Adds the capacities of a relay at the first `count` times.
    #[inline]
    pub(super) fn add(&mut self, capacities: &Each<u64>, count: usize) {
        for (sum, capacity) in self.some.iter_mut().zip(capacities).take(count) {
            *sum += capacity;
        }
    }

    /// Adds a relay's capacity where it has no weight, and its weight where it has no capacity, at
    /// the times with weights.
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

    /// Carries the 64-bit sums over before they overflow.
    pub(super) fn carry(&mut self) {
        for (some, all) in self.some.iter_mut().zip(&mut self.all) {
            all.capacity += u128::from(std::mem::take(some));
        }
    }

    /// Adds the carried sums of other relays.
    pub(super) fn add_all(&mut self, others: &Self) {
        for (all, other) in self.all.iter_mut().zip(&others.all) {
            all.capacity += other.capacity;
            all.unweighted += other.unweighted;
            all.left_out += other.left_out;
        }
    }

    /// The sums at one time.
    pub(super) fn at(&self, slot: usize) -> Sum {
        self.all.get(slot).copied().unwrap_or_default()
    }

    /// The units of weight and capacity at these times; the times `in_means` enter relays' means.
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

/// Shares of relays in one window at each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// One divided by the total weight, and one divided by the total capacity, of relays with both.
    units: Each<(f64, f64)>,
    /// The times at which both are known.
    known: Mask,
    /// The times that enter relays' means.
    in_means: Mask,
    /// The sum of the absolute differences between weight share and capacity share.
    distances: Each<f64>,
}

impl Shares {
    /// Adds a relay's weights and capacities at some times: Eq. 5.
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

/// As a float, rounded above 2^53.
#[expect(clippy::cast_precision_loss, reason = "weights above 2^53 are rounded, to one in 2^53")]
const fn float(number: u64) -> f64 {
    number as f64
}
