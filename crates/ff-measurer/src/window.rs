//! The number of cells in flight, and the length of a worker's naps.
//!
//! The same law applies to each link and to all links of a worker together. R is the shortest round
//! trip; cells in flight beyond one round trip's worth wait before the target's limit:
//!
//! ```text
//!      start-up                                     cruise
//!   one cell more for each     the rate has not   rate · (R + 0.3 s)      nothing waits
//!   that comes back,        ── grown by a quarter ─▶                   ── in three round trips ─┐
//!   ≤ rate · (2R + 0.3 s)      in three round     rate · (2R + 0.3 s) ◀────────────────────────┘
//!                              trips
//! ```
//!
//! *Start-up* is BBR's: the window doubles in a round trip until the rate of echoes grows no more.
//! A path of round trip R and rate C is full after log2(C · R / first window) + 3 round trips.
//! *Cruise* keeps 0.3 s of cells before the target's limit, so that it never runs out of cells
//! while the measurer naps. More cells would show nothing new, cost memory and cold caches, arrive
//! after the end, and give a target cells to hold back until it counts. So the rate is then
//! averaged over a second. If a target becomes slower, its window shrinks. If it becomes faster,
//! nothing waits, and the window grows again.
//!
//! A system call costs as much as many cells. So naps are long, links are served in turn after
//! them, and each may have 84 cells in flight; if the window of all links is less than that for
//! each, as over 20 links to a slow relay, they take turns in that too. Naps make a round trip
//! longer, and so lower the rate of a window. A nap is therefore at most five sixths of the
//! observed queueing delay, or a quarter of the round trip if that is more.
//!
//! Limits: the window is too small for a path whose round trip is longer than 0.5 s. Cells in
//! flight on a link leave fewer for the others, so a link that dies silently must be given up
//! ([`Window::is_dead`]).
//!
//! Decisions: doc/decisions.md, "Windows and naps".

mod growth;
mod pace;

use std::ops::RangeInclusive;
use std::time::Duration;

use ff_proto::cell::CELL_LEN;
use ff_proto::units::{BytesPerSec, MonoTime};

use self::growth::Growth;
pub(crate) use self::pace::Pace;

/// The queue at the target, in time. It bridges two refills of tor's token buckets, which come
/// every 100 ms, and the time between a link's turns.
pub const QUEUE: Duration = Duration::from_millis(300);
/// The longest round trip that is used, because a target may delay all echoes from the start.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);
/// The rate is averaged over this time, so that echoes that were held back and arrive at once do
/// not raise it much.
const AVERAGE: Duration = Duration::from_secs(1);
/// A link without echoes for this long is dead, if others have had echoes, or have nothing in
/// flight.
const DEAD: Duration = Duration::from_secs(5);
/// The least time that others must have had echoes after it fell silent.
const OUTLIVED: Duration = Duration::from_secs(1);
/// The shortest nap.
pub(crate) const MIN_NAP: Duration = Duration::from_micros(500);
/// The least window of all links of a worker together, in cells: eight records.
const MIN_CELLS: u64 = 48;
/// The least window of a link, in cells: one write call. The window of all links limits it further.
const MIN_LINK_CELLS: u64 = 84;
/// The same if a round trip is [`FAR`] or longer: the ten segments that TCP sends at once after a
/// pause. More cells on an idle link would need a second round trip.
const FEW_CELLS: u64 = 24;
/// The round trip from which waiting for one costs more than a system call.
const FAR: Duration = Duration::from_millis(10);
/// The largest number of cells in flight on a link: 64 MiB, 5 Gbit/s over 100 ms.
const MAX_CELLS: u64 = 131_072;
/// The least first window of all links of a measurer together, in cells: a quarter of a second at
/// 10 Mbit/s.
const FIRST_CELLS: u64 = 640;
/// The first window is at least what the worker may send in a second divided by this.
const FIRST_PART: u64 = 32;
/// The largest queue of all links of a worker together, in cells: 8 MB, which fit into caches.
pub const MAX_QUEUE_CELLS: u64 = 16_384;

/// The state that the links of a worker share: its path to the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    links: u64,
    /// The shortest round trip of a cell on any link, at most [`MAX_ROUND_TRIP`].
    shortest: Duration,
    /// The window of all of them together.
    all: Window,
    /// The growth of the rate of echoes over all links.
    growth: Growth,
    /// The latest end of draining the start-up's surplus queue; `None` once it is drained.
    draining_until: Option<MonoTime>,
    /// The number of workers that nap between the sending of a cell and the report of its arrival:
    /// this one, and for cells in transit also that of the other end.
    naps: u32,
}

impl Path {
    /// The path of a worker with `links` of the measurer's `of_links` links, and with this rate
    /// limit.
    pub(crate) fn new(links: usize, of_links: u64, rate: Option<BytesPerSec>) -> Self {
        let links = u64::try_from(links.max(1)).unwrap_or(u64::MAX);
        let first = FIRST_CELLS.saturating_mul(links) / of_links.max(links);
        let first = rate.map_or(first, |rate| first.max(rate.get() / CELL_LEN as u64 / FIRST_PART));
        Self {
            links,
            shortest: MAX_ROUND_TRIP,
            all: Window::of(first, MIN_CELLS..=links.saturating_mul(MAX_CELLS)),
            growth: Growth::START,
            draining_until: None,
            naps: 1,
        }
    }

    /// Cells are counted by another worker, which also naps.
    pub(crate) fn set_in_transit(&mut self) {
        self.naps = 2;
    }

    /// Adapts the window to the echoes of all links together; must be called when a turn has read
    /// its links, because some of the links alone show little.
    pub(crate) fn settle(&mut self, now: MonoTime) {
        let gain = self.growth.gain();
        if let Some(took) = self.all.adapt_to_echoed(now, &mut self.shortest, gain, MAX_QUEUE_CELLS)
        {
            self.growth.note_timed(took, self.shortest);
        }
        if self.all.is_starting
            && let Some(rate) = self.growth.look(self.all.echoed, self.shortest, now)
        {
            self.all.rate = rate;
            self.all.counted = Some((self.all.echoed, now));
            self.all.is_starting = !self.growth.is_over();
            let most = self.all.wanted(self.shortest * self.growth.gain(), MAX_QUEUE_CELLS);
            self.all.cells = self.all.cells.min(most).max(self.all.least);
            if self.growth.is_over() {
                self.draining_until = Some(now + self.shortest * 2 + QUEUE);
            }
        }
        let is_drained = self.all.on_way() <= self.all.cells;
        self.draining_until = self.draining_until.filter(|&until| !is_drained && now < until);
    }

    /// Whether the target's rate is not yet known, or the start-up's surplus queue is being
    /// drained.
    pub(crate) fn is_starting(&self) -> bool {
        self.all.is_starting || self.draining_until.is_some()
    }

    /// Twice a link's share of the largest queue, in bytes.
    pub(crate) fn twice_share_bytes(&self) -> u64 {
        2 * MAX_QUEUE_CELLS * CELL_LEN as u64 / self.links
    }

    /// The least window of a link in use: its share of the window of all links. Without it, a
    /// target that serves some links first could spend its whole rate on them and starve the
    /// others.
    fn share(&self) -> u64 {
        let least = if self.shortest < FAR { MIN_LINK_CELLS } else { FEW_CELLS };
        least.max(self.all.cells / self.links)
    }

    /// Removes the cells of a lost link.
    pub(crate) fn leave(&mut self, link: &Window) {
        self.all.sent -= link.on_way();
        self.all.flight = None;
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
    /// Cells that had come back at that time.
    echoed: u64,
}

/// The window of one link, or of all links of a worker together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The largest number of cells in flight.
    cells: u64,
    /// The least value of [`Self::cells`].
    least: u64,
    /// The greatest value of [`Self::cells`].
    most: u64,
    /// Cells sent.
    sent: u64,
    /// Cells that have come back.
    echoed: u64,
    /// The rate of echoes, in cells a second.
    rate: f64,
    /// The previous value of the rate.
    last_rate: f64,
    /// The cells that had come back when the rate was last computed, and that time.
    counted: Option<(u64, MonoTime)>,
    /// Since when there have been cells in flight without an echo.
    silent_since: Option<MonoTime>,
    /// The cells that are being timed.
    flight: Option<Flight>,
    /// Whether the window still grows with each echo, and the rate is that of the last round trip.
    is_starting: bool,
    /// Whether the window has been full since the flight began.
    was_full: bool,
}

impl Window {
    /// The window of a link on this path.
    pub(crate) fn new(path: &Path) -> Self {
        Self::of(path.all.cells.div_ceil(path.links), FEW_CELLS..=MAX_CELLS)
    }

    /// A window of `cells` cells that stays in this range.
    fn of(cells: u64, range: RangeInclusive<u64>) -> Self {
        let (least, most) = range.into_inner();
        Self {
            cells: cells.max(least),
            least,
            most,
            sent: 0,
            echoed: 0,
            rate: 0.0,
            last_rate: 0.0,
            counted: None,
            silent_since: None,
            flight: None,
            is_starting: true,
            was_full: false,
        }
    }

    /// The number of cells in flight.
    pub(crate) fn on_way(&self) -> u64 {
        self.sent - self.echoed
    }

    /// The number of cells that this window allows.
    fn free(&self) -> u64 {
        self.cells.saturating_sub(self.on_way())
    }

    /// The number of cells that may be sent over this link.
    #[inline]
    pub(crate) fn room(&self, path: &Path) -> u64 {
        let most = self.cells.max(path.share());
        most.saturating_sub(self.on_way()).min(path.all.free())
    }

    /// The number of allowed cells for which the next write over this link should wait: a quarter
    /// of the window, but at least half of [`MIN_CELLS`], so that it sends no small pieces.
    #[inline]
    pub(crate) fn worthwhile(&self, path: &Path) -> u64 {
        self.cells.min(path.all.cells).max(2 * MIN_CELLS) / 4
    }

    /// Notes that `cells` cells are sent now.
    #[inline]
    pub(crate) fn on_sent(&mut self, cells: u64, now: MonoTime, path: &mut Path) {
        self.note_sent(cells, now);
        path.all.note_sent(cells, now);
    }

    /// Notes for this window that `cells` cells are sent now.
    fn note_sent(&mut self, cells: u64, now: MonoTime) {
        let first = self.sent;
        self.sent += cells;
        match &mut self.flight {
            // Until the next echo it is one flight, even if several calls sent it: a measurer that
            // naps sends and receives all at once, and a part of it would seem as fast in any
            // window.
            Some(flight) if flight.echoed == self.echoed => flight.last = self.sent,
            Some(_) => {}
            None => {
                let (last, echoed) = (self.sent, self.echoed);
                self.flight = Some(Flight { first, last, sent_at: now, echoed });
                self.was_full = false;
            }
        }
        self.counted.get_or_insert((self.echoed, now));
        self.silent_since.get_or_insert(now);
        self.was_full |= self.free() < self.cells / 4;
    }

    /// Notes that `cells` cells have come back over this link. Returns the round trip of a flight
    /// that has ended.
    #[inline]
    pub(crate) fn on_echoed(
        &mut self,
        cells: u64,
        now: MonoTime,
        path: &mut Path,
    ) -> Option<Duration> {
        self.is_starting = path.all.is_starting;
        for window in [&mut *self, &mut path.all] {
            window.echoed += cells;
            window.silent_since = (window.on_way() > 0).then_some(now);
            if window.is_starting {
                window.cells = (window.cells + cells).min(window.most);
            }
        }
        // The window of all links limits the queue, so a link's may be twice as large as needed.
        self.adapt_to_echoed(now, &mut path.shortest, 2, MAX_QUEUE_CELLS / path.links)
    }

    /// Adapts the window to the echoes; at most `queue` cells may wait. Returns the round trip of a
    /// flight that has ended.
    fn adapt_to_echoed(
        &mut self,
        now: MonoTime,
        shortest: &mut Duration,
        gain: u32,
        queue: u64,
    ) -> Option<Duration> {
        let mut round_trip = None;
        // More cells have come back than were in flight when it began, so one of its own has, also
        // if they came over several links.
        if let Some(flight) = self.flight
            && self.echoed > flight.first
        {
            let took = now.since(flight.sent_at);
            *shortest = took.min(*shortest);
            if self.echoed >= flight.last {
                self.flight = None;
                round_trip = Some(took);
            }
        }
        // A long flight must not delay the reduction of a window that is too large.
        if let Some((echoed, since)) = self.counted
            && self.echoed > echoed
            && now.since(since) >= if round_trip.is_some() { MIN_NAP } else { AVERAGE }
        {
            self.counted = Some((self.echoed, now));
            self.adapt(self.echoed - echoed, now.since(since), *shortest * gain, queue);
        }
        round_trip
    }

    /// Updates the rate with the number of cells that came back in this time, which is not zero.
    fn adapt(&mut self, cells: u64, time: Duration, round_trips: Duration, queue: u64) {
        let rate = as_float(cells) / time.as_secs_f64();
        self.last_rate = rate;
        let is_last = self.is_starting || self.rate == 0.0;
        let weight = if is_last { 1.0 } else { time.as_secs_f64() / AVERAGE.as_secs_f64() };
        self.rate += (rate - self.rate) * weight.min(1.0);
        if !self.is_starting {
            let wanted = self.wanted(round_trips, queue);
            self.cells = wanted.min(self.cells * 2).clamp(self.least, self.most);
        }
    }

    /// The number of cells that fill this time at the rate, and a queue of 0.3 s, but at most
    /// `queue` cells.
    fn wanted(&self, way: Duration, queue: u64) -> u64 {
        cells_in(self.rate, way) + cells_in(self.rate, QUEUE).min(queue)
    }

    /// Whether there have been cells in flight on this link without an echo for so long that it
    /// must be dead. If all links fell silent at once, the target has stopped; but not if the
    /// others have nothing in flight: with a slow target, one link can hold all allowed cells.
    pub(crate) fn is_dead(&self, now: MonoTime, path: &Path) -> bool {
        let holds_all = path.links > 1 && self.on_way() == path.all.on_way();
        self.silent_since.zip(path.all.silent_since).is_some_and(|(link, all)| {
            now.since(link) >= DEAD && (holds_all || all.since(link) >= OUTLIVED)
        })
    }

    /// Whether the largest window limits the link.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.cells == self.most && self.was_full
    }
}

/// A number of cells as a float.
#[expect(clippy::cast_precision_loss, reason = "cells of one measurement are below 2^53")]
fn as_float(cells: u64) -> f64 {
    cells as f64
}

/// The number of cells that arrive in a time at this rate.
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
