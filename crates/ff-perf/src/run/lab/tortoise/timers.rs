//! Pauses that notice a busy machine.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ff_lab::Ending;

/// Pauses of a part of the run, and how late they ended.
pub(super) struct Timers<'a> {
    /// Interrupts the run.
    pub(super) ending: &'a Ending,
    /// Total lateness of pauses, and their number.
    late: Cell<(Duration, u32)>,
}

impl<'a> Timers<'a> {
    pub(super) fn new(ending: &'a Ending) -> Self {
        Self { ending, late: Cell::default() }
    }

    /// Sleeps, and counts how late it wakes.
    ///
    /// # Errors
    /// If the end is asked for.
    pub(super) fn sleep(&self, time: Duration) -> ff_lab::Result<()> {
        let began = Instant::now();
        self.ending.sleep(time)?;
        let (late, timers) = self.late.get();
        self.late.set((late + began.elapsed().saturating_sub(time), timers + 1));
        Ok(())
    }

    /// The mean lateness.
    pub(super) fn late(&self) -> Duration {
        let (late, timers) = self.late.get();
        late / timers.max(1)
    }
}
