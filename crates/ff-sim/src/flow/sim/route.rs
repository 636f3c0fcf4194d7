//! How long circuits take to be built, and how long clients wait for that.

use rand::Rng;

use super::{Constants, loads::Loads};
use crate::flow::{path::Paths, tmodel::normal};

/// After so many circuits that took too long a client takes what it gets.
const MOST_BUILDS: u32 = 20;

/// A circuit's path, and its round trip over it without queues, in seconds.
pub(super) type Route = ([u32; 3], f64);

/// A path, and a circuit's round trip over it without queues: of a circuit that was built in time.
pub(super) fn route(
    paths: &Paths,
    guards: &[u32],
    loads: &Loads,
    constants: &Constants,
    patience: &mut Patience,
    rng: &mut impl Rng,
) -> Option<Route> {
    let mut found = None;
    for _ in 0..MOST_BUILDS {
        let path = paths.draw(rng, guards)?;
        let hops = hops_secs(constants, rng);
        let mut build = 0.0;
        for (hop, times) in (0..3).zip([3.0, 2.0, 1.0]) {
            build += times * (hops[hop] + loads.queue(path[hop]));
        }
        found = Some((path, hops.iter().sum()));
        if patience.is_in_time(build) {
            break;
        }
    }
    found
}

/// How long clients wait for a circuit to be built: as long as 80 % of circuits take, as tor does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Seconds; 0 before the first circuit.
    secs: f64,
    /// How many circuits there were, up to [`Self::MOST`].
    seen: u32,
}

impl Patience {
    /// The part of circuits that is built in time (path-spec 2.4.1).
    const PART: f64 = 0.8;

    /// After so many circuits an old one counts no less than a new one.
    const MOST: u32 = 10_000;

    /// Whether a circuit that takes so long is built in time; it moves the quantile by a small step.
    fn is_in_time(&mut self, build_secs: f64) -> bool {
        if self.seen == 0 {
            self.secs = build_secs;
        }
        self.seen = (self.seen + 1).min(Self::MOST);
        let is_in_time = build_secs <= self.secs;
        // Robbins and Monro: the quantile stands still where both steps weigh the same.
        let step = 5.0 * self.secs / f64::from(self.seen + 50);
        self.secs += step * if is_in_time { Self::PART - 1.0 } else { Self::PART };
        is_in_time
    }
}

/// The round trips of the four hops from a client to a server.
pub(super) fn hops_secs(constants: &Constants, rng: &mut impl Rng) -> [f64; 4] {
    // The 5th percentile of a normal number lies 1.645 deviations below its mean.
    let sigma = (constants.hop_median_secs / constants.hop_p5_secs).ln().max(0.0) / 1.644_854;
    let median = constants.hop_scale * constants.hop_median_secs;
    [(); 4].map(|()| median * (sigma * normal(rng)).exp())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    #[test]
    fn clients_wait_as_long_as_most_circuits_take() {
        let (mut patience, mut rng) = (Patience::default(), ChaCha12Rng::seed_from_u64(5));
        let mut draw = || rng.random::<f64>();
        for _ in 0..20_000 {
            patience.is_in_time(draw());
        }
        assert!((patience.secs - 0.8).abs() < 0.03, "seed 5: {}", patience.secs);
    }
}
