//! The state of one relay, and its results at the times of a batch: Eq. 1, 2 and 7.

use super::batch::{Each, Mask, Run, Times, slots};
use super::maxima::{Maxima, Most};
use super::outcome::RelayWindow;
use super::spread::{Spread, Within};
use super::trail::Trail;

/// The integer that stands for W(r, t) = 1 in the sums of its deviation. The sum of its squares
/// over a year stays below 2^128, and a weight share of 10^-8 keeps nine digits.
pub(super) const WEIGHT_ONE: f64 = (1_u64 << 56) as f64;

/// The state of a relay for all windows together.
#[derive(Clone, Debug, Default)]
pub(super) struct Relay {
    /// The values that can still become a maximum.
    maxima: Maxima,
    advertised: Trail,
    /// The index from which on, without a gap, it has advertised the same.
    same_since: u32,
    weights: Trail,
}

/// The state of a relay for one window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RelayInWindow {
    most: Most,
    advertised: Within,
}

impl Relay {
    /// Takes advertised bandwidths at some times and sets `capacities` to the relay's capacities in
    /// each window (Eq. 1). The old content of `spreads` is ignored.
    pub(super) fn take_advertised(
        &mut self,
        runs: &mut [Run],
        times: &Times,
        kept: &mut [RelayInWindow],
        means: &mut [RelayWindow],
        capacities: &mut [Each<u64>],
        spreads: &mut Each<(u64, Spread)>,
    ) {
        for run in &mut *runs {
            if !self.advertised.is_continued_by(run) {
                self.same_since = run.step;
            }
            run.since = self.same_since;
            self.advertised.push(run);
            self.take_maxima(run, times, kept, capacities);
        }
        let windows = kept.iter_mut().zip(means).zip(&*capacities);
        for (((kept, means), capacities), (firsts, &in_means)) in
            windows.zip(times.firsts.iter().zip(&times.in_means))
        {
            let (trail, kept) = (&self.advertised, &mut kept.advertised);
            let changing = take_window(runs, trail, firsts, in_means, kept, spreads, means);
            take_changing(changing & in_means, spreads, capacities, means);
        }
        if let (Some(kept), Some(firsts), Some(last)) =
            (kept.get(times.longest), times.firsts.get(times.longest), runs.last())
        {
            self.maxima.forget(firsts.get(last.last_slot()).copied().unwrap_or(0));
            self.advertised.forget(kept.advertised.oldest());
        }
    }

    /// Sets the relay's capacity in each window at the times of a run.
    fn take_maxima(
        &mut self,
        run: &Run,
        times: &Times,
        kept: &mut [RelayInWindow],
        capacities: &mut [Each<u64>],
    ) {
        self.maxima.push(run.step + run.times - 1, run.value);
        let range = run.slot..run.slot + run.times as usize;
        for ((kept, capacities), firsts) in kept.iter_mut().zip(capacities).zip(&times.firsts) {
            let (Some(firsts), Some(capacities)) =
                (firsts.get(range.clone()), capacities.get_mut(range.clone()))
            else {
                continue;
            };
            self.maxima.update(&mut kept.most, firsts, capacities);
        }
    }

    /// Takes the relay's weights at some times; `units` has one divided by the total weight for
    /// each time with weights.
    pub(super) fn take_weights(
        &mut self,
        at: Mask,
        runs: &[Run],
        times: &Times,
        units: &[f64],
        kept: &mut [Within],
        means: &mut [RelayWindow],
    ) {
        let share = |step: u32, weight: u64| {
            fixed(weight, units.get(step as usize).copied().unwrap_or(0.0))
        };
        for run in runs {
            self.weights.push(run);
        }
        let mut shares: Each<u64> = Each::default();
        for run in runs {
            let to = shares.get_mut(run.slot..).unwrap_or_default();
            for (to, step) in to.iter_mut().zip(run.step..run.step + run.times) {
                *to = share(step, run.value);
            }
        }
        let windows = kept.iter_mut().zip(means).zip(times.firsts.iter().zip(&times.in_means));
        for ((kept, means), (firsts, in_means)) in windows {
            let (mut within, mut deviations) = (*kept, means.weight_deviation);
            for slot in slots(at) {
                let (Some(&share_now), Some(&first)) = (shares.get(slot), firsts.get(slot)) else {
                    continue;
                };
                within.add(share_now, 1);
                within.slide_scaled(&self.weights, first, share);
                if in_means >> slot & 1 == 0 {
                    continue;
                }
                if let Some(deviation) = within.relative_deviation() {
                    deviations.add(deviation);
                }
            }
            (*kept, means.weight_deviation) = (within, deviations);
        }
        if let Some(kept) = kept.get(times.longest) {
            self.weights.forget(kept.oldest());
        }
    }
}

/// Adds the runs of a relay to one window, and to its means at times at which the window has a
/// single value. Returns the times at which it has several; their newest value and spread are put
/// into `spreads`.
fn take_window(
    runs: &[Run],
    trail: &Trail,
    firsts: &Each<u32>,
    in_means: Mask,
    kept: &mut Within,
    spreads: &mut Each<(u64, Spread)>,
    means: &mut RelayWindow,
) -> Mask {
    let (mut within, mut changing) = (*kept, 0);
    for run in runs {
        let range = run.slot..run.slot + run.times as usize;
        let (Some(firsts), Some(spreads)) = (firsts.get(range.clone()), spreads.get_mut(range))
        else {
            continue;
        };
        let square = u128::from(run.value) * u128::from(run.value);
        let mut left = run.times;
        for (&first, spread) in firsts.iter().zip(spreads) {
            // From here on the window has only this value, and its errors are 0.
            if first >= run.since {
                break;
            }
            left -= 1;
            within.add_one(run.value, square);
            within.slide(trail, first);
            *spread = (run.value, within.spread());
        }
        changing |= run.mask() & !run.mask_of_last(left);
        if left > 0 {
            within.add(run.value, left);
            within.slide(trail, firsts.last().copied().unwrap_or(0));
        }
        if left > 0 && run.value > 0 {
            means.add_same(run.value, (in_means & run.mask_of_last(left)).count_ones());
        }
    }
    *kept = within;
    changing
}

/// Adds the times at which a window has several values to its means: Eq. 2, and Eq. 7 of advertised
/// bandwidths.
fn take_changing(
    at: Mask,
    spreads: &Each<(u64, Spread)>,
    capacities: &Each<u64>,
    means: &mut RelayWindow,
) {
    let (mut errors, mut deviations) = (means.capacity_error, means.advertised_deviation);
    let (mut all_advertised, mut all_capacity) = (0_u64, 0_u64);
    // A division is slow, and mostly both numbers are the same as before.
    let (mut divided, mut error) = ((0, 0), 0.0);
    for slot in slots(at) {
        let (Some(&(advertised, spread)), Some(&capacity)) =
            (spreads.get(slot), capacities.get(slot))
        else {
            continue;
        };
        if capacity == 0 {
            continue;
        }
        // Below 2^53 each, so a batch cannot overflow.
        all_advertised += advertised;
        all_capacity += capacity;
        if divided != (advertised, capacity) {
            (divided, error) = ((advertised, capacity), 1.0 - part(advertised, capacity));
        }
        errors.add(error);
        deviations.add(spread.of_mean());
    }
    (means.capacity_error, means.advertised_deviation) = (errors, deviations);
    means.advertised += u128::from(all_advertised);
    means.capacity += u128::from(all_capacity);
}

/// Advertised bandwidth over capacity.
#[expect(clippy::cast_precision_loss, reason = "none of them is above 2^53")]
fn part(advertised: u64, capacity: u64) -> f64 {
    advertised as f64 / capacity as f64
}

/// A weight share in units of 1 / [`WEIGHT_ONE`]; equal arguments give equal results.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded here, lies between 0 and 2^56, and the cast saturates"
)]
fn fixed(weight: u64, unit: f64) -> u64 {
    (weight as f64 * unit) as u64
}
