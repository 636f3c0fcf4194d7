//! A table by relay, processed relay by relay.
//!
//! An archive is in order of time, a table is by relay. Transposing the table would be undone by
//! the batches, and the state of a relay would be fetched anew for each of them; here it stays in
//! cache for all times. The computation is the same, in the same order for each relay, and sums
//! over relays are integers: so the bits are the same.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use ff_archives::read::series::{self, MOST_VALUE, Series};

use super::super::batch::{Each, Mask, Moments, Run, SLOTS};
use super::super::outcome::{NetworkStep, RelayMeans};
use super::super::reading::{MOST_RELAYS, MOST_STEPS, StepError};
use super::super::relay::{Relay, RelayInWindow};
use super::sums::{self, Sums};
use super::{Engine, OfRelay, longest, take_sums};

/// More threads than this would wait for memory.
const MOST_THREADS: usize = 8;
/// Parts of a table per thread: threads that finish early take the rest.
const PARTS_OF_A_THREAD: usize = 8;

/// Some relays of a table with their state.
struct Rows<'a> {
    /// The place of the first relay in the table.
    first: usize,
    /// The state of each relay.
    relays: &'a mut [Relay],
    means: &'a mut [RelayMeans],
    /// For each relay in turn, the state of each window.
    windows: &'a mut [RelayInWindow],
}

impl Engine {
    /// Takes all times of a table of advertised bandwidths, with the result of [`Engine::take`] for
    /// one time after another, but faster. A relay's number is its place in the table.
    ///
    /// # Errors
    /// [`StepError`]; the engine is then unchanged.
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
        let parts = self.take_times(table, &totals);
        self.make_room(relays);
        let sums = self.take_rows(table, relays, &parts);
        let steps = self.outcome.steps.get_mut(from..).unwrap_or_default();
        for (steps, sums) in steps.chunks_mut(SLOTS).zip(&sums) {
            take_sums(steps, sums);
        }
        Ok(())
    }

    /// Takes the times themselves, in batches of [`SLOTS`].
    fn take_times(&mut self, table: &Series, totals: &[Total]) -> Vec<Moments> {
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
            parts.push(std::mem::replace(&mut self.batch.moments, new));
        }
        parts
    }

    /// Takes the rows of the first `relays` relays in parallel: they share only sums, which are
    /// integers. Returns the sums of each window for each batch.
    fn take_rows(&mut self, table: &Series, relays: usize, parts: &[Moments]) -> Vec<Vec<Sums>> {
        let windows = self.settings.windows.len();
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        let size = relays.div_ceil(threads * PARTS_OF_A_THREAD).max(1);
        let mut kept = self.windows.as_mut_slice();
        let all = self.relays.chunks_mut(size).zip(self.outcome.relays.chunks_mut(size));
        let rows = all.zip((0..relays).step_by(size)).map(|((relays, means), first)| {
            let here = std::mem::take(&mut kept);
            let (windows, rest) = here.split_at_mut((size * windows).min(here.len()));
            kept = rest;
            Rows { first, relays, means, windows }
        });
        let left = Mutex::new(rows);
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let none = || vec![vec![Sums::default(); windows]; parts.len()];
        let take_some = || {
            let mut sums = none();
            std::iter::from_fn(next).for_each(|rows| rows.take(table, relays, parts, &mut sums));
            sums
        };
        let mut sums = none();
        thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|_| scope.spawn(take_some)).collect();
            for thread in started {
                let found = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                for (all, some) in sums.iter_mut().flatten().zip(found.iter().flatten()) {
                    all.add_all(some);
                }
            }
        });
        sums
    }
}

impl Rows<'_> {
    /// Takes those rows that are among the first `relays`, and adds them to the sums of each window
    /// for each batch.
    fn take(self, table: &Series, relays: usize, parts: &[Moments], all: &mut [Vec<Sums>]) {
        let count = all.first().map_or(0, Vec::len);
        let (mut runs, mut spreads) = (Vec::with_capacity(SLOTS), Each::default());
        let mut capacities = vec![Each::default(); count];
        let rows = self.relays.iter_mut().zip(self.means).enumerate();
        for (index, (place, (relay, means))) in (self.first..relays).zip(rows) {
            let kept = self.windows.get_mut(place * count..(place + 1) * count).unwrap_or_default();
            if index % sums::MOST_AT_ONCE == 0 {
                carry(all);
            }
            let mut of =
                OfRelay { relay, means, kept, capacities: &mut capacities, spreads: &mut spreads };
            let row = table.runs_of(index).unwrap_or_default();
            in_parts(row, parts, &mut runs, |part, moments, listed, runs| {
                of.take_advertised(moments, listed, listed, runs);
                let sums = all.get_mut(part).into_iter().flatten();
                for (sums, capacities) in sums.zip(&*of.capacities) {
                    sums.add(capacities, moments.count);
                }
            });
        }
        carry(all);
    }
}

fn carry(parts: &mut [Vec<Sums>]) {
    parts.iter_mut().flatten().for_each(Sums::carry);
}

/// Cuts a row at the ends of batches. Calls `take` for each batch in which the relay is listed,
/// with the batch's number and times, the times at which it is listed, and its runs.
fn in_parts(
    row: &[series::Run],
    parts: &[Moments],
    runs: &mut Vec<Run>,
    mut take: impl FnMut(usize, &Moments, Mask, &mut [Run]),
) {
    let (mut row, mut rest) = (row.iter(), None);
    for ((part, moments), begin) in parts.iter().enumerate().zip((0_u32..).step_by(SLOTS)) {
        let end = begin + u32::try_from(moments.count).unwrap_or(0);
        let mut listed = 0;
        runs.clear();
        while let Some(run) = rest.take().or_else(|| row.next().copied()) {
            if run.first >= end {
                rest = Some(run);
                break;
            }
            let times = run.times.min(end - run.first);
            let slot = (run.first - begin) as usize;
            let step = moments.of_advertised.steps.get(slot).copied().unwrap_or(0);
            let here = Run { slot, step, times, value: run.value, since: step };
            listed |= here.mask();
            runs.push(here);
            if times < run.times {
                rest = Some(series::Run { first: end, times: run.times - times, ..run });
                break;
            }
        }
        if listed != 0 {
            take(part, moments, listed, runs);
        } else if rest.is_none() {
            return;
        }
    }
}

/// Sums over relays at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// The number of listed relays.
    relays: u32,
    advertised: u128,
}

/// The sums at each time, and one more than the number of the last relay that is ever listed.
fn totals(table: &Series) -> Result<(Vec<Total>, usize), StepError> {
    // First the differences between successive times; negative ones wrap around, which summing
    // undoes.
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
