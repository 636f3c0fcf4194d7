//! How what comes back over a path grows from round trip to round trip.

use std::time::Duration;

use ff_proto::units::MonoTime;

use super::{MIN_NAP, as_float};

/// Growth of the rate in a round trip that shows that the path is not full yet (BBR's start-up).
const GROWS: f64 = 1.25;
/// The path is full after this many round trips without such growth.
pub(super) const ROUND_TRIPS: u8 = 3;

/// BBR's start-up: whether what comes back over all links still grows from round trip to round
/// trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The greatest rate of a round trip, in cells a second, that was a quarter more than the one
    /// before it.
    best: f64,
    /// Round trips since then; three end the start-up.
    pub(super) without: u8,
    /// Cells that had come back when the round trip began, and when that was.
    round: Option<(u64, MonoTime)>,
    /// Round trips in succession in which nothing has waited.
    unqueued: u8,
    /// How long cells have waited in the last two round trips that were timed.
    waits: [Duration; 2],
}

impl Growth {
    /// Before the first cell.
    pub(super) const START: Self =
        Self { best: 0.0, without: 0, round: None, unqueued: 0, waits: [Duration::ZERO; 2] };

    /// Whether the start-up is over.
    pub(super) fn is_over(&self) -> bool {
        self.without >= ROUND_TRIPS
    }

    /// Looks for growth during the start-up; returns the rate of a round trip that has ended.
    pub(super) fn look(&mut self, echoed: u64, shortest: Duration, now: MonoTime) -> Option<f64> {
        let (before, since) = *self.round.get_or_insert((echoed, now));
        let time = now.since(since);
        if time < shortest.max(MIN_NAP) || before == echoed {
            return None;
        }
        self.round = Some((echoed, now));
        let rate = as_float(echoed - before) / time.as_secs_f64();
        if rate >= self.best * GROWS {
            (self.best, self.without) = (rate, 0);
        } else {
            self.without += 1;
        }
        Some(rate)
    }

    /// Takes a round trip into account that was timed.
    pub(super) fn note_timed(&mut self, took: Duration, shortest: Duration) {
        self.waits = [took.saturating_sub(shortest), self.waits[0]];
        let is_unqueued = took < shortest * 5 / 4 + 2 * MIN_NAP;
        self.unqueued = if is_unqueued { self.unqueued.saturating_add(1) } else { 0 };
    }

    /// How many of the shortest round trips the window is to fill.
    pub(super) fn gain(&self) -> u32 {
        if self.is_over() && self.unqueued < ROUND_TRIPS { 1 } else { 2 }
    }

    /// How long cells wait on their way, at least.
    pub(super) fn wait(&self) -> Duration {
        self.waits[0].min(self.waits[1])
    }
}
