//! Some times that are taken together.
//!
//! Readings come time by time, but what is kept of a relay is spread over memory: to fetch it for
//! one reading alone costs more than to reckon with it. So readings are collected, sorted by relay,
//! and each relay then goes through all of these times at once.

use super::coverage::Covered;
use super::outcome::{NetworkStep, RelayMeans};
use super::reading::{MOST_RELAYS, MOST_WEIGHT, Reading, StepError};
use crate::read::series::MOST_VALUE;

/// At most this number of times are taken together: more need more memory and are hardly faster.
pub(super) const SLOTS: usize = 32;

/// Some of the times of a batch, a bit each.
pub(super) type Mask = u32;

/// Something for each time of a batch.
pub(super) type Each<T> = [T; SLOTS];

/// A value that a relay has at some times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where the first of them stands in the batch.
    pub(super) slot: usize,
    /// The index of the first among all times at which there are such values.
    pub(super) step: u32,
    /// How many they are.
    pub(super) times: u32,
    pub(super) value: u64,
    /// Since when, without a gap, it has been the same; not known before [`super::relay`] says it.
    pub(super) since: u32,
}

impl Run {
    /// Its times.
    pub(super) const fn mask(&self) -> Mask {
        self.mask_of_last(self.times)
    }

    /// The last `times` of its times.
    pub(super) const fn mask_of_last(&self, times: u32) -> Mask {
        let first = self.slot + self.times as usize - times as usize;
        if times == 0 { 0 } else { (Mask::MAX >> (Mask::BITS - times)) << first }
    }

    /// Where the last of its times stands in the batch.
    pub(super) const fn last_slot(&self) -> usize {
        self.slot + self.times as usize - 1
    }
}

/// At which times of a batch a relay is listed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    /// At these.
    pub(super) all: Mask,
    /// And what it advertised is known at these.
    pub(super) advertised: Mask,
    /// And it has a weight at these.
    pub(super) weighted: Mask,
}

/// The times of a batch, as values of one kind see them: what is advertised, or weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// For each, its index among all times at which there are such values.
    pub(super) steps: Each<u32>,
    /// For each window and time, the index at which the window begins.
    pub(super) firsts: Vec<Each<u32>>,
    /// For each window, at which times it is in the means.
    pub(super) in_means: Vec<Mask>,
    /// Which of the windows is the longest.
    pub(super) longest: usize,
}

/// Some times.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// They, in seconds since 1970.
    pub(super) unix_secs: Each<u64>,
    /// How many there are.
    pub(super) count: usize,
    /// At which of them relays have weights.
    pub(super) with_weights: Mask,
    pub(super) of_advertised: Times,
    pub(super) of_weights: Times,
}

/// Some times with the readings of all relays.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// The times.
    pub(super) moments: Moments,
    pub(super) relays: Vec<Listed>,
    /// What each relay advertised at each time.
    pub(super) advertised: Vec<Each<u64>>,
    /// The weight of each relay at each time; of none, until a relay has one.
    pub(super) weights: Vec<Each<u64>>,
}

impl Times {
    /// Of no time yet.
    pub(super) fn new(windows: usize, longest: usize) -> Self {
        Self {
            steps: Each::default(),
            firsts: vec![Each::default(); windows],
            in_means: vec![0; windows],
            longest,
        }
    }

    /// Notes a time; means leave out windows of which data cover a smaller part than `least`.
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

    /// The runs of a relay's values at some of the times.
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
    /// No time yet.
    pub(super) fn new(windows: usize, longest: usize) -> Self {
        let times = || Times::new(windows, longest);
        Self { of_advertised: times(), of_weights: times(), ..Self::default() }
    }

    /// Takes the next time, in seconds since 1970.
    pub(super) fn push(&mut self, time: u64, has_weights: bool) {
        if let Some(at) = self.unix_secs.get_mut(self.count) {
            *at = time;
        }
        self.with_weights |= Mask::from(has_weights) << self.count;
        self.count += 1;
    }

    /// All times there are.
    pub(super) fn all(&self) -> Mask {
        (0..self.count).fold(0, |all, slot| all | 1 << slot)
    }

    /// At which times a window is in the means of what relays advertise.
    pub(super) fn in_means(&self, window: usize) -> Mask {
        self.of_advertised.in_means.get(window).copied().unwrap_or(0)
    }

    /// Notes when a relay is listed.
    pub(super) fn take_listing(&self, listed: Mask, means: &mut RelayMeans) {
        let time = |slot: u32| self.unix_secs.get(slot as usize).copied();
        means.first_seen = means.first_seen.or_else(|| time(listed.trailing_zeros()));
        means.last_seen = listed.checked_ilog2().and_then(time);
        means.listed += listed.count_ones();
    }
}

impl Batch {
    /// Of no time yet.
    pub(super) fn new(windows: usize, longest: usize) -> Self {
        Self { moments: Moments::new(windows, longest), ..Self::default() }
    }

    /// Takes the readings of the next time and adds them up; of a time with a bad one nothing
    /// stays.
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

    /// Makes room for the relays of some readings, if these are within bounds.
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

    /// Gives up readings of the next time.
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

    /// Begins anew, with the same relays.
    pub(super) fn clear(&mut self) {
        (self.moments.count, self.moments.with_weights) = (0, 0);
        self.relays.fill(Listed::default());
    }
}

/// Sets a value of a relay at a time.
#[inline]
fn set(values: &mut [Each<u64>], relay: usize, slot: usize, value: u64) {
    if let Some(at) = values.get_mut(relay).and_then(|values| values.get_mut(slot)) {
        *at = value;
    }
}

/// The times that a mask has, in order.
#[inline]
pub(super) fn slots(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = mask.trailing_zeros() as usize;
        let some = mask != 0;
        mask &= mask.wrapping_sub(1);
        some.then_some(slot)
    })
}
