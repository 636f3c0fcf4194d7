//! How many cells of one link may be on the way at once, and how long its worker may nap.
//!
//! One law: on the way is what the target echoes in the shortest round trip and a quarter of a
//! second. What is more than one round trip's worth waits in front of the target's limit, so that it
//! never runs out of cells while the measurer naps; more of it would tell nothing, cost memory and
//! cold caches, come after the end, and give a target something to hold back until it counts.
//!
//! A link held back by its window becomes faster with it, because its rate is window by round trip;
//! so the law makes it grow until something else is the limit, at most by doubling in a round trip.
//! At a limit the round trip becomes longer until the quarter second is reached. A target that
//! becomes slower is left less.
//!
//! Limits: a path whose round trip is longer than three quarters of a second, or that has become
//! longer than the shortest by more than the quarter second without a queue, is left the least
//! window.

use std::time::Duration;

use ff_proto::units::MonoTime;

/// What the target may have waiting. It bridges two refills of tor's token buckets, which come
/// every 100 ms, and the longest nap.
const QUEUE: Duration = Duration::from_millis(250);
/// The longest round trip that counts, because a target may delay all echoes from the start.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);
/// Over so long the rate is averaged: echoes that were held back and come all at once do not make
/// it much higher.
const AVERAGE: Duration = Duration::from_secs(1);
/// The longest nap.
const MAX_NAP: Duration = Duration::from_millis(125);
/// The shortest nap.
pub(crate) const MIN_NAP: Duration = Duration::from_micros(500);
/// The least window: one record. With 160 links it is 0.4 s of a relay of 10 Mbit/s.
const MIN_CELLS: u64 = 6;
/// The most cells a link may have on the way: 64 MiB, 5 Gbit/s over 100 ms.
const MAX_CELLS: u64 = 131_072;
/// The first windows of all links of a worker together: a quarter of a second at 10 Mbit/s.
const FIRST_CELLS: u64 = 640;
/// The most that all links of a worker may have waiting together: 8 MB, which caches hold.
const MAX_QUEUE_CELLS: u64 = 16_384;

/// What the windows of one worker share: its path to the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Links on it.
    links: u64,
    /// The shortest round trip of a cell of any of them, as far as it counts.
    shortest: Duration,
}

impl Path {
    /// A path for so many links.
    pub(crate) fn new(links: usize) -> Self {
        Self { links: u64::try_from(links.max(1)).unwrap_or(u64::MAX), shortest: MAX_ROUND_TRIP }
    }
}

/// Cells that are being timed.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Cells sent before the first of them.
    first: u64,
    /// Cells sent with the last of them.
    last: u64,
    /// When the first of them was sent.
    sent_at: MonoTime,
    /// Cells that had come back then.
    echoed: u64,
}

/// The window of one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Cells that may be on the way.
    cells: u64,
    /// Cells sent.
    sent: u64,
    /// Cells that have come back.
    echoed: u64,
    /// Cells a second that come back.
    rate: f64,
    /// Cells that had come back when the rate was last looked at, and when that was.
    counted: Option<(u64, MonoTime)>,
    /// The cells that are being timed.
    flight: Option<Flight>,
    /// Whether no queue has been seen yet, so that the rate is still that of the last round trip.
    is_fresh: bool,
    /// Whether the window has been full since the flight began.
    was_full: bool,
}

impl Window {
    /// The window of a link on this path.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            cells: (FIRST_CELLS / path.links).max(MIN_CELLS),
            sent: 0,
            echoed: 0,
            rate: 0.0,
            counted: None,
            flight: None,
            is_fresh: true,
            was_full: false,
        }
    }

    /// Cells that may be sent.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        self.cells.saturating_sub(self.sent - self.echoed)
    }

    /// Cells worth waiting for before the next write: a quarter of the window, and a record, so that
    /// a link does not trickle.
    #[inline]
    pub(crate) fn worthwhile(&self) -> u64 {
        (self.cells / 4).max(MIN_CELLS)
    }

    /// Notes that so many cells were sent now.
    #[inline]
    pub(crate) fn on_sent(&mut self, cells: u64, now: MonoTime) {
        let first = self.sent;
        self.sent += cells;
        match &mut self.flight {
            // Until something comes back it is one flight, however many calls sent it: who naps
            // sends and receives all at once, and a part of it would look as fast in any window.
            Some(flight) if flight.echoed == self.echoed => flight.last = self.sent,
            Some(_) => {}
            None => {
                let (last, echoed) = (self.sent, self.echoed);
                self.flight = Some(Flight { first, last, sent_at: now, echoed });
                self.was_full = false;
            }
        }
        self.counted.get_or_insert((self.echoed, now));
        self.was_full |= self.room() < self.worthwhile();
    }

    /// Notes that so many cells have come back. Returns the round trip of a flight that is back.
    #[inline]
    pub(crate) fn on_echoed(
        &mut self,
        cells: u64,
        now: MonoTime,
        path: &mut Path,
    ) -> Option<Duration> {
        self.echoed += cells;
        let mut round_trip = None;
        if let Some(flight) = self.flight
            && self.echoed > flight.first
        {
            let took = now.since(flight.sent_at);
            path.shortest = path.shortest.min(took);
            self.is_fresh &= took < path.shortest + QUEUE / 2;
            if self.echoed >= flight.last {
                self.flight = None;
                round_trip = Some(took);
            }
        }
        // A flight that takes long must not keep a window that has become too great.
        if let Some((echoed, since)) = self.counted
            && (round_trip.is_some() || now.since(since) >= AVERAGE)
        {
            self.counted = Some((self.echoed, now));
            self.adapt(self.echoed - echoed, now.since(since), path);
        }
        round_trip
    }

    /// Makes the window what the law says, after a time in which so many cells came back.
    fn adapt(&mut self, cells: u64, time: Duration, path: &Path) {
        let time = time.max(Duration::from_micros(1)).as_secs_f64();
        let rate = as_float(cells) / time;
        let is_first = self.rate == 0.0;
        let weight = if self.is_fresh || is_first { 1.0 } else { time / AVERAGE.as_secs_f64() };
        self.rate += (rate - self.rate) * weight.min(1.0);
        let queue = cells_in(self.rate, QUEUE).min(MAX_QUEUE_CELLS / path.links);
        let wanted = cells_in(self.rate, path.shortest) + queue;
        self.cells = wanted.min(self.cells * 2).clamp(MIN_CELLS, MAX_CELLS);
    }

    /// Whether the link is held back by the greatest window.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.cells == MAX_CELLS && self.was_full
    }

    /// Cells of this link that wait in front of the target's limit, and how many a second pass it.
    pub(crate) fn queue(&self, path: &Path) -> (u64, f64) {
        let moving = cells_in(self.rate, path.shortest);
        ((self.sent - self.echoed).saturating_sub(moving), self.rate)
    }
}

/// How long a worker with nothing to do may let bytes gather before it asks the kernel again: until
/// half of what waits in front of the target's limit has passed it.
pub(crate) fn nap(queues: impl Iterator<Item = (u64, f64)>) -> Duration {
    let (waiting, rate) = queues.fold((0, 0.0), |sum, link| (sum.0 + link.0, sum.1 + link.1));
    let half = Duration::try_from_secs_f64(as_float(waiting) / 2.0 / rate);
    half.unwrap_or_default().clamp(MIN_NAP, MAX_NAP)
}

/// So many cells as a float.
#[expect(clippy::cast_precision_loss, reason = "cells of one measurement are below 2^53")]
fn as_float(cells: u64) -> f64 {
    cells as f64
}

/// Cells that come in a time at so many a second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are not negative; the cast saturates"
)]
fn cells_in(rate: f64, time: Duration) -> u64 {
    (rate * time.as_secs_f64()) as u64
}

#[cfg(test)]
mod tests;
