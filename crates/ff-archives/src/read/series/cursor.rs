//! Iterates over a table by time; in memory the table is by relay.

use super::{NO_RUN, Run, Series};

/// Iterates over a table by time.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    series: &'a Series,
    next: usize,
    relays: Vec<Now>,
}

/// The state of a relay, stored together for the next time.
#[derive(Clone, Copy, Debug)]
struct Now {
    /// The run that holds or is the next one.
    run: Run,
    /// The index of the run after that one.
    behind: usize,
    /// The end of its runs.
    end: usize,
}

impl Cursor<'_> {
    /// The next time.
    #[must_use]
    pub fn next_time(&self) -> Option<u64> {
        self.series.times.get(self.next).copied()
    }

    /// Fills `listed` with the relays listed at the next time, by index in order, with their
    /// values. Returns that time; `None` after the last.
    pub fn next_into(&mut self, listed: &mut Vec<(u32, u64)>) -> Option<u64> {
        listed.clear();
        self.next_each(|relay, value| listed.push((relay, value)))
    }

    /// Calls `take` for every relay listed at the next time with its value. Returns that time;
    /// `None` after the last.
    #[inline]
    pub fn next_each(&mut self, mut take: impl FnMut(u32, u64)) -> Option<u64> {
        let time = *self.series.times.get(self.next)?;
        let next = u32::try_from(self.next).ok()?;
        for (number, relay) in (0..).zip(&mut self.relays) {
            let run = relay.run;
            if run.first > next {
                continue;
            }
            take(number, run.value);
            if run.first + run.times == next + 1 {
                let behind = self.series.runs.get(relay.behind);
                relay.run = *behind.filter(|_| relay.behind < relay.end).unwrap_or(&NO_RUN);
                relay.behind += 1;
            }
        }
        self.next += 1;
        Some(time)
    }
}

impl Series {
    /// A cursor before the first time.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        let relay = |relay: usize| {
            let runs = self.runs_of(relay).unwrap_or_default();
            let behind = self.start(relay) + 1;
            let run = runs.first().copied().unwrap_or(NO_RUN);
            Now { run, behind, end: behind - 1 + runs.len() }
        };
        Cursor { series: self, next: 0, relays: (0..self.relays.len()).map(relay).collect() }
    }
}
