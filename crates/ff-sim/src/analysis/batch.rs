//! Batches of times that are processed together.
//!
//! Readings arrive in order of time, but the state of each relay is spread over memory: fetching it
//! for a single reading costs more than the computation. So readings are collected by relay, and
//! each relay is then processed for all times of the batch at once.

use ff_archives::read::series::MOST_VALUE;
use ff_archives::reading::Reading;

use super::coverage::Covered;
use super::outcome::{NetworkStep, RelayMeans};
use super::reading::{MOST_RELAYS, MOST_WEIGHT, StepError};

/// Times per batch. More need more memory and are hardly faster.
pub(super) const SLOTS: usize = 32;

/// A set of times of a batch, one bit each.
pub(super) type Mask = u32;

/// One value for each time of a batch.
pub(super) type Each<T> = [T; SLOTS];

/// A value that a relay has at consecutive times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The place of the first time in the batch.
    pub(super) slot: usize,
    /// The index of the first time among all times with values of this kind.
    pub(super) step: u32,
    /// The number of times.
    pub(super) times: u32,
    pub(super) value: u64,
    /// The index from which on, without a gap, the value has been the same; set by
    /// [`super::relay`].
    pub(super) since: u32,
}

impl Run {
    pub(super) const fn mask(&self) -> Mask {
        self.mask_of_last(self.times)
    }

    /// The last `times` times of the run.
    pub(super) const fn mask_of_last(&self, times: u32) -> Mask {
        let first = self.slot + self.times as usize - times as usize;
        if times == 0 { 0 } else { (Mask::MAX >> (Mask::BITS - times)) << first }
    }

    /// The place of the last time in the batch.
    pub(super) const fn last_slot(&self) -> usize {
        self.slot + self.times as usize - 1
    }
}

/// The times of a batch at which a relay is listed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    pub(super) all: Mask,
    /// Times at which its advertised bandwidth is known as well.
    pub(super) advertised: Mask,
    /// Times at which it has a weight as well.
    pub(super) weighted: Mask,
}

/// The times of a batch that have values of one kind: advertised bandwidths or weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// The index of each time among all times with such values.
    pub(super) steps: Each<u32>,
    /// For each window and time, the index at which the window begins.
    pub(super) firsts: Vec<Each<u32>>,
    /// For each window, the times that enter relays' means.
    pub(super) in_means: Vec<Mask>,
    /// The index of the longest window.
    pub(super) longest: usize,
}

/// The times of a batch, without readings.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// In seconds since 1970.
    pub(super) unix_secs: Each<u64>,
    /// The number of times.
    pub(super) count: usize,
    /// The times at which relays have weights.
    pub(super) with_weights: Mask,
    pub(super) of_advertised: Times,
    pub(super) of_weights: Times,
}

/// The times of a batch with the readings of all relays.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) moments: Moments,
    pub(super) relays: Vec<Listed>,
    /// What each relay advertised at each time, in bytes per second.
    pub(super) advertised: Vec<Each<u64>>,
    /// The weight of each relay at each time; empty until some relay has a weight.
    pub(super) weights: Vec<Each<u64>>,
}

impl Times {
    /// An empty batch.
    pub(super) fn new(windows: usize, longest: usize) -> Self {
        Self {
            steps: Each::default(),
            firsts: vec![Each::default(); windows],
            in_means: vec![0; windows],
            longest,
        }
    }

    /// Sets the values of a time. Windows with a covered share below `least` do not enter means.
    pub(super) fn set(&mut self, slot: usize, step: u32, covered: &[Covered], least: f64) {
        if let Some(at) = self.steps.get_mut(slot) {
            *at = step;
        }
        let windows = self.firsts.iter_mut().zip(&mut self.in_means);
        for ((firsts, in_means), covered) in windows.zip(covered) {
            if let Some(first) = firsts.get_mut(slot) {
                *first = covered.first;
            }
            *in_means &= !(1 << slot);
            *in_means |= Mask::from(covered.share >= least) << slot;
        }
    }

    /// Finds the runs of equal values of a relay at the times `at`.
    pub(super) fn runs(&self, values: &Each<u64>, at: Mask, runs: &mut Vec<Run>) {
        runs.clear();
        for slot in slots(at) {
            let (Some(&value), Some(&step)) = (values.get(slot), self.steps.get(slot)) else {
                continue;
            };
            match runs.last_mut() {
                Some(run)
                    if run.value == value
                        && run.step + run.times == step
                        && run.slot + run.times as usize == slot =>
                {
                    run.times += 1;
                }
                _ => runs.push(Run { slot, step, times: 1, value, since: step }),
            }
        }
    }
}

impl Moments {
    /// An empty batch.
    pub(super) fn new(windows: usize, longest: usize) -> Self {
        let times = || Times::new(windows, longest);
        Self { of_advertised: times(), of_weights: times(), ..Self::default() }
    }

    /// Appends a time, in seconds since 1970.
    pub(super) fn push(&mut self, time: u64, has_weights: bool) {
        if let Some(at) = self.unix_secs.get_mut(self.count) {
            *at = time;
        }
        self.with_weights |= Mask::from(has_weights) << self.count;
        self.count += 1;
    }

    /// The set of all times.
    pub(super) fn all(&self) -> Mask {
        (0..self.count).fold(0, |all, slot| all | 1 << slot)
    }

    /// The times at which a window enters the means of advertised bandwidths.
    pub(super) fn in_means(&self, window: usize) -> Mask {
        self.of_advertised.in_means.get(window).copied().unwrap_or(0)
    }

    /// Updates when and how often a relay was listed.
    pub(super) fn take_listing(&self, listed: Mask, means: &mut RelayMeans) {
        let time = |slot: u32| self.unix_secs.get(slot as usize).copied();
        means.first_seen = means.first_seen.or_else(|| time(listed.trailing_zeros()));
        means.last_seen = listed.checked_ilog2().and_then(time);
        means.listed += listed.count_ones();
    }
}

impl Batch {
    /// An empty batch.
    pub(super) fn new(windows: usize, longest: usize) -> Self {
        Self { moments: Moments::new(windows, longest), ..Self::default() }
    }

    /// Adds the readings of the next time and returns their sums; if one is invalid, none is added.
    pub(super) fn list(
        &mut self,
        readings: &[Reading],
        step: &mut NetworkStep,
    ) -> Result<(), StepError> {
        self.make_room(readings)?;
        let (mut all, mut known, mut advertised, mut weight) = (0, 0, 0_u128, 0_u128);
        let (slot, bit) = (self.moments.count, 1 << self.moments.count);
        let relays = &mut *self.relays;
        let (of_advertised, of_weights) = (&mut *self.advertised, &mut *self.weights);
        for reading in readings {
            let index = reading.relay as usize;
            let Some(listed) = relays.get_mut(index) else { continue };
            if listed.all & bit != 0 {
                self.unlist(readings.get(..all as usize).unwrap_or_default());
                return Err(StepError::Twice(reading.relay));
            }
            all += 1;
            listed.all |= bit;
            if let Some(value) = reading.advertised {
                listed.advertised |= bit;
                set(of_advertised, index, slot, value);
                known += 1;
                advertised += u128::from(value);
            }
            if let Some(value) = reading.weight {
                listed.weighted |= bit;
                set(of_weights, index, slot, value);
                weight += u128::from(value);
            }
        }
        (step.relays, step.without_advertised) = (all, all - known);
        (step.advertised, step.weight) = (advertised, weight);
        Ok(())
    }

    /// Makes room for the relays of these readings, if the readings are within bounds.
    fn make_room(&mut self, readings: &[Reading]) -> Result<(), StepError> {
        let (mut count, mut has_weights) = (self.relays.len(), false);
        for reading in readings {
            let is_great = reading.relay >= MOST_RELAYS
                || reading.advertised.is_some_and(|value| value > MOST_VALUE)
                || reading.weight.is_some_and(|value| value > MOST_WEIGHT);
            if is_great {
                return Err(StepError::TooGreat(reading.relay));
            }
            count = count.max(reading.relay as usize + 1);
            has_weights |= reading.weight.is_some();
        }
        self.relays.resize(count, Listed::default());
        self.advertised.resize(count, Each::default());
        if has_weights {
            self.weights.resize(count, Each::default());
        }
        Ok(())
    }

    /// Removes the readings of the next time.
    fn unlist(&mut self, readings: &[Reading]) {
        let others: Mask = !(1 << self.moments.count);
        for reading in readings {
            if let Some(listed) = self.relays.get_mut(reading.relay as usize) {
                listed.all &= others;
                listed.advertised &= others;
                listed.weighted &= others;
            }
        }
    }

    /// Empties the batch but keeps room for its relays.
    pub(super) fn clear(&mut self) {
        (self.moments.count, self.moments.with_weights) = (0, 0);
        self.relays.fill(Listed::default());
    }
}

#[inline]
fn set(values: &mut [Each<u64>], relay: usize, slot: usize, value: u64) {
    if let Some(at) = values.get_mut(relay).and_then(|values| values.get_mut(slot)) {
        *at = value;
    }
}

/// The times of a mask, in order.
#[inline]
pub(super) fn slots(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = mask.trailing_zeros() as usize;
        let some = mask != 0;
        mask &= mask.wrapping_sub(1);
        some.then_some(slot)
    })
}
