//! A table by relay, reckoned with relay by relay.
//!
//! An archive comes time by time, a table lies there by relay. To turn it round would only be undone by the batches,
//! and what is kept of a relay would be fetched anew for each of them; here it stays at hand through all times. What
//! is reckoned is the same, in the same order for each relay, and sums over relays are whole numbers: so are the bits.

use super::super::batch::{Each, Mask, Moments, Run, SLOTS};
use super::super::outcome::NetworkStep;
use super::super::reading::{MOST_RELAYS, MOST_STEPS, StepError};
use super::sums::{self, Sums};
use super::{Engine, OfRelay, longest, take_sums};
use crate::read::series::{self, MOST_VALUE, Series};

/// Some of a table's times, with the sums of each window at them.
struct Part {
    /// The times.
    moments: Moments,
    /// The sums.
    sums: Vec<Sums>,
}

impl Engine {
    /// Takes all times of a table of what relays advertise: as [`Engine::take`] does with one after the other, in less
    /// time. Relays have the numbers of their places in the table.
    ///
    /// # Errors
    /// [`StepError`]; then nothing of the table is taken.
    pub fn take_table(&mut self, table: &Series) -> Result<(), StepError> {
        let (first, last) = (table.times.first(), self.outcome.steps.last());
        if let (Some(&first), Some(last)) = (first, last)
            && first <= last.time
        {
            return Err(StepError::NotLater(first));
        }
        if self.outcome.steps.len() + table.times.len() > MOST_STEPS {
            return Err(StepError::TooMany);
        }
        let (totals, relays) = totals(table)?;
        self.reckon();
        let from = self.outcome.steps.len();
        let mut parts = self.take_times(table, &totals);
        self.make_room(relays);
        self.take_rows(table, relays, &mut parts);
        let steps = self.outcome.steps.get_mut(from..).unwrap_or_default();
        for (steps, part) in steps.chunks_mut(SLOTS).zip(&parts) {
            take_sums(steps, &part.sums);
        }
        Ok(())
    }

    /// Takes the times themselves, in parts of [`SLOTS`].
    fn take_times(&mut self, table: &Series, totals: &[Total]) -> Vec<Part> {
        let (windows, longest) = (self.settings.windows.len(), longest(&self.settings.windows));
        let mut parts = Vec::with_capacity(table.times.len().div_ceil(SLOTS));
        for (times, totals) in table.times.chunks(SLOTS).zip(totals.chunks(SLOTS)) {
            for (&time, total) in times.iter().zip(totals) {
                let mut step = NetworkStep {
                    time,
                    is_after_gap: self.is_after_gap(time),
                    relays: total.relays,
                    advertised: total.advertised,
                    ..NetworkStep::default()
                };
                self.take_time(&mut step);
                self.outcome.steps.push(step);
            }
            let new = Moments::new(windows, longest);
            let moments = std::mem::replace(&mut self.batch.moments, new);
            parts.push(Part { moments, sums: vec![Sums::default(); windows] });
        }
        parts
    }

    /// Takes the rows of the first so many relays.
    fn take_rows(&mut self, table: &Series, relays: usize, parts: &mut [Part]) {
        let count = self.settings.windows.len();
        let (mut runs, mut spreads) = (Vec::with_capacity(SLOTS), Each::default());
        for index in 0..relays {
            if index % sums::MOST_AT_ONCE == 0 {
                carry(parts);
            }
            let (Some(relay), Some(means), Some(kept), Some(capacities)) = (
                self.relays.get_mut(index),
                self.outcome.relays.get_mut(index),
                self.windows.get_mut(index * count..(index + 1) * count),
                self.capacities.get_mut(..count),
            ) else {
                return;
            };
            let mut of = OfRelay { relay, means, kept, capacities, spreads: &mut spreads };
            let row = table.runs_of(index).unwrap_or_default();
            in_parts(row, parts, &mut runs, |part, listed, runs| {
                of.take_advertised(&part.moments, listed, listed, runs);
                for (sums, capacities) in part.sums.iter_mut().zip(&*of.capacities) {
                    sums.add(capacities, part.moments.count);
                }
            });
        }
        carry(parts);
    }
}

/// Carries the sums of all parts.
fn carry(parts: &mut [Part]) {
    parts.iter_mut().flat_map(|part| &mut part.sums).for_each(Sums::carry);
}

/// Cuts a row at the ends of parts; `take` gets each part in which the relay is listed, when, and its runs there.
fn in_parts(
    row: &[series::Run],
    parts: &mut [Part],
    runs: &mut Vec<Run>,
    mut take: impl FnMut(&mut Part, Mask, &mut [Run]),
) {
    let (mut row, mut rest) = (row.iter(), None);
    for (part, begin) in parts.iter_mut().zip((0_u32..).step_by(SLOTS)) {
        let end = begin + u32::try_from(part.moments.count).unwrap_or(0);
        let mut listed = 0;
        runs.clear();
        while let Some(run) = rest.take().or_else(|| row.next().copied()) {
            if run.first >= end {
                rest = Some(run);
                break;
            }
            let times = run.times.min(end - run.first);
            let slot = (run.first - begin) as usize;
            let step = part.moments.of_advertised.steps.get(slot).copied().unwrap_or(0);
            let here = Run { slot, step, times, value: run.value, since: step };
            listed |= here.mask();
            runs.push(here);
            if times < run.times {
                rest = Some(series::Run { first: end, times: run.times - times, ..run });
                break;
            }
        }
        if listed != 0 {
            take(part, listed, runs);
        } else if rest.is_none() {
            return;
        }
    }
}

/// The sums over relays at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// How many relays are listed.
    relays: u32,
    /// What they advertise.
    advertised: u128,
}

/// The sums at each time, and how many relays there are up to the last that is ever listed.
fn totals(table: &Series) -> Result<(Vec<Total>, usize), StepError> {
    // First what a time has more than the one before it; below 0 it wraps around, and back when all is added up.
    let mut totals = vec![Total::default(); table.times.len() + 1];
    let mut count = 0;
    for (number, index) in (0_u32..).zip(0..table.relays.len()) {
        for run in table.runs_of(index).unwrap_or_default() {
            if number >= MOST_RELAYS || run.value > MOST_VALUE {
                return Err(StepError::TooGreat(number));
            }
            if let Some(first) = totals.get_mut(run.first as usize) {
                first.relays = first.relays.wrapping_add(1);
                first.advertised = first.advertised.wrapping_add(run.value.into());
            }
            if let Some(behind) = totals.get_mut((run.first + run.times) as usize) {
                behind.relays = behind.relays.wrapping_sub(1);
                behind.advertised = behind.advertised.wrapping_sub(run.value.into());
            }
            count = index + 1;
        }
    }
    let mut all = Total::default();
    for total in &mut totals {
        all.relays = all.relays.wrapping_add(total.relays);
        all.advertised = all.advertised.wrapping_add(total.advertised);
        *total = all;
    }
    Ok((totals, count))
}
