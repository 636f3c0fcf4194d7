//! How many cells of one link may be on the way at once.
//!
//! A target that is limited in rate would otherwise fill every buffer between the two machines:
//! seconds of traffic that tell nothing, cost memory and come after the end. The window grows as
//! long as it may be what limits the link, and not further: it doubles when a full window came
//! back without having waited long in queues.

use std::time::Duration;

use ff_proto::units::MonoTime;

/// Cells a fresh link may have on the way: 8 KB.
const INITIAL_CELLS: u64 = 16;
/// The most cells a link may have on the way: 64 MiB, 5 Gbit/s over 100 ms.
const MAX_CELLS: u64 = 131_072;
/// Queueing that is taken for the target's rhythm and not for its limit. tor refills its token
/// buckets every 100 ms.
const TOLERATED_QUEUE: Duration = Duration::from_millis(120);

/// The window of one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Cells that may be on the way.
    cells: u64,
    /// The cell whose round trip is being timed, and when it was sent.
    probe: Option<(u64, MonoTime)>,
    /// The shortest round trip seen.
    shortest: Option<Duration>,
    /// Whether the window has been full since the probe was sent.
    was_full: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self { cells: INITIAL_CELLS, probe: None, shortest: None, was_full: false }
    }
}

impl Window {
    /// Cells that may be sent while `in_flight` are on the way.
    #[inline]
    pub(crate) fn room(&mut self, in_flight: u64) -> u64 {
        let room = self.cells.saturating_sub(in_flight);
        self.was_full |= room == 0;
        room
    }

    /// Notes that cells up to `sent` were sent now.
    #[inline]
    pub(crate) fn on_sent(&mut self, sent: u64, now: MonoTime) {
        if self.probe.is_none() {
            self.probe = Some((sent, now));
            self.was_full = false;
        }
    }

    /// Notes that cells up to `echoed` have come back.
    #[inline]
    pub(crate) fn on_echoed(&mut self, echoed: u64, now: MonoTime) {
        if let Some((cell, sent_at)) = self.probe
            && echoed >= cell
        {
            self.probe = None;
            self.on_round_trip(now.since(sent_at));
        }
    }

    /// Judges a round trip.
    fn on_round_trip(&mut self, round_trip: Duration) {
        let shortest = self.shortest.map_or(round_trip, |shortest| shortest.min(round_trip));
        self.shortest = Some(shortest);
        if self.was_full && round_trip < shortest * 2 + TOLERATED_QUEUE {
            self.cells = (self.cells * 2).min(MAX_CELLS);
        }
    }

    /// Whether the link is held back by the greatest window.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.cells == MAX_CELLS && self.was_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends full windows over a target of this rate and base delay; returns the final window.
    fn settle(cells_per_sec: u64, delay: Duration) -> u64 {
        let mut window = Window::default();
        let mut now = MonoTime::from_micros(0);
        let mut sent = 0;
        for _ in 0..40 {
            let cells = window.room(0);
            sent += cells;
            window.on_sent(sent, now);
            assert_eq!(window.room(cells), 0);
            now = now + delay + Duration::from_micros(cells * 1_000_000 / cells_per_sec);
            window.on_echoed(sent, now);
        }
        window.cells
    }

    #[test]
    fn a_fast_link_gets_what_it_needs_and_a_slow_one_no_long_queue() {
        // 1 Gbit/s over 300 ms: 243,000 cells/s, 73,000 on the way.
        assert!(settle(243_000, Duration::from_millis(300)) >= 73_000);
        // One of 160 links of a 10 Mbit/s relay: 15 cells/s. Nothing to gain by more.
        assert_eq!(settle(15, Duration::from_millis(1)), INITIAL_CELLS);
        // 250 Mbit/s over one local link: 60,800 cells/s; an eighth of a second, twice at most.
        let cells = settle(60_800, Duration::from_micros(100));
        assert!((7_300..=16_000).contains(&cells), "{cells} cells");
    }
}
