//! How many cells may be on the way at once, and how long a worker may nap.
//!
//! One law, for each link and for all links of a worker together. R is the shortest round trip;
//! what is on the way beyond one round trip's worth waits in front of the target's limit:
//!
//! ```text
//!      start-up                                     cruise
//!   one cell more for each     the rate has not   rate · (R + 0.3 s)      nothing waits
//!   that comes back,        ── grown by a quarter ─▶                   ── in three round trips ─┐
//!   ≤ rate · (2R + 0.3 s)      in three round     rate · (2R + 0.3 s) ◀────────────────────────┘
//!                              trips
//! ```
//!
//! *Start-up* is BBR's: the window doubles in a round trip until what comes back grows no more. A
//! path of round trip R and rate C is full after log2(C · R / first window) + 3 round trips.
//! *Cruise* keeps 0.3 s in front of the target's limit, so that it never runs out of cells while
//! the measurer naps; more of it would tell nothing, cost memory and cold caches, come after the
//! end, and give a target something to hold back until it counts. So the rate is averaged over a
//! second then. A target that becomes slower is left less. One that becomes faster leaves nothing
//! waiting, and the window grows again.
//!
//! A call to the kernel costs as much as many cells. So naps are long, links take turns in being
//! served after them, and each may have 84 cells on the way; where the law for all leaves less than
//! that to each, as over 20 links to a slow relay, they take turns in that too. Naps make a round
//! trip longer, and so lower the rate of a window. A nap is therefore at most five sixths of the
//! observed queueing delay, or a quarter of the round trip if that is more.
//!
//! Limits: a path whose round trip is longer than 0.5 s is left too small a window. What is on the
//! way of a link leaves the others less, so one that is dead without a word must be given up
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

/// What the target may have waiting. It bridges two refills of tor's token buckets, which come
/// every 100 ms, and the time between a link's turns.
const QUEUE: Duration = Duration::from_millis(300);
/// The longest round trip that counts, because a target may delay all echoes from the start.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(500);
/// Over so long the rate is averaged: echoes that were held back and come all at once do not make
/// it much higher.
const AVERAGE: Duration = Duration::from_secs(1);
/// A link on which nothing has come back for so long is dead, if something has on others, or if
/// these have nothing on the way.
const DEAD: Duration = Duration::from_secs(5);
/// At least so long after it fell silent.
const OUTLIVED: Duration = Duration::from_secs(1);
/// The shortest nap.
pub(crate) const MIN_NAP: Duration = Duration::from_micros(500);
/// The least window of all links of a worker together: eight records.
const MIN_CELLS: u64 = 48;
/// The least window of a link, which is never used beyond that of all: what one call writes.
const MIN_LINK_CELLS: u64 = 84;
/// The same where a round trip is [`FAR`] or longer: what TCP sends at once after a pause, ten
/// segments. With more of it a link that has had nothing on the way would need a second round trip.
const FEW_CELLS: u64 = 24;
/// From here on waiting for a round trip costs more than a call to the kernel.
const FAR: Duration = Duration::from_millis(10);
/// The most cells a link may have on the way: 64 MiB, 5 Gbit/s over 100 ms.
const MAX_CELLS: u64 = 131_072;
/// The first window of all links of a measurer together at least: a quarter of a second at 10
/// Mbit/s.
const FIRST_CELLS: u64 = 640;
/// Otherwise it is this part of what the worker may send in a second.
const FIRST_PART: u64 = 32;
/// The most that all links of a worker may have waiting together: 8 MB, which caches hold.
const MAX_QUEUE_CELLS: u64 = 16_384;

/// What the links of one worker share: its path to the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    links: u64,
    /// The shortest round trip of a cell of any of them, as far as it counts.
    shortest: Duration,
    /// The window of all of them together.
    all: Window,
    /// How what comes back over all of them has grown.
    growth: Growth,
    /// The latest end of draining the start-up's surplus queue; `None` once that is done.
    draining_until: Option<MonoTime>,
    /// Workers that nap between a cell's sending and the news of its arrival: this one, and in
    /// transit that at the other end.
    naps: u32,
}

impl Path {
    /// The path of one worker: its number of links, of the measurer's `of_links`, and the rate at
    /// which it may send.
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

    /// Cells are counted by another worker, which naps, too.
    pub(crate) fn set_in_transit(&mut self) {
        self.naps = 2;
    }

    /// Looks at what has come back over all links together; to be called when a turn has read its
    /// links, because a part of them says little.
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

    /// Whether the target's rate is still being looked for, or the start-up's surplus queue is
    /// being drained.
    pub(crate) fn is_starting(&self) -> bool {
        self.all.is_starting || self.draining_until.is_some()
    }

    /// The least window of a link in use: its share of the window of all. Without it, a target that
    /// serves some links first could spend its whole rate on them, and starve the others.
    fn share(&self) -> u64 {
        let least = if self.shortest < FAR { MIN_LINK_CELLS } else { FEW_CELLS };
        least.max(self.all.cells / self.links)
    }

    /// Forgets the cells of a link that is gone.
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
    /// Cells that had come back then.
    echoed: u64,
}

/// The window of one link, or of all links of a worker together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Cells that may be on the way.
    cells: u64,
    /// The fewest that these may come to.
    least: u64,
    /// The most that these may come to.
    most: u64,
    /// Cells sent.
    sent: u64,
    /// Cells that have come back.
    echoed: u64,
    /// Cells a second that come back.
    rate: f64,
    /// The same when it was last looked at.
    last_rate: f64,
    /// Cells that had come back when the rate was last looked at, and when that was.
    counted: Option<(u64, MonoTime)>,
    /// Since when cells have been on the way and none has come back.
    silent_since: Option<MonoTime>,
    /// The cells that are being timed.
    flight: Option<Flight>,
    /// Whether it still grows by what comes back, and the rate is that of the last round trip.
    is_starting: bool,
    /// Whether the window has been full since the flight began.
    was_full: bool,
}

impl Window {
    /// The window of a link on this path.
    pub(crate) fn new(path: &Path) -> Self {
        Self::of(path.all.cells.div_ceil(path.links), FEW_CELLS..=MAX_CELLS)
    }

    /// A window that begins with `cells` cells and stays in this range.
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

    /// Cells on the way.
    fn on_way(&self) -> u64 {
        self.sent - self.echoed
    }

    /// Cells that this window leaves room for.
    fn free(&self) -> u64 {
        self.cells.saturating_sub(self.on_way())
    }

    /// Cells that may be sent over this link.
    #[inline]
    pub(crate) fn room(&self, path: &Path) -> u64 {
        let most = self.cells.max(path.share());
        most.saturating_sub(self.on_way()).min(path.all.free())
    }

    /// Cells worth waiting for before the next write over this link: a quarter of what may be on
    /// the way, and half of the least window, so that it does not trickle.
    #[inline]
    pub(crate) fn worthwhile(&self, path: &Path) -> u64 {
        self.cells.min(path.all.cells).max(2 * MIN_CELLS) / 4
    }

    /// Notes that `cells` cells were sent now.
    #[inline]
    pub(crate) fn on_sent(&mut self, cells: u64, now: MonoTime, path: &mut Path) {
        self.note_sent(cells, now);
        path.all.note_sent(cells, now);
    }

    /// Notes for this window that `cells` cells were sent now.
    fn note_sent(&mut self, cells: u64, now: MonoTime) {
        let first = self.sent;
        self.sent += cells;
        match &mut self.flight {
            // Until something comes back it is one flight, however many calls sent it: a measurer
            // that naps sends and receives all at once, and a part of it would look as fast in any
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
    /// that is back.
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
        // The window of all bounds the queue, so a link's may be twice what it needs.
        self.adapt_to_echoed(now, &mut path.shortest, 2, MAX_QUEUE_CELLS / path.links)
    }

    /// Takes what has come back into account; at most `queue` cells may wait. Returns the round
    /// trip of a flight that is back.
    fn adapt_to_echoed(
        &mut self,
        now: MonoTime,
        shortest: &mut Duration,
        gain: u32,
        queue: u64,
    ) -> Option<Duration> {
        let mut round_trip = None;
        // More have come back than were on the way when the flight began, so one of it has, also if
        // they came over several links.
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
        // A flight that takes long must not keep a window that has become too great.
        if let Some((echoed, since)) = self.counted
            && self.echoed > echoed
            && now.since(since) >= if round_trip.is_some() { MIN_NAP } else { AVERAGE }
        {
            self.counted = Some((self.echoed, now));
            self.adapt(self.echoed - echoed, now.since(since), *shortest * gain, queue);
        }
        round_trip
    }

    /// Updates the rate by this number of cells that came back in this time, which is not zero.
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

    /// Cells that fill this time at the rate, and a queue of 0.3 s, at most `queue` cells.
    fn wanted(&self, way: Duration, queue: u64) -> u64 {
        cells_in(self.rate, way) + cells_in(self.rate, QUEUE).min(queue)
    }

    /// Whether cells have been on the way of this link for so long that it must be dead. Where all
    /// fell silent at once it is the target that stands still, but not where the others have
    /// nothing on the way: next to a slow target one link can hold all that may be.
    pub(crate) fn is_dead(&self, now: MonoTime, path: &Path) -> bool {
        let holds_all = path.links > 1 && self.on_way() == path.all.on_way();
        self.silent_since.zip(path.all.silent_since).is_some_and(|(link, all)| {
            now.since(link) >= DEAD && (holds_all || all.since(link) >= OUTLIVED)
        })
    }

    /// Whether the link is held back by the greatest window.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.cells == self.most && self.was_full
    }
}

/// A number of cells as a float.
#[expect(clippy::cast_precision_loss, reason = "cells of one measurement are below 2^53")]
fn as_float(cells: u64) -> f64 {
    cells as f64
}

/// Cells that come in a time at a rate in cells a second.
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
