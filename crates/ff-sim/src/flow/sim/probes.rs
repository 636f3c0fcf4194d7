//! Downloads over two hops by which others measure relays, inside the simulation; and who asks for
//! them.

use crate::flow::path::Paths;

/// Seconds of a download by a prober: sbws wants 5 to 10 of them.
pub(super) const PROBE_SECS: f64 = 5.0;

/// A download that measures a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The relays that it goes through.
    pub relays: [u32; 2],
    /// The one that it is for.
    pub measured: u32,
}

/// Seconds after which one is given up whose first byte has not come: sbws waits so long for an
/// answer (`http_timeout`).
const FIRST_BYTE_SECS: f64 = 10.0;

/// An observer of a running simulation, which measures relays in it, and changes how clients choose
/// them.
pub trait Watch {
    /// Second `second` is over; each relay carried the given bytes in it. Circuits that are opened
    /// from now on take the paths that this returns.
    fn second(&mut self, second: u32, carried: &[f64]) -> Option<Paths>;

    /// The two relays that are to be downloaded through next, if any.
    fn next_probe(&mut self) -> Option<Pair>;

    /// What a download through these two came to, in bytes a second of a stream. Nothing is said of
    /// one that was given up because its first byte did not come.
    fn probed(&mut self, pair: Pair, bytes_per_sec: f64);
}

/// Nobody looks on.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn second(&mut self, _: u32, _: &[f64]) -> Option<Paths> {
        None
    }

    fn next_probe(&mut self) -> Option<Pair> {
        None
    }

    fn probed(&mut self, _: Pair, _: f64) {}
}

/// A download over two hops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// The relays.
    pub(super) pair: Pair,
    /// When its first byte can come, or when it is given up, in seconds.
    pub(super) ready: f64,
    /// Whether it is given up then.
    pub(super) fails: bool,
    /// Bytes of cells that have come.
    pub(super) bytes: f64,
}

impl Probe {
    /// A probe that starts now, and whose first byte can come after `secs` seconds.
    pub(super) fn new(pair: Pair, now: f64, secs: f64) -> Self {
        let ready = now + secs.min(FIRST_BYTE_SECS);
        Self { pair, ready, fails: secs > FIRST_BYTE_SECS, bytes: 0.0 }
    }
}

/// Those that are under way.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// By their places.
    all: Vec<Probe>,
    /// Places that are free.
    free: Vec<usize>,
    /// How many more may be under way.
    pub(super) left: u32,
}

impl Probes {
    /// At most `most` at a time.
    pub(super) fn new(most: u32) -> Self {
        Self { left: most, ..Self::default() }
    }

    /// Begins one; its place.
    pub(super) fn begin(&mut self, probe: Probe) -> usize {
        self.left = self.left.saturating_sub(1);
        let place = self.free.pop().unwrap_or(self.all.len());
        match self.all.get_mut(place) {
            Some(one) => *one = probe,
            None => self.all.push(probe),
        }
        place
    }

    pub(super) fn get(&self, place: usize) -> &Probe {
        &self.all[place]
    }

    /// Adds bytes of cells by this time; the probe, if that was its end.
    pub(super) fn serve(&mut self, place: usize, bytes: f64, now: f64) -> Option<Probe> {
        let probe = self.all.get_mut(place)?;
        probe.bytes += bytes;
        let is_over = now - probe.ready >= PROBE_SECS;
        let found = is_over.then_some(*probe);
        if is_over {
            self.end(place);
        }
        found
    }

    pub(super) fn end(&mut self, place: usize) {
        self.free.push(place);
        self.left += 1;
    }
}
