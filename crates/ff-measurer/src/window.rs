//! How many cells of one link may be on the way at once.
//!
//! A target slower than the measurers would otherwise fill every buffer between the two machines:
//! seconds of traffic that tell nothing, cost memory and cold caches, and come after the end. So
//! the window doubles as long as there is hardly a queue, or as that makes the link faster or lets
//! the measurer nap, and not further. From time to time it tries again: what another link took may
//! have become free.

use std::time::Duration;

use ff_proto::units::MonoTime;

/// Cells a fresh link may have on the way: 8 KB.
const INITIAL_CELLS: u64 = 16;
/// The most cells a link may have on the way: 64 MiB, 5 Gbit/s over 100 ms.
const MAX_CELLS: u64 = 131_072;
/// Queueing that is taken for the target's rhythm and not for its limit. tor refills its token
/// buckets every 100 ms.
const TOLERATED_QUEUE: Duration = Duration::from_millis(120);
/// With round trips longer than this a window does not grow: a target that holds echoes back, to
/// release them when they count, shall not have many of them to hold.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Queueing that is not worth avoiding: at 10 Gbit/s it is 6 MB, which caches hold.
const FREE_QUEUE: Duration = Duration::from_millis(5);
/// Queueing up to which a window grows until it covers the measurer's naps.
const COVERING_QUEUE: Duration = Duration::from_millis(400);
/// A doubled window that makes the link faster by less than a tenth makes it no faster.
const GAIN_PERCENT: u128 = 110;
/// Full windows between two attempts at a greater one.
const ROUND_TRIPS_BETWEEN_ATTEMPTS: u8 = 8;

/// A round trip that is being timed.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The cells up to here make it.
    cell: u64,
    /// When the last of them was sent.
    sent_at: MonoTime,
    /// Cells that had come back then.
    echoed: u64,
}

/// What the window is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubling; the last size gave so many cells a second.
    Growing {
        /// Cells a second.
        rate: u128,
    },
    /// As great as it is useful, for so many more full round trips.
    Holding {
        /// Round trips.
        left: u8,
    },
    /// Doubled once more, to see; the size before gave so many cells a second.
    Trying {
        /// Cells a second.
        rate: u128,
    },
}

/// The window of one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Cells that may be on the way.
    cells: u64,
    /// Cells on the way that let the measurer nap.
    covering: u64,
    /// The round trip that is being timed.
    probe: Option<Probe>,
    /// Cells that have come back.
    echoed: u64,
    /// The shortest round trip seen.
    shortest: Option<Duration>,
    /// Whether the window has been full since the probe began.
    was_full: bool,
    /// What it is doing.
    phase: Phase,
}

impl Window {
    /// A window that grows to so many cells more easily than beyond.
    pub(crate) fn covering(cells: u64) -> Self {
        Self {
            cells: INITIAL_CELLS,
            covering: cells,
            probe: None,
            echoed: 0,
            shortest: None,
            was_full: false,
            phase: Phase::Growing { rate: 0 },
        }
    }

    /// Cells that may be sent while `in_flight` are on the way.
    #[inline]
    pub(crate) fn room(&self, in_flight: u64) -> u64 {
        self.cells.saturating_sub(in_flight)
    }

    /// Cells worth waiting for before the next write: half of the window, so that a link does not
    /// trickle.
    #[inline]
    pub(crate) fn worthwhile(&self) -> u64 {
        self.cells / 2
    }

    /// Notes that cells up to `sent` were sent now, which leaves `in_flight` on the way.
    #[inline]
    pub(crate) fn on_sent(&mut self, sent: u64, in_flight: u64, now: MonoTime) {
        match &mut self.probe {
            // Until something comes back it is one flight, however many calls sent it: who naps
            // sends and receives all at once, and a part of it would look as fast in any window.
            Some(probe) if probe.echoed == self.echoed => probe.cell = sent,
            Some(_) => {}
            None => {
                self.probe = Some(Probe { cell: sent, sent_at: now, echoed: self.echoed });
                self.was_full = false;
            }
        }
        self.was_full |= self.room(in_flight) < self.worthwhile();
    }

    /// Notes that cells up to `echoed` have come back.
    #[inline]
    pub(crate) fn on_echoed(&mut self, echoed: u64, now: MonoTime) {
        self.echoed = echoed;
        if let Some(probe) = self.probe
            && echoed >= probe.cell
        {
            self.probe = None;
            self.on_round_trip(now.since(probe.sent_at), echoed - probe.echoed);
        }
    }

    /// Judges a round trip in which so many cells came back.
    fn on_round_trip(&mut self, round_trip: Duration, cells: u64) {
        let shortest = self.shortest.map_or(round_trip, |shortest| shortest.min(round_trip));
        self.shortest = Some(shortest);
        if !self.was_full {
            return;
        }
        let longest = (shortest * 2 + TOLERATED_QUEUE).min(MAX_ROUND_TRIP);
        let has_room = round_trip < longest && self.cells < MAX_CELLS;
        let is_free = has_room && round_trip < shortest + FREE_QUEUE
            || self.cells < self.covering
                && round_trip < (shortest + COVERING_QUEUE).min(MAX_ROUND_TRIP);
        let rate = u128::from(cells) * 1_000_000 / round_trip.as_micros().max(1);
        let gained = |before: u128| rate * 100 >= before * GAIN_PERCENT;
        let hold = Phase::Holding { left: ROUND_TRIPS_BETWEEN_ATTEMPTS };
        (self.cells, self.phase) = match self.phase {
            _ if is_free => (self.cells * 2, Phase::Growing { rate }),
            Phase::Growing { rate: before } | Phase::Trying { rate: before }
                if has_room && gained(before) =>
            {
                (self.cells * 2, Phase::Growing { rate })
            }
            Phase::Growing { .. } => (self.cells, hold),
            Phase::Trying { rate: before } if gained(before) => (self.cells, hold),
            Phase::Trying { .. } => (self.cells / 2, hold),
            Phase::Holding { left: 0 } if has_room => (self.cells * 2, Phase::Trying { rate }),
            Phase::Holding { left } => {
                (self.cells, Phase::Holding { left: left.saturating_sub(1) })
            }
        };
    }

    /// Whether the link is held back by the greatest window.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.cells == MAX_CELLS && self.was_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends full windows over a target of this rate and base delay; returns the last windows'
    /// least and greatest size.
    fn settle(cells_per_sec: u64, delay: Duration) -> (u64, u64) {
        let mut window = Window::covering(0);
        let mut now = MonoTime::from_micros(0);
        let mut sent = 0;
        let mut sizes = Vec::new();
        for _ in 0..100 {
            let cells = window.room(0);
            sent += cells;
            window.on_sent(sent, cells, now);
            assert_eq!(window.room(cells), 0);
            // One window in the delay, or one at the rate, whichever takes longer.
            let at_rate = Duration::from_micros(cells * 1_000_000 / cells_per_sec);
            now = now + delay.max(at_rate);
            window.on_echoed(sent, now);
            sizes.push(window.cells);
        }
        let last = &sizes[50..];
        (*last.iter().min().unwrap(), *last.iter().max().unwrap())
    }

    #[test]
    fn a_link_gets_what_it_needs_and_no_long_queue() {
        // 1 Gbit/s over 300 ms: 243,000 cells/s, 73,000 on the way.
        let (least, greatest) = settle(243_000, Duration::from_millis(300));
        assert!(least >= 73_000 && greatest <= MAX_CELLS, "{least}..{greatest}");
        // One of 160 links of a 10 Mbit/s relay: 15 cells/s. Nothing to gain by more.
        let (_, greatest) = settle(15, Duration::from_millis(1));
        assert!(greatest <= 4 * INITIAL_CELLS, "{greatest}");
        // 250 Mbit/s over one local link of 1 ms: 61 cells on the way are enough.
        let (least, greatest) = settle(60_800, Duration::from_millis(1));
        assert!((61..=1024).contains(&least) && greatest <= 1024, "{least}..{greatest}");
        // A target that gives its tokens out every 100 ms: 6,080 at once.
        let (least, _) = settle(60_800, Duration::from_millis(100));
        assert!(least >= 6_080, "{least}");
    }

    #[test]
    fn a_window_grows_to_cover_naps_unless_that_takes_too_long() {
        // Over one link: 100 and 2 Mbit/s, with 1,024 cells to cover; nothing is gained.
        let cells = |rate: u64| {
            let mut window = Window::covering(1_024);
            let mut now = MonoTime::from_micros(0);
            let mut sent = 0;
            for _ in 0..20 {
                let cells = window.room(0);
                sent += cells;
                window.on_sent(sent, cells, now);
                now = now + Duration::from_micros(cells * 1_000_000 / rate);
                window.on_echoed(sent, now);
            }
            window.cells
        };
        assert!((1_024..=2_048).contains(&cells(24_300)), "{}", cells(24_300));
        let slow = cells(500);
        assert!((200..=400).contains(&slow), "{slow}: 0.4 to 0.8 s of echoes");
    }

    #[test]
    fn naps_do_not_keep_a_window_small() {
        // A fast target whose echoes are read in ever longer intervals, a record at a time, and
        // answered by several calls.
        let (mut nap, call, record) = (Duration::from_millis(1), 84, 8);
        let mut window = Window::covering(0);
        let mut now = MonoTime::from_micros(0);
        let (mut sent, mut echoed) = (0, 0);
        for _ in 0..50 {
            while echoed < sent {
                echoed = (echoed + record).min(sent);
                window.on_echoed(echoed, now);
            }
            while window.room(sent - echoed) > 0 {
                sent += window.room(sent - echoed).min(call);
                window.on_sent(sent, sent - echoed, now);
            }
            now = now + nap;
            nap = (nap * 2).min(Duration::from_millis(100));
        }
        assert!(window.cells > 10_000, "{}", window.cells);
    }
}
