//! The growth of the rate of echoes over a path from round trip to round trip.

use std::time::Duration;

use ff_proto::units::MonoTime;

use super::{MIN_NAP, as_float};

/// Growth of the rate in a round trip that shows that the path is not full yet (BBR's start-up).
const GROWS: f64 = 1.25;
/// The path is full after this many round trips without such growth.
pub(super) const ROUND_TRIPS: u8 = 3;

/// BBR's start-up: whether the rate of echoes over all links still grows from round trip to round
/// trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The last rate of a round trip, in cells a second, that was at least a quarter higher than
    /// the one before.
    best: f64,
    /// Round trips since then; three of them end the start-up.
    pub(super) without: u8,
    /// The cells that had come back when the current round trip began, and that time.
    round: Option<(u64, MonoTime)>,
    /// Number of consecutive round trips in which no cells waited.
    unqueued: u8,
    /// How long cells waited in the last two timed round trips.
    waits: [Duration; 2],
}

impl Growth {
    /// The state before the first cell.
    pub(super) const START: Self =
        Self { best: 0.0, without: 0, round: None, unqueued: 0, waits: [Duration::ZERO; 2] };

    /// Whether the start-up is over.
    pub(super) fn is_over(&self) -> bool {
        self.without >= ROUND_TRIPS
    }

    /// Checks the growth during the start-up; returns the rate of a round trip that has ended.
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

    /// Notes a timed round trip.
    pub(super) fn note_timed(&mut self, took: Duration, shortest: Duration) {
        self.waits = [took.saturating_sub(shortest), self.waits[0]];
        let is_unqueued = took < shortest * 5 / 4 + 2 * MIN_NAP;
        self.unqueued = if is_unqueued { self.unqueued.saturating_add(1) } else { 0 };
    }

    /// The number of shortest round trips that the window must fill.
    pub(super) fn gain(&self) -> u32 {
        if self.is_over() && self.unqueued < ROUND_TRIPS { 1 } else { 2 }
    }

    /// The least time that cells wait on their way.
    pub(super) fn wait(&self) -> Duration {
        self.waits[0].min(self.waits[1])
    }
}
