//! Goes through a table by time, which lies in memory by relay.

use super::{NO_RUN, Run, Series};

/// Goes through a table by time.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    /// The table.
    series: &'a Series,
    /// The index of the next time.
    next: usize,
    relays: Vec<Now>,
}

/// A relay at a time: all that the next one needs, side by side.
#[derive(Clone, Copy, Debug)]
struct Now {
    /// The run that holds or is the next to come.
    run: Run,
    /// Where the run after that one is.
    behind: usize,
    /// Where its runs end.
    end: usize,
}

impl Cursor<'_> {
    /// The time that comes next.
    #[must_use]
    pub fn next_time(&self) -> Option<u64> {
        self.series.times.get(self.next).copied()
    }

    /// The next time, with every relay that is listed then and its value; relays by their indexes,
    /// in order.
    pub fn next_into(&mut self, listed: &mut Vec<(u32, u64)>) -> Option<u64> {
        listed.clear();
        self.next_each(|relay, value| listed.push((relay, value)))
    }

    /// The next time; `take` gets every relay that is listed then and its value.
    #[inline]
    pub(crate) fn next_each(&mut self, mut take: impl FnMut(u32, u64)) -> Option<u64> {
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
    /// Goes through the table by time.
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
