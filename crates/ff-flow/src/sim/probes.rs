//! Downloads over two hops that measure relays inside the simulation, and the interface of their
//! observer.

use crate::path::Paths;

/// Seconds of a measuring download: sbws aims for 5 to 10.
pub(super) const PROBE_SECS: f64 = 5.0;

/// The relays of a download that measures a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The relays of the path, in order.
    pub relays: [u32; 2],
    /// The relay that is measured.
    pub measured: u32,
}

/// Seconds after which a download without a first byte is given up: sbws waits this long for an
/// answer (`http_timeout`).
const FIRST_BYTE_SECS: f64 = 10.0;

/// An observer of a running simulation, which measures relays in it and changes how clients choose
/// them.
pub trait Watch {
    /// Called at the end of the second `second`, with the bytes that each relay carried in it.
    /// Circuits opened from now on use the returned paths.
    fn second(&mut self, second: u32, carried: &[f64]) -> Option<Paths>;

    /// The next pair of relays to measure, if any.
    fn next_probe(&mut self) -> Option<Pair>;

    /// Called with the speed of a download through a pair, in bytes of a stream per second; not
    /// called for a download that was given up because its first byte did not arrive.
    fn probed(&mut self, pair: Pair, bytes_per_sec: f64);
}

/// No observer.
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

/// A running download over two hops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) pair: Pair,
    /// When its first byte can arrive, or when it is given up, in seconds.
    pub(super) ready: f64,
    /// Whether it is given up at that time.
    pub(super) fails: bool,
    /// Bytes of cells that have arrived.
    pub(super) bytes: f64,
}

impl Probe {
    /// A probe that starts at `now`; its first byte can arrive `secs` seconds later.
    pub(super) fn new(pair: Pair, now: f64, secs: f64) -> Self {
        let ready = now + secs.min(FIRST_BYTE_SECS);
        Self { pair, ready, fails: secs > FIRST_BYTE_SECS, bytes: 0.0 }
    }
}

/// The running probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// By place, including free places.
    all: Vec<Probe>,
    /// Places that are free.
    free: Vec<usize>,
    /// The number of further probes that may start.
    pub(super) left: u32,
}

impl Probes {
    /// At most `most` probes at a time.
    pub(super) fn new(most: u32) -> Self {
        Self { left: most, ..Self::default() }
    }

    /// Begins a probe; returns its place.
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

    /// Adds bytes of cells that arrive at this time; returns the probe if it has ended.
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
