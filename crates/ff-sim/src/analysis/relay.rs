//! What is kept of one relay, and what the times of a batch say of it alone: Eq. 1, 2 and 7.

use super::batch::{Each, Mask, Run, Times, slots};
use super::maxima::{Maxima, Most};
use super::outcome::RelayWindow;
use super::spread::Within;
use super::trail::Trail;

/// What W(r, t) = 1 counts for in the sums of its deviation: squares of it, a year of them, stay below 2^128, and of
/// a weight of one in 10^8 it keeps nine digits.
pub(super) const WEIGHT_ONE: f64 = (1_u64 << 56) as f64;

/// What is kept of a relay for all windows.
#[derive(Clone, Debug, Default)]
pub(super) struct Relay {
    /// What may still become a maximum.
    maxima: Maxima,
    /// What it advertised.
    advertised: Trail,
    /// Since when, without a gap, it has advertised the same.
    same_since: u32,
    /// Its weights.
    weights: Trail,
}

/// What is kept of a relay for one window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RelayInWindow {
    /// Its maximum.
    most: Most,
    /// What it advertised.
    advertised: Within,
}

/// The times of a run, as one window sees them.
#[derive(Clone, Copy, Debug)]
struct Seen<'a> {
    /// For each, where the window begins.
    firsts: &'a [u32],
    /// Which of them are in the means, the first in the lowest bit.
    in_means: Mask,
}

impl Relay {
    /// Takes what it advertises at some of the times; its capacities in each window (Eq. 1) go to `capacities`.
    pub(super) fn take_advertised(
        &mut self,
        runs: &[Run],
        times: &Times,
        kept: &mut [RelayInWindow],
        means: &mut [RelayWindow],
        capacities: &mut [Each<u64>],
    ) {
        for run in runs {
            if !self.advertised.is_continued_by(run) {
                self.same_since = run.step;
            }
            self.advertised.push(run);
            self.maxima.push(run.step + run.times - 1, run.value);
            let range = run.slot..run.slot + run.times as usize;
            let windows = kept.iter_mut().zip(&mut *means).zip(&mut *capacities);
            for (((kept, means), capacities), (firsts, in_means)) in
                windows.zip(times.firsts.iter().zip(&times.in_means))
            {
                let (Some(firsts), Some(capacities)) =
                    (firsts.get(range.clone()), capacities.get_mut(range.clone()))
                else {
                    continue;
                };
                let seen = Seen { firsts, in_means: in_means >> run.slot };
                let changing = self.take_changing(run, seen, kept, means, capacities);
                self.take_same(run, changing, seen, kept, means, capacities);
            }
        }
        if let (Some(kept), Some(firsts), Some(last)) =
            (kept.get(times.longest), times.firsts.get(times.longest), runs.last())
        {
            let last = last.slot + last.times as usize - 1;
            self.maxima.forget(firsts.get(last).copied().unwrap_or(0));
            self.advertised.forget(kept.advertised.oldest());
        }
    }

    /// Takes the times of a run at which the window has other values too; says how many those are.
    #[inline]
    fn take_changing(
        &self,
        run: &Run,
        seen: Seen<'_>,
        kept: &mut RelayInWindow,
        means: &mut RelayWindow,
        capacities: &mut [u64],
    ) -> usize {
        let (RelayInWindow { mut most, advertised: mut within }, mut in_means) =
            (*kept, seen.in_means);
        let (mut errors, mut deviations) = (means.capacity_error, means.advertised_deviation);
        let (mut advertised, mut capacity) = (0_u64, 0_u64);
        // A division takes its time, and the maximum is mostly the same as before.
        let (mut divided_by, mut error) = (0, 0.0);
        let square = u128::from(run.value) * u128::from(run.value);
        let mut done = 0;
        for (&first, of_window) in seen.firsts.iter().zip(capacities) {
            if first >= self.same_since {
                break;
            }
            done += 1;
            self.maxima.update(&mut most, first);
            *of_window = most.value;
            within.add_one(run.value, square);
            within.slide(&self.advertised, first);
            let is_in_means = in_means & 1 != 0 && most.value > 0;
            in_means >>= 1;
            if !is_in_means {
                continue;
            }
            if most.value != divided_by {
                (divided_by, error) = (most.value, 1.0 - part(run.value, most.value));
            }
            errors.add(error);
            // Below 2^53 each, they cannot overflow within a batch.
            advertised += run.value;
            capacity += most.value;
            if let Some(deviation) = within.relative_deviation() {
                deviations.add(deviation);
            }
        }
        if done > 0 {
            *kept = RelayInWindow { most, advertised: within };
            (means.capacity_error, means.advertised_deviation) = (errors, deviations);
            means.advertised += u128::from(advertised);
            means.capacity += u128::from(capacity);
        }
        done
    }

    /// Takes the times of a run, but for some, at which the window has this value alone: its errors are 0.
    #[inline]
    fn take_same(
        &self,
        run: &Run,
        done: usize,
        seen: Seen<'_>,
        kept: &mut RelayInWindow,
        means: &mut RelayWindow,
        capacities: &mut [u64],
    ) {
        let (Some(firsts), Some(capacities)) =
            (seen.firsts.get(done..), capacities.get_mut(done..))
        else {
            return;
        };
        let (Some(&first), Ok(times)) = (firsts.last(), u32::try_from(firsts.len())) else {
            return;
        };
        self.maxima.update(&mut kept.most, first);
        capacities.fill(run.value);
        kept.advertised.add(run.value, times);
        kept.advertised.slide(&self.advertised, first);
        if run.value > 0 {
            let of_run = Mask::MAX >> (Mask::BITS - times);
            let times = ((seen.in_means >> done) & of_run).count_ones();
            let all = u128::from(run.value) * u128::from(times);
            means.advertised += all;
            means.capacity += all;
            means.capacity_error.add_zeros(times);
            means.advertised_deviation.add_zeros(times);
        }
    }

    /// Takes its weights at some of the times; `units` says for each time with weights what a unit counts for.
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

/// Which part of its capacity a relay advertises.
#[expect(clippy::cast_precision_loss, reason = "none of them is above 2^53")]
fn part(advertised: u64, capacity: u64) -> f64 {
    advertised as f64 / capacity as f64
}

/// A weight in whole parts of [`WEIGHT_ONE`]; the same again whenever it is asked for.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded here, lies between 0 and 2^56, and the cast saturates"
)]
fn fixed(weight: u64, unit: f64) -> u64 {
    (weight as f64 * unit) as u64
}
