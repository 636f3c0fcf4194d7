//! Computes Eq. 1-7 in one pass over the data.
//!
//! [`Engine::take`] takes the times one by one. Maxima come from one monotone deque per relay
//! (`maxima`), deviations from exact sums (`spread`); the cost of a time is proportional to the
//! number of listed relays times the number of windows. Times are collected and processed in
//! batches (`batch`). [`Engine::push`] processes each time at once and returns its results, at a
//! higher cost. [`Engine::take_table`] takes a whole table relay by relay, at the lowest cost.
//!
//! Sums over relays are integers. Shares and errors are rounded once each; means add them in order
//! of time, Eq. 6 in order of relays' numbers. So equal input gives equal bits.
//!
//! Memory grows with the number of relays times the length of the longest window, by a few bytes
//! each, and by a few hundred bytes with every time.

use ff_archives::reading::Reading;

use super::batch::{Batch, Each, Mask, Moments, Run, SLOTS};
use super::coverage::{Coverage, Covered};
use super::outcome::{ErrorAnalysis, NetworkStep, NetworkWindow, RelayMeans, RelayWindow};
use super::quotient::{quotient, unit};
pub use super::reading::{MOST_RELAYS, MOST_STEPS, MOST_WEIGHT, StepError};
use super::relay::{Relay, RelayInWindow, WEIGHT_ONE};
use super::spread::{Spread, Within};
use super::window::Window;

mod sums;
mod table;

use sums::Sums;

/// Settings of an analysis.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Windows over which capacities are computed.
    pub windows: Vec<Window>,
    /// The longest interval between two times without a gap, in seconds: an hour for an archive.
    pub step_secs: u64,
    /// Start of relays' means, in seconds since 1970; the paper's data begin a year before its
    /// means.
    pub from: Option<u64>,
    /// Means of relays leave out windows with a lower covered share. 1 means whole windows only.
    pub least_share: f64,
}

/// Analyses a network, one time after another.
#[derive(Clone, Debug)]
pub struct Engine {
    settings: EngineSettings,
    /// Coverage by the times at which something was advertised.
    coverage: Coverage,
    /// Coverage by the times at which relays had weights.
    weight_coverage: Coverage,
    /// For each time with weights, one divided by the total weight.
    weight_units: Vec<f64>,
    /// Recent times that were not processed yet.
    batch: Batch,
    relays: Vec<Relay>,
    /// For each relay in turn, the state of each window.
    windows: Vec<RelayInWindow>,
    /// For each relay in turn, its weight shares in each window. They are separate because not all
    /// data have weights, and memory that is never touched costs no time.
    weights: Vec<Within>,
    /// Results so far.
    outcome: ErrorAnalysis,
    /// The windows at this time, for advertised bandwidths.
    covered: Vec<Covered>,
    /// The windows at this time, for weights.
    weight_covered: Vec<Covered>,
    /// For each relay of the batch in turn, its capacities in each window; room for one relay only
    /// if the batch has no weights.
    capacities: Vec<Each<u64>>,
    /// For each window, the sums at each time of the batch.
    sums: Vec<Sums>,
}

impl Engine {
    /// An engine without data.
    #[must_use]
    pub fn new(settings: EngineSettings) -> Self {
        let windows = settings.windows.clone();
        Self {
            coverage: Coverage::new(settings.step_secs, &windows),
            weight_coverage: Coverage::new(settings.step_secs, &windows),
            weight_units: Vec::new(),
            batch: Batch::new(windows.len(), longest(&windows)),
            relays: Vec::new(),
            windows: Vec::new(),
            weights: Vec::new(),
            sums: vec![Sums::default(); windows.len()],
            outcome: ErrorAnalysis { windows, ..ErrorAnalysis::default() },
            covered: Vec::new(),
            weight_covered: Vec::new(),
            capacities: Vec::new(),
            settings,
        }
    }

    /// Takes a time with all relays that are listed then.
    ///
    /// # Errors
    /// [`StepError`]; the engine is then unchanged.
    pub fn take(&mut self, time: u64, readings: &[Reading]) -> Result<(), StepError> {
        if self.outcome.steps.last().is_some_and(|last| time <= last.time) {
            return Err(StepError::NotLater(time));
        }
        if self.outcome.steps.len() >= MOST_STEPS {
            return Err(StepError::TooMany);
        }
        let is_after_gap = self.is_after_gap(time);
        let mut step = NetworkStep { time, is_after_gap, ..NetworkStep::default() };
        self.batch.list(readings, &mut step)?;
        self.take_time(&mut step);
        self.outcome.steps.push(step);
        if self.batch.moments.count == SLOTS {
            self.reckon();
        }
        Ok(())
    }

    /// Takes a time as [`Engine::take`] does and returns its results at once.
    ///
    /// # Errors
    /// [`StepError`]; the engine is then unchanged.
    pub fn push(&mut self, time: u64, readings: &[Reading]) -> Result<&NetworkStep, StepError> {
        self.take(time, readings)?;
        self.reckon();
        self.outcome.steps.last().ok_or(StepError::TooMany)
    }

    /// Processes the remaining times, and returns the results.
    #[must_use]
    pub fn finish(mut self) -> ErrorAnalysis {
        self.reckon();
        self.outcome
    }

    /// Whether there is a gap in advertised bandwidths before this time.
    fn is_after_gap(&self, time: u64) -> bool {
        self.coverage.last().is_some_and(|last| time - last > self.settings.step_secs)
    }

    /// Takes the time itself. If nothing is advertised, or no relay has a weight, the time counts
    /// as missing.
    fn take_time(&mut self, step: &mut NetworkStep) {
        let count = self.settings.windows.len();
        if step.without_advertised < step.relays {
            self.coverage.push(step.time, &mut self.covered);
        } else {
            self.covered.clear();
            self.covered.resize(count, Covered::default());
        }
        let unit = unit(step.weight);
        if let Some(unit) = unit {
            self.weight_coverage.push(step.time, &mut self.weight_covered);
            self.weight_units.push(unit * WEIGHT_ONE);
        } else {
            self.weight_covered.clear();
            self.weight_covered.resize(count, Covered::default());
        }
        step.windows.reserve_exact(count);
        for (covered, weight_covered) in self.covered.iter().zip(&self.weight_covered) {
            step.windows.push(NetworkWindow {
                share: covered.share,
                is_whole: covered.is_whole,
                share_of_weights: weight_covered.share,
                ..NetworkWindow::default()
            });
        }
        let is_in_means = self.settings.from.is_none_or(|from| step.time >= from);
        let least = if is_in_means { self.settings.least_share } else { f64::INFINITY };
        let (last, last_weight) = (self.coverage.last_index(), self.weight_coverage.last_index());
        let (slot, moments) = (self.batch.moments.count, &mut self.batch.moments);
        moments.of_advertised.set(slot, last, &self.covered, least);
        moments.of_weights.set(slot, last_weight, &self.weight_covered, least);
        moments.push(step.time, unit.is_some());
    }

    /// Makes room for at least `count` relays.
    fn make_room(&mut self, count: usize) {
        let count = count.max(self.relays.len());
        let windows = self.settings.windows.len();
        self.relays.resize_with(count, Relay::default);
        self.windows.resize(count * windows, RelayInWindow::default());
        let none =
            RelayMeans { windows: vec![RelayWindow::default(); windows], ..RelayMeans::default() };
        self.outcome.relays.resize(count, none);
        let with_weights = self.batch.moments.with_weights != 0;
        let kept = if with_weights { count } else { 1 };
        self.capacities.resize(kept * windows, Each::default());
        if with_weights {
            self.batch.weights.resize(count, Each::default());
            self.weights.resize(count * windows, Within::default());
        }
    }

    /// Processes the times of the batch.
    fn reckon(&mut self) {
        let moments = &self.batch.moments;
        if moments.count == 0 {
            return;
        }
        let from = self.outcome.steps.len() - moments.count;
        self.make_room(self.batch.relays.len());
        self.take_relays();
        let steps = self.outcome.steps.get_mut(from..).unwrap_or_default();
        take_sums(steps, &self.sums);
        if self.batch.moments.with_weights != 0 {
            self.take_weights();
        }
        self.batch.clear();
    }

    /// Eq. 1, 2 and 7 for each relay, and the sums over relays.
    fn take_relays(&mut self) {
        let (batch, count) = (&self.batch, self.settings.windows.len());
        let (moments, with_weights) = (&batch.moments, batch.moments.with_weights);
        let (mut runs, mut spreads) = (Vec::with_capacity(SLOTS), Each::default());
        self.sums.fill(Sums::default());
        for (index, &listed) in batch.relays.iter().enumerate() {
            if index % sums::MOST_AT_ONCE == 0 {
                self.sums.iter_mut().for_each(Sums::carry);
            }
            let range = index * count..(index + 1) * count;
            let of_capacities = if with_weights == 0 { 0..count } else { range.clone() };
            let (Some(relay), Some(means), Some(kept), Some(capacities)) = (
                self.relays.get_mut(index).filter(|_| listed.all != 0),
                self.outcome.relays.get_mut(index),
                self.windows.get_mut(range.clone()),
                self.capacities.get_mut(of_capacities),
            ) else {
                continue;
            };
            let weights = self.weights.get_mut(range).unwrap_or_default();
            let weighted = listed.weighted & with_weights;
            if let Some(of_relay) = batch.weights.get(index).filter(|_| weighted != 0) {
                let (times, units) = (&moments.of_weights, &self.weight_units);
                times.runs(of_relay, weighted, &mut runs);
                relay.take_weights(weighted, &runs, times, units, weights, &mut means.windows);
            }
            let of_relay = batch.advertised.get(index).filter(|_| listed.advertised != 0);
            runs.clear();
            if let Some(of_relay) = of_relay {
                moments.of_advertised.runs(of_relay, listed.advertised, &mut runs);
            }
            let mut of = OfRelay { relay, means, kept, capacities, spreads: &mut spreads };
            of.take_advertised(moments, listed.all, listed.advertised, &mut runs);
            let of_relay = batch.weights.get(index).filter(|_| with_weights != 0);
            for (sums, capacities) in self.sums.iter_mut().zip(capacities) {
                sums.add(capacities, moments.count);
                if let Some(of_relay) = of_relay {
                    sums.add_exceptions(capacities, weighted, of_relay, with_weights);
                }
            }
        }
        self.sums.iter_mut().for_each(Sums::carry);
    }

    /// Eq. 5 for each relay, and Eq. 6.
    fn take_weights(&mut self) {
        let (batch, count) = (&self.batch, self.settings.windows.len());
        let from = self.outcome.steps.len() - batch.moments.count;
        let steps = self.outcome.steps.get_mut(from..).unwrap_or_default();
        let units = |index: usize, sums: &Sums| sums.units(steps, batch.moments.in_means(index));
        let mut all: Vec<sums::Shares> =
            self.sums.iter().enumerate().map(|(index, sums)| units(index, sums)).collect();
        let capacities = self.capacities.chunks_exact(count.max(1));
        for ((relay, capacities), (means, listed)) in batch
            .weights
            .iter()
            .zip(capacities)
            .zip(self.outcome.relays.iter_mut().zip(&batch.relays))
        {
            let at = listed.weighted & listed.advertised;
            if at == 0 {
                continue;
            }
            for ((shares, capacities), means) in
                all.iter_mut().zip(capacities).zip(&mut means.windows)
            {
                shares.add(at, relay, capacities, means);
            }
        }
        for (slot, step) in steps.iter_mut().enumerate() {
            for (shares, network) in all.iter().zip(&mut step.windows) {
                network.weight_error = shares.error(slot);
            }
        }
    }
}

/// The index of the longest window.
fn longest(windows: &[Window]) -> usize {
    (0..windows.len()).max_by_key(|&index| windows.get(index)).unwrap_or(0)
}

/// The state of one relay, and scratch space.
struct OfRelay<'a> {
    /// State for all windows together.
    relay: &'a mut Relay,
    means: &'a mut RelayMeans,
    kept: &'a mut [RelayInWindow],
    /// The relay's capacities in each window at each time.
    capacities: &'a mut [Each<u64>],
    /// Scratch space; the old content is ignored.
    spreads: &'a mut Each<(u64, Spread)>,
}

impl OfRelay<'_> {
    /// Takes the advertised bandwidths at the times `known`, as the runs `runs`: Eq. 1, 2 and 7.
    /// The relay is listed at the times `listed`.
    fn take_advertised(&mut self, moments: &Moments, listed: Mask, known: Mask, runs: &mut [Run]) {
        moments.take_listing(listed, self.means);
        if known != moments.all() {
            self.capacities.fill(Each::default());
        }
        if runs.is_empty() {
            return;
        }
        let most = runs.iter().map(|run| run.value).max();
        self.means.most_advertised = self.means.most_advertised.max(most.unwrap_or(0));
        self.relay.take_advertised(
            runs,
            &moments.of_advertised,
            self.kept,
            &mut self.means.windows,
            self.capacities,
            self.spreads,
        );
    }
}

/// Sets Eq. 3 and 4 at the times of a batch, and the weights left out.
fn take_sums(steps: &mut [NetworkStep], sums: &[Sums]) {
    for (slot, step) in steps.iter_mut().enumerate() {
        let (advertised, weight) = (step.advertised, step.weight);
        for (sums, network) in sums.iter().zip(&mut step.windows) {
            let at = sums.at(slot);
            network.capacity = at.capacity;
            network.capacity_error = quotient(advertised, at.capacity).map(|part| 1.0 - part);
            network.weight_left_out = quotient(at.left_out, weight).unwrap_or(0.0);
        }
    }
}

#[cfg(test)]
mod tests;
