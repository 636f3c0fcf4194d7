//! How long a worker with nothing to do lets bytes gather before it asks the kernel again.
//!
//! A slow target's echoes otherwise cost a wake-up and a read for every few cells. A nap becomes
//! half as long again while few cells have come in it, and half as long when many have, or when the
//! target may have run out of cells to echo.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The shortest nap.
pub(crate) const NAP: Duration = Duration::from_micros(500);
/// So long may a nap become however little is on the way: what makes the windows grow.
const MAX_UNCOVERED: Duration = Duration::from_millis(32);
/// The longest nap: each second has two at least.
const MAX: Duration = Duration::from_millis(500);
/// So many cells of each socket are worth waking up for: 64 KB.
const CELLS_PER_SOCKET: u64 = 128;
/// And so many of all, at least and at most: 256 KB to 8 MB.
const CELLS: RangeInclusive<u64> = 512..=16384;
/// But so many at most, 2 MB, of a target that echoes them before a nap becomes long: more would
/// only fall out of the caches.
const CELLS_OF_FAST_TARGET: u64 = 4096;

/// Cells of so many sockets that are worth waking up for.
fn enough_cells(sockets: u16) -> u64 {
    (CELLS_PER_SOCKET * u64::from(sockets)).clamp(*CELLS.start(), *CELLS.end())
}

/// Cells that each of so many sockets needs on the way, so that as many as are worth waking up for
/// may come in a nap, and as many again keep the target busy.
pub(crate) fn covering_cells(sockets: u16) -> u64 {
    2 * enough_cells(sockets) / u64::from(sockets.max(1))
}

/// The naps of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naps {
    /// How long they may become.
    max: Duration,
    /// How long the last one was.
    length: Duration,
    /// Cells that had been echoed in the second when it began.
    echoed: u64,
    /// Cells that were on the way when it began.
    on_way: u64,
}

impl Naps {
    /// Naps that become at most so long, and no longer than half a second.
    pub(crate) fn up_to(max: Duration) -> Self {
        Self { max: max.min(MAX), length: NAP, echoed: 0, on_way: 0 }
    }

    /// How long the next nap of a worker with so many sockets is to be, when so many cells have
    /// been echoed in this second and are on the way.
    pub(crate) fn next(&mut self, sockets: u16, echoed: u64, on_way: u64) -> Duration {
        // The count starts anew with each second, and then says nothing.
        if let Some(gathered) = echoed.checked_sub(self.echoed) {
            self.length = self.after(gathered, sockets);
        }
        (self.echoed, self.on_way) = (echoed, on_way);
        self.length
    }

    /// The length after a nap in which so many cells came.
    fn after(&self, gathered: u64, sockets: u16) -> Duration {
        let is_long = self.length > MAX_UNCOVERED;
        let most = if is_long { *CELLS.end() } else { CELLS_OF_FAST_TARGET };
        let enough = enough_cells(sockets).min(most);
        let (shorter, longer) = (self.length / 2, self.length * 3 / 2);
        // What has not come yet keeps the target busy: a quarter at least, and after a nap that
        // has just become longer two fifths.
        let runs_dry = is_long && 4 * gathered > 3 * self.on_way;
        let is_covered = longer <= MAX_UNCOVERED || 5 * gathered < 2 * self.on_way;
        if gathered > 2 * enough || runs_dry {
            shorter.max(NAP)
        } else if gathered < enough && is_covered {
            longer.min(self.max)
        } else {
            self.length
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_proto::units::MonoTime;

    use super::*;

    /// The longest of the last naps next to a target of this rate, with so many cells on the way
    /// at most, which are sent again after each nap.
    fn settle(sockets: u16, cells_per_sec: u64, on_way: u64) -> Duration {
        let mut naps = Naps::up_to(MAX);
        let mut echoed = 0;
        let lengths: Vec<_> = (0..100)
            .map(|_| {
                let length = naps.next(sockets, echoed, on_way);
                let at_rate = cells_per_sec * MonoTime::from(length).micros() / 1_000_000;
                echoed += at_rate.min(on_way);
                length
            })
            .collect();
        lengths[80..].iter().copied().max().unwrap()
    }

    #[test]
    fn a_nap_is_long_next_to_a_slow_target_and_short_next_to_a_fast_one() {
        // 10 Mbit/s over 1 and 160 links.
        let length = settle(1, 2_430, 4_096);
        assert!(length >= MAX * 2 / 5, "{length:?}");
        let length = settle(160, 2_430, 2_560);
        assert!(length >= MAX * 9 / 10, "{length:?}");
        // 250 Mbit/s over 160 links: 16,384 cells come at once, or half as many again.
        let length = settle(160, 60_800, 60_000);
        assert!(length >= Duration::from_millis(269), "{length:?}");
        assert!(length <= Duration::from_millis(405), "{length:?}");
        // 1 Gbit/s: 4,096, or half as many again.
        let length = settle(160, 243_000, 100_000);
        assert!(length >= Duration::from_millis(16), "{length:?}");
        assert!(length <= Duration::from_millis(26), "{length:?}");
        // 10 Gbit/s over one link.
        assert_eq!(settle(1, 2_430_000, 1_000_000), NAP);
    }

    #[test]
    fn a_target_does_not_run_out_of_cells() {
        for on_way in [500, 1_000, 2_000, 5_000] {
            let rate = 10_000;
            let all = Duration::from_micros(on_way * 1_000_000 / rate);
            let length = settle(160, rate, on_way);
            assert!(length <= MAX_UNCOVERED.max(all * 3 / 4), "{on_way}: {length:?}");
            assert!(length >= MAX_UNCOVERED.min(all / 4), "{on_way}: {length:?}");
        }
    }

    #[test]
    fn a_nap_is_as_long_as_its_worker_may_wait() {
        let mut naps = Naps::up_to(Duration::from_millis(50));
        let lengths = [0; 20].map(|_| naps.next(1, 0, 1_000));
        assert_eq!(lengths[19], Duration::from_millis(50));
    }

    #[test]
    fn a_new_second_does_not_change_the_length() {
        let mut naps = Naps::up_to(MAX);
        let mut echoed = 0;
        while naps.next(20, echoed, 1_000) < MAX_UNCOVERED {
            echoed += 1;
        }
        let length = naps.length;
        assert_eq!(naps.next(20, 0, 1_000), length);
    }
}
