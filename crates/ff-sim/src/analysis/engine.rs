//! Eq. 1-7 in one pass over the data.
//!
//! [`Engine::push`] takes one time after the other. Maxima come from one monotone deque a relay (`maxima`),
//! deviations from exact sums (`spread`); a step costs as much as relays are listed in it times windows.
//! Sums over relays are whole numbers. Shares and errors are rounded once each, and means add them in the order of
//! time: the same input gives the same bits.
//!
//! Memory grows with relays times the longest window, a few bytes each, and by a few hundred bytes with every time.

use super::coverage::{Coverage, Covered};
use super::outcome::{NetworkStep, NetworkWindow, Outcome, RelayMeans, RelayWindow};
use super::relay::{Now, Relay, RelayInWindow, WEIGHT_ONE};
use super::spread::Within;
use super::window::Window;
use crate::read::series::MOST_VALUE;

/// Relays have numbers below this.
pub const MOST_RELAYS: u32 = 1 << 20;
/// No weight is above this, whatever its unit.
pub const MOST_WEIGHT: u64 = 1 << 60;
/// More times than these are not taken: two hundred years of hours.
pub const MOST_STEPS: usize = 1 << 21;

/// How to analyse.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The windows.
    pub windows: Vec<Window>,
    /// How far two times may be apart before there is a gap between them, in seconds: an hour for an archive.
    pub step_secs: u64,
    /// Means of relays begin here, in seconds since 1970: the paper's data begin a year before its means do.
    pub from: Option<u64>,
    /// Means of relays leave out windows of which data cover a smaller part than this. 1 takes whole windows alone.
    pub least_share: f64,
}

/// A relay at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which relay, by a number that stays its own.
    pub relay: u32,
    /// What it advertised, in bytes a second, if that is known.
    pub advertised: Option<u64>,
    /// Its weight, in any unit that all relays of this time share, if it has one.
    pub weight: Option<u64>,
}

/// A time that cannot be taken; the engine is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It is not later than the one before.
    #[error("second {0} does not come after the time before it")]
    NotLater(u64),
    /// A relay comes twice.
    #[error("relay number {0} comes twice")]
    Twice(u32),
    /// A number is greater than it may be.
    #[error("relay number {0}, or what it advertised, or its weight, is greater than it may be")]
    TooGreat(u32),
    /// There are too many times.
    #[error("more than {MOST_STEPS} times")]
    TooMany,
}

/// Analyses a network, a time after the other.
#[derive(Clone, Debug)]
pub struct Engine {
    /// How.
    settings: Settings,
    /// Which of the windows is the longest.
    longest: usize,
    /// The times at which something was advertised.
    coverage: Coverage,
    /// The times at which relays had weights.
    weight_coverage: Coverage,
    /// For each time with weights, what a unit of weight counts for.
    weight_units: Vec<f64>,
    /// How many times were tried, those that could not be taken too.
    attempts: u64,
    /// The relays.
    relays: Vec<Relay>,
    /// For each relay one after the other, what each window keeps.
    windows: Vec<RelayInWindow>,
    /// For each relay one after the other, its parts of all weight in each window: apart, because not all data have
    /// weights, and what is not touched costs no time.
    weights: Vec<Within>,
    /// What came out so far.
    outcome: Outcome,
    /// The windows at this time, of what was advertised.
    covered: Vec<Covered>,
    /// The windows at this time, of weights.
    weight_covered: Vec<Covered>,
    /// For each reading one after the other, its capacity in each window.
    capacities: Vec<u64>,
    /// The sums of each window at this time.
    sums: Vec<Sums>,
}

/// Sums over relays, in one window at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Of capacities.
    capacity: u128,
    /// Of the weights of those that have both.
    weight: u128,
    /// Of the capacities of those that have both.
    weighted_capacity: u128,
}

impl Engine {
    /// Before the first time.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let windows = settings.windows.clone();
        let longest = (0..windows.len()).max_by_key(|&index| windows.get(index)).unwrap_or(0);
        Self {
            longest,
            coverage: Coverage::new(settings.step_secs, &windows),
            weight_coverage: Coverage::new(settings.step_secs, &windows),
            weight_units: Vec::new(),
            attempts: 0,
            relays: Vec::new(),
            windows: Vec::new(),
            weights: Vec::new(),
            outcome: Outcome { windows, ..Outcome::default() },
            covered: Vec::new(),
            weight_covered: Vec::new(),
            capacities: Vec::new(),
            sums: Vec::new(),
            settings,
        }
    }

    /// Takes a time with all relays that are listed then.
    ///
    /// # Errors
    /// [`StepError`]; then nothing of the time is taken.
    pub fn push(&mut self, time: u64, readings: &[Reading]) -> Result<&NetworkStep, StepError> {
        self.check(time, readings)?;
        let last = self.coverage.last();
        let is_after_gap = last.is_some_and(|last| time - last > self.settings.step_secs);
        let mut step = NetworkStep { time, is_after_gap, ..NetworkStep::default() };
        for reading in readings {
            step.relays += 1;
            step.without_advertised += u32::from(reading.advertised.is_none());
            step.advertised += u128::from(reading.advertised.unwrap_or(0));
            step.weight += u128::from(reading.weight.unwrap_or(0));
        }
        self.take_time(&step);
        self.take_relays(&step, readings);
        self.take_sums(&mut step, readings);
        self.take_weights(&mut step, readings);
        self.outcome.steps.push(step);
        self.outcome.steps.last().ok_or(StepError::TooMany)
    }

    /// What came out.
    #[must_use]
    pub fn finish(self) -> Outcome {
        self.outcome
    }

    /// Whether a time can be taken; makes room for its relays.
    fn check(&mut self, time: u64, readings: &[Reading]) -> Result<(), StepError> {
        if self.outcome.steps.last().is_some_and(|last| time <= last.time) {
            return Err(StepError::NotLater(time));
        }
        if self.outcome.steps.len() >= MOST_STEPS {
            return Err(StepError::TooMany);
        }
        for reading in readings {
            let is_great = reading.relay >= MOST_RELAYS
                || reading.advertised.is_some_and(|value| value > MOST_VALUE)
                || reading.weight.is_some_and(|value| value > MOST_WEIGHT);
            if is_great {
                return Err(StepError::TooGreat(reading.relay));
            }
        }
        self.make_room(readings.iter().map(|reading| reading.relay as usize + 1).max());
        self.attempts += 1;
        for reading in readings {
            let Some(relay) = self.relays.get_mut(reading.relay as usize) else { continue };
            if std::mem::replace(&mut relay.attempt, self.attempts) == self.attempts {
                return Err(StepError::Twice(reading.relay));
            }
        }
        Ok(())
    }

    /// Makes room for so many relays.
    fn make_room(&mut self, count: Option<usize>) {
        let count = count.unwrap_or(0).max(self.relays.len());
        let windows = self.settings.windows.len();
        self.relays.resize_with(count, Relay::default);
        self.windows.resize(count * windows, RelayInWindow::default());
        self.weights.resize(count * windows, Within::default());
        let none =
            RelayMeans { windows: vec![RelayWindow::default(); windows], ..RelayMeans::default() };
        self.outcome.relays.resize(count, none);
    }

    /// Takes the time itself. Where nothing is advertised, or no relay has a weight, it is as if it were missing.
    fn take_time(&mut self, step: &NetworkStep) {
        let count = self.settings.windows.len();
        if step.without_advertised < step.relays {
            self.coverage.push(step.time, &mut self.covered);
        } else {
            self.covered.clear();
            self.covered.resize(count, Covered::default());
        }
        if let Some(unit) = unit(step.weight) {
            self.weight_coverage.push(step.time, &mut self.weight_covered);
            self.weight_units.push(unit * WEIGHT_ONE);
        } else {
            self.weight_covered.clear();
            self.weight_covered.resize(count, Covered::default());
        }
    }

    /// Eq. 1, 2 and 7 for each relay.
    fn take_relays(&mut self, step: &NetworkStep, readings: &[Reading]) {
        let (time, has_weights) = (step.time, step.weight > 0);
        let is_in_means = self.settings.from.is_none_or(|from| time >= from);
        let least = if is_in_means { self.settings.least_share } else { f64::INFINITY };
        let count = self.settings.windows.len();
        let (longest, least_share) = (self.longest, least);
        let step = self.coverage.last_index();
        let now = Now { step, covered: &self.covered, longest, least_share };
        let (step, covered) = (self.weight_coverage.last_index(), &*self.weight_covered);
        let now_of_weights = Now { step, covered, longest, least_share };
        self.capacities.clear();
        for reading in readings {
            let index = reading.relay as usize;
            let range = index * count..(index + 1) * count;
            let (Some(relay), Some(means), Some(kept), Some(weights)) = (
                self.relays.get_mut(index),
                self.outcome.relays.get_mut(index),
                self.windows.get_mut(range.clone()),
                self.weights.get_mut(range),
            ) else {
                continue;
            };
            means.first_seen.get_or_insert(time);
            means.last_seen = Some(time);
            means.listed += 1;
            if let Some(weight) = reading.weight.filter(|_| has_weights) {
                let units = &self.weight_units;
                relay.take_weight(weight, units, now_of_weights, weights, &mut means.windows);
            }
            if let Some(advertised) = reading.advertised {
                means.most_advertised = means.most_advertised.max(advertised);
                let capacities = &mut self.capacities;
                relay.take_advertised(advertised, now, kept, &mut means.windows, capacities);
            } else {
                self.capacities.resize(self.capacities.len() + count, 0);
            }
        }
    }

    /// The sums of each window, then Eq. 3 and 4.
    fn take_sums(&mut self, step: &mut NetworkStep, readings: &[Reading]) {
        let count = self.settings.windows.len();
        self.sums.clear();
        self.sums.resize(count, Sums::default());
        for (reading, capacities) in readings.iter().zip(self.capacities.chunks_exact(count.max(1)))
        {
            let weight = reading.weight.map(u128::from);
            for (&capacity, sums) in capacities.iter().zip(&mut self.sums) {
                let capacity = u128::from(capacity);
                sums.capacity += capacity;
                if let Some(weight) = weight.filter(|_| capacity > 0) {
                    sums.weight += weight;
                    sums.weighted_capacity += capacity;
                }
            }
        }
        let covered = self.covered.iter().zip(&self.weight_covered);
        for (sums, (covered, weight_covered)) in self.sums.iter().zip(covered) {
            let left_out = step.weight - sums.weight;
            step.windows.push(NetworkWindow {
                share: covered.share,
                is_whole: covered.is_whole,
                share_of_weights: weight_covered.share,
                capacity: sums.capacity,
                capacity_error: quotient(step.advertised, sums.capacity).map(|part| 1.0 - part),
                weight_error: None,
                weight_left_out: quotient(left_out, step.weight).unwrap_or(0.0),
            });
        }
    }

    /// Eq. 5 for each relay, and Eq. 6.
    fn take_weights(&mut self, step: &mut NetworkStep, readings: &[Reading]) {
        let count = self.settings.windows.len();
        let is_in_means = self.settings.from.is_none_or(|from| step.time >= from);
        for (index, (sums, network)) in self.sums.iter().zip(&mut step.windows).enumerate() {
            let units = (unit(sums.weight), unit(sums.weighted_capacity));
            let (Some(weight_unit), Some(capacity_unit)) = units else { continue };
            let is_in_means = is_in_means && network.share >= self.settings.least_share;
            let mut distance = 0.0;
            let capacities = self.capacities.iter().skip(index).step_by(count.max(1));
            for (reading, &capacity) in readings.iter().zip(capacities) {
                let Some(weight) = reading.weight.filter(|_| capacity > 0) else { continue };
                let (share, fair) = (float(weight) * weight_unit, float(capacity) * capacity_unit);
                distance += (share - fair).abs();
                let relay = self.outcome.relays.get_mut(reading.relay as usize);
                let means = relay.and_then(|relay| relay.windows.get_mut(index));
                if let Some(means) = means.filter(|_| is_in_means) {
                    means.weight_error.add(share / fair);
                    means.weight_share.add(share);
                    means.capacity_share.add(fair);
                }
            }
            network.weight_error = Some(distance / 2.0);
        }
    }
}

/// A quotient of sums; nothing over 0.
#[expect(clippy::cast_precision_loss, reason = "each is rounded once")]
pub(super) fn quotient(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What one is of a sum; nothing of 0.
fn unit(sum: u128) -> Option<f64> {
    quotient(1, sum)
}

/// A number, rounded if it lies above 2^53.
#[expect(clippy::cast_precision_loss, reason = "weights above 2^53 are rounded, to one in 2^53")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
