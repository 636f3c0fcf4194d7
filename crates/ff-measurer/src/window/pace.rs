//! The length of a worker's naps, and the links that are served after each.

use std::time::Duration;

use super::{MAX_QUEUE_CELLS, MIN_NAP, Path, as_float, cells_in};

/// The longest nap.
pub(super) const MAX_NAP: Duration = Duration::from_millis(125);
/// The largest number of naps between two turns of a link.
pub(super) const MAX_TURNS: u8 = 4;

/// Links gather echoes if their turns are at least this far apart: half of the time by which Linux
/// may delay an acknowledgement.
const GATHER: Duration = Duration::from_millis(20);

/// How a worker without work continues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// How long it lets bytes gather before it polls again.
    pub(crate) nap: Duration,
    /// The number of naps in which each link is served once.
    pub(crate) turns: u8,
}

impl Pace {
    /// The pace on this path: each link is served again when five sixths of the queue before the
    /// target's limit have passed it, or half of that if two workers nap; links take turns in at
    /// least two naps.
    pub(crate) fn new(path: &Path) -> Self {
        if path.all.is_starting {
            let is_known = path.all.echoed > 0;
            let nap = if is_known { path.shortest / 8 } else { MIN_NAP };
            return Self { nap: nap.clamp(MIN_NAP, MAX_NAP), turns: 1 };
        }
        // If all cells were back before the nap's end, the last rate is higher than the mean, and
        // the next nap is shorter.
        let rate = path.all.rate.max(path.all.last_rate);
        let passes = |cells| {
            let secs = as_float(cells) / rate;
            Duration::try_from_secs_f64(secs).unwrap_or_default()
        };
        // The queue that follows from the window of all links, but at most the one that round trips
        // show: naps delay echoes too, which would look like a queue.
        let moving = cells_in(rate, path.shortest);
        let wait = passes(path.all.on_way().saturating_sub(moving)).min(path.growth.wait());
        let floor = (path.shortest / 4).min(passes(MAX_QUEUE_CELLS) / 2);
        let period = (wait * 5 / 6 / path.naps).max(floor);
        if period < 2 * MIN_NAP {
            return Self { nap: MIN_NAP, turns: 1 };
        }
        let turns = (1..MAX_TURNS).find(|turns| period < MAX_NAP * u32::from(*turns) * 5 / 4);
        let turns = turns.unwrap_or(MAX_TURNS).max(2);
        Self { nap: (period / u32::from(turns)).min(MAX_NAP), turns }
    }

    /// Whether links gather echoes in the kernel between their turns at this pace. `is_gathering`:
    /// whether they do now; they stop only below half of [`GATHER`], because each change costs a
    /// call to the kernel per link.
    pub(crate) fn gathers(&self, is_gathering: bool) -> bool {
        let least = if is_gathering { GATHER / 2 } else { GATHER };
        self.nap * u32::from(self.turns) >= least
    }

    /// The number of links, of `links`, that are served after the nap.
    pub(crate) fn share_of(&self, links: usize) -> usize {
        links.div_ceil(self.turns.into())
    }
}
